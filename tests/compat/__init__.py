"""Real Kafka clients against a live broker: every client does every check.

A check (`checks/`) is written once over the verbs of `client.Client`; `clients/` has one adapter for
each client. What a check needs but does not test is set up by `broker_under_test.BrokerUnderTest`. The same suite runs on
Apache Kafka (`HEADWATER_COMPAT_PEER=apache`), which is how each assertion was found to be true.
"""

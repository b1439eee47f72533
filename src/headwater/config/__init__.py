"""Settings: one row per key, and everything else derived from the rows.

`BrokerSettings.load` at the start, `with_dynamic` for stored changes, `TopicSettings.resolve` per
topic; `resolve` shows DescribeConfigs where values come from.
"""

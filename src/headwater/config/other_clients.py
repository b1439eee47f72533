"""Settings of confluent-kafka, kafka-python and aiokafka that have another name here, or no equivalent.

A value that is one of Kafka's keys is the equivalent; any other text says what to do instead.
"""

from typing import Final

_POLL = "it is not needed: poll() takes a timeout, and read_to_end() ends by itself"
_LOGGING = "use Python's logging, logger 'headwater'"
_VERSIONS = "it is not needed: versions are agreed with each broker"

OTHER_CLIENTS: Final = {
    # confluent-kafka (librdkafka)
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.method": "it is not needed: name the token endpoint, or pass oauth_cb",
    "sasl.oauthbearer.extensions": 'write them into sasl_jaas_config: extension_NAME="VALUE"',
    "message.timeout.ms": "delivery.timeout.ms",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "queue.buffering.max.ms": "linger.ms",
    "queue.buffering.max.kbytes": "buffer_memory is the same in bytes",
    "queue.buffering.max.messages": "buffer_memory limits what waits, in bytes",
    "batch.num.messages": "batch_size limits a batch, in bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "socket.timeout.ms": "request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "queued.max.messages.kbytes": "what is fetched ahead follows max_partition_fetch_bytes",
    "auto.commit.enable": "enable.auto.commit",
    "enable.auto.offset.store": "commit by hand instead: enable_auto_commit=False and commit()",
    "enable.partition.eof": "use read_to_end(), or compare position() with end_offsets()",
    "statistics.interval.ms": "call metrics() when you want them",
    "stats.cb": "call metrics() when you want them",
    "error.cb": "errors are raised by the calls they belong to, and logged",
    "log.level": _LOGGING,
    "debug": _LOGGING,
    "logger": _LOGGING,
    "api.version.request": _VERSIONS,
    "broker.version.fallback": _VERSIONS,
    "enable.ssl.certificate.verification": "certificates are always verified",
    "group.protocol": "the classic group protocol is the only one; leave it out",
    # kafka-python and aiokafka
    "consumer.timeout.ms": _POLL,
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "api.version": _VERSIONS,
    "api.version.auto.timeout.ms": _VERSIONS,
    "max.batch.size": "batch.size",
    "loop": "it is not needed: headwater.aio uses the running loop",
    "ssl.context": "name the files instead: ssl_cafile, ssl_certfile, ssl_keyfile",
    "ssl.check.hostname": "ssl_endpoint_identification_algorithm='' accepts any name",
    "ssl.crlfile": "revocation lists are not read; use certificates that expire soon",
    "metrics.enabled": "call metrics() when you want them",
}

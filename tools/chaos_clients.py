"""confluent-kafka's clients for chaos runs."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from confluent_kafka import Consumer, KafkaError, TopicPartition

PATIENCE_S = 60.0
PLAIN_TEXT: Mapping[str, str] = MappingProxyType({})
"""The settings of security of a client that needs none."""
CONFLUENT_QUICK: dict[str, str | int] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 0,  # lost connections are expected
}


@contextmanager
def partition_reader(
    bootstrap: str, security: Mapping[str, str] = PLAIN_TEXT
) -> Iterator[Consumer]:
    """A consumer for `contents`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checkers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
            **security,
            **CONFLUENT_QUICK,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def contents(consumer: Consumer, topic: str, partition: int) -> dict[int, bytes]:
    """Return the records of a partition by offset."""
    there: dict[int, bytes] = {}
    consumer.assign([TopicPartition(topic, partition, 0)])
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for message in consumer.consume(5000, 0.2):
            error = message.error()
            if error is None:
                there[message.offset() or 0] = message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                return there
    raise TimeoutError(f"{topic}-{partition} could not be read to its end")

"""Transactions of confluent-kafka."""

from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

WAIT_S = 180
END_S = 80
"""Shorter than the check waits for an answer: a commit that times out is repeated."""
BATCH = 7


class Transactional:
    """A transactional producer after `init_transactions`."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int):
        self._failures: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(WAIT_S)

    def begin(self) -> None:
        self._failures.clear()
        self._producer.begin_transaction()

    def send(self, topic: str, rows: list[tuple[int, bytes]]) -> None:
        for partition, value in rows:
            self._producer.produce(topic, value, partition=partition, on_delivery=self._told)

    def _told(self, error: KafkaError | None, _: Any) -> None:
        if error:
            self._failures.append(error)

    def flush(self) -> None:
        assert self._producer.flush(WAIT_S) == 0, "records still in the queue"
        if self._failures:
            raise KafkaException(self._failures[0])

    def send_offsets(self, offsets: list[TopicPartition], member: Any) -> None:
        self._producer.send_offsets_to_transaction(offsets, member, WAIT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(END_S)

    def abort(self) -> None:
        self._producer.abort_transaction(END_S)

    def close(self) -> None:
        self._producer.close()


def kind_of(problem: Exception) -> str:
    """What its user must do."""
    error = problem.args[0] if isinstance(problem, KafkaException) else None
    if error is None or error.fatal():
        return "fatal"
    return "retriable" if error.retriable() and not error.txn_requires_abort() else "abortable"


def _consumer(bootstrap: str, isolation: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )


def read(
    bootstrap: str, topic: str, partitions: int, isolation: str
) -> Iterator[tuple[int, bytes]]:
    """Reads all partitions from their start, without end."""
    consumer = _consumer(bootstrap, isolation, "unused")
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"nothing to read in {topic}"
            if message.error():
                raise KafkaException(message.error())
            yield message.partition(), message.value()
    finally:
        consumer.close()


def transform(
    bootstrap: str, source: str, target: str, group: str, transactional_id: str, count: int
) -> None:
    """Copies `count` records with their offsets; aborts every third transaction and does it again."""
    producer = Transactional(bootstrap, transactional_id, 60000)
    consumer = _consumer(bootstrap, "read_committed", group)
    try:
        consumer.subscribe([source])
        done = turn = 0
        while done < count:
            messages = [m for m in consumer.consume(BATCH, 1) if not m.error()]
            if not messages:
                continue
            producer.begin()
            producer.send(target, [(m.partition(), m.value()) for m in messages])
            owned = consumer.assignment()
            producer.send_offsets(consumer.position(owned), consumer.consumer_group_metadata())
            turn += 1
            if turn % 3:
                producer.commit()
                done += len(messages)
                continue
            producer.abort()
            for place in consumer.committed(owned, WAIT_S):
                consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
    finally:
        consumer.close()
        producer.close()

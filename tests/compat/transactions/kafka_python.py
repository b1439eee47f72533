"""Transactions of kafka-python."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import (
    InvalidProducerEpochError,
    KafkaTimeoutError,
    ProducerFencedError,
)

WAIT_S = 180
REQUEST_MS = 10000
QUIET_S = 15
"""Longer than a connection or a request takes: if none is queued all the while, none will be sent."""
BATCH = 7
PATIENCE_MS = 3000


class RequestLost(Exception):
    """kafka-python lost a request to the coordinator: the call that waits for it never ends.

    Version 3.0.12 does so when it must connect first and is refused, because the coordinator died:
    `Sender._maybe_send_pending_request` then looks for the next coordinator, but has taken the request
    from the queue and puts it back only where no node was chosen yet. Without AddPartitionsToTxn the
    records wait until `delivery_timeout_ms`; without EndTxn `commit_transaction` and
    `abort_transaction` wait forever. With Apache Kafka 4.3.1 it does the same.
    """


class Transactional:
    """A transactional producer after `init_transactions`."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int):
        self._sent: list[Any] = []
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=60000,
            request_timeout_ms=REQUEST_MS,
            delivery_timeout_ms=20000,  # it can wait as long for a request that is lost
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._sent.clear()
        self._producer.begin_transaction()

    def send(self, topic: str, rows: list[tuple[int, bytes]]) -> None:
        for partition, value in rows:
            self._sent.append(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        self._producer.flush(WAIT_S)
        for sent in self._sent:
            sent.get(WAIT_S)

    def send_offsets(self, offsets: dict[TopicPartition, OffsetAndMetadata], member: Any) -> None:
        self._producer.send_offsets_to_transaction(offsets, member)

    def commit(self) -> None:
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        self._end(self._producer.abort_transaction)

    def _end(self, end: Callable[[], None]) -> None:
        """Ends the transaction; `RequestLost` once it is certain that it never will."""
        ended = Future[None]()

        def run() -> None:
            try:
                ended.set_result(end())
            except Exception as problem:  # noqa: BLE001 - raised where the result is awaited
                ended.set_exception(problem)

        threading.Thread(target=run, daemon=True).start()
        manager = self._producer._transaction_manager
        while True:
            queued = manager._pending_requests_sort_id  # it counts them
            try:
                return ended.result(QUIET_S)
            except TimeoutError:
                if not manager._pending_requests and manager._pending_requests_sort_id == queued:
                    raise RequestLost(f"nothing to wait for in {end.__name__}") from None

    def close(self) -> None:
        self._producer.close(WAIT_S)


def kind_of(problem: Exception) -> str:
    """What its user must do."""
    if isinstance(problem, ProducerFencedError | InvalidProducerEpochError):
        return "fatal"
    if isinstance(problem, RequestLost):
        return "lost"
    return "retriable" if isinstance(problem, KafkaTimeoutError) else "abortable"


def _consumer(bootstrap: str, isolation: str, group: str | None = None) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


def read(
    bootstrap: str, topic: str, partitions: int, isolation: str
) -> Iterator[tuple[int, bytes]]:
    """Reads all partitions from their start, without end."""
    with closing(_consumer(bootstrap, isolation)) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        consumer.seek_to_beginning()
        while True:
            for records in consumer.poll(PATIENCE_MS).values():
                yield from ((record.partition, record.value) for record in records)


def transform(
    bootstrap: str, source: str, target: str, group: str, transactional_id: str, count: int
) -> None:
    """Copies `count` records with their offsets; aborts every third transaction and does it again."""
    producer = Transactional(bootstrap, transactional_id, 60000)
    with closing(producer), closing(_consumer(bootstrap, "read_committed", group)) as consumer:
        consumer.subscribe([source])
        done = turn = 0
        while done < count:
            polled = consumer.poll(PATIENCE_MS, max_records=BATCH)
            if not polled:
                continue
            producer.begin()
            for place, records in polled.items():
                producer.send(target, [(place.partition, record.value) for record in records])
            read_to = {
                place: OffsetAndMetadata(records[-1].offset + 1, "", -1)
                for place, records in polled.items()
            }
            producer.send_offsets(read_to, consumer.group_metadata())
            turn += 1
            if turn % 3:
                producer.commit()
                done += sum(map(len, polled.values()))
                continue
            producer.abort()
            for place in polled:
                consumer.seek(place, consumer.committed(place) or 0)

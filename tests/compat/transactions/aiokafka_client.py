"""Transactions of aiokafka."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, InvalidProducerEpoch, ProducerFenced

WAIT_S = 180
BATCH = 7
T = TypeVar("T")
_loop = asyncio.new_event_loop()
threading.Thread(target=_loop.run_forever, daemon=True).start()


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop).result()


class Transactional:
    """A transactional producer after `start`, which initializes transactions."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int):
        self._sent: list[Any] = []
        self._producer = _run(self._start(bootstrap, transactional_id, timeout_ms))

    async def _start(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        await producer.start()
        return producer

    def begin(self) -> None:
        self._sent.clear()
        _run(self._producer.begin_transaction())

    def send(self, topic: str, rows: list[tuple[int, bytes]]) -> None:
        for partition, value in rows:
            self._sent.append(_run(self._producer.send(topic, value, partition=partition)))

    def flush(self) -> None:
        async def delivered() -> None:
            await asyncio.wait_for(asyncio.gather(*self._sent), WAIT_S)

        _run(delivered())

    def commit(self) -> None:
        _run(self._producer.commit_transaction())

    def abort(self) -> None:
        _run(self._producer.abort_transaction())

    def close(self) -> None:
        _run(self._producer.stop())


def kind_of(problem: Exception) -> str:
    """What its user must do."""
    fatal = isinstance(problem, ProducerFenced | InvalidProducerEpoch | IllegalOperation)
    return "fatal" if fatal else "abortable"


def _consumer(bootstrap: str, isolation: str, *topics: str, group: str | None = None) -> Any:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


def read(
    bootstrap: str, topic: str, partitions: int, isolation: str
) -> Iterator[tuple[int, bytes]]:
    """Reads all partitions from their start, without end."""

    async def start() -> Any:
        consumer = _consumer(bootstrap, isolation)
        await consumer.start()
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        await consumer.seek_to_beginning()
        return consumer

    consumer = _run(start())
    try:
        while True:
            record = _run(asyncio.wait_for(consumer.getone(), WAIT_S))
            yield record.partition, record.value
    finally:
        _run(consumer.stop())


def transform(
    bootstrap: str, source: str, target: str, group: str, transactional_id: str, count: int
) -> None:
    """Copies `count` records with their offsets; aborts every third transaction and does it again."""
    _run(_transform(bootstrap, source, target, group, transactional_id, count))


async def _transform(
    bootstrap: str, source: str, target: str, group: str, transactional_id: str, count: int
) -> None:
    async with (
        AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id
        ) as producer,
        _consumer(bootstrap, "read_committed", source, group=group) as consumer,
    ):
        done = turn = 0
        while done < count:
            polled = await consumer.getmany(timeout_ms=1000, max_records=BATCH)
            if not polled:
                continue
            await producer.begin_transaction()
            for place, records in polled.items():
                for record in records:
                    await producer.send(target, record.value, partition=place.partition)
            read_to = {place: records[-1].offset + 1 for place, records in polled.items()}
            await producer.send_offsets_to_transaction(read_to, group)
            turn += 1
            if turn % 3:
                await producer.commit_transaction()
                done += sum(map(len, polled.values()))
                continue
            await producer.abort_transaction()
            for place in polled:
                consumer.seek(place, await consumer.committed(place) or 0)

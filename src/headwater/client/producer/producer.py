"""The asyncio face of the producer."""

import asyncio
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from headwater.client.errors import ClosedError, TimedOutError
from headwater.client.producer.accumulator import record_bound
from headwater.client.producer.bulk import Load, SentMany, Table
from headwater.client.producer.futures import (
    BatchFuture,
    OnDelivery,
    RecordMetadata,
    SendFuture,
    batch_wakeup,
)
from headwater.client.producer.interceptors import ProducerRecord
from headwater.client.producer.producer_core import ProducerCore
from headwater.client.producer.topic_queues import TopicQueues
from headwater.client.unclosed import warn_unclosed
from headwater.client.waits import Deadline
from headwater.config.client import ProducerSettings


class _WouldBlockError(Exception):
    """A record that cannot be placed at once."""

    def __init__(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> None:
        super().__init__()
        self.record = record
        self.on_delivery = on_delivery


class _Eager(ProducerCore):
    """Places what can be placed now."""

    _loop: asyncio.AbstractEventLoop | None = None
    _dropping: "asyncio.Task[None] | None" = None

    def _deliver(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> SendFuture:
        topic = self._topics.get(record.topic)
        future = None
        if topic is not None and not self._outgrown(topic, record):
            future = self._offer(topic, record, on_delivery)
        if future is None:
            raise _WouldBlockError(record, on_delivery)
        return future

    def _give_way(self) -> None:
        """The sender runs on the same loop; whoever awaits gives way to it."""
        self._crowded = False

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._start()

    def dropped(self) -> None:
        """Nobody closed it: fail what waits, and let go of the loop if that still runs."""
        if self._loop is None:
            return  # never used
        warn_unclosed("Producer")
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        self._dropping = asyncio.get_running_loop().create_task(self._stop())

    async def deliver(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> SendFuture:
        topic = await self.topic(record.topic)
        if self._outgrown(topic, record):
            topic = await self._topic(record.topic, fresh=True)
        future = self._offer(topic, record, on_delivery)
        if future is None:
            limit = Deadline(self.settings.max_block_ms / 1000, self._clock)
            size = record_bound(record.key, record.value, record.headers)
            while future is None:
                await self._wait_for_room(size, limit)
                future = self._offer(topic, record, on_delivery)
        return future

    async def topic(self, name: str) -> TopicQueues:
        self._check_usable()
        return self._topics.get(name) or await self._topic(name)

    async def send_many(self, topic: str, values: Iterable[Any]) -> SentMany:
        known, sent = await self.topic(topic), SentMany()
        await self._send_loads(known, self._value_loads(values, topic), sent)
        return sent

    @property
    def sends_one_by_one(self) -> bool:
        return self._interceptors is not None or self._partitioner is not None

    async def send_table(self, topic: str, table: Table, key: str | None, value: str) -> SentMany:
        known, sent = await self.topic(topic), SentMany()
        await self._send_loads(known, self._table_loads(known, table, key, value), sent)
        return sent

    async def flush(self, timeout_s: float | None) -> None:
        token = object()
        pending: list[BatchFuture] = []
        try:
            pending = self._flush_begins(token)
            async with asyncio.timeout(timeout_s):
                while pending:
                    await batch_wakeup(pending[0])
                    pending = [late for future in pending for late in future.pending()]
        except TimeoutError:
            raise TimedOutError(
                f"{len(pending)} batches were not acknowledged within {timeout_s:g} s"
            ) from None
        finally:
            self._flush_ends(token)

    async def close(self, timeout_s: float | None) -> None:
        if self._unusable is not None:
            return
        try:
            if self._sender.fatal is None:
                await self.flush(timeout_s)
        except TimedOutError:
            pass  # whoever holds a future hears of it below
        finally:
            self._retire(ClosedError("the producer is closed: make another"))
            await self._stop()

    async def _send_loads(self, topic: TopicQueues, loads: Iterable[Load], sent: SentMany) -> None:
        for _ in self._bulk(topic, loads, sent):
            await self._wait_for_room(0, Deadline(self.settings.max_block_ms / 1000, self._clock))

    async def _wait_for_room(self, size: int, limit: Deadline) -> None:
        begun = self._clock.monotonic_ms()
        told = asyncio.Event()
        notice = told.set
        try:
            self._want_room(size, notice)
            async with asyncio.timeout(limit.left()):
                await told.wait()
        except TimeoutError:
            when = f"within max.block.ms ({self.settings.max_block_ms} ms)"
            raise self._no_room(when) from None
        finally:
            self._room_wait_ended(notice, self._clock.monotonic_ms() - begun)
        self._check_usable()


class Producer:
    """Sends records on the event loop that it is first used on.

    ```python
    async with Producer(bootstrap_servers="localhost:9092") as producer:
        stored = await producer.send_and_wait("orders", b"42")
    ```

    Settings are Kafka's, with underscores; `profile` is "durable", "throughput" or "latency".
    Beside them: `key_serializer` and `value_serializer` (a function, or "string", "bytes", "int",
    "long", "double", "uuid", "json"), `partitioner` (a function of topic, key, value and number of
    partitions) and `interceptors`.
    """

    def __init__(self, **options: Any) -> None:
        self._core = _Eager(**options)
        self._starting: asyncio.Future[None] | None = None
        self._finalizer = weakref.finalize(self, self._core.dropped)
        self._finalizer.atexit = False

    @property
    def settings(self) -> ProducerSettings:
        """What this producer was told and what it took by default."""
        return self._core.settings

    async def start(self) -> None:
        """Get ready; every other call does it as well."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._core.start())
        await asyncio.shield(self._starting)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> SendFuture:
        """Put a record on its way; awaits only metadata and room in the buffer.

        The future that comes back can be awaited for where the record was stored.

        Args:
            topic: Where to.
            value: Bytes, or what `value_serializer` takes; None is a null (a tombstone).
            key: Bytes, or what `key_serializer` takes. Records of one key go to one partition.
            partition: A partition, if it matters which.
            headers: Pairs of a name and bytes.
            timestamp: Milliseconds since 1970; the time of this call by default.
            on_delivery: Called with (metadata, error), one of them None.
        """
        if self._starting is None:
            await self.start()
        try:
            return self._core.send(topic, value, key, partition, headers, timestamp, on_delivery)
        except _WouldBlockError as waiting:
            record, callback = waiting.record, waiting.on_delivery
        return await self._core.deliver(record, callback)

    async def send_and_wait(
        self, topic: str, value: Any = None, key: Any = None, **options: Any
    ) -> RecordMetadata:
        """Send one record and wait until it is stored; takes what `send` takes."""
        return await (await self.send(topic, value, key, **options))

    async def send_many(self, topic: str, values: Iterable[Any]) -> SentMany:
        """Send values without keys, in order and in bulk; await the result for their fate."""
        await self.start()
        if not self._core.sends_one_by_one:
            return await self._core.send_many(topic, values)
        sent = SentMany()
        for value in values:
            future, index, _ = await self.send(topic, value)
            sent.add(future, index, 1)
        return sent

    async def send_table(
        self, topic: str, table: Table, *, key: str | None = None, value: str = "value"
    ) -> SentMany:
        """Send the rows of an Arrow table; `key` and `value` name columns of bytes or text."""
        await self.start()
        return await self._core.send_table(topic, table, key, value)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record sent so far is stored or given up."""
        await self.start()
        await self._core.flush(timeout_s)

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        await self.start()
        return list(range((await self._core.topic(topic)).count))

    def explain(self) -> str:
        """The settings that are not at their defaults, who set them, and why."""
        return self._core.explain()

    def metrics(self) -> dict[str, float]:
        """What this producer counted, under Kafka's names."""
        return self._core.metrics()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and let go of everything; records not stored after `timeout_s` fail."""
        await self.start()
        await self._core.close(timeout_s)
        self._finalizer.detach()

    async def __aenter__(self) -> "Producer":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

"""The waits of the asyncio producer: for metadata, for room, and for acknowledgments."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

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
from headwater.client.waits import Deadline, check_loop

if TYPE_CHECKING:  # loaded by the first transactional producer
    from headwater.client.producer.transaction_loop import TransactionLoop


class AsyncSendWaits:
    """Waits for one producer, on the caller's event loop."""

    def __init__(self, owner: object, core: ProducerCore) -> None:
        self._core = core
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._dropping: asyncio.Task[None] | None = None
        self._finalizer = weakref.finalize(owner, self._owner_dropped)
        self._finalizer.atexit = False

    async def start(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._core.start()
            self._core.check_caller = self._check_loop
        self._check_loop()

    def _check_loop(self) -> None:
        assert self._loop is not None
        check_loop("Producer", self._loop)

    # -- sending

    async def deliver(
        self, record: ProducerRecord, on_delivery: OnDelivery | None, full: TopicQueues | None
    ) -> SendFuture:
        """Append a record, waiting for its topic and for room; `full` is a topic without room."""
        core = self._core
        topic, future = full, None
        if topic is None:
            topic = await self.topic(record.topic)
            if core.outgrown(topic, record):
                topic = await core.topic_queues(record.topic, fresh=True)
            future = core.offer(topic, record, on_delivery)
        if future is None:
            limit = self._room_deadline()
            size = record_bound(record.key, record.value, record.headers)
            while future is None:
                await self._wait_for_room(size, limit)
                future = core.offer(topic, record, on_delivery)
        return future

    async def topic(self, name: str) -> TopicQueues:
        await self.start()
        return self._core.known_topic(name) or await self._core.topic_queues(name)

    async def send_many(self, topic: str, values: Iterable[Any]) -> SentMany:
        known = await self.topic(topic)
        return await self._send_loads(known, self._core.value_loads(values, topic))

    async def send_table(self, topic: str, table: Table, key: str | None, value: str) -> SentMany:
        known = await self.topic(topic)
        return await self._send_loads(known, self._core.table_loads_of(known, table, key, value))

    async def _send_loads(self, topic: TopicQueues, loads: Iterable[Load]) -> SentMany:
        sent = SentMany()
        for _ in self._core.fill_batches(topic, loads, sent):
            await self._wait_for_room(0, self._room_deadline())
        return sent

    def _room_deadline(self) -> Deadline:
        return Deadline(self._core.settings.max_block_ms / 1000, self._core.clock)

    async def _wait_for_room(self, size: int, limit: Deadline) -> None:
        core = self._core
        begun = core.clock.monotonic_ms()
        event = asyncio.Event()
        wake = event.set
        try:
            core.room.begin_wait(size, wake, core.lock, core.sender)
            async with asyncio.timeout(limit.left()):
                await event.wait()
        except TimeoutError:
            when = f"within max.block.ms ({core.settings.max_block_ms} ms)"
            raise core.room.exhausted(when) from None
        finally:
            core.room.end_wait(wake, core.clock.monotonic_ms() - begun, core.sender)
        core.check_usable()

    async def transact(self, call: Callable[["TransactionLoop"], Awaitable[None]]) -> None:
        """Run a call of the transactions."""
        await self.start()
        await call(self._core.transactions)

    async def transact_now(self, call: Callable[["TransactionLoop"], None]) -> None:
        """Run a call of the transactions that does not wait."""
        await self.start()
        call(self._core.transactions)

    async def result(self, future: SendFuture) -> RecordMetadata:
        self._check_loop()
        return await future

    # -- the end

    async def flush(self, timeout_s: float | None, *, closing: bool = False) -> None:
        await self.start()
        token = object()
        pending: list[BatchFuture] = []
        try:
            pending = self._core.begin_flush(token, closing=closing)
            async with asyncio.timeout(timeout_s):
                while pending:
                    await batch_wakeup(pending[0])
                    pending = [late for future in pending for late in future.pending()]
        except TimeoutError:
            raise TimedOutError(
                f"{len(pending)} batches were not acknowledged within {timeout_s:g} s"
            ) from None
        finally:
            self._core.accumulator.flushing.discard(token)

    async def close(self, timeout_s: float | None) -> None:
        await self.start()
        core = self._core
        if self._closed:
            return
        try:
            if core.sender.fatal is None:  # a second close() waits as well
                if core.initialized and core.unusable is None:
                    await core.end_transaction(timeout_s)
                core.refuse_sends()
                if core.sender.fatal is None:
                    await self.flush(timeout_s, closing=True)
        except (TimedOutError, ClosedError):
            pass  # the futures of those records fail below
        finally:
            core.refuse_sends()
            await core.stop()
            self._finalizer.detach()
            self._closed = True

    def _owner_dropped(self) -> None:
        """Fail the unsent records of a producer that was dropped without close()."""
        if self._loop is None:
            return  # never used
        warn_unclosed("Producer")
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        self._dropping = asyncio.get_running_loop().create_task(self._core.stop())

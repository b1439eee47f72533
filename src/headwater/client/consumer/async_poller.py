"""Runs the calls of the asyncio consumer on the caller's event loop, one poll at a time."""

import asyncio
import inspect
import logging
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.client.consumer.listener import ListenerCall
from headwater.client.consumer.record import ConsumerRecord
from headwater.client.errors import ClientError, ConcurrentUseError, IllegalStateError
from headwater.client.unclosed import end_when_dropped
from headwater.client.waits import check_loop

log = logging.getLogger(__name__)

T = TypeVar("T")

_IN_A_ROW = 1024
"""After this many records of `async for`, other tasks on the loop get a turn."""


class AsyncPoller:
    """Runs the core of one consumer for `owner`, the face that the application holds."""

    def __init__(self, owner: object, core: ConsumerCore) -> None:
        self._owner = weakref.ref(owner)
        self._core = core
        self._polling = False
        self._listening: asyncio.Task[Any] | None = None
        """The task that is calling the rebalance listener."""
        self._steps = 0
        """The number of records that `next_record` returned."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None

    async def start(self) -> None:
        self._start()

    def _start(self) -> None:
        if self._loop is not None:
            check_loop("Consumer", self._loop)
        if self._finalizer is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._core.start()
        owner = self._owner()
        assert owner is not None
        self._finalizer = end_when_dropped(owner, "Consumer", self._loop, self._core.abandon)

    # -- calls

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call of the core."""
        self._start()
        self._prepare()
        return await work()

    def run_now(self, work: Callable[[], T]) -> T:
        """Run a call of the core that does not wait."""
        self._prepare()
        return work()

    def _prepare(self) -> None:
        if self._finalizer is None:
            self._start()
        self._core.check_usable()
        if self._listening is None:
            self._core.handover.check()

    # -- polling

    async def poll(self, take: Callable[[], T], timeout_s: float | None) -> T | None:
        """Wait until `take` returns something or the time is over.

        The caller sets `handover.open` to False right before it returns the records.
        """
        self._start()
        if self._polling:
            raise self._in_use()
        self._polling = True
        try:
            self._core.handover.begin()
            self._core.polling = True
            return await self._find(take, timeout_s)
        except BaseException:
            self._core.handover.check()
            raise
        finally:
            self._polling = self._core.polling = False

    def _in_use(self) -> ClientError:
        if self._listening is asyncio.current_task():
            return IllegalStateError(
                "poll() inside a rebalance listener: let the poll() that called it return first"
            )
        return ConcurrentUseError(
            "another task polls this consumer at the moment: give each task its own"
        )

    async def _find(self, take: Callable[[], T], timeout_s: float | None) -> T | None:
        core = self._core
        if core.has_ready_records:
            # Let fetching and heartbeats run. Before records are taken: a task may be cancelled
            # here.
            await asyncio.sleep(0)
        if found := self._take_if_nothing_due(take):
            return found
        deadline = core.deadline(timeout_s)
        while True:
            core.poll_wakeup.clear()
            call, limit_ms = await core.run_due_work(deadline)
            if call is not None:
                await self._call_listener(call)
                continue
            if (found := self._take(take)) or not limit_ms:
                return found
            await core.poll_wakeup.wait(limit_ms / 1000)
            if found := self._take_if_nothing_due(take):
                return found

    def _take_if_nothing_due(self, take: Callable[[], T]) -> T | None:
        return self._take(take) if self._core.nothing_due else None

    def _take(self, take: Callable[[], T]) -> T | None:
        if not (found := take()):
            return None
        if self._core.fetching_stalled:
            self._core.resume_fetching()
        return found

    async def next_record(self) -> ConsumerRecord[Any, Any]:
        """Return the next record; the caller sets `handover.open` to False before it returns it."""
        core = self._core
        if core.started and not self._polling:
            self._steps += 1
            if not self._steps % _IN_A_ROW:
                await asyncio.sleep(0)
            core.handover.begin()
            if core.nothing_due and (found := core.ready.take_record()):
                if core.fetching_stalled:
                    core.resume_fetching()
                return found[0]
        while True:
            records = await self.poll(core.ready.take_record, None)
            if records:
                return records[0]

    # -- the listener

    async def _call_listener(self, call: ListenerCall) -> None:
        """Call the listener; the next poll repeats a call that was cancelled."""
        self._listening = asyncio.current_task()
        self._core.polling = False
        try:
            await self._invoke(call)
        except Exception:
            self._core.listener_called(call)
            raise
        finally:
            self._listening = None
            self._core.polling = True
        self._core.listener_called(call)

    async def _invoke(self, call: ListenerCall) -> None:
        if self._core.listener is not None:
            result = call.invoke(self._core.listener)
            if inspect.isawaitable(result):
                await result

    async def call_leaving_listener(self) -> None:
        """Call the listener for all partitions, before the consumer leaves its group."""
        self._start()
        call = self._core.leaving_call()
        if call is None:
            return
        try:
            await self._invoke(call)
        except Exception:
            log.exception("the rebalance listener raised; the consumer leaves its group anyway")

    # -- the end

    def wakeup(self) -> None:
        """End a waiting poll. Safe from any thread."""
        self._core.request_wakeup()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._core.wake_poll)

    async def close(self, timeout_s: float | None) -> None:
        self._start()
        self._core.handover.check()
        await self.call_leaving_listener()
        await self._core.close(timeout_s)
        if self._finalizer is not None:
            self._finalizer.detach()

"""Cleans up producers that were dropped without close(), after sending their records."""

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

from headwater.client.blocking import LoopThread, register, unregister
from headwater.client.cluster import Cluster
from headwater.client.errors import ClosedError, TimedOutError
from headwater.client.producer.accumulator import Accumulator
from headwater.client.producer.futures import batch_wakeup
from headwater.client.producer.sender_loop import Sender
from headwater.client.unclosed import warn_unclosed

_left: set["Leftover"] = set()


def weakly(method: Callable[[], Any]) -> Callable[[], None]:
    """Return a callable that calls a method while its object lives, without keeping it alive."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    return call


async def stop_sending(sender: Sender, cluster: Cluster) -> None:
    """Fail the remaining records and release the loop."""
    sender.die(ClosedError("the producer was closed before the record was acknowledged"))
    sender.close()
    await cluster.close()


class Leftover:
    """The loop's side of a blocking producer that was dropped."""

    def __init__(
        self, thread: LoopThread, sender: Sender, cluster: Cluster, accumulator: Accumulator
    ) -> None:
        self._thread = thread
        self._sender = sender
        self._cluster = cluster
        self._accumulator = accumulator
        self._ending: asyncio.Task[None] | None = None

    def dropped(self) -> None:
        """Send the remaining records, then stop."""
        warn_unclosed("Producer")
        _left.add(self)
        register(self)
        self._thread.post(self._begin)

    def close(self, timeout: float | None = None) -> None:
        """Wait for the remaining records, at the end of the process."""
        try:
            self._thread.call(self._wait(), timeout)
        except TimedOutError:
            self._thread.call(self._stop())

    def forked(self) -> None:
        """In a child process there is nothing to send."""
        _left.discard(self)

    def _begin(self) -> None:
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _wait(self) -> None:
        self._begin()
        assert self._ending is not None
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self._accumulator.flushing.add(self)
        while self._sender.fatal is None and self._accumulator.incomplete:
            self._sender.wake_here()
            await batch_wakeup(next(iter(self._accumulator.incomplete)).future)
        await self._stop()

    async def _stop(self) -> None:
        await stop_sending(self._sender, self._cluster)
        _left.discard(self)
        unregister(self)

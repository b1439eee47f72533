"""Background work of a simulated process: tasks on its loop, "threads" as later events.

A blocking call runs some time after it was submitted, and its result arrives some time after that,
so that the loop runs in both gaps, as with a real thread.
"""

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from headwater.seams.tasks import Lane
from simulator.loop import SimLoop
from simulator.randomness import Stream

T = TypeVar("T")


class _Call:
    """A blocking call on a simulated thread."""

    __slots__ = ("future", "lane", "ran", "work")

    def __init__(self, work: Callable[[], Any], future: "asyncio.Future[Any]", lane: Lane) -> None:
        self.work = work
        self.lane = lane
        self.future = future
        self.ran = False


class SimTasks:
    """A `seams.Tasks` for one life of one process."""

    def __init__(self, loop: SimLoop, chance: Stream, slowest_ms: int) -> None:
        self._loop = loop
        self._chance = chance
        self._slowest_us = slowest_ms * 1000
        self._calls: dict[_Call, None] = {}

    def slow_down(self, slowest_ms: int) -> None:
        """Let a blocking call take up to this long from now on."""
        self._slowest_us = slowest_ms * 1000

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Start a task; its death is a complaint."""
        task = self._loop.create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def in_thread(self, call: Callable[[], T], lane: Lane = Lane.FILES) -> "asyncio.Future[T]":
        """Run the call a little later."""
        future: asyncio.Future[T] = self._loop.create_future()
        waiting = _Call(call, future, lane)
        self._calls[waiting] = None
        self._loop.call_later(self._delay_s(), self._run, waiting)
        return future

    def run_all(self, calls: Sequence[Callable[[], None]]) -> None:
        """One after another, in this order."""
        for call in calls:
            call()

    def close(self) -> None:
        """Run all waiting calls now, except those that a stop drops."""
        for call in list(self._calls):
            if call.lane in (Lane.CODEC, Lane.READ):
                call.ran = True
                del self._calls[call]
                call.future.cancel()
            else:
                self._run(call)

    def _delay_s(self) -> float:
        """Draw a delay: mostly short, sometimes very long."""
        return self._slowest_us * self._chance.random() ** 3 / 1e6

    def _run(self, call: _Call) -> None:
        if call.ran:
            return
        call.ran = True
        del self._calls[call]
        try:
            with _no_loop():
                result = call.work()
        except Exception as failure:  # noqa: BLE001 - it is the caller's, as with a real thread
            self._loop.call_later(self._delay_s(), _settle, call.future, None, failure)
        else:
            self._loop.call_later(self._delay_s(), _settle, call.future, result, None)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._loop.scheduler.complain(f"task {task.get_name()} died of {failure!r}")


@contextmanager
def _no_loop() -> Iterator[None]:
    """Hide the running loop, as in a thread: code that asks for one there is wrong."""
    before = events._get_running_loop()
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(before)


def _settle(future: "asyncio.Future[Any]", result: Any, failure: Exception | None) -> None:
    if future.done():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)

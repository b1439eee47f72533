"""Event loops on virtual time: one scheduler, and one loop for each life of a process.

The scheduler runs ready callbacks in order, and jumps to the next timer when none is ready. A
killed loop runs nothing anymore: its tasks are closed and its callbacks dropped, like the memory
of a dead process.
"""

import asyncio
import contextvars
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any

from simulator.trace import Trace

MAX_EVENTS = 300_000
"""A run with more events is in an endless loop."""


CLOSING_TRIES = 20


class Crashed(BaseException):
    """The process died here. No `except Exception` of the product may catch it."""


class Stuck(Exception):
    """No events are left, or there were too many, before the awaited condition."""


class SimHandle(asyncio.TimerHandle):
    """A scheduled callback, unless it is cancelled or its loop is killed.

    It has no context: simulated code does not use context variables.
    """

    __slots__ = ("args", "call", "due_us", "loop", "off")

    def __init__(  # the attributes of asyncio's handles would cost more than the rest
        self, due_us: int, call: Callable[..., object], args: tuple[Any, ...], loop: "SimLoop"
    ) -> None:
        self.due_us = due_us
        self.call = call
        self.args = args
        self.loop = loop
        self.off = False

    def cancel(self) -> None:
        """Do not run."""
        self.off = True

    def cancelled(self) -> bool:
        """Whether it will not run."""
        return self.off

    def when(self) -> float:
        """The virtual time, in seconds."""
        return self.due_us / 1e6


class SimFuture(asyncio.Future[Any]):
    """A future whose hash does not depend on its address."""

    def __init__(self, loop: "SimLoop") -> None:
        super().__init__(loop=loop)
        self._number = loop.scheduler.next_number()

    def __hash__(self) -> int:
        return self._number


class SimTask(asyncio.Task[Any]):
    """A task whose hash does not depend on its address."""

    def __init__(self, coro: Coroutine[Any, Any, Any], loop: "SimLoop", name: str | None) -> None:
        self._number = loop.scheduler.next_number()
        super().__init__(coro, loop=loop, name=name)

    def __hash__(self) -> int:
        return self._number


class Scheduler:
    """Virtual time, and all scheduled events."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.now_us = 0
        self.events = 0
        self.complaints: list[str] = []
        """Uncaught exceptions: each is a broken promise of the code under test."""
        self.after_event: Callable[[str], None] = lambda _: None
        """Called with the host after every event, to check invariants."""
        self._running: SimLoop | None = None
        self.ready: deque[SimHandle] = deque()
        """What runs in this instant, in this order."""
        self._timers: list[tuple[int, int, SimHandle]] = []
        self._sequence = 0
        self._numbers = 0

    def next_number(self) -> int:
        """Return a number for a future or task, in the order of creation."""
        self._numbers += 1
        return self._numbers

    def add_timer(self, at_us: int, handle: SimHandle) -> None:
        """Run it at that time; equal times run in the order of their addition."""
        self._sequence += 1
        heappush(self._timers, (max(at_us, self.now_us), self._sequence, handle))

    def run_until(self, done: Callable[[], bool], limit_s: float) -> None:
        """Run events until `done`; raise Stuck after `limit_s` of virtual time.

        All events of an instant run before `done` is called.
        """
        until_us = self.now_us + int(limit_s * 1e6)
        try:
            while not done():
                if not self.ready and not self._wake_timers(until_us):
                    raise Stuck(f"nothing more happens within {limit_s:g} s of virtual time")
                self._run_ready()
        finally:
            self._running = None
            events._set_running_loop(None)

    def _wake_timers(self, until_us: int) -> bool:
        """Jump to the next timers; those of one instant become ready together."""
        timers = self._timers
        while timers and (timers[0][2].off or timers[0][2].loop.killed):
            heappop(timers)
        if not timers or timers[0][0] > until_us:
            return False
        self.now_us = now_us = timers[0][0]
        while timers and timers[0][0] == now_us:
            self.ready.append(heappop(timers)[2])
        return True

    def _run_ready(self) -> None:
        """Run all ready callbacks, and those that they make ready: most of a run is this loop."""
        ready, note, now_us = self.ready, self.trace.note, self.now_us
        while ready:
            handle = ready.popleft()
            loop = handle.loop
            if handle.off or loop.killed:
                continue
            if loop.paused:
                loop.delayed.append(handle)
                continue
            self.events += 1
            call = handle.call
            # A name without an address or a counter.
            label = getattr(call, "__qualname__", None) or type(call).__name__
            note(f"{now_us} {loop.name} {label}")
            if loop is not self._running:
                self._running = loop
                events._set_running_loop(loop)
            try:
                call(*handle.args)
            except Crashed:
                pass
            except Exception as failure:  # noqa: BLE001 - the run goes on, its verdict is "broken"
                self.complain(f"{loop.name}: {label} raised {failure!r}")
            self.after_event(loop.host)
            if self.events > MAX_EVENTS:
                raise Stuck(f"{self.events} events and no end")

    def complain(self, what: str) -> None:
        """Record something that must not happen."""
        self.complaints.append(f"{self.now_us / 1e6:.6f} s: {what}")


class SimLoop(asyncio.AbstractEventLoop):
    """One process's event loop."""

    def __init__(self, scheduler: Scheduler, name: str, host: str = "clients") -> None:
        self.scheduler = scheduler
        self.name = name
        self.host = host
        self.killed = False
        self.paused = False
        """Whether the process is paused: it runs nothing, and its peers do not notice."""
        self.delayed: list[SimHandle] = []
        """The callbacks that were due since then."""
        self.at_death: list[Callable[[], None]] = []
        """Called when the process is killed: prevents what it would do otherwise."""
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def kill(self) -> None:
        """End the process: nothing of it runs after this, not even cleanup code."""
        self.killed = True
        for prevent in self.at_death:
            prevent()
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while self._tasks:  # what is closed may try to start more
                _bury(self._tasks.popitem()[0])
        finally:
            events._set_running_loop(before)

    def pause(self) -> None:
        """Stop the process (SIGSTOP)."""
        self.paused = True

    def resume(self) -> None:
        """Resume the process, and run everything that was due in the meantime."""
        self.paused = False
        self.scheduler.ready.extend(self.delayed)
        self.delayed.clear()

    # -- what asyncio asks of a loop

    def time(self) -> float:
        """Virtual seconds."""
        return self.scheduler.now_us / 1e6

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        """Run in this instant, after all ready callbacks."""
        handle = SimHandle(self.scheduler.now_us, callback, args, self)
        if not self.killed:
            self.scheduler.ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        """The same as `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        """Run after `delay` virtual seconds; time passes, however short the delay.

        A timer that comes a fraction of a microsecond early is set again, and would come at once forever.
        """
        delay_us = max(round(delay * 1e6), 1 if delay > 0 else 0)
        return self.call_at_us(self.scheduler.now_us + delay_us, callback, args)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        """Run at a virtual time."""
        return self.call_at_us(round(when * 1e6), callback, args)

    def call_at_us(
        self, at_us: int, callback: Callable[..., object], args: tuple[Any, ...] = ()
    ) -> SimHandle:
        """Run at a virtual time in microseconds."""
        handle = SimHandle(at_us, callback, args, self)
        if not self.killed:
            self.scheduler.add_timer(at_us, handle)
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        """A future of this loop."""
        return SimFuture(self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[Any]":
        """A task of this loop; it ends with it."""
        task = SimTask(coro, self, name)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)

    def get_debug(self) -> bool:
        """Return False: debug mode costs time and has no use here."""
        return False

    def is_running(self) -> bool:
        """Whether the process lives."""
        return not self.killed

    def is_closed(self) -> bool:
        """Whether the process is dead."""
        return self.killed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an error that asyncio found and no code handled."""
        if not self.killed and not isinstance(context.get("exception"), Crashed):
            what = context.get("exception") or ""
            self.scheduler.complain(f"{self.name}: {context.get('message')} {what!r}")

    def run(self, work: Coroutine[Any, Any, Any], limit_s: float = 600.0) -> Any:
        """Run the world until `work` is done on this loop; return its result.

        None if a complaint came first: events after a broken promise are meaningless.
        """
        task = self.create_task(work)
        self.scheduler.run_until(lambda: task.done() or bool(self.scheduler.complaints), limit_s)
        return task.result() if task.done() else None


def _bury(task: "asyncio.Task[Any]") -> None:
    """Close a task's coroutine without running it further, and without a warning."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    if getattr(coroutine, "cr_running", False):
        return
    for _ in range(CLOSING_TRIES):
        try:
            coroutine.close()
        except RuntimeError:  # its cleanup code awaits: close that as well
            continue
        except Crashed:
            pass
        return

"""The blocking face: one thread with an event loop, shared by all blocking clients of a process.

Callers wait in their own threads; Ctrl-C ends the wait and cancels the call. The loop does not
survive a fork: in the child, clients of the parent raise ForkedError. Clients that are still open
at the end of the process are closed then, so that records in their buffers are sent.
"""

import asyncio
import atexit
import contextlib
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from headwater.client.errors import ForkedError, LoopDiedError, TimedOutError

T = TypeVar("T")
log = logging.getLogger(__name__)

EXIT_TIMEOUT_S = 10.0
"""How long the end of the process may wait for unsent records."""


_GLANCE_S = 1.0
"""How often a waiting thread checks that the loop is alive."""


class BlockingClient(Protocol):
    """A client that uses the loop thread."""

    def close(self, timeout: float | None = None) -> None:
        """Finish pending work within the time and release all resources."""

    def forked(self) -> None:
        """In a child process: raise ForkedError from every call, and touch no lock."""


class LoopThread:
    """An event loop on its own thread."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self._alive = True
        self._stopping = False
        """Not Thread.is_alive(): if Ctrl-C interrupts that, it reports a live thread as dead."""
        self._thread = threading.Thread(target=self._run, name="headwater-client", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the loop runs; after it has ended, every call fails."""
        return self._alive

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread, inside a callback."""
        return threading.current_thread() is self._thread

    def refuse_here(self, what: str) -> None:
        """Raise RuntimeError on this thread, where `what` would wait for itself."""
        if self.is_current:
            raise RuntimeError(
                f"{what} inside a callback would wait for itself: "
                "do it in another thread, or use headwater.aio"
            )

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run `work` on the loop and wait for it; TimedOutError after `timeout_s`.

        If the wait ends early, `work` is cancelled.
        """
        if self.is_current:
            work.close()
            self.refuse_here("a blocking call")
        if not self._alive:
            work.close()
            raise LoopDiedError("the client's background loop has ended; see the log for the cause")
        waiting = _Waiting(self.loop, work)
        try:
            waiting.post()
            if not waiting.listen(lambda: self._alive, timeout_s):
                waiting.cancel()
                raise TimedOutError(f"not finished within {timeout_s:g} s")
        except TimedOutError:
            raise
        except BaseException:
            waiting.cancel()
            raise
        return waiting.result()

    def post(self, callback: Callable[[], object]) -> None:
        """Run `callback` on the loop soon; a loop that has ended ignores it."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(callback)

    def forked(self) -> None:
        """In a child process, where the thread does not run: let no call wait for it."""
        self._alive = False

    def stop(self) -> None:
        """End the loop and its thread."""
        self._stopping = True
        self.post(self.loop.stop)
        self._thread.join(EXIT_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._run_until_stopped():
                pass
        finally:
            self._alive = False
            if not self._stopping:
                log.error("the background loop of the blocking clients has ended")
                _loop_ended(self)

    def _run_until_stopped(self) -> bool:
        """Run the loop; return False if a callback's sys.exit() left it and it can continue."""
        try:
            self.loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as leaving:
            log.exception(
                "a callback on the clients' background thread raised %s; it is ignored: "
                "only the main thread can end the program",
                type(leaving).__name__,
            )
            return False
        except BaseException:
            log.exception("the background loop of the blocking clients died")
        return True


class _Waiting(Generic[T]):
    """A thread that waits for work on the loop.

    The loop releases a bare lock and never waits for one. Futures of the standard library have
    locks that an interrupted waiter can leave locked: the loop would hang.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._fault: BaseException | None = None
        self._bell = threading.Lock()
        self._bell.acquire()

    def post(self) -> None:
        self._loop.call_soon_threadsafe(self._start)

    def listen(self, alive: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for the end of the work; return False if the time is over first."""
        left = math.inf if timeout_s is None else timeout_s
        while not self._bell.acquire(timeout=max(min(left, _GLANCE_S), 0)):
            left -= _GLANCE_S
            if left <= 0:
                return False
            if not alive():
                raise LoopDiedError("the client's background loop has ended; see the log")
        return True

    def result(self) -> T:
        if self._fault is not None:
            raise LoopDiedError(f"internal error of the client: {self._fault!r}") from self._fault
        assert self._task is not None
        try:
            return self._task.result()
        except asyncio.CancelledError:
            raise LoopDiedError("the client was closed while a call was under way") from None

    def cancel(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop)

    def _start(self) -> None:
        try:
            self._task = self._loop.create_task(self._work)
            self._task.add_done_callback(self._ended)
        except BaseException as fault:  # nothing else would release the lock
            self._fault = fault
            self._bell.release()
            raise

    def _ended(self, task: "asyncio.Task[T]") -> None:
        if not task.cancelled():
            task.exception()  # mark it as retrieved, even if the waiter has gone
        self._bell.release()

    def _stop(self) -> None:
        if self._task is None:
            self._work.close()
        else:
            self._task.cancel()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_lock = threading.Lock()
_shared: LoopThread | None = None
_clients: "weakref.WeakSet[BlockingClient]" = weakref.WeakSet()


def loop_thread() -> LoopThread:
    """Return the loop thread of this process; the first call starts it."""
    global _shared  # noqa: PLW0603 - one per process is the point
    with _lock:
        if _shared is None:
            _shared = LoopThread()
        return _shared


def register(client: BlockingClient) -> LoopThread:
    """Return the loop thread; from now on it reports forks to `client` and closes it at exit."""
    thread = loop_thread()
    _clients.add(client)
    return thread


def _loop_ended(thread: LoopThread) -> None:
    """After an error ended the loop: fail the calls that wait; new clients get another loop."""
    global _shared  # noqa: PLW0603 - one per process is the point
    if _shared is thread:
        _shared = None
    for client in list(_clients):
        ended = getattr(client, "loop_ended", None)
        if ended is not None:
            ended(
                LoopDiedError("the client's background loop has ended; see the log for the cause")
            )


def unregister(client: BlockingClient) -> None:
    """Drop a closed client."""
    _clients.discard(client)


def forked_error(what: str) -> ForkedError:
    """Return the error that a client of the parent process raises in a child."""
    return ForkedError(
        f"this {what} was created before the process forked, and its connections belong to the "
        f"parent: create a {what} in the child (for multiprocessing, inside the worker function)"
    )


def _after_fork() -> None:
    global _lock, _shared, _clients
    left, _clients = list(_clients), weakref.WeakSet()
    if _shared is not None:
        _shared.forked()
    _lock, _shared = threading.Lock(), None
    for client in left:
        try:
            client.forked()
        except Exception:  # the others must not be used in the child either
            log.exception("a client of the parent process was not ended in the child")


def _at_exit() -> None:
    for client in list(_clients):
        try:
            client.close(EXIT_TIMEOUT_S)
        except Exception:
            log.warning("a client could not be closed at exit", exc_info=True)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

"""Waits in the caller's thread, deadlines, and calls of user callbacks.

A signal handler may interrupt a wait at any moment and call a client itself. So no lock is held
while Python code runs: a wait is a single call of a C lock.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from headwater.client.errors import IllegalStateError
from headwater.seams.clock import Clock, SystemClock

log = logging.getLogger(__name__)

_clock = SystemClock()


class OneShotEvent:
    """An event that one thread sets and another waits for once."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """End the wait; further calls do nothing."""
        try:
            self._lock.release()
        except RuntimeError:
            return  # set before

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is set; return False after `timeout` seconds."""
        limit = -1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)
        return self._lock.acquire(timeout=limit)


def not_seconds(timeout: object) -> TypeError:
    """Return the error for a timeout that is not a number."""
    return TypeError(f"timeout is {timeout!r}: give seconds as a number, or None")


class Deadline:
    """One limit for several waits."""

    __slots__ = ("_end_ms", "_now_ms")

    def __init__(self, timeout: float | None, clock: Clock = _clock) -> None:
        self._now_ms = clock.monotonic_ms
        try:
            self._end_ms = None if timeout is None else self._now_ms() + 1000 * timeout
        except TypeError:
            raise not_seconds(timeout) from None

    def left(self) -> float | None:
        """Return the remaining seconds, never negative; None without a limit."""
        if self._end_ms is None:
            return None
        return max(self._end_ms - self._now_ms(), 0) / 1000


def call_guarded(what: str, call: Callable[..., object], *args: Any) -> None:
    """Call a user's callback; log what it raises.

    sys.exit() or Ctrl-C in a callback on an event loop of the main thread end that loop, once the
    clients' own work of this turn is done. On the clients' background thread they are only logged.
    """
    try:
        call(*args)
    except (Exception, asyncio.CancelledError):  # the latter from the user's own future
        log.exception("%s raised; the record's result does not change", what)
    except BaseException as leaving:
        if threading.current_thread() is not threading.main_thread():
            log.exception("%s raised %s; it is ignored", what, type(leaving).__name__)
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise leaving from None
        loop.call_soon(_raise, leaving)


def _raise(error: BaseException) -> None:
    raise error


def check_loop(what: str, loop: asyncio.AbstractEventLoop) -> None:
    """Raise IllegalStateError in a task of another event loop, whose wait would never end."""
    if asyncio.get_running_loop() is not loop:
        state = "which is closed" if loop.is_closed() else "and its connections belong to that one"
        raise IllegalStateError(
            f"this {what} was started in another event loop, {state}: create one in each loop "
            "(asyncio.run() begins a new loop)"
        )


def older_name(call: str, renamed: dict[str, float | None]) -> float | None:
    """Return the timeout of `call` given under its older name, `timeout_s`."""
    limit_s = renamed.pop("timeout_s", None)
    for name in renamed:
        raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
    return limit_s

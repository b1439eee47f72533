"""Timers that tolerate a stall of the event loop."""

from collections.abc import Callable
from typing import Protocol

LATE_MS = 200
"""A timer that fires this late means that the loop was stalled."""
GRACE_S = 0.1
MOST_GRACES = 10


class _Handle(Protocol):
    def cancel(self) -> None: ...


class PatientTimers:
    """`call_later` for deadlines of clients.

    After a stall the event loop runs its timers before it reads sockets: a client whose heartbeats
    wait in the socket would expire. A late call is postponed for a moment, so that arrived data is
    read first.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], _Handle],
        now_ms: Callable[[], int],
    ) -> None:
        self._call_later = call_later
        self._now_ms = now_ms

    def __call__(self, delay_s: float, call: Callable[[], None]) -> "PatientTimer":
        """Call once, after `delay_s` seconds or a little later."""
        return PatientTimer(self._call_later, self._now_ms, delay_s, call)


class PatientTimer:
    """One scheduled call."""

    __slots__ = ("_call", "_call_later", "_due_ms", "_graces", "_handle", "_now_ms")

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], _Handle],
        now_ms: Callable[[], int],
        delay_s: float,
        call: Callable[[], None],
    ) -> None:
        self._call_later = call_later
        self._now_ms = now_ms
        self._call = call
        self._graces = 0
        self._wait(delay_s)

    def _wait(self, delay_s: float) -> None:
        self._due_ms = self._now_ms() + round(1000 * delay_s)
        self._handle = self._call_later(delay_s, self._fire)

    def _fire(self) -> None:
        if self._now_ms() - self._due_ms > LATE_MS and self._graces < MOST_GRACES:
            self._graces += 1
            self._wait(GRACE_S)
        else:
            self._call()

    def cancel(self) -> None:
        """Cancel the call."""
        self._handle.cancel()

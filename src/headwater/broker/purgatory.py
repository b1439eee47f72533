"""Requests that wait for an event or a deadline, whichever comes first.

One heap holds the deadlines and one timer of the loop serves the nearest. A completed request stays
in the heap until its deadline or until most of the heap is completed, so parking costs a push and
completing costs nothing.
"""

import asyncio
import heapq
from typing import Protocol

from headwater.seams.clock import Clock

_FIRST_SWEEP = 1024


class Waiter(Protocol):
    """A request that waits until an event or a deadline."""

    @property
    def answered(self) -> bool:
        """Whether the event came first."""

    def expired(self) -> None:
        """The deadline came first."""


class Purgatory:
    """Waiting requests by deadline."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Waiter]] = []
        self._sequence = 0
        self._sweep_at = _FIRST_SWEEP
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._heap)

    def park(self, deadline_ms: int, waiter: Waiter) -> None:
        """Call `waiter.expired()` at the deadline unless the waiter is answered before."""
        self._sequence += 1
        heapq.heappush(self._heap, (deadline_ms, self._sequence, waiter))
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        self._set_timer(deadline_ms)

    def next_deadline(self) -> int | None:
        """Return the nearest deadline of a request that still waits."""
        while self._heap and self._heap[0][2].answered:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def expire(self, now_ms: int) -> None:
        """Expire the requests whose deadline has come."""
        while self._heap and self._heap[0][0] <= now_ms:
            waiter = heapq.heappop(self._heap)[2]
            if not waiter.answered:
                waiter.expired()

    def close(self) -> None:
        """Stop the timer; nothing expires after this."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        delay_s = max(0, deadline_ms - self._clock.monotonic_ms()) / 1000
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.expire(self._clock.monotonic_ms())
        following = self.next_deadline()
        if following is not None and self._timer is None:
            self._set_timer(following)

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].answered]
        heapq.heapify(self._heap)
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._heap))

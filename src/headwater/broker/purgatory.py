"""Requests that wait: a heap of deadlines for those whose event may never come.

An answered waiter stays in the heap until its deadline or until most of the heap is answered,
whichever comes first, so parking costs a push and answering costs nothing.
"""

import heapq
from typing import Protocol


class Waiter(Protocol):
    """Someone who waits until an event or a deadline."""

    @property
    def answered(self) -> bool:
        """Whether the event came first."""

    def expired(self) -> None:
        """The deadline came first."""


class Parked:
    """Waiters by deadline."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Waiter]] = []
        self._sequence = 0
        self._sweep_at = 1024

    def __len__(self) -> int:
        return len(self._heap)

    def park(self, deadline_ms: int, waiter: Waiter) -> None:
        """Call `waiter.expired()` at the deadline unless it was answered before."""
        self._sequence += 1
        heapq.heappush(self._heap, (deadline_ms, self._sequence, waiter))
        if len(self._heap) >= self._sweep_at:
            self._sweep()

    def next_deadline(self) -> int | None:
        """When `expire` must be called next."""
        while self._heap and self._heap[0][2].answered:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def expire(self, now_ms: int) -> None:
        """Tell everyone whose deadline has come."""
        while self._heap and self._heap[0][0] <= now_ms:
            waiter = heapq.heappop(self._heap)[2]
            if not waiter.answered:
                waiter.expired()

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].answered]
        heapq.heapify(self._heap)
        self._sweep_at = max(1024, 2 * len(self._heap))

"""Deadlines as data: which key must act by when.

A shard keeps its deadlines here and pops those that have passed; nothing in this file waits. Moving a
deadline later, as each heartbeat does, costs one dict write: the heap keeps the old entry and checks
the dict when that entry comes up.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
SPARE_ENTRIES = 256


class Now(NamedTuple):
    """One reading of both clocks: deadlines use the monotonic, stored timestamps the wall clock.

    The wall clock may jump by years, and sessions must not expire because of it, so the two never mix.
    """

    monotonic_ms: int
    wall_ms: int


class Deadlines(Generic[K]):
    """At most one deadline per key."""

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._queued: dict[K, int] = {}  # the earliest valid heap entry of a key
        self._serial = 0

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: K, at_ms: int) -> None:
        """Set the deadline of `key`, replacing any earlier one."""
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def cancel(self, key: K) -> None:
        """Remove the deadline of `key`, if any."""
        self._at.pop(key, None)
        if len(self._heap) > SPARE_ENTRIES + 4 * len(self._at):
            self._rebuild()

    def next(self) -> int | None:
        """Return when to call `pop_due` again, or None. May be early, never late."""
        self._drop_forgotten()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return one key whose deadline has passed, or None."""
        while True:
            self._drop_forgotten()
            if not self._heap or self._heap[0][0] > now_ms:
                return None
            _, _, key = heapq.heappop(self._heap)
            del self._queued[key]
            at_ms = self._at[key]
            if at_ms <= now_ms:
                del self._at[key]
                return key
            self._push(key, at_ms)

    def _push(self, key: K, at_ms: int) -> None:
        self._serial += 1  # keeps the order of equal times, and keys out of comparisons
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, self._serial, key))

    def _rebuild(self) -> None:
        """Drop the entries of canceled deadlines: they may be many, and far in the future."""
        self._heap.clear()
        self._queued.clear()
        for key, at_ms in self._at.items():
            self._push(key, at_ms)

    def _drop_forgotten(self) -> None:
        while self._heap:
            at_ms, _, key = self._heap[0]
            current = self._queued.get(key) == at_ms
            if current and key in self._at:
                return
            heapq.heappop(self._heap)
            if current:
                del self._queued[key]

"""Shards load, and drop a deleted topic, one after the other: a step in each round of the event loop.

A broker that takes over fifty partitions would otherwise replay fifty chunks before it reads a socket.
"""

from collections import deque
from collections.abc import Callable

from headwater.seams.timers import CallLater


class ShardTurns:
    """The shards of one coordinator that have a step to take, in turn."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, step: Callable[[], None]) -> None:
        """Call `step` once, in a later round of the event loop."""
        self._waiting.append(step)
        if len(self._waiting) == 1:
            self._call_later(0, self._next)

    def _next(self) -> None:
        step = self._waiting.popleft()
        if self._waiting:
            self._call_later(0, self._next)
        step()

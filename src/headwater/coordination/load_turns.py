"""Shards load one after the other, a chunk of a log in each round of the event loop.

A broker that takes over fifty partitions would otherwise replay fifty chunks before it reads a socket.
"""

from collections import deque
from collections.abc import Callable

from headwater.seams.timers import CallLater


class LoadTurns:
    """The shards of one coordinator that have a chunk to load, in turn."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, load_chunk: Callable[[], None]) -> None:
        """Call `load_chunk` once, in a later round of the event loop."""
        self._waiting.append(load_chunk)
        if len(self._waiting) == 1:
            self._call_later(0, self._next)

    def _next(self) -> None:
        load_chunk = self._waiting.popleft()
        if self._waiting:
            self._call_later(0, self._next)
        load_chunk()

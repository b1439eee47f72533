"""Bytes in, whole frames out, for the client end; large frames are not copied.

Small frames are cut out of one reused buffer. A frame that does not fit gets its own memory, which
the kernel fills directly. Memory that is no longer referenced is
reused, which saves the system from mapping new pages. It grows with the bytes received, never far
beyond them.
"""

import sys
from struct import Struct
from typing import TypeAlias

from headwater.wire.framing import MAX_FRAME
from headwater.wire.primitives import WireError

Frame: TypeAlias = bytes | memoryview

INBOX = 64 * 1024
TRUSTED = 4 * 1024 * 1024
"""An announced frame gets up to this much memory before its bytes are received."""
SPARES = 6
_STEP = 256 * 1024
"""Memory of large frames is rounded up to this, so that the next one fits into it."""
_NOBODY_ELSE = 3
"""References to an unused spare while they are counted: the list, the loop, getrefcount."""
_SIZE = 4
_read_size = Struct(">i").unpack_from


class ResponseReader:
    """One stream's frames, each without its size."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._inbox = bytearray(INBOX)
        self._inbox_view = memoryview(self._inbox)
        self._filled = 0
        self._large: bytearray | None = None
        self._large_size = 0
        self._large_filled = 0
        self._spares: list[bytearray] = []

    @property
    def start(self) -> bytes:
        """The first bytes of what is not a whole frame."""
        return bytes(self._inbox_view[:_SIZE])

    def room(self) -> memoryview:
        """Return the buffer for the next bytes."""
        if self._large is None:
            return self._inbox_view[self._filled :]
        if self._large_filled == len(self._large):
            more = min(self._large_filled, self._large_size - self._large_filled)
            grown = bytearray(self._large_filled + more)  # the loop may hold a view of the old one
            grown[: self._large_filled] = self._large
            self._large = grown
        return memoryview(self._large)[self._large_filled : self._large_size]

    def received(self, count: int) -> list[Frame]:
        """Count `count` received bytes, and return the frames that are complete now."""
        if self._large is None:
            self._filled += count
            return self._cut()
        self._large_filled += count
        if self._large_filled < self._large_size:
            return []
        frame, self._large = memoryview(self._large)[: self._large_size].toreadonly(), None
        return [frame]

    def _cut(self) -> list[Frame]:
        frames: list[Frame] = []
        start, end = 0, self._filled
        while end - start >= _SIZE:
            size: int = _read_size(self._inbox, start)[0]
            if not 0 <= size <= self._limit:
                raise WireError(f"a frame of {size} bytes; {self._limit} is the most")
            stop = start + _SIZE + size
            if stop > end:
                if _SIZE + size > INBOX:
                    self._begin_large(size, start + _SIZE, end)
                    return frames
                break
            frames.append(bytes(self._inbox_view[start + _SIZE : stop]))
            start = stop
        if start:
            self._inbox[: end - start] = self._inbox_view[start:end]
            self._filled = end - start
        return frames

    def _begin_large(self, size: int, start: int, end: int) -> None:
        self._large = self._spare(size) if size <= TRUSTED else bytearray(TRUSTED)
        self._large[: end - start] = self._inbox_view[start:end]
        self._large_size, self._large_filled = size, end - start
        self._filled = 0

    def _spare(self, size: int) -> bytearray:
        """Return memory for `size` bytes that no frame uses."""
        for spare in self._spares:
            if len(spare) >= size and sys.getrefcount(spare) == _NOBODY_ELSE:
                return spare
        fresh = bytearray(-(-size // _STEP) * _STEP)
        self._spares = [fresh, *self._spares[: SPARES - 1]]
        return fresh

"""A bounded set of mapped windows of segments, from which large reads are sent.

A window covers a fixed range of a file, so that a growing segment does not need a new mapping for
each read.
"""

from collections import OrderedDict
from collections.abc import Callable

from headwater.seams.files import Buffer, Files, Pages

WINDOW_BYTES = 64 << 20
WINDOWS = 16


class MmapCache:
    """The most recently used windows. For the thread that owns the logs."""

    __slots__ = ("_files", "_open")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._open: OrderedDict[tuple[str, int], Pages] = OrderedDict()

    def view(
        self, path: str, fd_of: Callable[[str], int], start: int, size: int
    ) -> list[Buffer] | None:
        """Return the bytes in one or two pieces; None unless the page cache has all of them."""
        end = start + size
        pieces: list[Buffer] = []
        while start < end:
            number = start // WINDOW_BYTES
            stop = min(end, (number + 1) * WINDOW_BYTES)
            pages = self._open.get((path, number))
            if pages is None:
                pages = self._map(path, fd_of(path), number)
            piece = None if pages is None else pages.view_resident(start, stop - start)
            if piece is None:
                return None
            self._open.move_to_end((path, number))
            pieces.append(piece)
            start = stop
        return pieces

    def evict(self, path: str) -> None:
        """Unmap a file before it is cut or renamed; slices in use keep their pages."""
        for key in [key for key in self._open if key[0] == path]:
            del self._open[key]

    def _map(self, path: str, fd: int, number: int) -> Pages | None:
        pages = self._files.map(fd, number * WINDOW_BYTES, WINDOW_BYTES)
        if pages is not None:
            if len(self._open) >= WINDOWS:
                self._open.popitem(last=False)
            self._open[path, number] = pages
        return pages

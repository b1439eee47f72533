"""Open files: a bounded set of descriptors that closes the least recently used one first.

If the process or the system runs out of descriptors, half of the set is closed and the open is
retried: running out of descriptors does not mean that the disk failed. Only the thread that owns
the logs may call these methods. A descriptor is valid until the next call, so it must never be
passed to another thread: eviction would give its number to a different file.
"""

import errno
from collections import OrderedDict

from headwater.log.mmap_cache import MmapCache
from headwater.seams.files import Files

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors for too many open files, in this process or in the system."""


class Descriptors:
    """Descriptors by path, opened on first use and closed when there are too many."""

    __slots__ = ("_files", "_limit", "_open", "mmaps")

    def __init__(self, files: Files, limit: int = 4096) -> None:
        self._files = files
        self._limit = limit
        self._open: OrderedDict[str, int] = OrderedDict()
        self.mmaps = MmapCache(files)

    def __len__(self) -> int:
        return len(self._open)

    def of(self, path: str) -> int:
        """Return the descriptor of an existing file."""
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        return self._cache(path, self._open_file(path, create=False))

    def create(self, path: str) -> int:
        """Create a file that must not exist yet, and return its descriptor."""
        return self._cache(path, self._open_file(path, create=True))

    def close_path(self, path: str) -> None:
        """Close the file, if open, before it is renamed or removed."""
        for fd in self.pop_path(path):
            self._files.close(fd)

    def pop_path(self, path: str) -> list[int]:
        """Drop the file from the set; return its descriptor, if open, for the caller to close."""
        self.mmaps.evict(path)
        fd = self._open.pop(path, None)
        return [] if fd is None else [fd]

    def close_half(self) -> int:
        """Close the least recently used half, and return how many."""
        count = (len(self._open) + 1) // 2
        for _ in range(count):
            self._files.close(self._open.popitem(last=False)[1])
        return count

    def close(self) -> None:
        while self._open:
            self._files.close(self._open.popitem()[1])

    def _open_file(self, path: str, *, create: bool) -> int:
        while True:
            try:
                return self._files.open(path, create=create, exclusive=create)
            except OSError as failure:
                if failure.errno not in EXHAUSTED or not self.close_half():
                    raise

    def _cache(self, path: str, fd: int) -> int:
        while len(self._open) >= self._limit:
            self._files.close(self._open.popitem(last=False)[1])
        self._open[path] = fd
        return fd

"""The base of the three index files: fixed-size entries, kept in memory while in use.

Entries are appended in memory and reach the file when the log is flushed, rolled or closed: an
index is only a shortcut through the log and can be rebuilt from it, so the append path never
waits for one. If a file is cut off, padded with zeros or damaged, only the entries before the first
bad one are used, and `damaged` is set.
"""

import struct
from typing import ClassVar

from headwater.log.segment_checksums import SegmentChecksums
from headwater.seams.files import Files, read_file, write_fully


class IndexFile:
    """A file of equal entries, sorted, loaded on first use."""

    __slots__ = ("_entries", "_files", "_saved", "checksums", "damaged", "path", "unsynced")

    ENTRY: ClassVar[struct.Struct]
    RANK: ClassVar[int]
    """The place of the index in the segment's checksums."""

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        fresh: bool = False,
        checksums: SegmentChecksums | None = None,
    ) -> None:
        self._files = files
        self.checksums = checksums
        self.path = path
        self.damaged = False
        self._entries: bytearray | None = bytearray() if fresh else None
        # Bytes known to be in the file; -1: the whole file must be written.
        self._saved = -1 if fresh else 0
        # Whether the file has content that is not synced.
        self.unsynced = False

    @property
    def entries(self) -> bytearray:
        """All entries, packed."""
        entries = self._entries  # read once: the owner may release it while a file thread reads
        return self._load() if entries is None else entries

    @property
    def loaded(self) -> bool:
        """Return whether the entries are in memory."""
        return self._entries is not None

    def load(self) -> None:
        """Read the file if it was not read yet: `damaged` is known after that."""
        if self._entries is None:
            self._load()

    @property
    def count(self) -> int:
        """The number of entries."""
        return len(self.entries) // self.ENTRY.size

    def clear(self) -> None:
        """Drop every entry before a rebuild."""
        self._entries = bytearray()
        self._saved = -1
        self.damaged = False

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        keep = count * self.ENTRY.size
        entries = self.entries
        if keep < len(entries):
            del entries[keep:]
            self._saved = -1

    def unsaved(self) -> tuple[int, bytes] | None:
        """Return the position (-1: the whole file) and the bytes to write; None if all is saved."""
        entries = self._entries
        if entries is None or len(entries) == self._saved:
            return None
        return (
            (-1, bytes(entries))
            if self._saved < 0
            else (self._saved, bytes(entries[self._saved :]))
        )

    def mark_saved(self, start: int, size: int) -> None:
        """Mark what `unsaved` returned as saved, unless it was dropped since."""
        if start == -1 and self._saved == -1:
            self._saved = min(size, len(self.entries))
        elif start == self._saved:
            self._saved = start + size

    def release(self) -> None:
        """Free the memory if every entry is in the file."""
        if self._entries is not None and len(self._entries) == self._saved:
            self._entries = None

    def save(self) -> None:
        """Write what the file lacks."""
        missing = self.unsaved()
        if missing is not None:
            save_entries(self._files, self.path, *missing)
            self.mark_saved(missing[0], len(missing[1]))

    def _load(self) -> bytearray:
        try:
            data = bytearray(read_file(self._files, self.path))
        except FileNotFoundError:
            self._saved = -1
            self.damaged = True
            self._entries = data = bytearray()
            return data
        intact = self._intact(data)
        good = self._good_prefix(data) * self.ENTRY.size if intact else 0
        self.damaged = not intact or good != len(data)
        del data[good:]
        self._saved = -1 if self.damaged else good
        self._entries = data
        return data

    def _intact(self, data: bytearray) -> bool:
        """Return whether the checksums of the segment, if it has any, agree."""
        return self.checksums is None or self.checksums.index_is_intact(self.RANK, data)

    def _good_prefix(self, data: bytearray) -> int:
        """Return how many entries from the start are consistent."""
        raise NotImplementedError


def save_entries(files: Files, path: str, start: int, data: bytes) -> None:
    """Write entries at `start`, or as the whole file for -1. Safe on any thread."""
    fd = files.open(path, create=True)
    try:
        write_fully(files, fd, [data], max(start, 0))
        if start < 0:
            files.truncate(fd, len(data))
    finally:
        files.close(fd)

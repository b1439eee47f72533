"""What the three index files share: fixed-size entries, kept in memory while in use.

Entries are appended in memory and reach the file when the log is flushed, rolled or closed: an
index is only a shortcut through the log and can be rebuilt from it, so the append path never
waits for one. A file that was cut, padded with zeros or damaged is taken up to its last good
entry and says so.
"""

import struct
from typing import ClassVar

from headwater.seams.files import Files, read_file, write_fully


class IndexFile:
    """A file of equal entries, sorted, loaded on first use."""

    __slots__ = ("_entries", "_files", "_saved", "damaged", "path", "unsynced")

    ENTRY: ClassVar[struct.Struct]

    def __init__(self, files: Files, path: str, *, fresh: bool = False) -> None:
        self._files = files
        self.path = path
        self.damaged = False
        self._entries: bytearray | None = bytearray() if fresh else None
        # Bytes known to be in the file; -1 while the file itself is not known to be right.
        self._saved = -1 if fresh else 0
        # Whether a power cut could tear what the file has.
        self.unsynced = False

    @property
    def entries(self) -> bytearray:
        """All entries, packed."""
        entries = self._entries  # once: a file thread may look while the owner gives it back
        return self._load() if entries is None else entries

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self.entries) // self.ENTRY.size

    def clear(self) -> None:
        """Forget every entry, to be built anew."""
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
        """What must be written and where; -1 means the whole file. None when all is saved."""
        entries = self._entries
        if entries is None or len(entries) == self._saved:
            return None
        return (
            (-1, bytes(entries))
            if self._saved < 0
            else (self._saved, bytes(entries[self._saved :]))
        )

    def mark_saved(self, start: int, size: int) -> None:
        """The bytes that `unsaved` told of are in the file, unless they were dropped since."""
        if start == -1 and self._saved == -1:
            self._saved = min(size, len(self.entries))
        elif start == self._saved:
            self._saved = start + size

    def release(self) -> None:
        """Give the memory back where the file has it all."""
        if self._entries is not None and len(self._entries) == self._saved:
            self._entries = None

    def save(self) -> None:
        """Write what is missing, now."""
        missing = self.unsaved()
        if missing is not None:
            save_entries(self._files, self.path, *missing)
            self.mark_saved(missing[0], len(missing[1]))

    def _load(self) -> bytearray:
        try:
            data = bytearray(read_file(self._files, self.path))
        except FileNotFoundError:
            self._entries = data = bytearray()
            self._saved = -1
            self.damaged = True
            return data
        good = self._good_prefix(data) * self.ENTRY.size
        self.damaged = good != len(data)
        del data[good:]
        self._entries = data
        self._saved = -1 if self.damaged else good
        return data

    def _good_prefix(self, data: bytearray) -> int:
        """How many entries from the start make sense together."""
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

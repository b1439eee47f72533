"""Reads one open log file line by line and recognizes it again later.

A line is complete when its newline arrives. Only the first bytes of a long line are kept in memory:
past the limit the rest is skipped, and the line is marked as cut.
"""

import hashlib
from typing import NamedTuple

from headwater.collect.log_files import FileIdentity, LogFiles

HEAD = 1024
"""How many first bytes identify a file."""
CHUNK = 262_144


class FilePosition(NamedTuple):
    """Where reading continues: an offset in the file with this fingerprint."""

    device: int
    inode: int
    offset: int
    head: int
    """How many first bytes the fingerprint covers."""
    fingerprint: str
    left_ns: int | None = None
    """When the file was last written; set once it is finished and a newer one is read."""

    @property
    def identity(self) -> FileIdentity:
        """The file on disk; a copy has another identity."""
        return FileIdentity(self.device, self.inode)


class LogLine(NamedTuple):
    """A line without its newline; only the beginning if it is cut."""

    text: bytes
    is_cut: bool = False


class FileChanged(Exception):
    """The file was truncated or rewritten since the last read."""


class LineReader:
    """Reads one file from an offset."""

    def __init__(self, files: LogFiles, path: str, offset: int, *, max_line: int) -> None:
        self._files = files
        self._fd = files.open(path)
        found = files.identity(self._fd)
        if found is None:
            files.close(self._fd)
            raise OSError(f"{path} is not a regular file")
        self.path = path
        self.identity = found
        self.offset = offset
        """The start of the first unfinished line."""
        self._max_line = max_line
        self._begun = b""
        self._seen = 0
        """Bytes read of the unfinished line; `_begun` holds the first of them."""
        self._head, self._fingerprint = 0, _digest(b"")
        self._take_fingerprint()

    def lines(self, most: int) -> list[LogLine]:
        """Return the lines of one read; raise FileChanged rather than return wrong ones."""
        data = self._files.read(self._fd, CHUNK, self.offset + self._seen)
        if not self._is_unchanged():  # checked after the read: the data came from this file
            raise FileChanged
        *ends, rest = data.split(b"\n", most)
        found = []
        for part in ends:
            self._extend(part)
            found.append(self._finish_line(newline=1))
        if len(ends) < most:  # else the rest is whole lines for the next call
            self._extend(rest)
        self._take_fingerprint()
        return found

    @property
    def is_at_end(self) -> bool:
        """Whether the file is read to its current end."""
        return self._files.size(self._fd) <= self.offset + self._seen

    @property
    def modified_ns(self) -> int:
        """When the file was last written."""
        return self._files.modified_ns(self._fd)

    def last_line(self) -> list[LogLine]:
        """Return what follows the last newline of a file that is no longer written."""
        return [self._finish_line(newline=0)] if self._seen else []

    def skip_to_end(self) -> None:
        """Continue after the last newline in the file."""
        size = self._files.size(self._fd)
        while self.offset < size:
            start = max(self.offset, size - CHUNK)
            newline = self._files.read(self._fd, size - start, start).rfind(b"\n")
            if newline >= 0:
                self.offset = start + newline + 1
                break
            size = start
        self._take_fingerprint()

    def position(self) -> FilePosition:
        """Return where reading continues after the returned lines."""
        return FilePosition(*self.identity, self.offset, self._head, self._fingerprint)

    def continues(self, position: FilePosition) -> bool:
        """Whether this file has the fingerprint of `position` and reaches its offset."""
        size = self._files.size(self._fd)
        return size >= position.offset and self._digest_of(position.head) == position.fingerprint

    def comes_before(self, other: "LineReader") -> bool:
        """Whether this is another file and not newer; a copy is never newer than the truncation."""
        return self.identity != other.identity and self.modified_ns <= other.modified_ns

    def is_of(self, position: FilePosition) -> bool:
        """Whether this is the file of `position`, and not a new file with a reused inode."""
        return self.identity == position.identity and self.continues(position)

    def close(self) -> None:
        self._files.close(self._fd)

    def _extend(self, part: bytes) -> None:
        self._begun += part[: max(0, self._max_line + 1 - len(self._begun))]
        self._seen += len(part)

    def _finish_line(self, newline: int) -> LogLine:
        text, is_cut = self._begun, self._seen > self._max_line
        self.offset += self._seen + newline
        self._begun, self._seen = b"", 0
        return LogLine(text[: self._max_line] if is_cut else text.removesuffix(b"\r"), is_cut)

    def _is_unchanged(self) -> bool:
        size = self._files.size(self._fd)
        if size < self.offset + self._seen:
            return False
        begun = self._begun[:HEAD]
        if begun and self._files.read(self._fd, len(begun), self.offset) != begun:
            return False
        return self._digest_of(self._head) == self._fingerprint

    def _take_fingerprint(self) -> None:
        """Fingerprint only returned lines, up to the limit: an unfinished line may change."""
        length = min(HEAD, self.offset)
        if length > self._head:
            self._head, self._fingerprint = length, self._digest_of(length)

    def _digest_of(self, length: int) -> str:
        return _digest(self._files.read(self._fd, length, 0) if length else b"")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]

"""One open log file, read line by line, and how it is known again.

A line counts once its newline is there. However long it is, only its beginning is held: past the
limit the rest is passed over, and the line comes out marked as cut.
"""

import hashlib
from typing import NamedTuple

from headwater.collect.log_files import FileIdentity, LogFiles

HEAD = 1024
"""So many first bytes tell a file from another."""
CHUNK = 262_144


class FilePosition(NamedTuple):
    """Where reading goes on: after so many bytes of the file that begins like this."""

    device: int
    inode: int
    offset: int
    head: int
    """How many first bytes the fingerprint is of."""
    fingerprint: str
    left_ns: int | None = None
    """When the file was last written, once it was read to its end and left for a newer one."""

    @property
    def identity(self) -> FileIdentity:
        """The file, as long as nobody copies it."""
        return FileIdentity(self.device, self.inode)


class LogLine(NamedTuple):
    """A line without its end; of a cut one the beginning."""

    text: bytes
    is_cut: bool = False


class FileChanged(Exception):
    """The file is not the one that was read so far: it was cut, or written anew."""


class LineReader:
    """Reads one file from an offset on."""

    def __init__(self, files: LogFiles, path: str, offset: int, *, max_line: int) -> None:
        self._files = files
        self._fd = files.open(path)
        found = files.identity(self._fd)
        if found is None:
            files.close(self._fd)
            raise OSError(f"{path} is no regular file")
        self.path = path
        self.identity = found
        self.offset = offset
        """The start of the first line that is not finished."""
        self._max_line = max_line
        self._begun = b""
        self._seen = 0
        """Bytes of the unfinished line that were read; `_begun` holds the first of them."""
        self._head, self._fingerprint = 0, _digest(b"")
        self._take_fingerprint()

    def lines(self, most: int) -> list[LogLine]:
        """The next lines, as far as one read goes; ChangedUnderneath instead of wrong ones."""
        data = self._files.read(self._fd, CHUNK, self.offset + self._seen)
        if not self._is_unchanged():  # asked after the read: what was read came from this file
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
        """Whether all that there is was read."""
        return self._files.size(self._fd) <= self.offset + self._seen

    @property
    def modified_ns(self) -> int:
        """When the file was last written."""
        return self._files.modified_ns(self._fd)

    def last_line(self) -> list[LogLine]:
        """What stands after the last newline, of a file that nobody writes any more."""
        return [self._finish_line(newline=0)] if self._seen else []

    def skip_to_end(self) -> None:
        """Go on after the last newline that there is now."""
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
        """Where to go on after the lines that were given out."""
        return FilePosition(*self.identity, self.offset, self._head, self._fingerprint)

    def continues(self, position: FilePosition) -> bool:
        """Whether this file begins like that one and is as long as what was read of it."""
        size = self._files.size(self._fd)
        return size >= position.offset and self._digest_of(position.head) == position.fingerprint

    def comes_before(self, other: "LineReader") -> bool:
        """Whether this is another file and not younger; a copy is as old as the cut, or older."""
        return self.identity != other.identity and self.modified_ns <= other.modified_ns

    def is_of(self, position: FilePosition) -> bool:
        """Whether this is that file, and not another one that was given its inode."""
        return self.identity == position.identity and self.continues(position)

    def close(self) -> None:
        """Let go of the file."""
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
        """Of as much as was given out, up to the limit: a line not yet finished may change."""
        length = min(HEAD, self.offset)
        if length > self._head:
            self._head, self._fingerprint = length, self._digest_of(length)

    def _digest_of(self, length: int) -> str:
        return _digest(self._files.read(self._fd, length, 0) if length else b"")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]

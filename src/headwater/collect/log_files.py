"""Log files of other programs: read-only, identified by device and inode.

`LogFiles` is everything that the tail may do to them; tests implement it without a disk.
"""

import os
import stat
from typing import NamedTuple, Protocol

from headwater.seams.files import OsFiles


class FileIdentity(NamedTuple):
    """The file behind a name; a rename does not change it."""

    device: int
    inode: int


class LogFiles(Protocol):
    """Read access to files that other programs write."""

    def open(self, path: str) -> int:
        """Return a descriptor to read from."""

    def close(self, fd: int) -> None: ...

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Return up to `size` bytes at `offset`; empty at the end."""

    def size(self, fd: int) -> int: ...

    def modified_ns(self, fd: int) -> int: ...

    def identity(self, at: int | str) -> FileIdentity | None:
        """Identify an open descriptor or a path; None if it is not a regular file."""

    def siblings(self, path: str) -> list[str]:
        """Return the paths of all other files in the folder of `path`."""


class OsLogFiles:
    """Log files on the operating system's disk."""

    def __init__(self) -> None:
        self._files = OsFiles()

    def open(self, path: str) -> int:
        """Return a descriptor to read from."""
        return self._files.open(path, write=False)

    def close(self, fd: int) -> None:
        self._files.close(fd)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        return self._files.pread(fd, size, offset)

    def size(self, fd: int) -> int:
        return self._files.size(fd)

    def modified_ns(self, fd: int) -> int:
        return os.fstat(fd).st_mtime_ns

    def identity(self, at: int | str) -> FileIdentity | None:
        try:
            found = os.stat(at)
        except FileNotFoundError:
            return None
        return FileIdentity(found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None

    def siblings(self, path: str) -> list[str]:
        folder, _, name = path.rpartition("/")
        try:
            names = self._files.listdir(folder or "/")
        except FileNotFoundError:
            return []
        return [f"{folder}/{other}" for other in names if other != name]

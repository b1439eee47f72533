"""Log files of other programs: read only, known by device and inode, found under any name.

`LogFiles` is all that the tail may do to them; a test can stand in for the disk here.
"""

import os
import stat
from typing import NamedTuple, Protocol

from headwater.seams.files import OsFiles


class FileIdentity(NamedTuple):
    """The file behind a name; it keeps this when it is renamed."""

    device: int
    inode: int


class LogFiles(Protocol):
    """Files that others write."""

    def open(self, path: str) -> int:
        """A descriptor to read from."""

    def close(self, fd: int) -> None:
        """Give it back."""

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; none at the end."""

    def size(self, fd: int) -> int:
        """The length of the open file."""

    def modified_ns(self, fd: int) -> int:
        """When the open file was last written."""

    def identity(self, at: int | str) -> FileIdentity | None:
        """Which file is open, or stands under a name; None where there is no regular file."""

    def siblings(self, path: str) -> list[str]:
        """The other names in the folder of `path`, as paths."""


class OsLogFiles:
    """The operating system's."""

    def __init__(self) -> None:
        self._files = OsFiles()

    def open(self, path: str) -> int:
        """A descriptor to read from."""
        return self._files.open(path, write=False)

    def close(self, fd: int) -> None:
        """Give it back."""
        self._files.close(fd)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """One pread call."""
        return self._files.pread(fd, size, offset)

    def size(self, fd: int) -> int:
        """The length of the open file."""
        return self._files.size(fd)

    def modified_ns(self, fd: int) -> int:
        """When the open file was last written."""
        return os.fstat(fd).st_mtime_ns

    def identity(self, at: int | str) -> FileIdentity | None:
        """Which file that is."""
        try:
            found = os.stat(at)
        except FileNotFoundError:
            return None
        return FileIdentity(found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None

    def siblings(self, path: str) -> list[str]:
        """The other names in the folder of `path`."""
        folder, _, name = path.rpartition("/")
        try:
            names = self._files.listdir(folder or "/")
        except FileNotFoundError:
            return []
        return [f"{folder}/{other}" for other in names if other != name]

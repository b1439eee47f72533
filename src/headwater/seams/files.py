"""Files: raw descriptors and names, so that an acknowledged byte is in the page cache.

Logs, stores and checkpoints access the disk only through `Files`. Callers handle short
counts (or use `write_fully`, `read_fully`); errors are OSError with errno.
"""

import errno
import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

IOV_MAX = 1024
PIECE = 4 << 20

SYNC_THREADS = 16

LARGE_FILE = 4 << 20
"""A file of this size or more is written back in pieces before it is synced."""

RunAll: TypeAlias = Callable[[Sequence[Callable[[], None]]], None]
"""Runs blocking file calls and returns when all are done."""


class Pages(Protocol):
    """A mapped window of a file."""

    def view_resident(self, start: int, size: int) -> memoryview | None:
        """Return bytes of the page cache, for a socket only; None if some are missing."""


class Files(Protocol):
    """A file system."""

    def open(
        self, path: str, *, create: bool = False, write: bool = True, exclusive: bool = False
    ) -> int:
        """Return a descriptor; `create` makes a missing file, `exclusive` refuses an existing one."""

    def close(self, fd: int) -> None:
        """Close the descriptor."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Write at `offset`; the count may be short. At most IOV_MAX buffers."""

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Return up to `size` bytes, fewer at the end of the file or if interrupted."""

    def pread_now(self, fd: int, size: int, offset: int) -> bytes | None:
        """Like pread, from the page cache only: None if the disk would have to be read."""

    def map(self, fd: int, offset: int, size: int) -> Pages | None:
        """Map a window of the file, possibly past its end; None if files cannot be mapped."""

    def size(self, fd: int) -> int:
        """The file's length in bytes."""

    def truncate(self, fd: int, size: int) -> None:
        """Cut or extend (with zeros) to `size`."""

    def write_back(self, fd: int) -> None:
        """Begin what `fdatasync` does with much new data, so that appends meanwhile wait less."""

    def fdatasync(self, fd: int) -> None:
        """Return when the file's data is on the disk."""

    def sync_dir(self, path: str) -> None:
        """Return when the entries of the folder are on the disk."""

    def mkdir(self, path: str) -> None:
        """Create a folder and its parents; do nothing if it exists."""

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically."""

    def unlink(self, path: str) -> None:
        """Remove a file; an absent one raises FileNotFoundError."""

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of that name."""

    def is_dir(self, path: str) -> bool:
        """Whether there is a folder of that name."""

    def path_size(self, path: str) -> int:
        """The length of the file of that name."""

    def modified_ms(self, path: str) -> int:
        """When the file of that name was last written, in milliseconds since 1970."""

    def space(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the disk that holds `path`."""

    def device(self, path: str) -> int:
        """Return the device number of the disk that holds `path`."""

    def lock(self, path: str) -> int:
        """Create and lock a file; raise BlockingIOError if another process holds the lock."""


_PRIVATE_FILE = 0o600
_PRIVATE_FOLDER = 0o700


class OsFiles:
    """The operating system's file system. Only the broker's user can read the files it creates."""

    def open(
        self, path: str, *, create: bool = False, write: bool = True, exclusive: bool = False
    ) -> int:
        """A raw, close-on-exec descriptor."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        return os.open(path, flags, _PRIVATE_FILE)

    def close(self, fd: int) -> None:
        """Close the descriptor."""
        os.close(fd)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        """One pwritev call."""
        return os.pwritev(fd, buffers, offset)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """One pread call."""
        return os.pread(fd, size, offset)

    def pread_now(self, fd: int, size: int, offset: int) -> bytes | None:
        """One preadv call with RWF_NOWAIT."""
        into = bytearray(size)
        try:
            count = os.preadv(fd, [into], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            # This file system cannot tell what is cached; most such systems keep everything in
            # memory.
            return os.pread(fd, size, offset)
        if count == size:
            return into  # type: ignore[return-value]
        return bytes(into[:count])

    def map(self, fd: int, offset: int, size: int) -> Pages | None:
        """Return a shared mapping; the first call imports the module."""
        from headwater.seams.pages import MappedPages

        try:
            return MappedPages(fd, offset, size)
        except OSError:
            return None

    def size(self, fd: int) -> int:
        """The file's length in bytes."""
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        """Cut or extend to `size`."""
        os.ftruncate(fd, size)

    def write_back(self, fd: int) -> None:
        """Write the dirty pages of a large file in pieces."""
        if os.fstat(fd).st_size >= LARGE_FILE:
            from headwater.seams.writeback import write_back

            write_back(fd)

    def fdatasync(self, fd: int) -> None:
        """Flush the data and its size."""
        os.fdatasync(fd)

    def sync_dir(self, path: str) -> None:
        """Flush the folder itself."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def mkdir(self, path: str) -> None:
        """Make a folder and its parents."""
        os.makedirs(path, _PRIVATE_FOLDER, exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(os.listdir(path))

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of that name."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """Whether there is a folder of that name."""
        return os.path.isdir(path)

    def path_size(self, path: str) -> int:
        """The length of the file of that name."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """When the file of that name was last written."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def space(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the disk."""
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def device(self, path: str) -> int:
        """The device number."""
        return os.stat(path).st_dev

    def lock(self, path: str) -> int:
        """Take an exclusive advisory lock that ends with the process."""
        import fcntl

        fd = self.open(path, create=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd


def run_in_turn(calls: Sequence[Callable[[], None]]) -> None:
    """Run blocking calls one after the other."""
    for call in calls:
        call()


def run_side_by_side(calls: Sequence[Callable[[], None]]) -> None:
    """Run blocking calls on many threads: the file system commits concurrent syncs together."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="headwater-sync") as threads:
        for _ in threads.map(lambda call: call(), calls):
            pass


def write_fully(files: Files, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
    """Write every byte and return the count; after an OSError a part may be written."""
    done = 0
    pending = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
    while pending:
        count = files.pwritev(fd, pending[:IOV_MAX], offset + done)
        if count <= 0:
            raise OSError("a write made no progress")
        done += count
        while pending and count >= len(pending[0]):
            count -= len(pending.pop(0))
        if count:
            pending[0] = pending[0][count:]
    return done


def read_fully(files: Files, fd: int, size: int, offset: int) -> bytes:
    """Read `size` bytes, fewer only at the end of the file."""
    data = files.pread(fd, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    done = len(data)
    while done < size:
        more = files.pread(fd, size - done, offset + done)
        if not more:
            break
        parts.append(more)
        done += len(more)
    return b"".join(parts)


def write_again(files: Files, fd: int, start: int, end: int) -> None:
    """Write the bytes from `start` to `end` once more, so that the next sync stores them.

    After a failed sync, Linux shows what was written as if it were stored, and no later sync writes it.
    """
    while start < end:
        data = read_fully(files, fd, min(PIECE, end - start), start)
        if not data:
            return
        start += write_fully(files, fd, [data], start)


def read_file(files: Files, path: str) -> bytes:
    """Return the whole content of a small file."""
    fd = files.open(path, write=False)
    try:
        return read_fully(files, fd, files.size(fd), 0)
    finally:
        files.close(fd)


def replace_file(files: Files, path: str, content: bytes, *, sync: bool = True) -> None:
    """Replace the file by `content`, atomically even in a power failure.

    Without `sync` it is atomic only if the process is killed: after a power failure the reader must
    be able to detect a damaged file and do without it.
    """
    temporary = path + ".tmp"
    fd = files.open(temporary, create=True)
    try:
        files.truncate(fd, 0)
        write_fully(files, fd, [content], 0)
        if sync:
            files.fdatasync(fd)
    finally:
        files.close(fd)
    files.rename(temporary, path)
    if sync:
        files.sync_dir(path.rpartition("/")[0])

"""The file system of one process: the disk, the process's descriptors, and its faults.

Each operation that changes something has a number. A plan may kill the process before any of them,
or in the middle of a write; a disk may be full or broken. After its death a process can only close
its descriptors, which has no effect.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from posixpath import normpath
from typing import NamedTuple

from headwater.seams.clock import Clock
from headwater.seams.files import Buffer
from simulator.disk import Disk, File, Folder, Node
from simulator.loop import Crashed
from simulator.randomness import Stream
from simulator.trace import Trace

ROOM = 1 << 40
MANY_DESCRIPTORS = 1 << 20


@dataclass(slots=True)
class FileFaults:
    """The possible faults and their probabilities."""

    crash_before: int | None = None
    """The number of the operation before which the process dies."""
    cold: float = 0.0
    """How often bytes are not in the page cache."""
    short: float = 0.0
    """How often a read or write handles only a part."""
    full: bool = False
    """Whether the disk is full."""
    freed: int = 0
    """Bytes that were unlinked while the disk was full, and can be used."""
    broken: str = ""
    """Names of operations that fail, separated by spaces."""
    broken_under: str = ""
    """Where they fail: below this path."""
    broken_after: int = 0
    """How many of them still succeed."""
    error: int = errno.EIO
    """With which error they fail."""
    refusals: int = 0
    """How often an operation failed that way."""
    descriptors: int = MANY_DESCRIPTORS
    """The limit of open files of a process."""


class _Open(NamedTuple):
    file: File
    path: str


class Change(NamedTuple):
    """An operation that is about to change something."""

    kind: str
    path: str
    at: int = 0
    content: bytes = b""
    """What a write is about to write, and where."""


def ignore_change(_: Change) -> None:
    """Do nothing before an operation."""


class SimFiles:
    """A `seams.Files` for one life of one process."""

    def __init__(
        self, disk: Disk, clock: Clock, chance: Stream, trace: Trace, faults: FileFaults
    ) -> None:
        self.disk = disk
        self.faults = faults
        self.operations = 0
        """The number of changing operations of this process."""
        self.on_crash: Callable[[], None] = lambda: None
        self.before: Callable[[Change], None] = ignore_change
        """Called before each changing operation."""
        self.homes: tuple[str, ...] = ("/",)
        """The folders below which the process may touch files."""
        self.on_outside: Callable[[str], None] = lambda path: None
        """Called with each path that is not there."""
        self.dead = False
        self.open_files: dict[int, _Open] = {}
        self._clock = clock
        self._chance = chance
        self._trace = trace
        self._next_fd = 3

    def die(self) -> None:
        """End the process with its descriptors and locks."""
        self.dead = True
        self.open_files.clear()
        self.disk.locks = {
            file: owner for file, owner in self.disk.locks.items() if owner is not self
        }

    # -- descriptors

    def open(
        self, path: str, *, create: bool = False, write: bool = True, exclusive: bool = False
    ) -> int:
        """A descriptor."""
        self._check_alive()
        if len(self.open_files) >= self.faults.descriptors:
            raise OSError(errno.EMFILE, "too many open files", path)
        node = self._find(path)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        if node is not None and exclusive:
            raise FileExistsError(errno.EEXIST, "exists", path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._change("create", path, needs_room=True)
            folder, name = self._folder_of(path)
            node = File()
            folder.link(name, node)
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self.open_files[fd] = _Open(node, path)
        return fd

    def close(self, fd: int) -> None:
        """Close the descriptor, and release a lock held through it."""
        if self.dead:
            return
        closed = self.open_files.pop(fd)
        if self.disk.locks.get(closed.file) is self:
            del self.disk.locks[closed.file]

    def lock(self, path: str) -> int:
        """Make and lock a file."""
        fd = self.open(path, create=True)
        file = self.open_files[fd].file
        if file in self.disk.locks:
            del self.open_files[fd]
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.disk.locks[file] = self
        return fd

    # -- bytes

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Write; a dying process or a full disk may leave a part behind."""
        self._check_alive()
        file, path = self.open_files[fd]
        content = b"".join(buffers)
        try:
            grows = offset + len(content) > len(file.data)
            self._change("write", path, needs_room=grows, content=content, at=offset)
        except (Crashed, OSError):
            if content and "write" not in self.faults.broken:
                self._write(file, offset, content[: self._chance.randrange(len(content))])
            raise
        if len(content) > 1 and self._chance.random() < self.faults.short:
            content = content[: self._chance.randrange(1, len(content))]
        self._write(file, offset, content)
        return len(content)

    def _write(self, file: File, offset: int, content: bytes) -> None:
        if content:
            file.write(offset, content)
            file.modified_ms = self._clock.wall_ms()

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Read, sometimes less than there is."""
        self._check_alive()
        self._fail_if_broken("read", self.open_files[fd].path)
        if size > 1 and self._chance.random() < self.faults.short:
            size = self._chance.randrange(1, size)
        return bytes(self.open_files[fd].file.data[offset : offset + size])

    def pread_now(self, fd: int, size: int, offset: int) -> bytes | None:
        """Read, or None where the page cache happens to have nothing."""
        self._check_alive()
        if self._chance.random() < self.faults.cold:
            return None
        return bytes(self.open_files[fd].file.data[offset : offset + size])

    def map(self, fd: int, offset: int, size: int) -> None:
        """Simulated files are not mapped."""

    def size(self, fd: int) -> int:
        """The length that programs see."""
        self._check_alive()
        return len(self.open_files[fd].file.data)

    def truncate(self, fd: int, size: int) -> None:
        """Cut or extend."""
        self._check_alive()
        file, path = self.open_files[fd]
        self._change("truncate", path)
        file.truncate(size)
        file.modified_ms = self._clock.wall_ms()

    def write_back(self, fd: int) -> None:
        """Do nothing: it makes nothing durable."""

    def fdatasync(self, fd: int) -> None:
        """Make the bytes durable."""
        self._check_alive()
        file, path = self.open_files[fd]
        try:
            self._change("fdatasync", path)
        except OSError:
            file.fail_sync()
            raise
        file.sync()

    # -- names

    def sync_dir(self, path: str) -> None:
        """Make the names durable."""
        self._check_alive()
        self._change("sync_dir", path)
        self._folder(path).sync()

    def mkdir(self, path: str) -> None:
        """Make a folder and its parents."""
        self._check_alive()
        if not self.is_dir(path):
            self._change("mkdir", path, needs_room=True)
            self.disk.make_folders(path)

    def listdir(self, path: str) -> list[str]:
        """The names, sorted."""
        self._check_alive()
        return sorted(self._folder(path).entries)

    def rename(self, old: str, new: str) -> None:
        """Replace one name by another of the same folder."""
        self._check_alive()
        folder, old_name = self._folder_of(old)
        target, new_name = self._folder_of(new)
        if folder is not target:
            raise OSError(errno.EXDEV, "a move to another folder is not simulated", new)
        if old_name not in folder.entries:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        replaced = folder.entries.get(new_name)
        if isinstance(replaced, Folder) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, "a folder with files has that name", new)
        self._change("rename", f"{old} {new_name}")
        folder.rename(old_name, new_name)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._check_alive()
        if not isinstance(self._find(path), File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._change("unlink", path)
        if self.faults.full:
            self.faults.freed += self.path_size(path)
        folder, name = self._folder_of(path)
        folder.unlink(name)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        self._check_alive()
        if self._folder(path).entries:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self._change("rmdir", path)
        folder, name = self._folder_of(path)
        folder.unlink(name)

    # -- looking

    def exists(self, path: str) -> bool:
        """Whether there is anything of that name."""
        self._check_alive()
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        """Whether there is a folder of that name."""
        self._check_alive()
        return isinstance(self._find(path), Folder)

    def path_size(self, path: str) -> int:
        """The length of the file of that name."""
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        """When the file of that name was last written."""
        return self._file(path).modified_ms

    def space(self, path: str) -> tuple[int, int]:
        """Return a lot of free space, or none."""
        self._check_alive()
        return ROOM, 0 if self.faults.full else ROOM // 2

    def device(self, path: str) -> int:
        """Return the number of the only disk."""
        self._check_alive()
        return 0

    # -- inside

    def _find(self, path: str) -> Node | None:
        self._guard(path)
        return self.disk.find(path)

    def _folder_of(self, path: str) -> tuple[Folder, str]:
        self._guard(path)
        return self.disk.folder_of(path)

    def _guard(self, path: str) -> None:
        if not _is_below(path, self.homes):
            self.on_outside(path)

    def _file(self, path: str) -> File:
        self._check_alive()
        node = self._find(path)
        if not isinstance(node, File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _folder(self, path: str) -> Folder:
        node = self._find(path)
        if not isinstance(node, Folder):
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        return node

    def _check_alive(self) -> None:
        if self.dead:
            raise Crashed

    def _change(
        self, kind: str, path: str, *, needs_room: bool = False, content: bytes = b"", at: int = 0
    ) -> None:
        """Count an operation that changes something, and let it fail as planned."""
        self.before(Change(kind, path, at, content))
        if self.operations == self.faults.crash_before:
            self._trace.note(f"crash before {self.operations} {kind} {path}")
            self.on_crash()
            raise Crashed
        self.operations += 1
        self._trace.note(f"{kind} {path}", content)
        self._fail_if_broken(kind, path)
        if needs_room and self.faults.full:
            if self.faults.freed <= len(content):
                raise OSError(errno.ENOSPC, "no room left", path)
            self.faults.freed -= len(content)

    def _fail_if_broken(self, kind: str, path: str) -> None:
        faults = self.faults
        if faults.broken and kind in faults.broken.split() and path.startswith(faults.broken_under):
            if faults.broken_after:
                faults.broken_after -= 1
                return
            faults.refusals += 1
            raise OSError(faults.error, "the disk is broken", path)


@lru_cache(maxsize=10_000)
def _is_below(path: str, homes: tuple[str, ...]) -> bool:
    """Whether a path leads to one of the folders or into it, whatever dots are in it."""
    place = normpath(path)
    return any(place == home or place.startswith(f"{home.rstrip('/')}/") for home in homes)

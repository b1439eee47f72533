"""A disk with two states: what programs see, and what would survive a power failure.

Bytes are durable after a sync of their file, names after a sync of their folder. Until then both
are pending operations; a power failure keeps any of them: all, none, some, or a part of one, cut at
a sector. The death of a process changes nothing: the page cache outlives it. After a failed sync,
programs still see what was written, but no later sync makes it durable: Linux takes the pages for
stored.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

from simulator.randomness import Stream

SECTOR = 512
LOSSES = ("all", "none", "some", "torn")
"""What a power failure may keep of the pending changes of a file."""


class File:
    """The bytes of a file, with the changes that are not durable yet."""

    __slots__ = ("data", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        """Writes (offset, bytes) and cuts (size, None) since the last sync, in order."""
        self.modified_ms = 0

    def write(self, offset: int, content: bytes) -> None:
        """Change what programs see."""
        _write(self.data, offset, content)
        self.pending.append((offset, content))

    def truncate(self, size: int) -> None:
        """Cut or extend what programs see."""
        _truncate(self.data, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        """Make it durable."""
        for offset, content in self.pending:
            _apply(self.durable, offset, content)
        self.pending.clear()

    def fail_sync(self) -> None:
        """Lose the pending writes for good; the length of the file is in the journal and stays."""
        self.pending = [(size, None) for size, content in self.pending if content is None]

    def copy(self, copies: "dict[int, Node]") -> "File":
        """Return a copy of the file, the same one each time."""
        known = copies.get(id(self))
        if isinstance(known, File):
            return known
        copies[id(self)] = copy = File()
        copy.data, copy.durable = self.data[:], self.durable[:]
        copy.pending, copy.modified_ms = self.pending[:], self.modified_ms
        return copy

    def lose_power(self, chance: Stream, losses: Sequence[str] = LOSSES) -> None:
        """Keep what was synced, and a random part of the rest."""
        match chance.choice(losses):
            case "all":
                self.sync()
            case "none":
                pass
            case "some":
                self.pending = [change for change in self.pending if chance.random() < 0.5]
                self.sync()
            case _:
                self._tear(chance)
        self.pending.clear()
        self.data = bytearray(self.durable)

    def _tear(self, chance: Stream) -> None:
        """Keep the first changes and some sectors of the next one."""
        whole = chance.randrange(len(self.pending) + 1)
        torn = self.pending[whole : whole + 1]
        self.pending = self.pending[:whole]
        self.sync()
        for offset, content in torn:
            for at, sector in _sectors(offset, content or b""):
                if chance.random() < 0.5:
                    _write(self.durable, at, sector)


class Folder:
    """The names of a folder, with the changes that are not durable yet."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[tuple[str, str, Node | None]] = []
        """(name, former name or "", node or None for a removal), in order."""

    def link(self, name: str, node: "Node") -> None:
        """Give a new node a name."""
        self._change(name, "", node)

    def unlink(self, name: str) -> None:
        """Remove a name."""
        self._change(name, "", None)

    def rename(self, old: str, new: str) -> None:
        """Replace one name by another in one step."""
        self._change(new, old, self.entries[old])

    def _change(self, name: str, former: str, node: "Node | None") -> None:
        self.pending.append((name, former, node))
        _relink(self.entries, name, former, node)

    def sync(self) -> None:
        """Make the names durable."""
        for change in self.pending:
            _relink(self.durable, *change)
        self.pending.clear()

    def copy(self, copies: "dict[int, Node]") -> "Folder":
        """Return a copy of the folder and of everything in it, the same one each time."""
        known = copies.get(id(self))
        if isinstance(known, Folder):
            return known
        copies[id(self)] = copy = Folder()
        copy.entries = {name: node.copy(copies) for name, node in self.entries.items()}
        copy.durable = {name: node.copy(copies) for name, node in self.durable.items()}
        copy.pending = [
            (name, former, None if node is None else node.copy(copies))
            for name, former, node in self.pending
        ]
        return copy

    def lose_power(self, chance: Stream, losses: Sequence[str] = LOSSES) -> None:
        """Keep the first of the pending changes, as a journalling file system does."""
        if losses == ("none",):
            self.pending.clear()
        elif losses != ("all",):
            self.pending = self.pending[: chance.randrange(len(self.pending) + 1)]
        self.sync()
        self.entries = dict(self.durable)
        for name in sorted(self.entries):
            self.entries[name].lose_power(chance, losses)


Node: TypeAlias = File | Folder


class Disk:
    """A tree of folders and files that outlives the processes on it."""

    def __init__(self) -> None:
        self.root = Folder()
        self.locks: dict[File, object] = {}
        """The holder of each lock file."""

    def find(self, path: str) -> Node | None:
        """Return the file or folder with this name, if any."""
        node: Node | None = self.root
        for part in _parts(path):
            if not isinstance(node, Folder):
                return None
            node = node.entries.get(part)
        return node

    def folder_of(self, path: str) -> tuple[Folder, str]:
        """Return the folder of a path, and its last name; raise FileNotFoundError."""
        parent, _, name = path.rpartition("/")
        folder = self.find(parent)
        if not isinstance(folder, Folder):
            raise FileNotFoundError(2, "no such folder", path)
        return folder, name

    def make_folders(self, path: str) -> None:
        """Create a folder and its parents."""
        folder = self.root
        for part in _parts(path):
            following = folder.entries.get(part)
            if following is None:
                following = Folder()
                folder.link(part, following)
            if not isinstance(following, Folder):
                raise FileExistsError(17, "a file has that name", path)
            folder = following

    def sync_all(self) -> None:
        """Make everything durable."""
        for _, node in self.walk():
            node.sync()
        self.root.sync()

    def copy(self) -> "Disk":
        """Return a disk with the same content, durable and pending; nobody holds its locks."""
        copy = Disk()
        copy.root = self.root.copy({})
        return copy

    def lose_power(self, chance: Stream, losses: Sequence[str] = LOSSES) -> None:
        """Lose power, and keep what is durable and a random part of the rest."""
        self.root.lose_power(chance, losses)

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Yield every path below the root with its file or folder, in order."""
        waiting: list[tuple[str, Node]] = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            if path:
                yield path, node
            if isinstance(node, Folder):
                waiting += [
                    (f"{path}/{name}", node.entries[name])
                    for name in sorted(node.entries, reverse=True)
                ]


@lru_cache(maxsize=10_000)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _relink(entries: dict[str, Node], name: str, former: str, node: Node | None) -> None:
    if former:
        entries.pop(former, None)
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _apply(data: bytearray, offset: int, content: bytes | None) -> None:
    if content is None:
        _truncate(data, offset)
    else:
        _write(data, offset, content)


def _truncate(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def _write(data: bytearray, offset: int, content: bytes) -> None:
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(content)] = content


def _sectors(offset: int, content: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a write into sectors."""
    at = 0
    while at < len(content):
        size = SECTOR - (offset + at) % SECTOR
        yield offset + at, content[at : at + size]
        at += size

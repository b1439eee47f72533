"""The embedded store's tree in memory: ZooKeeper's rules for nodes, versions and counters.

Pure: a transaction is checked and applied here, and returned as the plain edits that a journal can
replay. It must never apply half of a multi, and replaying edits must give the very same tree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Op,
    OpResult,
    Set,
    Stat,
    StoreError,
    StoreFailure,
    WatchEvent,
    Znode,
)

ROOT = "/"


class Made(NamedTuple):
    """A node came; `owner` is the session of an ephemeral one, else 0."""

    path: str
    data: bytes
    owner: int


class Wrote(NamedTuple):
    """A node's data changed."""

    path: str
    data: bytes


class Removed(NamedTuple):
    """A node went."""

    path: str


Edit: TypeAlias = Made | Wrote | Removed


@dataclass(slots=True)
class TreeNode:
    """One node; `children` is None until the first one comes, as most nodes are leaves."""

    data: bytes
    czxid: int
    mzxid: int
    version: int = 0
    cversion: int = 0
    owner: int = 0
    sequence: int = 0
    children: set[str] | None = None

    def adopt(self, name: str) -> None:
        """Take in a child."""
        if self.children is None:
            self.children = set()
        self.children.add(name)

    def abandon(self, name: str) -> None:
        """Let a child go."""
        if self.children is not None:
            self.children.discard(name)

    def stat(self) -> Stat:
        """The node as clients see it."""
        count = len(self.children) if self.children else 0
        return Stat(self.czxid, self.mzxid, self.version, self.cversion, self.owner, count)


_Before: TypeAlias = tuple[bytes, int] | TreeNode | None
"""What an edit replaced: old data and mzxid of a write, the node of a removal, nothing of a creation."""


def parent_of(path: str) -> str:
    """The path of the parent; the root's is the root."""
    return path.rpartition("/")[0] or ROOT


class Tree:
    """All nodes by path, and the number of the last transaction."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, TreeNode] = {ROOT: TreeNode(b"", 0, 0)}

    def get(self, path: str) -> Znode:
        """Data and stat."""
        node = self._node(path)
        return Znode(node.data, node.stat())

    def children(self, path: str) -> list[str]:
        """Sorted names."""
        return sorted(self._node(path).children or ())

    def ephemerals(self) -> Iterator[str]:
        """The paths of all ephemeral nodes."""
        return (path for path, node in self.nodes.items() if node.owner)

    def transact(self, ops: Sequence[Op], session: int) -> tuple[list[OpResult], list[Edit]]:
        """Apply all of `ops` as the next transaction, or raise StoreError and apply none."""
        done: list[tuple[Edit, _Before]] = []
        zxid = self.zxid + 1
        try:
            results = [self._apply(op, zxid, session, done) for op in ops]
        except StoreError:
            for edit, before in reversed(done):
                self._undo(edit, before)
            raise
        if done:
            self.zxid = zxid
        return results, [edit for edit, _ in done]

    def replay(self, zxid: int, edits: Sequence[Edit]) -> None:
        """Apply what an earlier `transact` decided."""
        for edit in edits:
            self._edit(edit, zxid)
        self.zxid = zxid

    def _node(self, path: str) -> TreeNode:
        node = self.nodes.get(path)
        if node is None:
            raise StoreError(StoreFailure.NO_NODE, path)
        return node

    def _apply(
        self, op: Op, zxid: int, session: int, done: list[tuple[Edit, "_Before"]]
    ) -> OpResult:
        if isinstance(op, Check):
            self._expect(op.path, op.version)
            return None
        edit = self._edit_for(op, session)
        done.append((edit, self._edit(edit, zxid)))
        if isinstance(edit, Made):
            return edit.path
        return self.nodes[edit.path].stat() if isinstance(edit, Wrote) else None

    def _edit_for(self, op: Create | Set | Delete, session: int) -> Edit:
        if isinstance(op, Create):
            return self._creation(op, session)
        node = self._expect(op.path, op.version)
        if isinstance(op, Set):
            return Wrote(op.path, op.data)
        if node.children or op.path == ROOT:
            raise StoreError(StoreFailure.NOT_EMPTY, op.path)
        return Removed(op.path)

    def _creation(self, op: Create, session: int) -> Made:
        parent = self.nodes.get(parent_of(op.path))
        if parent is None:
            raise StoreError(StoreFailure.NO_NODE, op.path)
        if parent.owner:
            raise StoreError(StoreFailure.EPHEMERAL_PARENT, op.path)
        path = f"{op.path}{parent.sequence:010d}" if op.sequential else op.path
        if path in self.nodes:
            raise StoreError(StoreFailure.NODE_EXISTS, path)
        return Made(path, op.data, session if op.ephemeral else 0)

    def _expect(self, path: str, version: int) -> TreeNode:
        node = self._node(path)
        if version not in (ANY_VERSION, node.version):
            raise StoreError(StoreFailure.BAD_VERSION, path)
        return node

    def _edit(self, edit: Edit, zxid: int) -> "_Before":
        if isinstance(edit, Wrote):
            node = self.nodes[edit.path]
            before = (node.data, node.mzxid)
            node.data, node.mzxid, node.version = edit.data, zxid, node.version + 1
            return before
        parent, name = self.nodes[parent_of(edit.path)], edit.path.rpartition("/")[2]
        parent.cversion += 1
        if isinstance(edit, Made):
            self.nodes[edit.path] = TreeNode(edit.data, zxid, zxid, owner=edit.owner)
            # Never goes back, so that a sequential name is not given out twice.
            parent.sequence += 1
            parent.adopt(name)
            return None
        parent.abandon(name)
        return self.nodes.pop(edit.path)

    def _undo(self, edit: Edit, before: "_Before") -> None:
        if isinstance(before, tuple):
            node = self.nodes[edit.path]
            node.data, node.mzxid = before
            node.version -= 1
            return
        parent, name = self.nodes[parent_of(edit.path)], edit.path.rpartition("/")[2]
        parent.cversion -= 1
        if before is None:
            del self.nodes[edit.path]
            parent.sequence -= 1
            parent.abandon(name)
        else:
            self.nodes[edit.path] = before
            parent.adopt(name)


def seen_by_watches(edit: Edit) -> list[tuple[WatchEvent, str]]:
    """The changes of one edit, as watches of a node (data, existence) and of its parent see them."""
    if isinstance(edit, Wrote):
        return [(WatchEvent.DATA, edit.path)]
    of_node = WatchEvent.CREATED if isinstance(edit, Made) else WatchEvent.DELETED
    return [(of_node, edit.path), (WatchEvent.CHILDREN, parent_of(edit.path))]

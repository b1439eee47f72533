"""The embedded store's tree in memory: ZooKeeper's rules for nodes, versions, ACLs and sessions.

Pure: a transaction is checked and applied here, and returned as the plain edits that a journal can
replay. A multi is never applied in part, and replaying the edits gives exactly the same tree.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from headwater.controller.store import acls
from headwater.controller.store import metadata_store as store
from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    OPEN_ACL,
    Acl,
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

MAX_PATH_BYTES = 0xFFFF - len("0000000000")
"""The longest path: the journal counts its bytes in two, those of a sequential name included."""

_BAD_CHARACTERS = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


class Made(NamedTuple):
    """A node was created; `owner` is the session of an ephemeral one, else 0."""

    path: str
    data: bytes
    owner: int
    acl: tuple[Acl, ...] = OPEN_ACL


class Wrote(NamedTuple):
    """A node's data changed."""

    path: str
    data: bytes


class Removed(NamedTuple):
    """A node was deleted."""

    path: str


class Restricted(NamedTuple):
    """A node's ACL changed."""

    path: str
    acl: tuple[Acl, ...]


class SessionOpened(NamedTuple):
    """A client's session began; the password allows it to reconnect."""

    session: int
    timeout_ms: int
    password: bytes


class SessionClosed(NamedTuple):
    """A session ended, after its ephemeral nodes were deleted."""

    session: int


NodeEdit: TypeAlias = Made | Wrote | Removed | Restricted
Edit: TypeAlias = NodeEdit | SessionOpened | SessionClosed


class Caller(NamedTuple):
    """The session behind a transaction, and its time, which goes into the changed nodes."""

    session: int = 0
    now_ms: int = 0
    identities: tuple[acls.Identity, ...] = ()


ANYBODY = Caller()


@dataclass(slots=True)
class TreeNode:
    """One node; `children` is None until the first child is created, as most nodes are leaves."""

    data: bytes
    czxid: int
    mzxid: int
    version: int = 0
    cversion: int = 0
    owner: int = 0
    sequence: int = 0
    pzxid: int = 0
    aversion: int = 0
    ctime_ms: int = 0
    mtime_ms: int = 0
    acl: tuple[Acl, ...] = OPEN_ACL
    children: set[str] | None = None

    def add_child(self, name: str) -> None:
        if self.children is None:
            self.children = set()
        self.children.add(name)

    def remove_child(self, name: str) -> None:
        if self.children is not None:
            self.children.discard(name)

    def stat(self) -> Stat:
        """The node as clients see it."""
        return Stat(
            self.czxid,
            self.mzxid,
            self.version,
            self.cversion,
            self.owner,
            len(self.children) if self.children else 0,
            len(self.data),
            self.pzxid,
            self.aversion,
            self.ctime_ms,
            self.mtime_ms,
        )


class _OldData(NamedTuple):
    data: bytes
    mzxid: int
    mtime_ms: int


class _OldList(NamedTuple):
    """A parent's list of children before an edit, and the node that was removed from it."""

    pzxid: int
    removed: TreeNode | None


_Before: TypeAlias = _OldData | _OldList | tuple[Acl, ...]


def parent_of(path: str) -> str:
    """The path of the parent; the root is its own parent."""
    return path.rpartition("/")[0] or ROOT


def _without_hash(entry: Acl) -> Acl:
    if entry.scheme != "digest":
        return entry
    return entry._replace(identity=f"{entry.identity.partition(':')[0]}:x")


def is_valid(path: str, *, sequential: bool = False) -> bool:
    """Whether `path` is valid in ZooKeeper; the name of a sequential node may be empty."""
    if path == ROOT:
        return True
    if not path.startswith("/") or _BAD_CHARACTERS.search(path):
        return False
    if len(path.encode()) > MAX_PATH_BYTES:
        return False
    names = path[1:].split("/")
    if sequential:
        names[-1] += "0"
    return all(name not in ("", ".", "..") for name in names)


@dataclass(slots=True)
class Tree:
    """All nodes by path, the open sessions, and the number of the last transaction."""

    zxid: int = 0
    nodes: dict[str, TreeNode] = field(default_factory=lambda: {ROOT: TreeNode(b"", 0, 0)})
    sessions: dict[int, SessionOpened] = field(default_factory=dict)
    _ephemerals: dict[int, set[str]] = field(default_factory=dict)

    # -- reading

    def get(self, path: str, caller: Caller = ANYBODY) -> Znode:
        node = self._permitted(path, store.READ, caller)
        return Znode(node.data, node.stat())

    def children(self, path: str, caller: Caller = ANYBODY) -> list[str]:
        """Sorted names."""
        return sorted(self._permitted(path, store.READ, caller).children or ())

    def acl(self, path: str, caller: Caller = ANYBODY) -> tuple[tuple[Acl, ...], Stat]:
        """The ACL, with the hashes of passwords only for clients that may change it, as in ZooKeeper.

        With the hash, others could give nodes to its user.
        """
        node = self._permitted(path, store.READ | store.ADMIN, caller)
        if acls.allows(node.acl, store.ADMIN, caller.identities):
            return node.acl, node.stat()
        return tuple(map(_without_hash, node.acl)), node.stat()

    def stat(self, path: str) -> Stat | None:
        """None for a node that does not exist; needs no permission, as in ZooKeeper."""
        if not is_valid(path):
            raise StoreError(StoreFailure.BAD_PATH, path)
        node = self.nodes.get(path)
        return node.stat() if node is not None else None

    def owners(self) -> Iterable[int]:
        """The sessions that have ephemeral nodes."""
        return self._ephemerals.keys()

    # -- changing

    def transact(self, ops: Sequence[Op], caller: Caller) -> tuple[list[OpResult], list[Edit]]:
        """Apply all of `ops` as the next transaction, or raise StoreError and apply none."""
        done: list[tuple[NodeEdit, _Before]] = []
        results: list[OpResult] = []
        zxid = self.zxid + 1
        try:
            for op in ops:
                result = self._apply(op, zxid, caller, done)
                results.append(result)
        except StoreError as refusal:
            refusal.index = len(results)
            for edit, before in reversed(done):
                self._take_back(edit, before)
            raise
        if done:
            self.zxid = zxid
        return results, [edit for edit, _ in done]

    def set_acl(
        self, path: str, acl: Sequence[Acl], version: int, caller: Caller
    ) -> tuple[Stat, list[Edit]]:
        """Replace a node's ACL if it still has ACL version `version`."""
        stored = acls.checked(acl, caller.identities)
        if stored is None:
            raise StoreError(StoreFailure.INVALID_ACL, path)
        node = self._permitted(path, store.ADMIN, caller)
        if version not in (ANY_VERSION, node.aversion):
            raise StoreError(StoreFailure.BAD_VERSION, path)
        edits: list[Edit] = [Restricted(path, stored)]
        self.replay(self.zxid + 1, caller.now_ms, edits)
        return node.stat(), edits

    def open_session(self, timeout_ms: int, password: bytes, now_ms: int) -> list[Edit]:
        """A new session; its id is the transaction's number."""
        edits: list[Edit] = [SessionOpened(self.zxid + 1, timeout_ms, password)]
        self.replay(self.zxid + 1, now_ms, edits)
        return edits

    def close_session(self, session: int, now_ms: int) -> list[Edit]:
        """Delete a session's ephemeral nodes and forget it."""
        edits: list[Edit] = [Removed(path) for path in sorted(self._ephemerals.get(session, ()))]
        edits.append(SessionClosed(session))
        self.replay(self.zxid + 1, now_ms, edits)
        return edits

    def replay(self, zxid: int, now_ms: int, edits: Sequence[Edit]) -> None:
        """Apply what an earlier transaction decided."""
        for edit in edits:
            if isinstance(edit, SessionOpened):
                self.sessions[edit.session] = edit
            elif isinstance(edit, SessionClosed):
                self.sessions.pop(edit.session, None)
            else:
                self._edit(edit, zxid, now_ms)
        self.zxid = zxid

    def restore(self, path: str, node: TreeNode) -> None:
        """Put back a node from a snapshot; parents come before their children."""
        self.nodes[path] = node
        if node.owner:
            self._ephemerals.setdefault(node.owner, set()).add(path)
        if path != ROOT:
            self.nodes[parent_of(path)].add_child(path.rpartition("/")[2])

    # -- one operation

    def _node(self, path: str) -> TreeNode:
        node = self.nodes.get(path)
        if node is None:
            kind = StoreFailure.NO_NODE if is_valid(path) else StoreFailure.BAD_PATH
            raise StoreError(kind, path)
        return node

    def _permitted(self, path: str, permission: int, caller: Caller) -> TreeNode:
        node = self._node(path)
        if not acls.allows(node.acl, permission, caller.identities):
            raise StoreError(StoreFailure.NOT_AUTHORIZED, path)
        return node

    def _apply(
        self, op: Op, zxid: int, caller: Caller, done: list[tuple[NodeEdit, _Before]]
    ) -> OpResult:
        if isinstance(op, Check):
            self._expect(op.path, op.version, store.READ, caller)
            return None
        edit = self._edit_for(op, caller)
        done.append((edit, self._edit(edit, zxid, caller.now_ms)))
        if isinstance(edit, Made):
            return edit.path
        return self.nodes[edit.path].stat() if isinstance(edit, Wrote) else None

    def _edit_for(self, op: Create | Set | Delete, caller: Caller) -> NodeEdit:
        if isinstance(op, Create):
            return self._creation(op, caller)
        if isinstance(op, Set):
            self._expect(op.path, op.version, store.WRITE, caller)
            return Wrote(op.path, op.data)
        if op.path == ROOT:
            raise StoreError(StoreFailure.BAD_PATH, op.path)
        node = self._node(op.path)
        self._permitted(parent_of(op.path), store.DELETE, caller)
        if op.version not in (ANY_VERSION, node.version):
            raise StoreError(StoreFailure.BAD_VERSION, op.path)
        if node.children:
            raise StoreError(StoreFailure.NOT_EMPTY, op.path)
        return Removed(op.path)

    def _creation(self, op: Create, caller: Caller) -> Made:
        if not is_valid(op.path, sequential=op.sequential):
            raise StoreError(StoreFailure.BAD_PATH, op.path)
        acl = op.acl if op.acl is OPEN_ACL else acls.checked(op.acl, caller.identities)
        if acl is None:
            raise StoreError(StoreFailure.INVALID_ACL, op.path)
        parent = self.nodes.get(parent_of(op.path))
        if parent is None:
            raise StoreError(StoreFailure.NO_NODE, op.path)
        if not acls.allows(parent.acl, store.CREATE, caller.identities):
            raise StoreError(StoreFailure.NOT_AUTHORIZED, op.path)
        path = f"{op.path}{parent.sequence:010d}" if op.sequential else op.path
        if path in self.nodes:
            raise StoreError(StoreFailure.NODE_EXISTS, path)
        if parent.owner:
            raise StoreError(StoreFailure.EPHEMERAL_PARENT, op.path)
        return Made(path, op.data, caller.session if op.ephemeral else 0, acl)

    def _expect(self, path: str, version: int, permission: int, caller: Caller) -> None:
        node = self._permitted(path, permission, caller)
        if version not in (ANY_VERSION, node.version):
            raise StoreError(StoreFailure.BAD_VERSION, path)

    def _edit(self, edit: NodeEdit, zxid: int, now_ms: int) -> _Before:
        if isinstance(edit, Wrote):
            node = self.nodes[edit.path]
            old = _OldData(node.data, node.mzxid, node.mtime_ms)
            node.data, node.mzxid, node.mtime_ms = edit.data, zxid, now_ms
            node.version += 1
            return old
        if isinstance(edit, Restricted):
            node = self.nodes[edit.path]
            acl, node.acl = node.acl, edit.acl
            node.aversion += 1
            return acl
        parent, name = self.nodes[parent_of(edit.path)], edit.path.rpartition("/")[2]
        before, parent.pzxid = parent.pzxid, zxid
        parent.cversion += 1
        if isinstance(edit, Made):
            self._add(edit, parent, name, zxid, now_ms)
            return _OldList(before, None)
        parent.remove_child(name)
        return _OldList(before, self._remove(edit.path))

    def _add(self, edit: Made, parent: TreeNode, name: str, zxid: int, now_ms: int) -> None:
        self.nodes[edit.path] = TreeNode(
            edit.data, zxid, zxid,
            owner=edit.owner, pzxid=zxid, ctime_ms=now_ms, mtime_ms=now_ms, acl=edit.acl,
        )  # fmt: skip
        if edit.owner:
            self._ephemerals.setdefault(edit.owner, set()).add(edit.path)
        # Never goes back, so that a sequential name is not given out twice.
        parent.sequence += 1
        parent.add_child(name)

    def _remove(self, path: str) -> TreeNode:
        node = self.nodes.pop(path)
        if node.owner:
            owned = self._ephemerals[node.owner]
            owned.discard(path)
            if not owned:
                del self._ephemerals[node.owner]
        return node

    def _take_back(self, edit: NodeEdit, before: _Before) -> None:
        if isinstance(before, _OldData):
            node = self.nodes[edit.path]
            node.data, node.mzxid, node.mtime_ms = before
            node.version -= 1
            return
        assert isinstance(before, _OldList), "an ACL is never part of a multi"
        parent, name = self.nodes[parent_of(edit.path)], edit.path.rpartition("/")[2]
        parent.cversion -= 1
        parent.pzxid = before.pzxid
        if before.removed is None:
            self._remove(edit.path)
            parent.sequence -= 1
            parent.remove_child(name)
        else:
            self.restore(edit.path, before.removed)


def seen_by_watches(edit: Edit) -> list[tuple[WatchEvent, str]]:
    """The changes of one edit, as watches of a node (data, existence) and of its parent see them."""
    if isinstance(edit, Wrote):
        return [(WatchEvent.DATA, edit.path)]
    if isinstance(edit, Made | Removed):
        of_node = WatchEvent.CREATED if isinstance(edit, Made) else WatchEvent.DELETED
        return [(of_node, edit.path), (WatchEvent.CHILDREN, parent_of(edit.path))]
    return []

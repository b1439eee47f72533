"""The embedded store on disk: a journal of transactions, and a snapshot of the tree.

    journal   = group*                 one group = one write + one fdatasync
    group     = "HWJ2" length crc32 body          (big-endian u32 each; crc over the body)
    body      = (zxid:i64 time_ms:i64 count:u32 edit*)*
    edit      = kind:u8 fields of the kind
    snapshot  = "HWS2" length crc32 body;  body = zxid:i64 session_count:u32 session* node*

A group is written only after the previous one is on the disk. So a broken group at the end is the
torn tail of a crash: it was never answered, and is cut off. If one wrong bit is all that is broken, the
group may have been answered, and it is corrected, unless it is large or does not fit the tree: then the
bit is a chance. A broken group with valid ones after it is damage to acknowledged data, and the store
refuses to open.

Files of the first format (HWJ1, HWS1: no times, ACLs and sessions) are still read. A journal of that
format is replaced by a snapshot before anything is appended to it.
"""

import errno
import logging
import struct
import zlib
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import NamedTuple

from headwater.controller.store.flipped_bit import flipped_bit
from headwater.controller.store.metadata_store import OPEN_ACL, Acl
from headwater.controller.store.tree import (
    Edit,
    Made,
    Removed,
    Restricted,
    SessionClosed,
    SessionOpened,
    Tree,
    TreeNode,
    Wrote,
)
from headwater.errors import E, KafkaError
from headwater.seams.files import (
    Files,
    read_file,
    read_fully,
    replace_file,
    write_again,
    write_fully,
)

log = logging.getLogger(__name__)

GROUP_MAGIC, FIRST_GROUP_MAGIC = b"HWJ2", b"HWJ1"
SNAPSHOT_MAGIC, FIRST_SNAPSHOT_MAGIC = b"HWS2", b"HWS1"
SNAPSHOT_FROM_BYTES = 4 << 20
"""A journal shorter than this is never worth a snapshot."""
MOST_CORRECTED = 64 << 10
"""A torn body of this size looks like one wrong bit once in 8,000 times, a larger one more often."""

_FRAME = struct.Struct(">4sII")
_TRANSACTION = struct.Struct(">qqI")
_FIRST_TRANSACTION = struct.Struct(">qI")
_KIND = struct.Struct(">B")
_SHORT = struct.Struct(">H")
_SIZE = struct.Struct(">I")
_LONG = struct.Struct(">q")
_SESSION = struct.Struct(">qi16s")
_NODE = struct.Struct(">HIqqiiqiqiqq")
_FIRST_NODE = struct.Struct(">HIqqiiqi")
_NODE_NUMBERS = (
    "czxid", "mzxid", "version", "cversion", "owner", "sequence",
    "pzxid", "aversion", "ctime_ms", "mtime_ms",
)  # fmt: skip
"""In the order of the layouts; the first format ends after `sequence`."""

_MADE, _WROTE, _REMOVED, _MADE_WITH_ACL, _RESTRICTED, _OPENED, _CLOSED = range(1, 8)


class StoreDamaged(KafkaError):
    """Durable data can no longer be read; the message says where."""

    def __init__(self, message: str) -> None:
        super().__init__(E.KAFKA_STORAGE_ERROR, message)


class Transaction(NamedTuple):
    """What one transaction did, and when."""

    zxid: int
    now_ms: int
    edits: list[Edit]


# -- encoding


def encode_transaction(zxid: int, now_ms: int, edits: Sequence[Edit]) -> bytes:
    """One transaction of a group."""
    parts = [_TRANSACTION.pack(zxid, now_ms, len(edits))]
    for edit in edits:
        _encode_edit(edit, parts)
    return b"".join(parts)


def _encode_edit(edit: Edit, parts: list[bytes]) -> None:
    match edit:
        case Made(path, data, owner, acl):
            kind = _MADE if acl == OPEN_ACL else _MADE_WITH_ACL
            parts += (_KIND.pack(kind), _text(path), _sized(data), _LONG.pack(owner))
            if kind == _MADE_WITH_ACL:
                parts.append(_encode_acl(acl))
        case Wrote(path, data):
            parts += (_KIND.pack(_WROTE), _text(path), _sized(data))
        case Removed(path):
            parts += (_KIND.pack(_REMOVED), _text(path))
        case Restricted(path, acl):
            parts += (_KIND.pack(_RESTRICTED), _text(path), _encode_acl(acl))
        case SessionOpened():
            parts += (_KIND.pack(_OPENED), _SESSION.pack(*edit))
        case SessionClosed(session):
            parts += (_KIND.pack(_CLOSED), _LONG.pack(session))


def _text(value: str) -> bytes:
    content = value.encode()
    return _SHORT.pack(len(content)) + content


def _sized(value: bytes) -> bytes:
    return _SIZE.pack(len(value)) + value


def _encode_acl(acl: Sequence[Acl]) -> bytes:
    entries = [_LONG.pack(one.permissions) + _text(one.scheme) + _text(one.identity) for one in acl]
    return _SHORT.pack(len(entries)) + b"".join(entries)


def encode_snapshot(tree: Tree) -> bytes:
    """The whole tree; parents come before their children."""
    parts = [_LONG.pack(tree.zxid), _SIZE.pack(len(tree.sessions))]
    parts += [_SESSION.pack(*session) for session in tree.sessions.values()]
    for path, node in sorted(tree.nodes.items()):
        text = path.encode()
        numbers = (getattr(node, name) for name in _NODE_NUMBERS)
        parts += (_NODE.pack(len(text), len(node.data), *numbers), text, node.data)
        parts.append(_encode_acl(() if node.acl == OPEN_ACL else node.acl))
    return _framed(SNAPSHOT_MAGIC, b"".join(parts))


def _framed(magic: bytes, body: bytes) -> bytes:
    return _FRAME.pack(magic, len(body), zlib.crc32(body)) + body


# -- decoding


def _unframed(data: bytes, pos: int, *magics: bytes) -> tuple[bytes, bytes] | None:
    """The magic and the body of the frame at `pos`; None if it is cut or damaged."""
    if pos + _FRAME.size > len(data):
        return None
    found, size, crc = _FRAME.unpack_from(data, pos)
    body = data[pos + _FRAME.size : pos + _FRAME.size + size]
    sound = found in magics and len(body) == size and zlib.crc32(body) == crc
    return (found, body) if sound else None


def _corrected(data: bytes, pos: int, wanted: bytes) -> bytes | None:
    """The frame at `pos`, with this magic, if all but one of its bits are right."""
    start = pos + _FRAME.size
    if start > len(data):
        return None
    head = int.from_bytes(data[pos:start], "big")
    for bit in range(8 * _FRAME.size):
        header = (head ^ 1 << bit).to_bytes(_FRAME.size, "big")
        magic, size, _ = _FRAME.unpack(header)
        if magic == wanted and start + size <= len(data):
            frame = header + data[start : start + size]
            if _unframed(frame, 0, wanted):
                return frame
    magic, size, crc = _FRAME.unpack_from(data, pos)
    body = bytearray(data[start : start + size])
    whole = magic == wanted and len(body) == size <= MOST_CORRECTED
    wrong = flipped_bit(body, crc) if whole else None
    if wrong is None:
        return None
    body[wrong >> 3] ^= 1 << (wrong & 7)
    return data[pos:start] + body


def _follows(frame: bytes, tree: Tree) -> bool:
    """Whether a corrected frame continues the tree: a torn one can look like a wrong bit."""
    after = deepcopy(tree)
    try:
        for transaction in decode_transactions(frame[:4], frame[_FRAME.size :]):
            if transaction.zxid <= after.zxid:
                return False
            after.replay(*transaction)
    except (struct.error, ValueError, KeyError, StoreDamaged):
        return False
    return after.zxid > tree.zxid


class _Body:
    """Reads the body of a frame whose checksum was right."""

    __slots__ = ("_data", "pos")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.pos = 0

    @property
    def ended(self) -> bool:
        return self.pos >= len(self._data)

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._data, self.pos)
        self.pos += layout.size
        return values

    def raw(self, size: int) -> bytes:
        self.pos += size
        if self.pos > len(self._data):
            raise StoreDamaged("an entry of the store is longer than what holds it")
        return self._data[self.pos - size : self.pos]

    def text(self) -> str:
        return self.raw(self.numbers(_SHORT)[0]).decode()

    def sized(self) -> bytes:
        return self.raw(self.numbers(_SIZE)[0])

    def session(self) -> SessionOpened:
        session, timeout_ms, password = _SESSION.unpack(self.raw(_SESSION.size))
        return SessionOpened(session, timeout_ms, password)

    def acl(self) -> tuple[Acl, ...]:
        (count,) = self.numbers(_SHORT)
        entries = (Acl(self.numbers(_LONG)[0], self.text(), self.text()) for _ in range(count))
        return tuple(entries) or OPEN_ACL

    def edit(self) -> Edit:
        (kind,) = self.numbers(_KIND)
        if kind == _OPENED:
            return self.session()
        if kind == _CLOSED:
            return SessionClosed(self.numbers(_LONG)[0])
        path = self.text()
        if kind == _REMOVED:
            return Removed(path)
        if kind == _RESTRICTED:
            return Restricted(path, self.acl())
        data = self.sized()
        if kind == _WROTE:
            return Wrote(path, data)
        if kind not in (_MADE, _MADE_WITH_ACL):
            raise StoreDamaged(f"the store has an entry of the unknown kind {kind}")
        (owner,) = self.numbers(_LONG)
        return Made(path, data, owner, self.acl() if kind == _MADE_WITH_ACL else OPEN_ACL)


def decode_transactions(magic: bytes, content: bytes) -> Iterator[Transaction]:
    """The transactions of a group."""
    body = _Body(content)
    while not body.ended:
        if magic == FIRST_GROUP_MAGIC:
            zxid, count = body.numbers(_FIRST_TRANSACTION)
            now_ms = 0
        else:
            zxid, now_ms, count = body.numbers(_TRANSACTION)
        yield Transaction(zxid, now_ms, [body.edit() for _ in range(count)])


def decode_snapshot(data: bytes) -> Tree:
    """The tree that `encode_snapshot` wrote; StoreDamaged for anything else."""
    frame = _unframed(data, 0, SNAPSHOT_MAGIC, FIRST_SNAPSHOT_MAGIC)
    if frame is None:
        raise StoreDamaged(
            "the store's snapshot is damaged; restore the store's folder from a copy"
        )
    magic, content = frame
    body = _Body(content)
    tree = Tree(zxid=body.numbers(_LONG)[0])
    if magic == SNAPSHOT_MAGIC:
        for _ in range(body.numbers(_SIZE)[0]):
            session = body.session()
            tree.sessions[session.session] = session
    layout = _NODE if magic == SNAPSHOT_MAGIC else _FIRST_NODE
    while not body.ended:
        path_size, data_size, *numbers = body.numbers(layout)
        path, content = body.raw(path_size).decode(), body.raw(data_size)
        node = TreeNode(content, 0, 0)
        for name, number in zip(_NODE_NUMBERS, numbers, strict=False):
            setattr(node, name, number)
        if magic == SNAPSHOT_MAGIC:
            node.acl = body.acl()
        tree.restore(path, node)
    return tree


class _NoSnapshot(OSError):
    """The snapshot could not be written; the journal is untouched."""


class Journal:
    """The two files of one store. Blocking: the store calls it off the loop thread."""

    def __init__(self, files: Files, directory: str) -> None:
        files.mkdir(directory)
        self._files = files
        self._directory = directory
        self._snapshot = f"{directory}/snapshot"
        self._journal = f"{directory}/journal"
        self._fd = files.open(self._journal, create=True)
        self._end = 0
        # Where the last group begins.
        self._last = 0
        self._must_replace = False
        self._compact_at = SNAPSHOT_FROM_BYTES
        self.in_doubt = False
        """A sync failed: the kernel may have dropped pages, so the file cannot be trusted."""

    def load(self) -> Tree:
        """Load the last durable tree; cut a torn tail off the journal."""
        tree = Tree()
        if self._files.exists(self._snapshot):
            content = read_file(self._files, self._snapshot)
            self._outgrown_past(len(content))
            tree = decode_snapshot(content)
        data = read_fully(self._files, self._fd, self._files.size(self._fd), 0)
        self._end = self._replay(tree, data)
        # Both magics are one bit from a third: those before tell which one it was.
        magic = FIRST_GROUP_MAGIC if self._must_replace else GROUP_MAGIC
        corrected = _corrected(data, self._end, magic)
        if corrected is not None and _follows(corrected, tree):
            log.warning("%s: a wrong bit in its last transactions was corrected", self._journal)
            write_fully(self._files, self._fd, [corrected], self._end)
            data = data[: self._end] + corrected + data[self._end + len(corrected) :]
            self._end = self._replay(tree, data)
        if self._must_replace:
            self._replace_by_snapshot(tree)
        if self._end < len(data):
            self._files.truncate(self._fd, self._end)
        if data:
            self._write_last_again()
            self._sync()
        self._files.sync_dir(self._directory)
        return tree

    def _write_last_again(self) -> None:
        """Write the last group again: its sync may have failed, although it is visible."""
        try:
            write_again(self._files, self._fd, self._last, self._end)
        except OSError as failure:
            if failure.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def append(self, transactions: Sequence[bytes]) -> None:
        """Make a group durable. After an OSError the caller must `load` again or give up."""
        frame = _framed(GROUP_MAGIC, b"".join(transactions))
        write_fully(self._files, self._fd, [frame], self._end)
        self._sync()
        self._end += len(frame)

    def compact(self, tree: Tree) -> None:
        """Replace the journal by a snapshot once it has outgrown the last one."""
        if self._end < self._compact_at:
            return
        try:
            self._replace_by_snapshot(tree)
        except _NoSnapshot as failure:
            log.warning("no snapshot of the metadata store for now: %s", failure.__cause__)
            self._outgrown_past(self._end)

    def _replace_by_snapshot(self, tree: Tree) -> None:
        content = encode_snapshot(tree)
        try:
            replace_file(self._files, self._snapshot, content)
        except OSError as failure:
            raise _NoSnapshot from failure
        self._outgrown_past(len(content))
        self._must_replace = False
        # After a crash from here on, `load` skips the groups that the snapshot already contains.
        self._files.truncate(self._fd, 0)
        self._end = 0
        self._sync()

    def _outgrown_past(self, size: int) -> None:
        self._compact_at = max(SNAPSHOT_FROM_BYTES, 2 * size)

    def _sync(self) -> None:
        try:
            self._files.fdatasync(self._fd)
        except OSError:
            self.in_doubt = True
            raise

    def close(self) -> None:
        """Give the descriptor back, once."""
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    def _replay(self, tree: Tree, data: bytes) -> int:
        pos = 0
        while (frame := _unframed(data, pos, GROUP_MAGIC, FIRST_GROUP_MAGIC)) is not None:
            magic, body = frame
            self._must_replace |= magic == FIRST_GROUP_MAGIC
            for transaction in decode_transactions(magic, body):
                if transaction.zxid > tree.zxid:
                    tree.replay(*transaction)
            self._last = pos
            pos += _FRAME.size + len(body)
        for magic in (GROUP_MAGIC, FIRST_GROUP_MAGIC):
            self._refuse_if_promised(magic, tree.zxid, data, pos)
        return pos

    def _refuse_if_promised(self, magic: bytes, zxid: int, data: bytes, broken: int) -> None:
        at = data.find(magic, broken + 1)
        while at >= 0:
            frame = _unframed(data, at, magic)
            if frame and any(number > zxid for number, *_ in decode_transactions(*frame)):
                raise StoreDamaged(
                    f"{self._journal} is damaged at byte {broken}: whole transactions follow; "
                    "restore the store's folder from a copy"
                )
            at = data.find(magic, at + 1)

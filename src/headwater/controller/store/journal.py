"""The embedded store on disk: a journal of transactions and, now and then, a snapshot of the tree.

    journal   = group*                 one group = one write + one fdatasync
    group     = "HWJ1" length crc32 body          (big-endian u32 each; crc over the body)
    body      = (zxid:i64 count:u32 edit*)*
    edit      = kind:u8 path:(u16 bytes) [data:(u32 bytes)] [owner:i64]
    snapshot  = "HWS1" length crc32 body;  body = zxid:i64 node*

A group is written only after the one before it is on the disk. So a broken group with nothing
valid behind it is the torn tail of a crash, never answered to anyone, and is cut; a broken group
with a newer one behind it is damage to what was promised, and the store refuses to open.
"""

import logging
import struct
import zlib
from collections.abc import Iterator, Sequence

from headwater.controller.store.tree import (
    ROOT,
    Edit,
    Made,
    Removed,
    Tree,
    TreeNode,
    Wrote,
    parent_of,
)
from headwater.errors import E, KafkaError
from headwater.seams.files import Files, read_file, read_fully, replace_file, write_fully

log = logging.getLogger(__name__)

GROUP_MAGIC = b"HWJ1"
SNAPSHOT_MAGIC = b"HWS1"
SNAPSHOT_FROM_BYTES = 4 << 20
"""A journal shorter than this is never worth a snapshot."""

_FRAME = struct.Struct(">4sII")
_TRANSACTION = struct.Struct(">qI")
_TEXT = struct.Struct(">BH")
_SIZE = struct.Struct(">I")
_OWNER = struct.Struct(">q")
_NODE = struct.Struct(">HIqqiiqi")
_MADE, _WROTE, _REMOVED = 1, 2, 3


class StoreDamaged(KafkaError):
    """What was durable can no longer be read; the message says where."""

    def __init__(self, message: str) -> None:
        super().__init__(E.KAFKA_STORAGE_ERROR, message)


def encode_transaction(zxid: int, edits: Sequence[Edit]) -> bytes:
    """One transaction as it stands in a group."""
    parts = [_TRANSACTION.pack(zxid, len(edits))]
    for edit in edits:
        path = edit.path.encode()
        kind = _MADE if isinstance(edit, Made) else _WROTE if isinstance(edit, Wrote) else _REMOVED
        parts += (_TEXT.pack(kind, len(path)), path)
        if not isinstance(edit, Removed):
            parts += (_SIZE.pack(len(edit.data)), edit.data)
        if isinstance(edit, Made):
            parts.append(_OWNER.pack(edit.owner))
    return b"".join(parts)


def decode_transactions(body: bytes) -> Iterator[tuple[int, list[Edit]]]:
    """The transactions of a group whose checksum was right."""
    pos = 0
    while pos < len(body):
        zxid, count = _TRANSACTION.unpack_from(body, pos)
        pos += _TRANSACTION.size
        edits = []
        for _ in range(count):
            edit, pos = _decode_edit(body, pos)
            edits.append(edit)
        yield zxid, edits


def _decode_edit(body: bytes, pos: int) -> tuple[Edit, int]:
    kind, size = _TEXT.unpack_from(body, pos)
    pos += _TEXT.size
    path = body[pos : pos + size].decode()
    pos += size
    if kind == _REMOVED:
        return Removed(path), pos
    (size,) = _SIZE.unpack_from(body, pos)
    pos += _SIZE.size
    data = body[pos : pos + size]
    pos += size
    if kind == _WROTE:
        return Wrote(path, data), pos
    (owner,) = _OWNER.unpack_from(body, pos)
    return Made(path, data, owner), pos + _OWNER.size


def _framed(magic: bytes, body: bytes) -> bytes:
    return _FRAME.pack(magic, len(body), zlib.crc32(body)) + body


def _unframed(magic: bytes, data: bytes, pos: int) -> bytes | None:
    """The body of the frame at `pos`, or None if that is not a whole and sound frame."""
    if pos + _FRAME.size > len(data):
        return None
    found, size, crc = _FRAME.unpack_from(data, pos)
    body = data[pos + _FRAME.size : pos + _FRAME.size + size]
    return body if found == magic and len(body) == size and zlib.crc32(body) == crc else None


def encode_snapshot(tree: Tree) -> bytes:
    """The whole tree; parents stand before their children."""
    parts = [_OWNER.pack(tree.zxid)]
    for path, node in sorted(tree.nodes.items()):
        text = path.encode()
        numbers = (node.czxid, node.mzxid, node.version, node.cversion, node.owner, node.sequence)
        parts += (_NODE.pack(len(text), len(node.data), *numbers), text, node.data)
    return _framed(SNAPSHOT_MAGIC, b"".join(parts))


def decode_snapshot(data: bytes) -> Tree:
    """The tree that `encode_snapshot` wrote; StoreDamaged for anything else."""
    body = _unframed(SNAPSHOT_MAGIC, data, 0)
    if body is None:
        raise StoreDamaged(
            "the store's snapshot is damaged; restore the store's folder from a copy"
        )
    tree = Tree()
    (tree.zxid,) = _OWNER.unpack_from(body)
    pos = _OWNER.size
    while pos < len(body):
        path_size, data_size, czxid, mzxid, version, cversion, owner, sequence = _NODE.unpack_from(
            body, pos
        )
        pos += _NODE.size
        path = body[pos : pos + path_size].decode()
        pos += path_size
        content = body[pos : pos + data_size]
        pos += data_size
        tree.nodes[path] = TreeNode(content, czxid, mzxid, version, cversion, owner, sequence)
        if path != ROOT:
            tree.nodes[parent_of(path)].adopt(path.rpartition("/")[2])
    return tree


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
        self._compact_at = SNAPSHOT_FROM_BYTES
        self.in_doubt = False
        """A sync failed: the kernel may have dropped pages, so the file cannot be believed."""

    def load(self) -> Tree:
        """The tree as last promised; a torn tail is cut off the journal."""
        tree = Tree()
        if self._files.exists(self._snapshot):
            content = read_file(self._files, self._snapshot)
            self._outgrown_past(len(content))
            tree = decode_snapshot(content)
        data = read_fully(self._files, self._fd, self._files.size(self._fd), 0)
        self._end = self._replay(tree, data)
        if self._end < len(data):
            self._files.truncate(self._fd, self._end)
            self._sync()
        self._files.sync_dir(self._directory)
        return tree

    def append(self, transactions: Sequence[bytes]) -> None:
        """Make a group durable. After an OSError the caller must `load` anew or give up."""
        frame = _framed(GROUP_MAGIC, b"".join(transactions))
        write_fully(self._files, self._fd, [frame], self._end)
        self._sync()
        self._end += len(frame)

    def compact(self, tree: Tree) -> None:
        """Replace the journal by a snapshot once it has outgrown the last one."""
        if self._end < self._compact_at:
            return
        content = encode_snapshot(tree)
        try:
            replace_file(self._files, self._snapshot, content)
        except OSError as failure:
            log.warning("no snapshot of the metadata store for now: %s", failure)
            self._outgrown_past(self._end)
            return
        self._outgrown_past(len(content))
        # A crash from here on finds groups older than the snapshot, and `load` passes over them.
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
        while (body := _unframed(GROUP_MAGIC, data, pos)) is not None:
            for zxid, edits in decode_transactions(body):
                if zxid > tree.zxid:
                    tree.replay(zxid, edits)
            pos += _FRAME.size + len(body)
        self._refuse_if_promised(tree.zxid, data, pos)
        return pos

    def _refuse_if_promised(self, zxid: int, data: bytes, broken: int) -> None:
        at = data.find(GROUP_MAGIC, broken + 1)
        while at >= 0:
            body = _unframed(GROUP_MAGIC, data, at)
            if body and max(number for number, _ in decode_transactions(body)) > zxid:
                raise StoreDamaged(
                    f"{self._journal} is damaged at byte {broken}: whole transactions follow; "
                    "restore the store's folder from a copy"
                )
            at = data.find(GROUP_MAGIC, at + 1)

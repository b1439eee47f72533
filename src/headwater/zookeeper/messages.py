"""ZooKeeper's requests and responses that `headwater store` supports.

Requests decode to the store's own operations where it has them. Other opcodes (containers, TTL nodes,
reconfig, persistent watches) get UNIMPLEMENTED, as from a ZooKeeper without these features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from headwater.controller.store.metadata_store import (
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
)
from headwater.zookeeper.jute import Decoder, Encoder, MalformedFrame

PASSWORD_BYTES = 16
WATCH_XID, PING_XID, AUTH_XID, SET_WATCHES_XID = -1, -2, -4, -8


class OpCode(IntEnum):
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    AUTH = 100
    SET_WATCHES = 101
    CLOSE = -11


class Code(IntEnum):
    """ZooKeeper's error numbers."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115


CODES = {
    StoreFailure.NO_NODE: Code.NO_NODE,
    StoreFailure.NODE_EXISTS: Code.NODE_EXISTS,
    StoreFailure.BAD_VERSION: Code.BAD_VERSION,
    StoreFailure.NOT_EMPTY: Code.NOT_EMPTY,
    StoreFailure.EPHEMERAL_PARENT: Code.NO_CHILDREN_FOR_EPHEMERALS,
    StoreFailure.SESSION_EXPIRED: Code.SESSION_EXPIRED,
    StoreFailure.CONNECTION_LOSS: Code.CONNECTION_LOSS,
    StoreFailure.NOT_AUTHORIZED: Code.NO_AUTH,
    StoreFailure.INVALID_ACL: Code.INVALID_ACL,
    StoreFailure.AUTH_FAILED: Code.AUTH_FAILED,
    StoreFailure.BAD_PATH: Code.BAD_ARGUMENTS,
}

_EVENTS = {WatchEvent.CREATED: 1, WatchEvent.DELETED: 2, WatchEvent.DATA: 3, WatchEvent.CHILDREN: 4}
_CONNECTED = 3
_EPHEMERAL, _SEQUENTIAL = 1, 2


class Connect(NamedTuple):
    """The first frame of a connection: opens or resumes a session."""

    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None
    """None if the client is too old to send the field; then the response omits it too."""


def decode_connect(frame: bytes) -> Connect:
    reader = Decoder(frame)
    reader.int32()  # protocol version: always 0
    return Connect(
        reader.int64(),
        reader.int32(),
        reader.int64(),
        reader.buffer(),
        reader.boolean() if reader.remaining else None,
    )


def encode_connected(connect: Connect, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """Encode the response; a timeout of 0 means that the session has expired."""
    writer = Encoder().int32(0).int32(timeout_ms).int64(session_id).buffer(password)
    if connect.read_only is not None:
        writer.boolean(False)
    return writer.frame()


# -- requests


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One operation that changes the tree; `with_stat` for create2."""

    op: Op
    with_stat: bool = False


MAX_MULTI_OPERATIONS = 2000
"""The most operations of a multi, which is applied at once; brokers send some hundred."""


@dataclass(frozen=True, slots=True)
class Multi:
    ops: tuple[WriteRequest, ...]


@dataclass(frozen=True, slots=True)
class OversizedMulti:
    """A multi with more operations than the store applies; they are not decoded."""


@dataclass(frozen=True, slots=True)
class Read:
    """EXISTS, GET_DATA, GET_CHILDREN, GET_CHILDREN2 or GET_ACL."""

    code: OpCode
    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class SetAcl:
    path: str
    acl: tuple[Acl, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Sync:
    path: str


@dataclass(frozen=True, slots=True)
class Auth:
    scheme: str
    credentials: bytes


@dataclass(frozen=True, slots=True)
class SetWatches:
    """The watches of a client that reconnects; missed changes fire at once."""

    since_zxid: int
    data: tuple[str, ...]
    exists: tuple[str, ...]
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ping: ...


@dataclass(frozen=True, slots=True)
class Close: ...


@dataclass(frozen=True, slots=True)
class Unserved:
    opcode: int


Request: TypeAlias = (
    WriteRequest
    | Multi
    | OversizedMulti
    | Read
    | SetAcl
    | Sync
    | Auth
    | SetWatches
    | Ping
    | Close
    | Unserved
)


def decode_request(frame: bytes) -> tuple[int, Request]:
    """Return the xid and the request."""
    reader = Decoder(frame)
    xid, code = reader.int32(), reader.int32()
    try:
        opcode = OpCode(code)
    except ValueError:
        return xid, Unserved(code)
    return xid, _decode(opcode, reader)


def _decode(opcode: OpCode, reader: Decoder) -> Request:
    match opcode:
        case OpCode.EXISTS | OpCode.GET_DATA | OpCode.GET_CHILDREN | OpCode.GET_CHILDREN2:
            return Read(opcode, reader.text(), reader.boolean())
        case OpCode.GET_ACL:
            return Read(opcode, reader.text())
        case OpCode.MULTI:
            return _decode_multi(reader)
        case OpCode.SET_ACL:
            return SetAcl(reader.text(), _decode_acl(reader), reader.int32())
        case OpCode.SYNC:
            return Sync(reader.text())
        case OpCode.AUTH:
            reader.int32()
            return Auth(reader.text(), reader.buffer())
        case OpCode.SET_WATCHES:
            since = reader.int64()
            paths = [tuple(reader.vector(reader.text)) for _ in range(3)]
            return SetWatches(since, *paths)
        case OpCode.PING:
            return Ping()
        case OpCode.CLOSE:
            return Close()
        case OpCode.CHECK:
            return Unserved(opcode)
        case _:
            return _decode_write(opcode, reader)


def _decode_write(code: int, reader: Decoder) -> WriteRequest:
    match code:
        case OpCode.CREATE | OpCode.CREATE2:
            path, data, acl, flags = (
                reader.text(), reader.buffer(), _decode_acl(reader), reader.int32(),
            )  # fmt: skip
            if flags & ~(_EPHEMERAL | _SEQUENTIAL):
                raise MalformedFrame(f"unknown create flags {flags}")
            ephemeral, sequential = bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL)
            return WriteRequest(
                Create(path, data, ephemeral, sequential, acl), with_stat=code == OpCode.CREATE2
            )
        case OpCode.SET_DATA:
            return WriteRequest(Set(reader.text(), reader.buffer(), reader.int32()))
        case OpCode.DELETE:
            return WriteRequest(Delete(reader.text(), reader.int32()))
        case OpCode.CHECK:
            return WriteRequest(Check(reader.text(), reader.int32()))
        case _:
            raise MalformedFrame(f"unexpected operation {code} inside a multi")


def _decode_multi(reader: Decoder) -> Multi | OversizedMulti:
    ops: list[WriteRequest] = []
    while True:
        code, done, _ = reader.int32(), reader.boolean(), reader.int32()
        if done:
            return Multi(tuple(ops))
        if len(ops) == MAX_MULTI_OPERATIONS:
            return OversizedMulti()
        ops.append(_decode_write(code, reader))


def _decode_acl(reader: Decoder) -> tuple[Acl, ...]:
    return tuple(reader.vector(lambda: Acl(reader.int32(), reader.text(), reader.text())))


# -- responses


def encode_response(xid: int, zxid: int, code: int, body: bytes = b"") -> bytes:
    """Return header and body in one frame."""
    return Encoder().int32(xid).int64(zxid).int32(code).raw(body).frame()


def encode_event(change: WatchEvent, path: str) -> bytes:
    """Encode a watch event."""
    event = Encoder().int32(_EVENTS[change]).int32(_CONNECTED).text(path).body()
    return encode_response(WATCH_XID, -1, Code.OK, event)


def encode_stat(stat: Stat) -> bytes:
    return (
        Encoder()
        .int64(stat.czxid)
        .int64(stat.mzxid)
        .int64(stat.ctime_ms)
        .int64(stat.mtime_ms)
        .int32(stat.version)
        .int32(stat.cversion)
        .int32(stat.aversion)
        .int64(stat.ephemeral_owner)
        .int32(stat.data_length)
        .int32(stat.num_children)
        .int64(stat.pzxid)
        .body()
    )


def encode_acl(acl: Sequence[Acl]) -> bytes:
    writer = Encoder().int32(len(acl))
    for entry in acl:
        writer.int32(entry.permissions).text(entry.scheme).text(entry.identity)
    return writer.body()


def encode_result(write: WriteRequest, result: OpResult, stat: Stat | None) -> bytes:
    """Return the body of a write's response; `stat` is that of the created node, for create2."""
    if isinstance(result, str):
        path = Encoder().text(result).body()
        return path + encode_stat(stat) if write.with_stat and stat is not None else path
    return encode_stat(result) if isinstance(result, Stat) else b""


def encode_multi(
    writes: Sequence[WriteRequest], results: Sequence[tuple[OpResult, Stat | None]]
) -> bytes:
    """Return the results of an applied multi."""
    writer = Encoder()
    for write, (result, stat) in zip(writes, results, strict=True):
        writer.int32(_opcode(write)).boolean(False).int32(0).raw(encode_result(write, result, stat))
    return writer.int32(-1).boolean(True).int32(-1).body()


def encode_failed_multi(count: int, failed_at: int, code: int) -> bytes:
    """Return an error for each operation: OK before the failure, RUNTIME_INCONSISTENCY after it."""
    writer = Encoder()
    for index in range(count):
        error = (
            Code.OK if index < failed_at
            else code if index == failed_at
            else Code.RUNTIME_INCONSISTENCY
        )  # fmt: skip
        writer.int32(-1).boolean(False).int32(error).int32(error)
    return writer.int32(-1).boolean(True).int32(-1).body()


def _opcode(write: WriteRequest) -> OpCode:
    match write.op:
        case Create():
            return OpCode.CREATE2 if write.with_stat else OpCode.CREATE
        case Set():
            return OpCode.SET_DATA
        case Delete():
            return OpCode.DELETE
        case Check():
            return OpCode.CHECK


def code_of(error: StoreError) -> Code:
    return CODES[error.kind]

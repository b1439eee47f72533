"""One client's connection to the store: frames in, responses and watch events out.

The first frame opens or resumes a session; until that is durable, no other request is answered. Requests
then run in the engine's order. Watches belong to the connection, not to the session: a client that
reconnects sends them again.
"""

import asyncio
import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from headwater.controller.store.acls import Identity, digest_identity
from headwater.controller.store.engine import StoreEngine, WatchKey
from headwater.controller.store.metadata_store import Create, StoreError, StoreFailure, WatchEvent
from headwater.controller.store.tree import Caller
from headwater.zookeeper import messages
from headwater.zookeeper.jute import Encoder, MalformedFrame
from headwater.zookeeper.messages import Code, Connect, OpCode

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 0xFFFFF
"""The largest frame, ZooKeeper's default of jute.maxbuffer."""
MAX_IN_FLIGHT = 1000
"""The most requests of one connection that wait for the disk; more stay in the socket."""
MAX_UNSENT_BYTES = 64 << 20
"""A client that leaves more responses unread than this is disconnected."""

_LENGTH = struct.Struct(">i")


class SessionHost(Protocol):
    """The server, as a connection sees it."""

    engine: StoreEngine

    def answer_word(self, word: bytes) -> bytes | None:
        """Return the response to a four-letter word, None if it is not one."""

    def begin_session(self, connection: "StoreConnection", connect: Connect) -> None:
        """Open a session, or resume the one in `connect`; then call `session_begun`."""

    def heard(self, session: int) -> None: ...

    def end_session(self, session: int, done: Callable[[], None]) -> None: ...

    def connection_closed(self, connection: "StoreConnection") -> None: ...


class StoreConnection(asyncio.Protocol):
    """The protocol of one client's connection."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self._engine = host.engine
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._connect: Connect | None = None
        self._identities: tuple[Identity, ...] = ()
        self._watched: set[WatchKey] = set()
        self._in_flight = 0
        # Why no further request is taken: too many are under way, or their responses are not read.
        self._too_many = False
        self._unread = False
        self.session = 0
        self.peer = "?"

    # -- the stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        if address:
            self.peer = f"{address[0]}:{address[1]}"
            self._identities = (Identity("ip", address[0]),)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._engine.drop_watches(self._watched, self)
        self._watched.clear()
        self._host.connection_closed(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            self._read_frames()
        except MalformedFrame as broken:
            log.warning("closing the connection of %s: malformed request (%s)", self.peer, broken)
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def close_if_silent(self) -> None:
        """Close the connection of a peer that has not asked for a session."""
        if self._connect is None:
            self.close()

    def pause_writing(self) -> None:
        """Take no more requests: the client does not read its responses."""
        self._unread = True
        self._regulate()

    def resume_writing(self) -> None:
        """Take requests again: the client has caught up."""
        self._unread = False
        self._regulate()

    def _regulate(self) -> None:
        """Read from the client, or leave its requests in the socket."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._too_many or self._unread:
            transport.pause_reading()
        else:
            transport.resume_reading()
            self.data_received(b"")

    def _send(self, frame: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(frame)
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            log.warning("disconnecting %s: it does not read its responses", self.peer)
            transport.abort()

    def _read_frames(self) -> None:
        buffer, at = self._buffer, 0
        while len(buffer) - at >= _LENGTH.size and self._transport is not None and self._may_read:
            if self._connect is None and (
                word := self._host.answer_word(bytes(buffer[at : at + 4]))
            ):
                self._send(word)
                self.close()
                break
            (size,) = _LENGTH.unpack_from(buffer, at)
            if not 0 < size <= MAX_FRAME_BYTES:
                raise MalformedFrame(f"frame size {size}")
            if len(buffer) - at - _LENGTH.size < size:
                break
            at += _LENGTH.size
            self._frame(bytes(buffer[at : at + size]))
            at += size
        del buffer[:at]

    @property
    def _may_read(self) -> bool:
        """Return whether the next frame can be handled: after the first, only once a session began."""
        if self._connect is None:
            return True
        return self.session != 0 and not self._too_many and not self._unread

    def _frame(self, frame: bytes) -> None:
        if self._connect is None:
            self._connect = messages.decode_connect(frame)
            if self._transport is not None:
                self._transport.pause_reading()
            self._host.begin_session(self, self._connect)
            return
        xid, request = messages.decode_request(frame)
        self._host.heard(self.session)
        self._handle(xid, request)

    def session_begun(self, session: int, timeout_ms: int, password: bytes) -> None:
        """Answer the first frame; session 0 means that the session has expired."""
        if self._connect is None:
            return
        self.session = session
        self._send(messages.encode_connected(self._connect, timeout_ms, session, password))
        if session == 0:
            self.close()
        else:
            self._regulate()

    # -- requests

    def _handle(self, xid: int, request: messages.Request) -> None:
        match request:
            case messages.Ping():
                self._respond(xid, Code.OK)
            case messages.Unserved(opcode):
                log.warning("%s sent operation %d, which is not supported", self.peer, opcode)
                self._respond(xid, Code.UNIMPLEMENTED)
            case messages.Close():
                self._host.end_session(self.session, partial(self._closed, xid))
            case messages.WriteRequest():
                self._submit(xid, partial(self._write, request), writes=1)
            case messages.Multi(ops):
                self._submit(xid, partial(self._multi, ops), writes=len(ops))
            case messages.OversizedMulti():
                log.warning(
                    "%s sent a multi of more than %d operations, which is refused: split it",
                    self.peer,
                    messages.MAX_MULTI_OPERATIONS,
                )
                self._submit(xid, self._refuse)
            case messages.SetAcl():
                self._submit(xid, partial(self._set_acl, request), writes=1)
            case messages.Read():
                self._submit(xid, partial(self._read, request))
            case messages.Sync(path):
                self._submit(xid, lambda: Encoder().text(path).body())
            case messages.SetWatches():
                self._submit(xid, partial(self._set_watches, request))
            case messages.Auth():
                self._submit(xid, partial(self._authenticate, request))

    def _submit(self, xid: int, answer: Callable[[], bytes], writes: int = 0) -> None:
        self._in_flight += 1
        if self._in_flight == MAX_IN_FLIGHT:
            self._too_many = True
            self._regulate()
        self._engine.submit(partial(self._in_session, answer), partial(self._answered, xid), writes)

    def _in_session(self, answer: Callable[[], bytes]) -> bytes:
        if self.session not in self._engine.tree.sessions:
            raise StoreError(StoreFailure.SESSION_EXPIRED, "")
        return answer()

    def _answered(self, xid: int, result: bytes | StoreError) -> None:
        self._in_flight -= 1
        if isinstance(result, StoreError):
            self._respond(xid, messages.code_of(result))
            if result.kind in (StoreFailure.SESSION_EXPIRED, StoreFailure.AUTH_FAILED):
                self.close()
        else:
            self._respond(xid, Code.OK, result)
        if self._too_many and self._in_flight <= MAX_IN_FLIGHT // 2:
            self._too_many = False
            self._regulate()

    def _respond(self, xid: int, code: Code, body: bytes = b"") -> None:
        self._send(messages.encode_response(xid, self._engine.durable_zxid, code, body))

    def _closed(self, xid: int) -> None:
        self._respond(xid, Code.OK)
        self.close()

    def _caller(self) -> Caller:
        return Caller(self.session, self._engine.now_ms(), self._identities)

    # -- in a request's turn

    def _write(self, write: messages.WriteRequest) -> bytes:
        (result,) = self._engine.transact([write.op], self._caller())
        stat = self._engine.tree.stat(result) if isinstance(result, str) else None
        return messages.encode_result(write, result, stat)

    def _multi(self, writes: tuple[messages.WriteRequest, ...]) -> bytes:
        try:
            results = self._engine.transact([write.op for write in writes], self._caller())
        except StoreError as refusal:
            code = messages.code_of(refusal)
            return messages.encode_failed_multi(len(writes), refusal.index, code)
        stat = self._engine.tree.nodes.get
        stats = [
            node.stat() if isinstance(write.op, Create) and (node := stat(str(result))) else None
            for write, result in zip(writes, results, strict=True)
        ]
        return messages.encode_multi(writes, list(zip(results, stats, strict=True)))

    def _refuse(self) -> bytes:
        raise StoreError(StoreFailure.BAD_PATH, "")

    def _set_acl(self, request: messages.SetAcl) -> bytes:
        stat = self._engine.set_acl(request.path, request.acl, request.version, self._caller())
        return messages.encode_stat(stat)

    def _read(self, read: messages.Read) -> bytes:
        if self._transport is None or self._transport.is_closing():
            raise StoreError(StoreFailure.CONNECTION_LOSS, read.path)  # nobody gets the answer
        tree, caller = self._engine.tree, self._caller()
        if read.code == OpCode.EXISTS:
            return self._exists(read)
        if read.code == OpCode.GET_ACL:
            acl, stat = tree.acl(read.path, caller)
            return messages.encode_acl(acl) + messages.encode_stat(stat)
        if read.code == OpCode.GET_DATA:
            node = tree.get(read.path, caller)
            self._watch(read.watch, False, read.path)
            return Encoder().buffer(node.data).body() + messages.encode_stat(node.stat)
        names = Encoder().texts(tree.children(read.path, caller)).body()
        self._watch(read.watch, True, read.path)
        if read.code == OpCode.GET_CHILDREN:
            return names
        return names + messages.encode_stat(tree.nodes[read.path].stat())

    def _exists(self, read: messages.Read) -> bytes:
        stat = self._engine.tree.stat(read.path)
        self._watch(read.watch, False, read.path)
        if stat is None:
            raise StoreError(StoreFailure.NO_NODE, read.path)
        return messages.encode_stat(stat)

    def _authenticate(self, request: messages.Auth) -> bytes:
        if request.scheme != "ip":
            identity = digest_identity(request.credentials) if request.scheme == "digest" else None
            if identity is None:
                raise StoreError(StoreFailure.AUTH_FAILED, "")
            self._identities += (identity,)
        return b""

    # -- watches

    def _watch(self, wanted: bool, of_children: bool, path: str) -> None:
        if wanted and self._transport is not None:
            self._watched.add((of_children, path))
            self._engine.watch(of_children, path, self, self._changed)

    def _changed(self, change: WatchEvent, path: str) -> None:
        self._watched.discard((change is WatchEvent.CHILDREN, path))
        if change is WatchEvent.DELETED:
            self._watched.discard((True, path))
        self._send(messages.encode_event(change, path))

    def _set_watches(self, request: messages.SetWatches) -> bytes:
        tree, since = self._engine.tree, request.since_zxid
        for path in request.data:
            stat = tree.stat(path)
            if stat is None:
                self._changed(WatchEvent.DELETED, path)
            elif stat.mzxid > since:
                self._changed(WatchEvent.DATA, path)
            else:
                self._watch(True, False, path)
        for path in request.exists:
            if tree.stat(path) is None:
                self._watch(True, False, path)
            else:
                self._changed(WatchEvent.CREATED, path)
        for path in request.children:
            stat = tree.stat(path)
            if stat is None:
                self._changed(WatchEvent.DELETED, path)
            elif stat.pzxid > since:
                self._changed(WatchEvent.CHILDREN, path)
            else:
                self._watch(True, True, path)
        return b""

"""One client's connection to the store, fed by hand."""

import asyncio
import struct

import pytest
from kazoo.protocol import serialization as kazoo
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id

from headwater.controller.store.engine import StoreEngine
from headwater.zookeeper.connection import (
    MAX_FRAME_BYTES,
    MAX_IN_FLIGHT,
    MAX_UNSENT_BYTES,
    StoreConnection,
)
from headwater.zookeeper.messages import MAX_MULTI_OPERATIONS, Code
from headwater.zookeeper.server_loop import FIRST_FRAME_S, StoreServer
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles


class Stream(asyncio.Transport):
    """Keeps what was written and whether the connection lives."""

    def __init__(self):
        super().__init__()
        self.written, self.closed, self.reading = b"", False, True
        self.unsent = 0

    def write(self, data):
        self.written += data

    def get_write_buffer_size(self):
        return self.unsent

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = True

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True


class Passwords:
    def uuid(self):
        return b"p" * 16


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def connect(last_zxid: int) -> bytes:
    return framed(bytes(kazoo.Connect(0, last_zxid, 5000, 0, bytes(16), False).serialize()))


CONNECT = connect(0)
CREATE = framed(
    struct.pack(">ii", 1, kazoo.Create.type)
    + bytes(kazoo.Create("/a", b"x", OPEN_ACL_UNSAFE, 0).serialize())
)


@pytest.fixture
def loop():
    return FakeLoop()


@pytest.fixture
def connected(loop):
    engine = StoreEngine(MemoryFiles(), "/store", loop.call_soon, loop.off_loop, loop)
    server = StoreServer(engine, None, loop, Passwords(), loop.call_later)
    connection, stream = StoreConnection(server), Stream()
    connection.connection_made(stream)
    return engine, connection, stream


def test_a_peer_that_asks_for_no_session_is_disconnected(loop):
    engine = StoreEngine(MemoryFiles(), "/store", loop.call_soon, loop.off_loop, loop)
    later = []
    server = StoreServer(engine, None, loop, Passwords(), lambda *call: later.append(call))
    closed = []
    for received in (b"", CONNECT[:-1], CONNECT):
        connection, stream = server._connection(), Stream()
        connection.connection_made(stream)
        connection.data_received(received)
        after_s, call = later.pop()
        assert after_s == FIRST_FRAME_S
        call()
        closed.append(stream.closed)
    assert closed == [True, True, False]


def test_a_request_sent_behind_the_first_frame_waits_for_the_session(loop, connected):
    engine, connection, stream = connected
    connection.data_received(CONNECT + CREATE)
    assert not stream.reading, "nothing more is read before there is a session"
    assert stream.written == b""
    loop.run()
    assert stream.reading
    assert not stream.closed
    assert engine.tree.get("/a").data == b"x"


def test_a_client_that_has_seen_later_writes_is_refused(loop, connected, caplog):
    engine, connection, _ = connected
    connection.data_received(CONNECT + CREATE)
    loop.run()
    sessions = dict(engine.tree.sessions)

    def arrive(last_zxid: int) -> Stream:
        later, its_stream = StoreConnection(connection._host), Stream()
        later.connection_made(its_stream)
        later.data_received(connect(last_zxid))
        loop.run()
        return its_stream

    assert arrive(engine.tree.zxid + 1).closed
    assert engine.tree.sessions == sessions
    assert "restore its newest data" in caplog.text
    assert not arrive(engine.tree.zxid).closed


def test_no_response_tells_of_a_transaction_that_is_not_on_the_disk(loop, connected):
    engine, connection, stream = connected
    connection.data_received(CONNECT)
    loop.run()
    durable, stream.written = engine.tree.zxid, b""
    connection.data_received(CREATE)
    while engine.tree.zxid == durable:
        assert loop.step()
    connection.data_received(framed(struct.pack(">ii", -2, kazoo.Ping.type)))
    _, xid, zxid, _ = struct.unpack(">iiqi", stream.written)
    assert (xid, zxid) == (-2, durable)
    loop.run()
    assert engine.durable_zxid == engine.tree.zxid > durable


def test_a_frame_that_zookeeper_would_not_take_closes_the_connection(loop, connected):
    _, connection, stream = connected
    connection.data_received(CONNECT)
    loop.run()
    connection.data_received(struct.pack(">i", MAX_FRAME_BYTES + 1))
    assert stream.closed


def a_create(path="/long", acl=OPEN_ACL_UNSAFE):
    return struct.pack(">ii", 1, kazoo.Create.type) + bytes(
        kazoo.Create(path, b"", acl, 0).serialize()
    )


@pytest.mark.parametrize(
    "write",
    [
        a_create("/" + "a" * 70_000),
        a_create(acl=[ACL(31, Id("digest", "user:" + "d" * 70_000))]),
    ],
    ids=["path", "identity"],
)
def test_what_the_journal_cannot_hold_is_refused_and_the_store_goes_on(loop, connected, write):
    engine, connection, stream = connected
    connection.data_received(CONNECT)
    loop.run()
    stream.written = b""
    connection.data_received(framed(write))
    loop.run()
    (error,) = struct.unpack_from(">i", stream.written, 16)
    assert error in (Code.BAD_ARGUMENTS, Code.INVALID_ACL)
    connection.data_received(CREATE)
    loop.run()
    assert engine.tree.get("/a").data == b"x"


READ = framed(
    struct.pack(">ii", 2, kazoo.GetData.type) + bytes(kazoo.GetData("/a", None).serialize())
)


def test_no_request_of_a_client_that_does_not_read_is_taken(loop, connected):
    _, connection, stream = connected
    connection.data_received(CONNECT + CREATE)
    loop.run()
    connection.pause_writing()
    stream.written = b""
    connection.data_received(READ * 10)
    loop.run()
    assert (stream.reading, stream.written) == (False, b"")
    connection.resume_writing()
    loop.run()
    assert stream.reading
    one = len(stream.written) // 10
    connection.data_received(READ * (3 * MAX_IN_FLIGHT))
    assert not stream.reading, "too many are under way"
    loop.run()
    assert stream.reading
    assert len(stream.written) == one * (10 + 3 * MAX_IN_FLIGHT)


def test_a_client_that_leaves_too_much_unread_is_disconnected(loop, connected):
    _, connection, stream = connected
    connection.data_received(CONNECT + CREATE)
    loop.run()
    stream.unsent = MAX_UNSENT_BYTES + 1
    stream.written = b""
    connection.data_received(READ * 10)
    loop.run()
    assert stream.closed
    assert len(stream.written) < 200, "one response, and nothing after it"


def test_a_multi_of_too_many_operations_is_refused_in_its_turn_and_changes_nothing(loop, connected):
    engine, connection, stream = connected
    connection.data_received(CONNECT)
    loop.run()
    stream.written = b""
    deletions = [kazoo.Delete("/a", -1)] * (MAX_MULTI_OPERATIONS + 1)
    multi = framed(
        struct.pack(">ii", 2, kazoo.Transaction.type)
        + bytes(kazoo.Transaction(deletions).serialize())
    )
    connection.data_received(CREATE + multi)
    loop.run()
    answers = []
    while stream.written:
        size, xid, _, code = struct.unpack_from(">iiqi", stream.written)
        answers.append((xid, code))
        stream.written = stream.written[4 + size :]
    assert answers == [(1, Code.OK), (2, Code.BAD_ARGUMENTS)]
    assert not stream.closed
    assert engine.tree.get("/a").data == b"x"

"""One client's connection to the store, fed by hand."""

import asyncio
import struct

import pytest
from kazoo.protocol import serialization as kazoo
from kazoo.security import OPEN_ACL_UNSAFE

from headwater.controller.store.engine import StoreEngine
from headwater.zookeeper.connection import MAX_FRAME_BYTES, StoreConnection
from headwater.zookeeper.server_loop import StoreServer
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles


class Stream(asyncio.Transport):
    """Keeps what was written and whether the connection lives."""

    def __init__(self):
        super().__init__()
        self.written, self.closed, self.reading = b"", False, True

    def write(self, data):
        self.written += data

    def close(self):
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


CONNECT = framed(bytes(kazoo.Connect(0, 0, 5000, 0, bytes(16), False).serialize()))
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


def test_a_request_sent_behind_the_first_frame_waits_for_the_session(loop, connected):
    engine, connection, stream = connected
    connection.data_received(CONNECT + CREATE)
    assert not stream.reading, "nothing more is read before there is a session"
    assert stream.written == b""
    loop.run()
    assert stream.reading
    assert not stream.closed
    assert engine.tree.get("/a").data == b"x"


def test_a_frame_that_zookeeper_would_not_take_closes_the_connection(loop, connected):
    _, connection, stream = connected
    connection.data_received(CONNECT)
    loop.run()
    connection.data_received(struct.pack(">i", MAX_FRAME_BYTES + 1))
    assert stream.closed

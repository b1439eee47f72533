"""Parts written to a stream: in order and whole, whether the socket takes them at once or not."""

import asyncio

import pytest

from headwater.seams.network import write_parts


class Recorder(asyncio.Protocol):
    """Reads nothing until all was written; done after `size` bytes."""

    def __init__(self, size):
        self.size = size
        self.received = bytearray()
        self.connected, self.done = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport
        transport.pause_reading()
        self.connected.set()

    def data_received(self, data):
        self.received += data
        if len(self.received) >= self.size:
            self.done.set()


@pytest.mark.parametrize("sizes", [[10, 200_000], [8_000_000, 5, 300_000], [100_000] * 90])
def test_the_peer_gets_all_parts_in_order(sizes):
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]

    async def run():
        whole = b"".join(parts) * 2
        loop, peer = asyncio.get_running_loop(), Recorder(len(whole))
        server = await loop.create_server(lambda: peer, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        transport, _ = await loop.create_connection(asyncio.Protocol, *address)
        write_parts(transport, [memoryview(part) for part in parts])
        for part in parts:
            write_parts(transport, [part[:7], bytearray(part[7:])])
        async with asyncio.timeout(60):
            await peer.connected.wait()
            peer.transport.resume_reading()
            await peer.done.wait()
        assert bytes(peer.received) == whole
        transport.abort()
        server.close()

    asyncio.run(run())


class Stream:
    """A transport whose socket must not be written to."""

    def __init__(self, waiting, **extra):
        self.waiting, self.extra, self.written = waiting, extra, []

    def get_write_buffer_size(self):
        return self.waiting

    def get_extra_info(self, name):
        return self.extra.get(name)

    def writelines(self, parts):
        self.written += parts


class Untouchable:
    def fileno(self):
        raise AssertionError("written past the transport")


@pytest.mark.parametrize(
    ("stream", "size"),
    [
        pytest.param(Stream(1, socket=Untouchable()), 1 << 20, id="bytes wait before them"),
        pytest.param(Stream(0, socket=Untouchable(), sslcontext=object()), 1 << 20, id="TLS"),
        pytest.param(Stream(0, socket=Untouchable()), 1000, id="few"),
        pytest.param(Stream(0), 1 << 20, id="no socket"),
    ],
)
def test_the_transport_writes_what_must_not_pass_it(stream, size):
    parts = [b"head", bytes(size)]
    write_parts(stream, parts)
    assert stream.written == parts

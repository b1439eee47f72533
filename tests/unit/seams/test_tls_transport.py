"""Streams with TLS: order, back-pressure, and how they end."""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headwater.seams import tls_handshake, tls_transport
from headwater.seams.accepting import TcpListener
from headwater.seams.tasks import LoopTasks
from headwater.seams.tls_transport import (
    HIGH_WATER,
    MOST_EMPTY_IN_ROW,
    PIECE,
    RECORDS_A_TURN,
    TlsTransport,
)
from headwater.testing.tls_stores import TlsStores
from tests.unit.seams.raw_records import RawRecords

LARGE = os.urandom(3 * 1024 * 1024)
RESET = struct.pack("ii", 1, 0)
Scenario = Callable[["Accepting", "Client"], Coroutine[Any, Any, None]]


class Peer(asyncio.BufferedProtocol):
    """The server's end of a connection; its buffer is smaller than a record."""

    def __init__(self, buffer: int = 10_000) -> None:
        self.room = memoryview(bytearray(buffer))
        self.transport: TlsTransport | None = None
        self.received = bytearray()
        self.events: list[str] = []
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsTransport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.room[:nbytes]

    def eof_received(self) -> None:
        self.events.append("end")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Accepting:
    """An acceptor whose connections all have the same protocol."""

    setup_timeout_s = 30.0

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.tls = tls
        self.peer = Peer()

    def plain_answer(self, received: bytes) -> bytes:
        return b""

    def pause_s(self) -> float:
        return 0.0

    def accept(self, host: str) -> Peer:
        return self.peer


class Client:
    """The other end, which does only what the test asks for."""

    def __init__(self, stores: TlsStores, port: int, keys: Path | None = None) -> None:
        context = ssl.create_default_context(cafile=str(stores.authority.certificate))
        if keys is not None:
            context.keylog_filename = str(keys)
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        self.ended = False

    def flush(self) -> None:
        if self.outgoing.pending:
            self.socket.sendall(self.outgoing.read())

    def reset(self) -> None:
        """Reset the connection: the server gets that together with what was sent last."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.close()

    async def until(self, call: Callable[[], Any]) -> Any:
        """Repeat a call of TLS with what the server sends until it has what it needs."""
        while True:
            try:
                return call()
            except ssl.SSLWantReadError:
                self.flush()
                await self.receive()

    async def receive(self) -> None:
        async with asyncio.timeout(60):
            data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
        if data:
            self.incoming.write(data)
        else:
            self.incoming.write_eof()

    async def shake_hands(self) -> None:
        await self.until(self.tls.do_handshake)
        self.flush()

    async def read(self, size: int) -> bytes:
        received, left = b"", size
        while left:
            part = await self.until(partial(self.tls.read, left))
            assert part, "the stream ended"
            received += part
            left -= len(part)
        return received

    async def write(self, data: bytes) -> None:
        self.tls.write(data)
        await asyncio.get_running_loop().sock_sendall(self.socket, self.outgoing.read())


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0)


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> TlsStores:
    return TlsStores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2], ids=["1.3", "1.2"])
def serve(stores, request, tmp_path) -> Callable[[Scenario], Coroutine[Any, Any, None]]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.maximum_version = request.param
    tls.load_cert_chain(stores.broker_settings()["ssl.keystore.location"])

    async def serve(scenario: Scenario) -> None:
        tasks = LoopTasks()
        accepting = Accepting(tls)
        listener = TcpListener(socket.create_server(("127.0.0.1", 0)), accepting, 10, tasks)
        client = Client(stores, listener.port, tmp_path / "keys")
        try:
            await scenario(accepting, client)
        finally:
            client.socket.close()
            listener.close()
            if accepting.peer.transport is not None:
                accepting.peer.transport.abort()
                await until(lambda: accepting.peer.lost)
            tasks.close()

    return serve


only_1_3 = pytest.mark.parametrize("serve", [ssl.TLSVersion.TLSv1_3], ids=["1.3"], indirect=True)


@pytest.fixture
def run(serve) -> Callable[[Scenario], None]:
    return lambda scenario: asyncio.run(serve(scenario))


@pytest.fixture
def run_uvloop(serve) -> Callable[[Scenario], None]:
    """The loop of a broker, which reports a broken socket once."""
    return lambda scenario: uvloop.run(serve(scenario))


def test_steps_run_on_threads_and_what_comes_with_the_last_one_is_passed_on(
    run, monkeypatch
) -> None:
    threads = []
    step = ssl.SSLObject.do_handshake

    def noted(tls: ssl.SSLObject) -> None:
        if tls.server_side:
            threads.append(threading.current_thread().name)
        step(tls)

    monkeypatch.setattr(ssl.SSLObject, "do_handshake", noted)

    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.until(client.tls.do_handshake)
        client.tls.write(b"first")  # sent with the client's last message, in TLS 1.3
        client.flush()
        await until(lambda: accepting.peer.received == b"first")
        assert len(threads) >= 2
        assert all(name.startswith("headwater-handshake") for name in threads)

    run(scenario)


def test_bytes_pass_in_order_in_both_directions(run) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        peer = accepting.peer
        sizes = [1, 100, 16 * 1024, 16 * 1024 + 1, PIECE, PIECE + 1, 5]
        for size in sizes:
            await client.write(LARGE[:size])
        await until(lambda: len(peer.received) == sum(sizes))
        assert peer.received == b"".join(LARGE[:size] for size in sizes)
        assert peer.transport is not None
        for size in sizes:
            peer.transport.write(LARGE[:size])
        peer.transport.writelines([b"", LARGE, memoryview(LARGE)[:7], b"", b"last"])
        peer.transport.writelines([])
        for size in sizes:
            assert await client.read(size) == LARGE[:size]
        assert await client.read(len(LARGE)) == LARGE
        assert await client.read(11) == LARGE[:7] + b"last"

    run(scenario)


@pytest.mark.parametrize("size", [1, 4, 7, 23, 20_000])
def test_records_may_come_in_any_pieces(run, size) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        peer = accepting.peer
        await until(lambda: peer.transport is not None)
        contents = [b"first", LARGE[: 3 * size], b"x", LARGE[: size // 2 + 1], b"last"]
        for content in contents:
            client.tls.write(content)
        records, sent = client.outgoing.read(), 0
        while sent < len(records):
            client.socket.sendall(records[sent : sent + size])
            sent += size
            for _ in range(3):
                await asyncio.sleep(0)
        await until(lambda: len(peer.received) == sum(map(len, contents)))
        assert peer.received == b"".join(contents)

    run(scenario)


def test_a_paused_reader_gets_nothing_until_it_resumes(run) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        peer = accepting.peer
        await client.write(b"one")
        await until(lambda: peer.received == b"one")
        assert peer.transport is not None
        peer.transport.pause_reading()
        await client.write(LARGE[:50_000])
        for _ in range(50):
            await asyncio.sleep(0)
        assert peer.received == b"one"
        peer.transport.resume_reading()
        await until(lambda: len(peer.received) == 50_003)
        assert peer.received == b"one" + LARGE[:50_000]

    run(scenario)


def test_a_slow_reader_pauses_the_writer_and_little_is_encrypted_ahead(run) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        peer = accepting.peer
        await until(lambda: peer.transport is not None)
        assert peer.transport is not None
        written = 0
        while "pause" not in peer.events:
            peer.transport.write(LARGE)
            written += len(LARGE)
        assert peer.transport.get_write_buffer_size() > HIGH_WATER
        assert len(peer.transport._unsent) <= PIECE + 1024
        for _ in range(written // len(LARGE)):
            assert peer.events == ["pause"]
            assert await client.read(len(LARGE)) == LARGE
        await until(lambda: peer.transport and not peer.transport.get_write_buffer_size())
        assert peer.events == ["pause", "resume"]

    run(scenario)


def test_a_large_answer_leaves_turns_to_others_although_the_socket_would_take_it(
    run, monkeypatch
) -> None:
    monkeypatch.setattr(tls_transport, "PIECE", 1000)
    monkeypatch.setattr(tls_transport, "PIECES_A_TURN", 3)

    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        peer = accepting.peer
        await until(lambda: peer.transport is not None)
        transport = peer.transport
        assert transport is not None
        transport.writelines([LARGE[:5000], LARGE[5000:10_000]])
        assert transport.get_write_buffer_size() == 7000
        assert await client.read(10_000) == LARGE[:10_000]

    run(scenario)


def test_close_sends_what_was_written_and_the_end(run) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        peer = accepting.peer
        await until(lambda: peer.transport is not None)
        assert peer.transport is not None
        peer.transport.write(LARGE)
        peer.transport.close()
        peer.transport.write(b"too late")
        assert peer.transport.is_closing()
        await client.write(b"nobody reads this")
        client.socket.sendall(b"nor this, which is not TLS")
        assert await client.read(len(LARGE)) == LARGE
        assert await client.until(lambda: client.tls.read(1)) == b""
        assert not peer.lost, "it waits for the peer"
        client.socket.close()
        await until(lambda: peer.lost)
        assert peer.lost == [None]
        assert not peer.received

    run(scenario)


def test_a_peer_that_never_ends_is_closed_after_a_while(run, monkeypatch) -> None:
    monkeypatch.setattr(tls_transport, "SHUTDOWN_TIMEOUT_S", 0.01)

    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        peer = accepting.peer
        await until(lambda: peer.transport is not None)
        assert peer.transport is not None
        peer.transport.close()
        await until(lambda: peer.lost)
        assert isinstance(peer.lost[0], TimeoutError)

    run(scenario)


@pytest.mark.parametrize("polite", [True, False])
def test_the_end_of_the_peer_ends_the_stream(run, polite) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        peer = accepting.peer
        await client.write(b"last")
        if polite:
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.unwrap()
            client.flush()
            await client.until(client.tls.unwrap)
        else:
            client.socket.shutdown(socket.SHUT_WR)
        await until(lambda: peer.lost)
        assert (bytes(peer.received), peer.events, peer.lost) == (b"last", ["end"], [None])

    run(scenario)


@pytest.mark.parametrize("sent", [b"\x17\x03\x03\x00\x20" + bytes(32), b"\x17\x03\x03\xff\xff"])
def test_a_peer_whose_bytes_are_not_tls_learns_why_it_is_closed(run, sent) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        peer = accepting.peer
        await until(lambda: peer.transport is not None)
        client.socket.sendall(sent)
        with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
            await client.read(1)
        await until(lambda: peer.lost)
        assert isinstance(peer.lost[0], ssl.SSLError)

    run(scenario)


def test_a_protocol_that_fails_loses_its_connection(run, monkeypatch) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        reported = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        failure = ValueError("a bug")

        def fail(nbytes: int) -> None:
            raise failure

        monkeypatch.setattr(accepting.peer, "buffer_updated", fail)
        await client.shake_hands()
        await client.write(b"x")
        await until(lambda: accepting.peer.lost)
        assert accepting.peer.lost == reported == [failure]

    run(scenario)


def test_a_connection_that_is_refused_when_it_is_made_is_closed(run, monkeypatch) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        peer = accepting.peer
        made = peer.connection_made

        def refuse(transport: asyncio.BaseTransport) -> None:
            made(transport)
            assert peer.transport is not None
            assert peer.transport.get_extra_info("peername") == client.socket.getsockname()
            peer.transport.abort()

        monkeypatch.setattr(peer, "connection_made", refuse)
        await client.shake_hands()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await client.read(1)
        await until(lambda: peer.lost)
        assert peer.lost == [None]

    run(scenario)


def test_a_handshake_ends_at_its_deadline_even_while_a_step_runs(run, monkeypatch) -> None:
    under_way, may_end, over = threading.Event(), threading.Event(), threading.Event()
    step = ssl.SSLObject.do_handshake

    def slow(tls: ssl.SSLObject) -> None:
        if not tls.server_side:
            return step(tls)
        under_way.set()
        assert may_end.wait(60)
        try:
            step(tls)
        finally:
            over.set()

    monkeypatch.setattr(ssl.SSLObject, "do_handshake", slow)
    monkeypatch.setattr(Accepting, "setup_timeout_s", 0.2)

    async def scenario(accepting: Accepting, client: Client) -> None:
        peer = accepting.peer
        with pytest.raises(ssl.SSLError):
            await client.shake_hands()
        assert under_way.is_set()
        assert isinstance(peer.lost[0], TimeoutError)
        may_end.set()
        await until(over.is_set)
        for _ in range(10):
            await asyncio.sleep(0)
        assert peer.transport is None
        assert len(peer.lost) == 1

    run(scenario)


@pytest.mark.parametrize("part", [None, 10], ids=["whole", "a part of it"])
def test_a_reset_behind_the_last_message_of_a_handshake_ends_it(run_uvloop, part) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.until(client.tls.do_handshake)
        client.tls.write(b"first")
        client.socket.sendall(client.outgoing.read()[:part])
        client.reset()
        await until(lambda: accepting.peer.lost)
        assert isinstance(accepting.peer.lost[0], OSError)

    run_uvloop(scenario)


def test_a_reset_behind_bytes_that_nobody_answers_ends_the_stream(run_uvloop, monkeypatch) -> None:
    monkeypatch.setattr(tls_transport, "WATCH_AGAIN_S", 0.01)

    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        await until(lambda: accepting.peer.transport is not None)
        await client.write(b"a part of a frame")
        client.reset()
        await until(lambda: accepting.peer.lost)
        assert accepting.peer.received == b"a part of a frame"
        assert isinstance(accepting.peer.lost[0], OSError)

    run_uvloop(scenario)


def test_a_reset_while_nothing_is_read_ends_the_stream_once_it_is(run_uvloop) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        peer = accepting.peer
        await client.shake_hands()
        await until(lambda: peer.transport is not None)
        transport = peer.transport
        assert transport is not None
        transport.pause_reading()
        await client.write(b"last")
        client.reset()
        await until(lambda: not transport._watching)
        transport.resume_reading()
        await until(lambda: peer.received)
        assert peer.received == b"last"
        transport._watch_again()
        await until(lambda: peer.lost)

    run_uvloop(scenario)


def test_a_protocol_that_fails_when_it_is_connected_loses_its_connection(run, monkeypatch) -> None:
    failure = ValueError("a bug")

    async def scenario(accepting: Accepting, client: Client) -> None:
        reported = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))

        def fail(transport: asyncio.BaseTransport) -> None:
            raise failure

        monkeypatch.setattr(accepting.peer, "connection_made", fail)
        await client.shake_hands()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await client.read(1)
        await until(lambda: accepting.peer.lost)
        assert accepting.peer.lost == reported == [failure]

    run(scenario)


def test_a_slow_reader_gets_all_that_was_written_before_the_close(run, monkeypatch) -> None:
    """It has as long as it reads, not the time of one answer for all of it."""
    check_closing = TlsTransport._check_closing
    monkeypatch.setattr(tls_transport, "SHUTDOWN_TIMEOUT_S", 3600)

    async def scenario(accepting: Accepting, client: Client) -> None:
        peer = accepting.peer
        await client.shake_hands()
        await until(lambda: peer.transport is not None)
        transport = peer.transport
        assert transport is not None
        received = b""
        while not transport.get_write_buffer_size():
            transport.write(LARGE)
            received += LARGE
        transport.close()
        wanted, received = received, b""
        while len(received) < len(wanted):
            left = transport.get_write_buffer_size()
            received += await client.read(min(len(LARGE) // 3, len(wanted) - len(received)))
            if transport.get_write_buffer_size() < left:
                check_closing(transport, left)
                assert not transport._lost
        assert received == wanted
        check_closing(transport, 0)
        await until(lambda: peer.lost)
        assert isinstance(peer.lost[0], TimeoutError)

    run(scenario)


@only_1_3
@pytest.mark.parametrize("answered", [True, False])
def test_a_peer_that_only_changes_keys_is_closed_soon(run, tmp_path, answered) -> None:
    """Each change takes as long as the content of a record; OpenSSL would take all in one call."""

    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        raw = RawRecords(tmp_path / "keys")
        few = b"".join(raw.key_update(answered=answered) for _ in range(MOST_EMPTY_IN_ROW))
        few += raw.record(b"content")
        client.socket.sendall(few)
        await until(lambda: accepting.peer.received == b"content")
        assert not accepting.peer.lost
        client.socket.sendall(
            b"".join(raw.key_update(answered=answered) for _ in range(MOST_EMPTY_IN_ROW + 1))
        )
        await until(lambda: accepting.peer.lost)
        assert isinstance(accepting.peer.lost[0], ConnectionError)

    run(scenario)


@only_1_3
def test_small_records_leave_turns_to_others(run, tmp_path) -> None:
    sizes = []

    async def scenario(accepting: Accepting, client: Client) -> None:
        peer = accepting.peer
        await client.shake_hands()
        await until(lambda: peer.transport is not None)
        raw = RawRecords(tmp_path / "keys")
        content = LARGE[: 5 * RECORDS_A_TURN]
        records = b"".join(
            raw.record(bytes([byte])) + raw.key_update(answered=False) for byte in content
        )
        updated = peer.buffer_updated
        peer.buffer_updated = lambda nbytes: (sizes.append(nbytes), updated(nbytes))[1]
        client.socket.sendall(records[:-7])
        await until(lambda: len(peer.received) == len(content))
        assert peer.received == content
        assert max(sizes) <= RECORDS_A_TURN
        transport = peer.transport
        assert transport is not None
        assert len(transport._rest) == 20, "the start of the last record"
        client.socket.sendall(records[-7:] + raw.record(b"last"))
        await until(lambda: peer.received == content + b"last")
        assert not transport._rest

    run(scenario)


@only_1_3
def test_answers_of_key_changes_that_are_not_read_do_not_pile_up(
    run, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(tls_transport, "PIECE", 1000)

    async def scenario(accepting: Accepting, client: Client) -> None:
        peer = accepting.peer
        await client.shake_hands()
        await until(lambda: peer.transport is not None)
        transport = peer.transport
        assert transport is not None
        raw = RawRecords(tmp_path / "keys")
        while not transport._watching_room:
            transport.write(LARGE)
        while not peer.lost:
            with contextlib.suppress(ConnectionError):
                client.socket.send(raw.key_update(answered=True) + raw.record(b"x"))
            await asyncio.sleep(0)
            assert transport._lost or transport._outgoing.pending <= 2000
        assert isinstance(peer.lost[0], ConnectionError)

    run(scenario)


# -- peers that send little at a time, end early, or meet a protocol that fails


def test_bytes_of_a_handshake_wait_for_their_record(run, monkeypatch) -> None:
    """A step for each byte would keep the threads from all other handshakes."""
    steps = []
    step = ssl.SSLObject.do_handshake

    def counted(tls: ssl.SSLObject) -> None:
        if tls.server_side:
            steps.append(tls)
        step(tls)

    monkeypatch.setattr(ssl.SSLObject, "do_handshake", counted)

    async def scenario(accepting: Accepting, client: Client) -> None:
        done = False
        while not done:
            try:
                client.tls.do_handshake()
                done = True
                client.tls.write(b"first")
            except ssl.SSLWantReadError:
                pass
            for byte in client.outgoing.read():
                client.socket.sendall(bytes([byte]))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            if not done:
                await client.receive()
        await until(lambda: accepting.peer.received == b"first")
        assert len(steps) <= 6

    run(scenario)


@only_1_3
def test_a_handshake_of_too_many_steps_is_given_up(run, monkeypatch) -> None:
    monkeypatch.setattr(tls_handshake, "MOST_STEPS", 1)

    async def scenario(accepting: Accepting, client: Client) -> None:
        with contextlib.suppress(OSError):
            await client.shake_hands()
        await until(lambda: accepting.peer.lost)
        assert "more than 1 steps" in str(accepting.peer.lost[0])

    run(scenario)


@only_1_3
def test_a_peer_that_ends_its_side_first_gets_everything_and_the_end(run) -> None:
    async def scenario(accepting: Accepting, client: Client) -> None:
        await client.shake_hands()
        peer = accepting.peer
        await until(lambda: peer.transport is not None)
        assert peer.transport is not None
        peer.transport.write(LARGE)
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
        client.flush()
        client.socket.shutdown(socket.SHUT_WR)
        assert await client.read(len(LARGE)) == LARGE
        with pytest.raises(ssl.SSLZeroReturnError):  # the end of TLS, not only that of the stream
            await client.read(1)
        await until(lambda: peer.lost)

    run(scenario)


@only_1_3
def test_a_protocol_that_fails_at_the_end_of_the_stream_loses_its_connection(
    run, monkeypatch
) -> None:
    def fail(_: Peer) -> None:
        raise RuntimeError("a fault at the end")

    monkeypatch.setattr(Peer, "eof_received", fail)

    async def scenario(accepting: Accepting, client: Client) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await client.shake_hands()
        await until(lambda: accepting.peer.transport is not None)
        client.socket.shutdown(socket.SHUT_WR)
        await until(lambda: accepting.peer.lost)
        assert isinstance(accepting.peer.lost[0], RuntimeError)

    run(scenario)

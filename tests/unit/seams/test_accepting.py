"""Accepting with TLS: a handshake costs nothing before the peer's first message is complete."""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable

import pytest
import uvloop

from headwater.seams import accepting
from headwater.seams.accepting import HANDSHAKES_A_TURN, NotTlsError, TcpListener
from headwater.seams.tasks import Lane, LoopTasks
from headwater.testing.tls_stores import TlsStores

PEERS = 20


class Peer(asyncio.BufferedProtocol):
    """The server's end of a connection."""

    def __init__(self) -> None:
        self.made = False
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Acceptor:
    setup_timeout_s = 30.0

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.tls = tls
        self.peers: list[Peer] = []

    def plain_answer(self, received: bytes) -> bytes:
        return b""

    def pause_s(self) -> float:
        return 0.0

    def accept(self, host: str) -> Peer:
        self.peers.append(Peer())
        return self.peers[-1]


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> TlsStores:
    return TlsStores(tmp_path_factory.mktemp("stores"))


@pytest.fixture
def acceptor(stores) -> Acceptor:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(stores.broker_settings()["ssl.keystore.location"])
    return Acceptor(tls)


def client_hello(stores) -> bytes:
    tls = ssl.create_default_context(cafile=str(stores.authority.certificate))
    outgoing = ssl.MemoryBIO()
    client = tls.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def until(condition: Callable[[], object]) -> None:
    """Run other turns of the loop until the condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0)


def run(acceptor, scenario, run_loop=asyncio.run, tasks_of=LoopTasks) -> None:
    async def serve() -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        tasks = tasks_of()
        listener = TcpListener(bound, acceptor, PEERS, tasks)
        try:
            await scenario(listener)
        finally:
            listener.close()
            tasks.close()

    run_loop(serve())


class HeldTasks(LoopTasks):
    """Takes no step before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.may_step = False
        self.steps: list[asyncio.Future[None]] = []

    def in_thread(self, call, lane=Lane.HANDSHAKE):
        async def wait() -> None:
            await until(lambda: self.may_step)
            call()

        self.steps.append(asyncio.ensure_future(wait()))
        return self.steps[-1]


def connect(listener, count: int = 1) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(count)]


@pytest.mark.parametrize("sent_before", [1, 4, 5, 100, -1])
def test_peers_that_finish_their_first_message_together_begin_a_few_at_a_time(
    acceptor, stores, monkeypatch, sent_before
) -> None:
    """Hundreds of handshakes in one turn of the loop would hold every other client."""
    hello = client_hello(stores)
    turns: list[int] = []
    begin = TcpListener._start_some

    def counted(listener: TcpListener) -> None:
        waiting = len(listener._ready)
        begin(listener)
        turns.append(waiting - len(listener._ready))

    monkeypatch.setattr(TcpListener, "_start_some", counted)

    async def scenario(listener: TcpListener) -> None:
        peers = connect(listener, PEERS)
        for peer in peers:
            peer.sendall(hello[:sent_before])
        await until(lambda: len(acceptor.peers) == PEERS)
        # Another peer is served meanwhile: whatever the first ones have sent was looked at.
        with socket.create_connection(("127.0.0.1", listener.port)) as whole:
            whole.sendall(hello)
            await until(lambda: turns)
        assert sum(turns) == 1, "a handshake began before its first message was whole"
        for peer in peers:
            peer.sendall(hello[sent_before:])
        await until(lambda: sum(turns) == PEERS + 1)
        assert max(turns) <= HANDSHAKES_A_TURN
        for peer in peers:
            peer.settimeout(0)
        received = set()
        while len(received) < PEERS:
            for peer in peers:
                try:
                    if peer.recv(1 << 16):
                        received.add(peer)
                except BlockingIOError:
                    await asyncio.sleep(0)
        for peer in peers:
            peer.close()

    run(acceptor, scenario)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\x16\x03\x01\xff\xff", NotTlsError),
        (b"GET / HTTP/1.1\r\n\r\n", NotTlsError),
        (b"\x16\x03\x01\x02\x00half", ssl.SSLError | OSError | None),
        (b"", None),
    ],
    ids=["a huge record", "another protocol", "half a message", "nothing"],
)
def test_a_peer_that_sends_no_first_message_is_closed(acceptor, sent, why) -> None:
    async def scenario(listener: TcpListener) -> None:
        with connect(listener)[0] as peer:
            peer.sendall(sent)
            peer.shutdown(socket.SHUT_WR)
            await until(lambda: acceptor.peers and acceptor.peers[0].lost)
        reason = acceptor.peers[0].lost[0]
        assert reason is None if why is None else isinstance(reason, why)
        assert not acceptor.peers[0].made

    run(acceptor, scenario)


def test_a_listener_that_closes_drops_peers_before_and_behind_their_first_message(
    acceptor, stores, monkeypatch
) -> None:
    monkeypatch.setattr(accepting, "HANDSHAKES_A_TURN", 0)

    async def scenario(listener: TcpListener) -> None:
        early, late = connect(listener, 2)
        late.sendall(client_hello(stores))
        await until(lambda: len(acceptor.peers) == 2 and listener._ready)
        listener.close()
        assert [one.lost for one in acceptor.peers] == [[None], [None]]
        await asyncio.sleep(0)
        for peer in (early, late):
            peer.close()

    run(acceptor, scenario)


def test_a_reset_behind_a_part_of_the_first_message_is_noticed_at_once(acceptor, stores) -> None:
    """uvloop reports it once, and the bytes are looked at before the error."""

    async def scenario(listener: TcpListener) -> None:
        (peer,) = connect(listener)
        await until(lambda: acceptor.peers)
        peer.sendall(client_hello(stores)[:100])
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        await until(lambda: acceptor.peers[0].lost)
        assert isinstance(acceptor.peers[0].lost[0], ConnectionResetError)

    acceptor.setup_timeout_s = 1e6
    run(acceptor, scenario, uvloop.run)


def test_few_handshakes_begin_while_their_steps_wait_for_threads(
    acceptor, stores, monkeypatch
) -> None:
    monkeypatch.setattr(accepting, "STEPS_AT_ONCE", 5)

    async def scenario(listener: TcpListener) -> None:
        tasks = listener._tasks
        peers = connect(listener, PEERS)
        for peer in peers:
            peer.sendall(client_hello(stores))
        await until(lambda: len(listener._ready) + len(listener._handshakes) == PEERS)
        await until(lambda: len(listener._handshakes) == 5)
        for _ in range(20):
            listener._start_some()
        assert len(tasks.steps) == 5
        tasks.may_step = True
        await until(lambda: len(tasks.steps) == PEERS)
        for peer in peers:
            peer.close()

    run(acceptor, scenario, tasks_of=HeldTasks)


def test_the_oldest_half_open_handshake_makes_room_for_others(
    acceptor, stores, monkeypatch
) -> None:
    monkeypatch.setattr(accepting, "HALF_OPEN", 3)

    async def scenario(listener: TcpListener) -> None:
        peers = []
        for count in range(1, 7):
            peers += connect(listener)
            peers[-1].sendall(client_hello(stores))
            await until(lambda count=count: len(acceptor.peers) == count)
            await until(lambda: not (listener._greetings or listener._ready))
            await until(lambda: not any(one.stepping for one in listener._handshakes))
        assert len(listener._handshakes) == 3
        assert [len(one.lost) for one in acceptor.peers] == [1, 1, 1, 0, 0, 0]
        assert "too many began" in str(acceptor.peers[0].lost[0])
        for peer in peers:
            peer.close()

    run(acceptor, scenario)


def test_a_handshake_that_is_dropped_takes_no_step(acceptor, stores) -> None:
    async def scenario(listener: TcpListener) -> None:
        (peer,) = connect(listener)
        peer.sendall(client_hello(stores))
        await until(lambda: listener._handshakes)
        (handshake,) = listener._handshakes
        handshake.drop(None)
        (step,) = listener._tasks.steps
        await until(step.done)
        assert step.cancelled()
        assert acceptor.peers[0].lost == [None]
        peer.close()

    run(acceptor, scenario, tasks_of=HeldTasks)

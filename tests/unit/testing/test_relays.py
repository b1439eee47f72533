"""Links between the nodes of a test cluster: who is who, what a cut holds back, what healing brings."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from headwater.testing.relays import STORE, Relays

PATIENCE_S = 30


@pytest.fixture
def relays() -> Iterator[Relays]:
    relays = Relays(dict)
    yield relays
    relays.close()


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listening.accept()
                threading.Thread(target=answer, args=[accepted], daemon=True).start()

    def answer(accepted: socket.socket) -> None:
        with accepted, contextlib.suppress(OSError):
            while chunk := accepted.recv(65536):
                accepted.sendall(chunk)

    threading.Thread(target=serve, daemon=True).start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def request_of(client_id: str) -> bytes:
    name = client_id.encode()
    header = struct.pack(">hhih", 18, 3, 7, len(name)) + name
    return struct.pack(">i", len(header)) + header


def receive(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        chunk = connection.recv(size - len(got))
        assert chunk, "the relay closed the connection"
        got += chunk
    return got


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(PATIENCE_S)


def test_everything_passes_both_ways(relays: Relays, echo: int) -> None:
    with connect(relays.relay_to_broker(2, echo)) as connection:
        sent = request_of("broker-1-fetcher-0") + bytes(300_000)
        connection.sendall(sent)
        assert receive(connection, len(sent)) == sent


def test_a_cut_holds_back_only_the_named_link_until_it_heals(relays: Relays, echo: int) -> None:
    port = relays.relay_to_broker(3, echo)
    first, second = request_of("broker-1-fetcher-0"), request_of("broker-2-fetcher-0")
    with connect(port) as one, connect(port) as two:
        one.sendall(first)
        assert receive(one, len(first)) == first
        relays.cut(1, 3)
        two.sendall(second)
        assert receive(two, len(second)) == second
        one.sendall(b"held back")
        assert is_silent(one)
        relays.heal()
        assert receive(one, 9) == b"held back"


def test_a_one_way_cut_lets_requests_through_and_keeps_answers(relays: Relays, echo: int) -> None:
    first = request_of("broker-1-control")
    with connect(relays.relay_to_broker(2, echo)) as connection:
        relays.cut(2, 1)
        connection.sendall(first)
        assert is_silent(connection)
        relays.heal()
        assert receive(connection, len(first)) == first


def test_a_broker_is_cut_off_from_the_store(relays: Relays, echo: int) -> None:
    with connect(relays.relay_to_store(1, "127.0.0.1", echo)) as connection:
        relays.cut(1, STORE)
        connection.sendall(b"ping")
        assert is_silent(connection)
        relays.heal()
        assert receive(connection, 4) == b"ping"


def test_closing_ends_every_connection(relays: Relays, echo: int) -> None:
    with connect(relays.relay_to_broker(2, echo)) as connection:
        first = request_of("broker-1-control")
        connection.sendall(first)
        receive(connection, len(first))
        relays.close()
        assert connection.recv(1) == b""

"""A closed connection is freed at once: the collector of cycles looks at old objects rarely.

What it holds counts in no budget: the buffers of OpenSSL, and the receive buffer once it is closed.
"""

import contextlib
import gc
import socket
import ssl
import struct
from collections import Counter

import pytest

from headwater.broker.server_connection import ServerConnection
from headwater.seams.tls_handshake import Handshake
from headwater.seams.tls_transport import TlsTransport
from headwater.security.plain import PlainClient
from headwater.testing.tls_stores import TlsStores
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.metadata import MetadataRequest
from tests.unit.broker.live import Client, Closed, Live, batch, produce_request, until
from tests.unit.broker.test_sasl import PLAIN_USERS, authenticate

LISTENERS = ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")
FREED = (ServerConnection, TlsTransport, Handshake, ssl.SSLObject)
PEERS = 3


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    stores = TlsStores(tmp_path_factory.mktemp("stores"))
    settings = {
        **stores.broker_settings(),
        "ssl.client.auth": "none",
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.plain.without.tls": "true",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
        "connection.failed.authentication.delay.ms": "1",
    }
    tls = ssl.create_default_context(cafile=str(stores.authority.certificate))
    with Live(tmp_path_factory.mktemp("data"), settings) as running:
        running.create("topic")
        running.client_tls = tls
        yield running


@pytest.fixture(params=LISTENERS)
def listener(request) -> str:
    return request.param


def connect(live, listener: str) -> Client:
    port = live.broker.listeners[LISTENERS.index(listener)].port
    return Client(port, tls=live.client_tls if listener.endswith("SSL") else None)


def log_in(client: Client, listener: str) -> None:
    if listener.startswith("SASL"):
        assert not authenticate(client, PlainClient("bob", "bob-secret"), "PLAIN").error_code


def versions(client: Client, listener: str) -> None:
    client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)


def produce_and_fetch(client: Client, listener: str) -> None:
    log_in(client, listener)
    assert client.produce("topic", batch(bytes(100_000))).error_code == 0
    assert client.fetch("topic").records


def unanswered(client: Client, listener: str) -> None:
    log_in(client, listener)
    client.send(produce_request("topic", batch(b"x"), acks=0), 9)


def half_a_frame(client: Client, listener: str) -> None:
    log_in(client, listener)
    client.send_bytes(struct.pack(">i", 1_000_000) + bytes(200_000))


def wrong_login(client: Client, listener: str) -> None:
    if listener.startswith("SASL"):
        assert authenticate(client, PlainClient("bob", "wrong"), "PLAIN").error_code


def request_too_early(client: Client, listener: str) -> None:
    if listener.startswith("SASL"):
        client.send(MetadataRequest(topics=[]), 12)
        with pytest.raises((Closed, OSError)):
            client.receive()


def huge_frame(client: Client, listener: str) -> None:
    client.send_bytes(b"\x7f\xff\xff\xff" + bytes(50))
    with pytest.raises((Closed, OSError)):
        client.receive()


def broken_request(client: Client, listener: str) -> None:
    log_in(client, listener)
    client.send_bytes(struct.pack(">ihhi", 60, 3, 12, 1) + b"\xff" * 52)
    with pytest.raises((Closed, OSError)):
        client.receive()


def reset(client: Client, listener: str) -> None:
    half_a_frame(client, listener)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def not_tls(client: Client, listener: str) -> None:
    """Bytes behind the handshake that are not those of TLS."""
    with socket.socket(fileno=client.socket.detach()) as plain:
        plain.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))


def open_connections(live) -> int:
    return live.on_loop(lambda: len(live.context.connection_quotas.open))


def held() -> Counter[str]:
    return Counter(
        kind.__name__ for one in gc.get_objects() for kind in FREED if isinstance(one, kind)
    )


@contextlib.contextmanager
def all_freed(live):
    """Have the objects of all connections of the block be freed after it, without a collection."""
    until(lambda: not open_connections(live))
    gc.collect()
    before = held()
    gc.disable()
    try:
        yield
        until(lambda: not open_connections(live), "for the ends of the connections")
        until(lambda: not held() - before, f"for the memory: {held()} before: {before}")
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "use",
    [
        versions,
        produce_and_fetch,
        unanswered,
        half_a_frame,
        wrong_login,
        request_too_early,
        huge_frame,
        broken_request,
        reset,
        not_tls,
    ],
)
def test_a_connection_is_freed_when_it_is_closed(live, listener, use) -> None:
    with all_freed(live):
        for _ in range(PEERS):
            with connect(live, listener) as client:
                use(client, listener)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])
def test_a_connection_without_a_handshake_is_freed(live, sent) -> None:
    with all_freed(live):
        for _ in range(PEERS):
            with socket.create_connection(("127.0.0.1", live.broker.listeners[1].port)) as peer:
                peer.sendall(sent)


def test_a_connection_whose_handshake_fails_is_freed(live) -> None:
    """The client does not trust the broker's certificate."""
    strict = ssl.create_default_context()
    with all_freed(live):
        for _ in range(PEERS):
            with pytest.raises(ssl.SSLError):
                Client(live.broker.listeners[1].port, tls=strict)

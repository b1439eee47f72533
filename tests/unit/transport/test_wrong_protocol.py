"""A client with TLS and a listener without it, and the reverse, know what is wrong."""

import asyncio
import socket
import threading

import pytest

from headwater.client.blocking_connection import BlockingConnection
from headwater.config.keys import ConfigError
from headwater.seams.network import TcpNetwork
from headwater.transport.client_connection import ClientConnection
from headwater.transport.wrong_protocol import NO_TLS_HERE, tls_needed_answer
from headwater.wire import codec
from headwater.wire.framing import read_response_header, request_frame
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.metadata import MetadataRequest

API_VERSIONS, METADATA = 18, 3


@pytest.mark.parametrize("version", range(5))
def test_a_plain_client_gets_an_error_in_its_own_version(version):
    sent = request_frame(API_VERSIONS, version, 7, "test", ApiVersionsRequest())
    frame = tls_needed_answer(sent)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    number, body = read_response_header(frame[4:], API_VERSIONS, version)
    answer, end = codec.decode(ApiVersionsResponse, version, frame[4:], body)
    assert (number, answer.error_code, end) == (7, 40, len(frame) - 4)


@pytest.mark.parametrize(
    "received",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        bytes(12),
        request_frame(METADATA, 9, 1, None, MetadataRequest()),
        request_frame(API_VERSIONS, 0, 1, None, ApiVersionsRequest())[:12],
        b"\0\0\0\x0a\0\x12\x7f\xff\0\0\0\1\xff\xff",
    ],
)
def test_anything_else_gets_no_answer(received):
    assert tls_needed_answer(received) == b""


@pytest.fixture
def alerting():
    """The port of a TLS listener that answers plain bytes with an alert, as Kafka's do."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            for _ in range(2):
                peer, _ = listening.accept()
                with peer:
                    peer.recv(4096)
                    peer.sendall(NO_TLS_HERE)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def test_an_alert_of_tls_is_not_a_frame(alerting):
    with pytest.raises(ConfigError, match="speaks only TLS"):
        BlockingConnection("127.0.0.1", alerting, "test", 30.0)

    async def connect():
        await ClientConnection.open(TcpNetwork(), "127.0.0.1", alerting)

    with pytest.raises(ConfigError, match="speaks only TLS"):
        asyncio.run(connect())

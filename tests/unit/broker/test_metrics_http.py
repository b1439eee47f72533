"""The HTTP listener of a broker: what it answers, and that no peer can hold it or fill its memory."""

import contextlib
import http.client
import socket

import pytest

from headwater.broker.monitoring import http as server
from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from tests.unit.broker.live import WAIT_S, Live, until


def address(live):
    host, _, port = live.broker.metrics_address.rpartition(":")
    return host, int(port)


def exchange(live, data):
    """Everything that the broker answers until it closes."""
    with socket.create_connection(address(live), timeout=WAIT_S) as peer:
        peer.sendall(data)
        return read_all(peer)


def read_all(peer):
    found = b""
    while data := peer.recv(65536):
        found += data
    return found


def send_endlessly(peer):
    while True:
        peer.sendall(b"x" * server.MAX_IGNORED)


def get(live, path):
    """The status, the kind and the content."""
    connection = http.client.HTTPConnection(*address(live), timeout=WAIT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_metrics_and_health_are_served(live, topic):
    status, kind, text = get(live, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert f'headwater_log_bytes{{topic="{topic}"}} 0\n' in text
    assert "headwater_partition_end_offset{" not in text
    _, _, text = get(live, f"/metrics?topic={topic}&topic=missing")
    assert f'headwater_partition_end_offset{{topic="{topic}",partition="0"}} 0\n' in text
    assert get(live, "/healthz")[::2] == (200, "ok\n")
    assert get(live, "/readyz")[::2] == (200, "ok\n")
    assert get(live, "/other")[0] == 404


def test_a_broker_that_stops_or_lost_its_disks_says_so(tmp_path):
    with Live(tmp_path) as live:
        live.on_loop(lambda: setattr(live.context, "serving", False))
        assert get(live, "/readyz")[::2] == (503, "the broker starts\n")
        live.on_loop(lambda: setattr(live.context, "serving", True))
        live.on_loop(live.broker.storage_lost.set)
        assert get(live, "/healthz")[0] == get(live, "/readyz")[0] == 503
        live.on_loop(live.broker.storage_lost.clear)
        live.broker.parts.monitoring.stopping = True
        assert get(live, "/readyz")[::2] == (503, "the broker stops\n")
        assert get(live, "/healthz")[0] == 200
        host, port = address(live)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port), timeout=WAIT_S)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\n\r\n", 400),
        (b"GET //[ HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /metrics?" + b"topic=a&" * 200 + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"x" * 20_000, 431),
        (b"HEAD /healthz HTTP/1.0\r\n\r\n", 200),
    ],
    ids=["post", "no version", "bad host", "bad path", "TLS", "many topics", "long", "head"],
)
def test_odd_requests_get_an_answer(live, request_bytes, status):
    answer = exchange(live, request_bytes)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
    if request_bytes.startswith(b"HEAD"):
        assert answer.endswith(b"\r\n\r\n")


def test_a_head_may_come_byte_by_byte_and_its_sender_may_be_done_early(live):
    with socket.create_connection(address(live), timeout=WAIT_S) as peer:
        for byte in b"GET /healthz HTTP/1.1\r\n\r\n":
            peer.sendall(bytes([byte]))
        peer.shutdown(socket.SHUT_WR)
        assert read_all(peer).endswith(b"\r\n\r\nok\n")


def test_pipelined_requests_get_one_answer(live):
    answer = exchange(live, b"GET /healthz HTTP/1.1\r\n\r\n" * 100)
    assert answer.count(b"HTTP/1.1 200 OK") == 1


def test_a_peer_that_sends_without_end_is_cut_off(live):
    with socket.create_connection(address(live), timeout=WAIT_S) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_endlessly(peer)


def test_a_slow_peer_is_cut_off(live, monkeypatch):
    monkeypatch.setattr(server, "TIME_LIMIT_S", 0.05)
    with socket.create_connection(address(live), timeout=WAIT_S) as peer:
        peer.sendall(b"GET /metr")
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(1) == b""


def test_silent_connections_make_room_for_those_that_ask(live):
    silent = [
        socket.create_connection(address(live), timeout=WAIT_S)
        for _ in range(3 * server.MAX_CONNECTIONS)
    ]
    try:
        until(lambda: get(live, "/healthz")[0] == 200)
        http_server = live.broker.parts.monitoring._server
        assert live.on_loop(lambda: len(http_server._open)) <= server.MAX_CONNECTIONS
    finally:
        for peer in silent:
            peer.close()


def test_answered_connections_that_stay_make_room_for_others(live):
    stay = []
    try:
        for _ in range(2 * server.MAX_CONNECTIONS):
            stay.append(socket.create_connection(address(live), timeout=WAIT_S))
            stay[-1].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert read_all(stay[-1]).startswith(b"HTTP/1.1 200")
    finally:
        for peer in stay:
            peer.close()


def test_many_at_once_share_the_work(live, topic):
    peers = [socket.create_connection(address(live), timeout=WAIT_S) for _ in range(20)]
    for peer in peers:
        peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    answers = [read_all(peer) for peer in peers]
    assert all(b"\r\n\r\n# HELP" in answer and answer.endswith(b"\n") for answer in answers)
    for peer in peers:
        peer.close()


def test_a_failure_is_an_answer_too(live, monkeypatch):
    def broken(*_):
        raise RuntimeError("broken by the test")

    monkeypatch.setattr("headwater.broker.monitoring.exposition.take_survey", broken)
    assert get(live, "/metrics")[0] == 500
    monkeypatch.undo()
    assert get(live, "/metrics")[0] == 200


def test_a_taken_port_is_an_error_unless_it_is_the_default(live, tmp_path, monkeypatch):
    host, port = address(live)
    taken = {"metrics.listener": f"{host}:{port}"}
    with pytest.raises(OSError, match=r"choose another metrics\.listener"), Live(tmp_path, taken):
        pass
    monkeypatch.setattr(BrokerSettings, "metrics_address", (host, port))
    default = Live(tmp_path)
    del default.settings["metrics.listener"]
    with default:
        assert get(default, "/healthz")[0] == 200
        assert address(default) != (host, port)


def test_the_listener_can_be_turned_off_and_bad_addresses_are_refused(tmp_path):
    with Live(tmp_path, {"metrics.listener": ""}) as live:
        assert live.broker.metrics_address is None
    for text in ("9404", "127.0.0.1:", "http://127.0.0.1:1", "127.0.0.1:65536"):
        with pytest.raises(ConfigError, match=r"metrics\.listener"):
            BrokerSettings.load(None, {"metrics.listener": text})

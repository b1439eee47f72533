"""Events over HTTP: what is answered, what is stored, and what hostile clients get."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.testing import Broker
from tests.integration.collector import PATIENCE_S, http_collector, numbers, stored

SHOP = "https://shop.example"
HEAD = b"POST /events HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture(scope="module")
def broker():
    with Broker({"auto.create.topics.enable": "false"}, subprocess=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def collector(broker):
    broker.create_topic("events", partitions=3)
    with http_collector(
        broker,
        "events",
        *("--max-event-bytes", "1000", "--max-body-bytes", "20000", "--allow-origin", SHOP),
        *("--read-timeout", "0.5", "--add-received", "--add-client"),
    ) as collector:
        yield collector


def values_with(broker, mark):
    return [value for _, value, _ in stored(broker, "events") if mark in value]


def test_an_event_is_stored_as_it_came_under_its_users_key(collector, broker):
    text = '{"user_id": "änne", "mark": "as-it-came", "big": 123456789012345678901234567890.10}'
    before_ms = time.time() * 1000
    answer = collector.post(text.encode(), content_type="application/json")
    assert answer.status == 200
    assert answer.told == {"accepted": 1, "refused": 0, "refusals": []}
    [(key, value, headers)] = [row for row in stored(broker, "events") if b"as-it-came" in row[1]]
    assert key.decode() == "änne"
    assert value.decode() == text.replace('": ', '":').replace(", ", ",")
    assert headers["client"] == b"127.0.0.1"
    assert before_ms - 1 <= int(headers["received-ms"]) <= time.time() * 1000 + 1


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('[{"user_id":1,"mark":"%s"},{"user_id":2,"mark":"%s"}]', "application/json"),
        ('{"user_id":1,"mark":"%s"}\n{"user_id":2,"mark":"%s"}', "text/plain;charset=UTF-8"),
        ('{"user_id":1,"mark":"%s"}\n{"user_id":2,"mark":"%s"}\n', "application/x-ndjson"),
    ],
)
def test_many_events_come_in_one_body(collector, broker, body, kind):
    mark = f"many-{kind}"
    answer = collector.post(body % (mark, mark), content_type=kind)
    assert answer.told["accepted"] == 2
    assert len(values_with(broker, mark.encode())) == 2


def test_what_is_refused_is_named_and_the_rest_is_stored(collector, broker):
    answer = collector.post(
        [{"user_id": 1, "mark": "part"}, {"mark": "part"}, {"user_id": 2, "x": "x" * 1000}]
    )
    assert answer.status == 200
    assert answer.told["accepted"] == 1
    assert [row["index"] for row in answer.told["refusals"]] == [1, 2]
    assert answer.told["refusals"][0]["reason"] == "has no user_id"
    assert values_with(broker, b'"part"') == [b'{"user_id":1,"mark":"part"}']


def test_only_the_first_refusals_are_listed(collector):
    told = collector.post([{}] * 500).told
    assert (told["refused"], len(told["refusals"])) == (500, 100)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"nonsense", 400),
        (b"\xff\xfe", 400),
        (b"[" * 19_000, 400),
        (b'{"user_id":NaN}', 400),
        (b'{"user_id":1,"x":"' + b"x" * 2000 + b'"}', 413),
        (b" " * 20_001, 413),
        (b"[]", 200),
    ],
)
def test_a_body_that_holds_no_event_says_why(collector, body, status):
    answer = collector.post(body)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.told


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("POST", "/nowhere", 404),
        ("GET", "/events/../../etc/passwd", 404),
        ("GET", "/events", 405),
        ("DELETE", "/events", 405),
        ("POST", "/headwater.js", 405),
        ("GET", "/health", 200),
        ("HEAD", "/headwater.js", 200),
    ],
)
def test_other_requests_are_answered_cleanly(collector, method, path, status):
    answer = collector.ask(method, path)
    assert answer.status == status
    if method != "HEAD":
        assert answer.told


def test_a_compressed_body_is_refused(collector):
    assert collector.post(b"x", content_encoding="gzip").status == 415


def test_a_body_without_end_is_cut_at_the_limit(collector):
    sent = 0

    def endless():
        nonlocal sent
        while sent < 100_000_000:
            sent += 10_000
            yield b" " * 10_000

    with contextlib.suppress(OSError):  # the connection may be closed while the client still sends
        assert collector.post(endless()).status == 413
    assert sent < 20_000_000  # what fits into the buffers of the kernel


def test_pages_of_an_origin_that_is_allowed_may_send(collector):
    asked = collector.ask("OPTIONS", "/events", origin=SHOP, access_control_request_method="POST")
    assert asked.status == 204
    assert asked.headers["access-control-allow-origin"] == SHOP
    assert asked.headers["access-control-allow-headers"] == "content-type"
    for body in ({"user_id": 1}, b"nonsense"):
        assert collector.post(body, origin=SHOP).headers["access-control-allow-origin"] == SHOP


def test_pages_of_the_collectors_own_origin_may_send(collector):
    assert collector.post({"user_id": 1}, origin=f"http://127.0.0.1:{collector.port}").status == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "https://", "\x01" * 10_000, "http://["]
)
def test_pages_of_others_may_not(collector, broker, origin):
    answer = collector.post({"user_id": 1, "mark": "evil"}, origin=origin)
    assert answer.status in (400, 403)
    assert "access-control-allow-origin" not in answer.headers
    assert values_with(broker, b"evil") == []


# -- hostile clients


def answer_of(client):
    """All that comes until the server closes; an abort counts as nothing."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    client.close()
    return b"".join(parts)


def test_slow_clients_are_cut(collector, broker):
    half = collector.raw(b"POST /ev")
    silent = collector.raw()
    body = collector.raw(HEAD, b"content-length: 60\r\n\r\n", b'{"user_id":1,"mark":"slow"')
    assert [answer_of(client) for client in (half, silent, body)] == [b"", b"", b""]
    assert values_with(broker, b"slow") == []


def test_trickled_bytes_do_not_put_the_end_off(collector):
    client = collector.raw(HEAD, b"content-length: 1000\r\n\r\n")
    with contextlib.suppress(OSError):
        while True:  # until the collector hangs up; the test's own timeout is the end otherwise
            client.sendall(b" ")
            time.sleep(0.05)
    client.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        HEAD + b"x: " + b"y" * 100_000 + b"\r\n\r\n",
        HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nx",
        HEAD + b"content-length: -1\r\n\r\n",
        HEAD + b"content-length: 99999999999999999999999\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"content-length: 13\r\n\r\n" + b'{"user_id":1}GARBAGE\r\n\r\n',
    ],
)
def test_requests_that_are_none_are_refused(collector, request_bytes):
    client = collector.raw()
    with contextlib.suppress(OSError):
        client.sendall(request_bytes)
    said = answer_of(client)
    assert said == b"" or any(status in said for status in (b" 400 ", b" 413 ", b" 431 "))
    assert collector.ask("GET", "/health").status == 200


def test_a_body_that_ends_early_stores_nothing(collector, broker):
    whole = b'{"user_id":1,"mark":"early"}'
    collector.raw(HEAD, b"content-length: 100\r\n\r\n", whole).close()
    assert collector.post({"user_id": 1}).status == 200
    assert values_with(broker, b"early") == []


def test_a_connection_serves_one_request_after_the_other(collector):
    body = b'{"user_id":1}'
    request = HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body)
    last = request.replace(b"host: x", b"host: x\r\nconnection: close")
    assert answer_of(collector.raw(request + request + last)).count(b'"accepted":1') == 3


# -- limits


def test_rates_are_held_for_each_client_and_for_all(broker):
    broker.create_topic("limited")
    options = ("--rate", "5", "--total-rate", "20", "--trust-proxy")
    with http_collector(broker, "limited", *options) as collector:

        def post(client, count):
            body = [{"user_id": client, "n": n} for n in range(count)]
            return collector.post(body, x_forwarded_for=f"6.6.6.6, {client}")

        assert post("192.0.2.1", 9).status == 200
        slowed = post("192.0.2.1", 1)
        assert slowed.status == 429
        assert int(slowed.headers["retry-after"]) >= 1
        assert post("192.0.2.2", 1).status == 200
        assert post("192.0.2.3", 20).status == 200
        assert post("192.0.2.4", 1).status == 429  # the total is used up
    assert len(stored(broker, "limited")) == 30


def test_a_header_of_the_client_is_not_trusted_by_itself(broker):
    broker.create_topic("untrusting")
    with http_collector(broker, "untrusting", "--rate", "1", "--add-client") as collector:
        first = collector.post({"user_id": 1}, x_forwarded_for="192.0.2.1")
        second = collector.post({"user_id": 1}, x_forwarded_for="192.0.2.2")
    assert (first.status, second.status) == (200, 429)
    assert stored(broker, "untrusting")[0][2]["client"] == b"127.0.0.1"


def test_connections_and_bytes_past_the_limits_are_sent_away(broker):
    broker.create_topic("crowded")
    options = ("--max-connections", "2", "--max-held-bytes", "100")
    with http_collector(broker, "crowded", *options) as collector:
        for _ in range(3):  # what was held is let go of, whatever the answer was
            full = collector.post({"user_id": 1, "x": "x" * 100})
            assert (full.status, full.headers["retry-after"]) == (503, "1")
            assert collector.post({"user_id": 1, "x": "x" * 70}).status == 200
        first, second = collector.raw(), collector.raw()
        assert answer_of(collector.raw()) == b""
        first.close()
        second.close()


# -- the broker


def test_every_accepted_event_is_stored_once_although_the_broker_is_killed(tmp_path):
    with Broker(subprocess=True, data_dir=tmp_path) as broker:
        broker.create_topic("kept", partitions=2)
        with http_collector(broker, "kept", "--ack-timeout", "15") as collector:
            accepted, stop = [], threading.Event()

            def post(client):
                n = client
                while not stop.is_set():
                    if collector.post({"user_id": client, "n": n}).status == 200:
                        accepted.append(n)
                    n += 4

            with ThreadPoolExecutor(4) as threads:
                clients = [threads.submit(post, client) for client in range(4)]
                for _ in range(2):
                    more(accepted)
                    broker.kill()
                    broker.start()
                more(accepted)
                stop.set()
                for client in clients:
                    client.result(PATIENCE_S)
            assert numbers(broker, "kept") == sorted(accepted)


def test_while_the_broker_is_away_clients_are_told_to_come_back(tmp_path):
    with Broker(subprocess=True, data_dir=tmp_path) as broker:
        broker.create_topic("later")
        broker.stop()
        quick = ("--ack-timeout", "0.5", "-o", "reconnect.backoff.max.ms=50")
        with http_collector(broker, "later", *quick) as collector:
            assert collector.ask("GET", "/health").status == 503  # it may start before its broker
            broker.start()
            _until(lambda: collector.post({"user_id": 1, "n": 1}).status == 200)
            assert collector.ask("GET", "/health").told == {"status": "ok"}
            broker.kill()
            for _ in range(2):  # the first finds out, the second is told at once
                refused = collector.post({"user_id": 1, "n": 2})
                assert refused.status == 503
                assert int(refused.headers["retry-after"]) >= 1
            assert collector.ask("GET", "/health").status == 503
            broker.start()
            _until(lambda: collector.post({"user_id": 1, "n": 3}).status == 200)
            assert collector.stop() == 0
        assert set(numbers(broker, "later")) >= {1, 3}


def test_a_stop_finishes_what_was_accepted(broker):
    broker.create_topic("finished")
    with http_collector(broker, "finished") as collector, ThreadPoolExecutor(1) as threads:
        assert collector.post({"user_id": 1, "n": 1}).status == 200
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            waiting = threads.submit(collector.post, {"user_id": 1, "n": 2})
            _until(lambda: _established(collector.port))
            collector.process.send_signal(signal.SIGTERM)
            _until(lambda: not _listens(collector.port))
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert waiting.result(PATIENCE_S).told["accepted"] == 1
        assert collector.process.wait(PATIENCE_S) == 0
    assert numbers(broker, "finished") == [1, 2]


def test_a_second_ctrl_c_ends_at_once_and_prints_nothing(broker):
    broker.create_topic("interrupted")
    asked = ("--ack-timeout", str(PATIENCE_S))
    with (
        http_collector(broker, "interrupted", *asked, stderr=subprocess.PIPE) as collector,
        ThreadPoolExecutor(1) as threads,
    ):
        assert collector.post({"user_id": 1, "n": 1}).status == 200
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            threads.submit(collector.post, {"user_id": 1, "n": 2})
            _until(lambda: _established(collector.port))
            collector.process.send_signal(signal.SIGINT)
            _until(lambda: not _listens(collector.port))
            collector.process.send_signal(signal.SIGINT)
            _, errors = collector.process.communicate(timeout=PATIENCE_S / 2)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
    assert (collector.process.returncode, errors) == (0, "")


def test_a_topic_that_is_missing_is_said_in_one_line(broker):
    words = ["http", "--topic", "nowhere", "--port", "0", "--ack-timeout", "0.5"]
    command = [sys.executable, "-m", "headwater", "collect", *words]
    done = subprocess.run(
        [*command, "--bootstrap-server", broker.bootstrap],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_said_in_one_line(collector, broker):
    words = ["http", "--topic", "events", "--port", str(collector.port)]
    command = [sys.executable, "-m", "headwater", "collect", *words]
    done = subprocess.run(
        [*command, "--bootstrap-server", broker.bootstrap],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Error: 127.0.0.1:{collector.port}: Address already in use; "
        "choose another address with --host and --port\n"
    )


def more(accepted, count=20):
    """Wait for `count` more."""
    enough = len(accepted) + count
    _until(lambda: len(accepted) >= enough)


def _until(holds):
    limit = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


def _connections(port, state):
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in list(table)[1:]]
    return [row for row in rows if row[1].endswith(f":{port:04X}") and row[3] == state]


def _established(port):
    return _connections(port, "01")


def _listens(port):
    return _connections(port, "0A")

"""Consumers and admins while leaders move, brokers hang or die, and the controller is lost."""

import logging
import socket
import time

import pytest

import headwater
from headwater.client import wait_warnings
from headwater.errors import KafkaError, UnknownTopicOrPartitionError
from headwater.transport.client_connection import ClientConnection
from tests.clients.fake_cluster import serving
from tests.clients.fake_reading import ReadableCluster

QUICK = {"request_timeout_ms": 1000, "default_api_timeout_ms": 20_000}


@pytest.fixture
def cluster():
    with serving(ReadableCluster(3)) as running:
        running.fill(100)
        yield running


@pytest.fixture
def consumer(cluster):
    with headwater.Consumer(
        bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **QUICK
    ) as reading:
        reading.assign([("t", 0)])
        yield reading


def read(consumer, count):
    deadline, seen = time.monotonic() + 60, []
    while len(seen) < count and time.monotonic() < deadline:
        seen += [
            record.offset for record in consumer.poll(1, max_records=min(7, count - len(seen)))
        ]
    return seen


def until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def metadata_requests(cluster):
    return sum(broker.requests.count(3) for broker in cluster.brokers.values())


def test_a_moved_leader_is_followed_by_its_hint_without_asking_for_metadata(cluster, consumer):
    assert read(consumer, 35) == list(range(35))
    asked = metadata_requests(cluster)
    for number in (2, 3, 1, 2):
        cluster.do(lambda to=number: cluster.move(0, to))
        consumer.seek(("t", 0), 0)
        assert read(consumer, 21)[:21] == list(range(21))
        assert metadata_requests(cluster) - asked <= 8  # a refresh in the background, not one a try


def test_a_moved_leader_is_found_without_hints(cluster, consumer):
    cluster.hints = False
    assert read(consumer, 35) == list(range(35))
    cluster.do(lambda: cluster.move(0, 2))
    cluster.do(lambda: cluster.fill(50))
    assert read(consumer, 115) == list(range(35, 150))


@pytest.mark.parametrize("how", ["hang", "die"])
def test_records_come_from_the_next_leader_when_one_hangs_or_dies(cluster, consumer, how):
    assert read(consumer, 35) == list(range(35))
    getattr(cluster.brokers[1], how)()
    cluster.do(lambda: cluster.move(0, 2))
    cluster.live = {2, 3}
    assert read(consumer, 65) == list(range(35, 100))


def test_what_a_paused_leader_answers_after_its_successor_is_dropped(cluster):
    with headwater.Consumer(
        bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", max_poll_records=1
    ) as consumer:
        consumer.assign([("t", 0)])
        assert read(consumer, 100) == list(range(100))
        cluster.brokers[1].hang()
        asked = len(cluster.brokers[1].requests)
        cluster.do(lambda: cluster.fill(50))
        cluster.do(lambda: cluster.move(0, 2))
        cluster.live, cluster.stale = {2, 3}, {1}
        assert read(consumer, 50) == list(range(100, 150))
        cluster.brokers[1].recover()
        until(lambda: 1 in cluster.brokers[1].requests[asked:])
        cluster.do(lambda: cluster.fill(50))
        assert read(consumer, 50) == list(range(150, 200))


@pytest.mark.parametrize("how", ["hang", "die"])
def test_the_admin_finds_the_new_controller(cluster, how):
    with headwater.Admin(bootstrap_servers=cluster.bootstrap, **QUICK) as admin:
        admin.create_topics(["a"])
        getattr(cluster.brokers[1], how)()
        cluster.controller, cluster.live = 2, {2, 3}
        admin.create_topics(["b"])
    assert 19 in cluster.brokers[2].requests


def test_offsets_are_found_at_the_next_leader(cluster):
    with headwater.Admin(bootstrap_servers=cluster.bootstrap, **QUICK) as admin:
        here = headwater.TopicPartition("t", 0)
        assert admin.end_offsets([here]) == {here: 100}
        cluster.brokers[1].die()
        cluster.do(lambda: cluster.move(0, 3))
        cluster.live = {2, 3}
        assert admin.end_offsets([here]) == {here: 100}


def test_a_coordinator_with_another_address_is_taken_as_told(cluster):
    """The picture of the cluster may be older than the answer that names the coordinator."""
    with headwater.Admin(bootstrap_servers=cluster.bootstrap, **QUICK) as admin:
        admin.create_topics(["a"])
        made = admin._core.calls._connected
        assert made is not None
        made.nodes[1] = made.nodes[1]._replace(port=1)
        found = admin._caller.thread.call(made.coordinator("g"))
    assert found.port == cluster.brokers[1].port


def test_bootstrap_addresses_that_swallow_are_passed_over_and_doubles_do_no_harm(cluster):
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(5)
        swallows = f"127.0.0.1:{hole.getsockname()[1]}"
        good = f"127.0.0.1:{cluster.brokers[1].port}"
        servers = [swallows, swallows, "127.0.0.1:1", good, good]
        # Within less than the time that one address may take to connect.
        with headwater.Admin(
            bootstrap_servers=servers,
            socket_connection_setup_timeout_ms=60_000,
            default_api_timeout_ms=30_000,
        ) as admin:
            assert admin.settings.bootstrap_servers == (swallows, "127.0.0.1:1", good)
            admin.create_topics(["a"])


def test_seeks_while_a_fetch_waits_do_not_open_a_connection_each(cluster, consumer, monkeypatch):
    opened = []
    real = ClientConnection.open.__func__

    async def counting(cls, *args, **options):
        opened.append(args)
        return await real(cls, *args, **options)

    assert read(consumer, 100) == list(range(100))
    monkeypatch.setattr(ClientConnection, "open", classmethod(counting))
    for number in range(50):
        consumer.seek(("t", 0), number)
        assert consumer.poll(5, max_records=1)[0].offset == number
    assert len(opened) <= 2


# -- nothing is silent


@pytest.fixture
def soon(monkeypatch):
    """Waits report themselves after a moment."""
    monkeypatch.setattr(wait_warnings, "FIRST_S", 0.05)
    monkeypatch.setattr("headwater.client.consumer.fetching.fetcher_loop.FIRST_S", 0.05)


def test_a_wrong_address_is_reported_while_a_group_consumer_polls(soon, caplog):
    with headwater.Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as reading:
        reading.subscribe(["t"])
        deadline = time.monotonic() + 60
        while not caplog.records and time.monotonic() < deadline:
            reading.poll(0.1)
        reading.poll(0.3)
        reading.close(0)
    warned = [row for row in caplog.records if row.levelno == logging.WARNING]
    said = [row.getMessage() for row in warned if "no broker answers at 127.0.0.1:1" in row.message]
    assert len(said) == 1, said  # once per cause and half minute
    assert "cannot be reached" in said[0]


def test_a_topic_that_does_not_exist_is_reported_to_its_subscribers(caplog, monkeypatch):
    from headwater.testing import Broker

    monkeypatch.setattr("headwater.client.cluster._GRACE_MS", 50)
    monkeypatch.setattr("headwater.client.cluster._ASK_AGAIN_MS", 50)
    with (
        Broker({"auto.create.topics.enable": "false"}) as broker,
        headwater.Consumer(bootstrap_servers=broker.bootstrap, group_id="g") as reading,
    ):
        reading.subscribe(["nope"])
        deadline = time.monotonic() + 60
        while "headwater topics create nope" not in caplog.text and time.monotonic() < deadline:
            reading.poll(0.1)
        assert caplog.text.count("topic 'nope' does not exist") == 1
        broker.create_topic("nope")
        while not reading.assignment() and time.monotonic() < deadline:
            reading.poll(0.1)
        assert reading.assignment()


def test_a_broker_that_hangs_under_a_fetch_is_reported_with_its_address(
    cluster, consumer, soon, caplog
):
    assert read(consumer, 100)
    cluster.brokers[1].hang()
    deadline = time.monotonic() + 60
    while "does not answer fetches" not in caplog.text and time.monotonic() < deadline:
        consumer.poll(0.1)
    assert f"broker 1 at 127.0.0.1:{cluster.brokers[1].port} does not answer" in caplog.text


def test_a_dead_broker_is_not_reported_once_another_leads(cluster, consumer, monkeypatch, caplog):
    assert read(consumer, 100)
    cluster.brokers[1].die()
    cluster.do(lambda: cluster.move(0, 2))
    cluster.live = {2, 3}
    cluster.do(lambda: cluster.fill(50))
    assert read(consumer, 50) == list(range(100, 150))
    caplog.clear()
    monkeypatch.setattr("headwater.client.consumer.fetching.fetcher_loop.FIRST_S", 0.01)
    for _ in range(5):
        consumer.poll(0.1)
    assert "broker 1 " not in caplog.text


@pytest.mark.parametrize("call", ["end_offsets", "create_topics", "list_topics"])
def test_an_admin_that_waits_says_for_what(cluster, soon, caplog, call):
    with headwater.Admin(
        bootstrap_servers=cluster.bootstrap, request_timeout_ms=300, default_api_timeout_ms=1000
    ) as admin:
        admin.create_topics(["a"])
        for broker in cluster.brokers.values():
            broker.hang()
        argument = {"end_offsets": [("t", 0)], "create_topics": ["b"]}.get(call)
        with pytest.raises(KafkaError, match=r"timed out after .*127\.0\.0\.1:"):
            getattr(admin, call)(*([argument] if argument else []))
    assert "127.0.0.1:" in caplog.text
    assert [row for row in caplog.records if row.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.end_offsets([("t", 9)]), "partition t-9 does not exist.*headwater topics"),
        (lambda c: c.assign([("t", 9)]), "partition t-9 does not exist.*headwater topics"),
        (lambda c: c.assign([("t", -1)]), "partition t--1 does not exist"),
        (lambda c: c.assign([("nope", 0)]), "headwater topics create nope"),
        (lambda c: c.partitions_for("nope"), "headwater topics create nope"),
        (lambda c: c.beginning_offsets([("nope", 0)]), "headwater topics create nope"),
    ],
)
def test_what_cannot_come_is_reported_long_before_the_timeout(
    cluster, consumer, monkeypatch, call, said
):
    monkeypatch.setattr("headwater.client.cluster._GRACE_MS", 50)
    cluster.missing_topics.add("nope")
    before = consumer.assignment()
    with pytest.raises(UnknownTopicOrPartitionError, match=said):
        call(consumer)
    assert consumer.assignment() == before
    assert read(consumer, 7)


def test_partitions_that_were_added_are_found_before_a_refusal(cluster, consumer):
    cluster.leaders[1] = 2
    consumer.assign([("t", 1)])
    assert consumer.partitions_for("t") == [0, 1]

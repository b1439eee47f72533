"""A producer whose records are not acknowledged says so, with the reason, long before they fail."""

import logging
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

import headwater
from headwater.cli.app import command
from headwater.errors import E
from tests.clients.fake_cluster import FakeCluster, serving
from tests.integration.waiting import until

QUICK = {"linger_ms": 0, "retry_backoff_ms": 20, "reconnect_backoff_max_ms": 50}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with serving(FakeCluster(2, partitions=2)) as cluster:
        yield cluster


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits report themselves after a moment."""
    monkeypatch.setattr("headwater.client.producer.delivery_waits.FIRST_S", 0.2)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    rows = [row for row in caplog.records if row.levelno == logging.WARNING]
    return [row.getMessage() for row in rows if "not acknowledged yet" in row.getMessage()]


def test_records_that_a_broker_refuses_again_and_again_are_reported_once_per_topic(
    cluster: FakeCluster, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    with headwater.Producer(bootstrap_servers=cluster.bootstrap, **QUICK) as producer:
        producer.send("t", b"first", partition=0).result(60)
        cluster.move(1, 2)
        cluster.fault = lambda one: E.KAFKA_STORAGE_ERROR if one.topic != "fine" else None
        sent = [producer.send("t", b"x", partition=number % 2) for number in range(10)]
        sent.append(producer.send("other", b"y", partition=0))
        until(lambda: len(warned(caplog)) >= 2, "both topics are reported")
        for _ in range(3):
            producer.send("fine", b"z", partition=0).result(60)
        cluster.fault = lambda _: None
        for future in sent:
            future.result(60)
    said = sorted(warned(caplog))
    assert len(said) == 2, said
    assert "1 record of topic other " in said[0]
    assert " records of topic t " in said[1]
    assert f"from 127.0.0.1:{cluster.brokers[1].port}" in said[1]
    assert E.KAFKA_STORAGE_ERROR.text in said[1]


def test_a_producer_that_makes_progress_reports_nothing(
    cluster: FakeCluster, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    with headwater.Producer(
        bootstrap_servers=cluster.bootstrap, linger_ms=600, retry_backoff_ms=20
    ) as producer:
        producer.send("t", b"lingers").result(60)
    assert warned(caplog) == []


def test_a_broker_that_is_gone_is_reported_with_its_address(
    cluster: FakeCluster, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    producer = headwater.Producer(bootstrap_servers=cluster.bootstrap, **QUICK)
    producer.send("t", b"first", partition=0).result(60)
    gone = cluster.brokers[1]
    gone.die()
    producer.send("t", b"x", partition=0)
    until(lambda: warned(caplog), "the wait is reported")
    producer.close(0)
    (said, *_) = warned(caplog)
    assert "1 record of topic t " in said
    assert f"127.0.0.1:{gone.port}" in said
    assert "the last problem: " in said


def type_in(cluster: FakeCluster, *words: str, text: str) -> Result:
    assert cluster.topic_ids["t"]  # it exists from now on
    arguments = ["produce", "t", "--bootstrap-server", cluster.bootstrap, *words]
    return CliRunner().invoke(command, arguments, input=text)


def test_produce_gives_up_after_its_timeout_and_says_where_to_go_on(cluster: FakeCluster) -> None:
    cluster.fault = lambda one: E.KAFKA_STORAGE_ERROR if one.partition == 1 else None
    lines = '{"value": "a", "partition": 0}\n' + '{"value": "b", "partition": 1}\n' * 3
    done = type_in(cluster, "--format", "json", "--timeout", "1", text=lines)
    assert done.exit_code == 1
    *_, sent, error = done.stderr.splitlines()
    assert sent == "t: sent 1 record; to continue later: --skip 1"
    assert error.startswith("Error: record 2: no record was acknowledged for 1 s (--timeout)")


def test_produce_waits_for_brokers_that_are_slower_than_its_timeout(cluster: FakeCluster) -> None:
    cluster.throttle_ms = 400
    sizes = [5000, 5000, 5000, 15000, 1, 2, 3, 4]
    alone = ("batch.size=0", "max.in.flight.requests.per.connection=1", "enable.idempotence=false")
    settings = ("buffer.memory=16384", "max.block.ms=700", *alone)
    words = [word for setting in settings for word in ("-o", setting)]
    lines = "".join(f"{'x' * size}\n" for size in sizes)
    done = type_in(cluster, "--timeout", "0.7", "--partition", "0", *words, text=lines)
    assert (done.exit_code, done.stderr) == (0, "t: sent 8 records\n")
    assert [len(value or b"") for value in cluster.values("t")] == sizes

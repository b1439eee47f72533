"""A producer whose records are not acknowledged says so, with the reason, long before they fail."""

import logging
from collections.abc import Iterator

import pytest

import headwater
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
    return [row.getMessage() for row in rows if "wait for an ack" in row.getMessage()]


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
    assert "1 records of topic other " in said[0]
    assert "10 records of topic t " in said[1]
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
    assert "1 records of topic t " in said
    assert f"127.0.0.1:{gone.port}" in said
    assert "the last problem: " in said

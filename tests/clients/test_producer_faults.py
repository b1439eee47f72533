"""What can go wrong around a producer: each time a typed error in time, or nothing to notice."""

import asyncio
import gc
import itertools
import time
import uuid
from collections.abc import Iterator

import pytest

import headwater
from headwater.client.errors import (
    BufferExhaustedError,
    ClosedError,
    DeliveryTimeoutError,
    LoopDiedError,
    TimedOutError,
)
from headwater.errors import KafkaError
from headwater.testing import Broker
from tests.clients.hostile import Relay, peer
from tests.integration.reading import read_all

QUICK = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
}
PATIENT = {"delivery_timeout_ms": 600_000, "request_timeout_ms": 500_000}
SHORT = {"delivery_timeout_ms": 2000, "request_timeout_ms": 1500, **QUICK}
"""Long enough for a record that a busy machine stores."""
FAILING = {"delivery_timeout_ms": 700, "request_timeout_ms": 500, "max_block_ms": 700, **QUICK}
"""For calls that can only fail."""
LIMIT_S = 60


@pytest.fixture(scope="module")
def relay() -> Iterator[Relay]:
    """The way to a broker that advertises the relay, so that all its connections pass through it."""
    relay = Relay()
    told = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}",
        "auto.create.topics.enable": "false",
    }
    with Broker(told, port=relay.target) as relay.broker:
        yield relay
    relay.close()


@pytest.fixture
def broker(relay: Relay) -> Iterator[Broker]:
    """The broker behind the relay, which lets everything through again at the end of the test."""
    yield relay.broker
    relay.pass_on()


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name)
    return name


def values(broker: Broker, topic: str) -> list[bytes]:
    return [row[4] for rows in read_all(broker, topic).values() for row in rows]


def test_a_broker_that_is_not_there_is_reported_within_max_block_ms() -> None:
    with (
        headwater.Producer(bootstrap_servers="127.0.0.1:1", **FAILING) as producer,
        pytest.raises(TimedOutError, match="no broker answers"),
    ):
        producer.send("t", b"v")


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_restart_of_the_broker_is_not_noticed(kill) -> None:
    with Broker(subprocess=True) as broker:
        broker.create_topic("t")
        with headwater.Producer(bootstrap_servers=broker.bootstrap, **QUICK) as producer:
            futures = [producer.send("t", b"%d" % number) for number in range(1000)]
            futures[0].result(LIMIT_S)
            (broker.kill if kill else broker.stop)()
            futures += [producer.send("t", b"%d" % number) for number in range(1000, 2000)]
            broker.start()
            futures += [producer.send("t", b"%d" % number) for number in range(2000, 3000)]
            offsets = [future.result(LIMIT_S).offset for future in futures]
        assert offsets == list(range(3000))
        assert values(broker, "t") == [b"%d" % number for number in range(3000)]


def test_lost_answers_lose_and_double_nothing(broker, relay) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, partitions=2)
    with headwater.Producer(bootstrap_servers=broker.bootstrap, **QUICK) as producer:
        futures = []
        for number in range(30_000):
            futures.append(producer.send(topic, b"%d" % number))
            if number % 1000 == 0:
                futures[-1].result(LIMIT_S)
                relay.lose_next_answer = True
            if number > 15_000 and number % 1000 == 700:
                relay.cut()
        relay.lose_next_answer = False
        for future in futures:
            future.result(LIMIT_S)
        assert producer.metrics()["record-retry-total"] > 0
    parts = read_all(broker, topic).values()
    stored = [[int(row[4]) for row in rows] for rows in parts]
    assert all(part == sorted(part) for part in stored)
    assert sorted(itertools.chain(*stored)) == list(range(30_000))


def test_a_slow_broker_ends_in_a_delivery_timeout_and_the_producer_lives_on(
    broker, relay, topic
) -> None:
    with headwater.Producer(bootstrap_servers=broker.bootstrap, **SHORT) as producer:
        producer.send(topic, b"before").result(LIMIT_S)
        relay.hold()
        late = producer.send(topic, b"late")
        with pytest.raises(DeliveryTimeoutError, match=r"delivery\.timeout\.ms"):
            late.result(LIMIT_S)
        relay.pass_on()
        assert producer.send(topic, b"after").result(LIMIT_S)
    stored = values(broker, topic)
    assert stored[0] == b"before"
    assert stored[-1] == b"after"
    assert stored.count(b"late") <= 1


def test_a_full_buffer_blocks_and_then_names_what_is_full(broker, relay, topic) -> None:
    with headwater.Producer(
        bootstrap_servers=broker.bootstrap, buffer_memory=65_536, max_block_ms=300, **QUICK
    ) as producer:
        producer.send(topic, b"before").result(LIMIT_S)
        relay.hold()

        def fill() -> None:
            while True:
                producer.send(topic, bytes(1000))

        with pytest.raises(BufferExhaustedError, match=r"of 65536 bytes \(buffer\.memory\)"):
            fill()
        with pytest.raises(BufferExhaustedError):
            producer.send_many(topic, [bytes(1000)] * 1000)
        relay.pass_on()
        producer.flush(LIMIT_S)
        for _ in range(60):
            producer.send(topic, bytes(1000))
        producer.flush(LIMIT_S)
        assert producer.metrics()["bufferpool-wait-time-total"] >= 300


def test_close_keeps_its_timeout_and_fails_what_is_left(broker, relay, topic, caplog) -> None:
    producer = headwater.Producer(bootstrap_servers=broker.bootstrap, **PATIENT, **QUICK)
    producer.send(topic, b"before").result(LIMIT_S)
    relay.hold()
    late = producer.send(topic, b"late")
    producer.close(0.2)  # nothing else would end before the test's own timeout
    with pytest.raises(ClosedError, match="before the record was acknowledged"):
        late.result(1)
    for _ in range(5):  # turns of the loop: the connection ends, and its answers with it
        producer._waits.thread.call(asyncio.sleep(0))
    del producer
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_records_sent_while_a_topic_is_recreated_are_stored(broker, topic) -> None:
    with headwater.Producer(bootstrap_servers=broker.bootstrap, **QUICK) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
        producer.flush(LIMIT_S)
        broker.delete_topic(topic)
        between = [producer.send(topic, b"between %d" % number) for number in range(10)]
        broker.create_topic(topic)
        for future in between:
            assert future.result(LIMIT_S).offset >= 0
        after = [producer.send(topic, b"after %d" % number) for number in range(100)]
        for future in after:
            assert future.result(LIMIT_S).offset >= 0
    assert len(values(broker, topic)) == 110


def test_a_topic_deleted_for_good_ends_in_an_error_that_says_so(broker, topic) -> None:
    with headwater.Producer(bootstrap_servers=broker.bootstrap, **SHORT) as producer:
        producer.send(topic, b"v").result(LIMIT_S)
        broker.delete_topic(topic)
        with pytest.raises(DeliveryTimeoutError, match="no such topic"):
            producer.send(topic, b"v").result(LIMIT_S)


def garbage(request: bytes) -> bytes:
    return b"\xff" * 64


def huge(request: bytes) -> bytes:
    return (2**31 - 1).to_bytes(4) + bytes(100)


def silence(request: bytes) -> bytes:
    return b""


def door(request: bytes) -> None:
    return None


def empty(request: bytes) -> bytes:
    """A frame with the right correlation id and nothing else."""
    return (4).to_bytes(4) + request[4:8]


def billions(request: bytes) -> bytes:
    """An answer that claims two billion rows."""
    return (10).to_bytes(4) + request[4:8] + bytes(2) + (2**31 - 1).to_bytes(4)


@pytest.mark.parametrize("answer", [garbage, huge, silence, door, empty, billions])
def test_a_peer_that_speaks_no_kafka_ends_in_a_typed_error_in_time(answer) -> None:
    with (
        peer(answer) as address,
        headwater.Producer(
            bootstrap_servers=address, socket_connection_setup_timeout_ms=200, **FAILING
        ) as producer,
        pytest.raises(KafkaError),
    ):
        producer.send("t", b"v")


def test_a_clock_that_jumps_back_does_not_hold_records(broker, topic) -> None:
    class Jumping:
        def __init__(self) -> None:
            self.back = 0

        def wall_ms(self) -> int:
            return time.time_ns() // 1_000_000 - self.back

        def monotonic_ms(self) -> int:
            return time.monotonic_ns() // 1_000_000

    clock = Jumping()
    with headwater.Producer(bootstrap_servers=broker.bootstrap, clock=clock) as producer:
        first = producer.send(topic, b"1").result(LIMIT_S)
        clock.back = 3_600_000
        second = producer.send(topic, b"2").result(LIMIT_S)
    assert second.timestamp < first.timestamp


def test_a_fault_of_the_sender_itself_is_never_silent(broker, topic, caplog) -> None:
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"1").result(LIMIT_S)
        producer._core.sender._ready = None
        failed = producer.send(topic, b"2")
        with pytest.raises(LoopDiedError, match="internal error of the producer in a turn"):
            failed.result(LIMIT_S)
        with pytest.raises(LoopDiedError, match="internal error of the producer in a turn"):
            producer.send(topic, b"3")
    assert "internal error of the producer in a turn of the sender" in caplog.text

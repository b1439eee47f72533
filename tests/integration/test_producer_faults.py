"""What can go wrong around a producer: each time a typed error in time, or nothing to notice."""

import asyncio
import contextlib
import gc
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator

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
from tests.integration.hostile import Relay, peer
from tests.integration.reading import read_all

QUICK = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
}
PATIENT = {"delivery_timeout_ms": 600_000, "request_timeout_ms": 500_000}
SHORT = {"delivery_timeout_ms": 700, "request_timeout_ms": 500, "max_block_ms": 700, **QUICK}


@contextlib.contextmanager
def relayed() -> Iterator[tuple[Broker, Relay]]:
    """A broker all of whose connections pass through a relay."""
    relay = Relay()
    told = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}"}
    with Broker(told, port=relay.target) as broker:
        yield broker, relay
    relay.close()


def values(broker: Broker, topic: str) -> list[bytes]:
    return [row[4] for rows in read_all(broker, topic).values() for row in rows]


def test_a_broker_that_is_not_there_is_told_within_max_block_ms() -> None:
    with (
        headwater.Producer(bootstrap_servers="127.0.0.1:1", **SHORT) as producer,
        pytest.raises(TimedOutError, match="no broker answers"),
    ):
        producer.send("t", b"v")


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_restart_of_the_broker_is_not_noticed(kill) -> None:
    with Broker(subprocess=True) as broker:
        broker.create_topic("t")
        with headwater.Producer(bootstrap_servers=broker.bootstrap, **QUICK) as producer:
            futures = [producer.send("t", b"%d" % number) for number in range(1000)]
            futures[0].result(20)
            (broker.kill if kill else broker.stop)()
            futures += [producer.send("t", b"%d" % number) for number in range(1000, 2000)]
            broker.start()
            futures += [producer.send("t", b"%d" % number) for number in range(2000, 3000)]
            offsets = [future.result(60).offset for future in futures]
        assert offsets == list(range(3000))
        assert values(broker, "t") == [b"%d" % number for number in range(3000)]


def test_kills_under_several_producers_lose_double_and_reorder_nothing() -> None:
    stop = threading.Event()
    acknowledged: dict[bytes, tuple[int, int]] = {}
    failed: list[KafkaError] = []

    def work(name: int) -> None:
        def told(value: bytes) -> Callable[..., None]:
            def call(metadata, error) -> None:
                if error is None:
                    acknowledged[value] = (metadata.partition, metadata.offset)
                else:
                    failed.append(error)

            return call

        with headwater.Producer(bootstrap_servers=broker.bootstrap, **QUICK) as producer:
            for number in itertools.count():
                value = b"%d-%d" % (name, number)
                producer.send("t", value, on_delivery=told(value))
                if number % 50 == 0 and stop.wait(0.005):
                    return

    with Broker(subprocess=True) as broker:
        broker.create_topic("t", partitions=3)
        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            stop.wait(0.3)
            broker.kill()
            broker.start()
        stop.set()
        for thread in threads:
            thread.join(60)
        stored = {}
        for partition, rows in read_all(broker, "t").items():
            last: dict[bytes, int] = {}
            for offset, _, _, _, value, _ in rows:
                assert value not in stored
                stored[value] = (partition, offset)
                name, _, number = value.partition(b"-")
                assert last.get(name, -1) < int(number)
                last[name] = int(number)
    assert failed == []
    assert stored == acknowledged


def test_lost_answers_lose_and_double_nothing() -> None:
    with relayed() as (broker, relay):
        broker.create_topic("t", partitions=2)
        with headwater.Producer(bootstrap_servers=broker.bootstrap, **QUICK) as producer:
            futures = []
            for number in range(30_000):
                futures.append(producer.send("t", b"%d" % number))
                if number % 1000 == 0:
                    futures[-1].result(60)
                    relay.lose_next_answer = True
                if number > 15_000 and number % 1000 == 700:
                    relay.cut()
            relay.lose_next_answer = False
            for future in futures:
                future.result(60)
            assert producer.metrics()["record-retry-total"] > 0
        parts = read_all(broker, "t").values()
        stored = [[int(row[4]) for row in rows] for rows in parts]
        assert all(part == sorted(part) for part in stored)
        assert sorted(itertools.chain(*stored)) == list(range(30_000))


def test_a_slow_broker_ends_in_a_delivery_timeout_and_the_producer_lives_on() -> None:
    with relayed() as (broker, relay):
        broker.create_topic("t")
        with headwater.Producer(bootstrap_servers=f"127.0.0.1:{relay.port}", **SHORT) as producer:
            producer.send("t", b"before").result(10)
            relay.delay = threading.Event()
            late = producer.send("t", b"late")
            with pytest.raises(DeliveryTimeoutError, match=r"delivery\.timeout\.ms"):
                late.result(60)
            relay.delay.set()
            relay.delay = None
            assert producer.send("t", b"after").result(10)
        stored = values(broker, "t")
        assert stored[0] == b"before"
        assert stored[-1] == b"after"
        assert stored.count(b"late") <= 1


def test_a_full_buffer_blocks_and_then_names_what_is_full() -> None:
    with relayed() as (broker, relay):
        broker.create_topic("t")
        with headwater.Producer(
            bootstrap_servers=f"127.0.0.1:{relay.port}",
            buffer_memory=65_536,
            max_block_ms=300,
            **QUICK,
        ) as producer:
            producer.send("t", b"before").result(10)
            relay.delay = threading.Event()

            def fill() -> None:
                while True:
                    producer.send("t", bytes(1000))

            with pytest.raises(BufferExhaustedError, match=r"of 65536 bytes \(buffer\.memory\)"):
                fill()
            with pytest.raises(BufferExhaustedError):
                producer.send_many("t", [bytes(1000)] * 1000)
            relay.delay.set()
            relay.delay = None
            for _ in range(500):
                producer.send("t", bytes(1000))
            producer.flush(30)
            assert producer.metrics()["bufferpool-wait-time-total"] >= 300


def test_close_keeps_its_timeout_and_fails_what_is_left() -> None:
    with relayed() as (broker, relay):
        broker.create_topic("t")
        producer = headwater.Producer(
            bootstrap_servers=f"127.0.0.1:{relay.port}", **PATIENT, **QUICK
        )
        producer.send("t", b"before").result(10)
        relay.delay = threading.Event()
        late = producer.send("t", b"late")
        producer.close(0.2)  # nothing else would end before the test's own timeout
        with pytest.raises(ClosedError, match="before the record was acknowledged"):
            late.result(1)
        relay.delay.set()


def test_an_answer_that_a_closed_producer_did_not_wait_for_is_not_complained_about(caplog) -> None:
    with relayed() as (broker, relay):
        broker.create_topic("t")
        producer = headwater.Producer(bootstrap_servers=broker.bootstrap, **QUICK)
        producer.send("t", b"before").result(10)
        relay.delay = threading.Event()
        producer.send("t", b"late")
        producer.close(0.2)
        for _ in range(5):  # turns of the loop: the connection ends, and its answers with it
            producer._waits.thread.call(asyncio.sleep(0))
        del producer
        gc.collect()
        relay.delay.set()
    assert "never retrieved" not in caplog.text


def test_a_topic_deleted_and_made_anew_is_found_again() -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        broker.create_topic(name, partitions=2)
        with headwater.Producer(bootstrap_servers=broker.bootstrap, **QUICK) as producer:
            for number in range(100):
                producer.send(name, b"%d" % number)
            producer.flush(10)
            broker.delete_topic(name)
            between = [producer.send(name, b"between %d" % number) for number in range(10)]
            broker.create_topic(name, partitions=2)
            for future in between:
                assert future.result(30).offset >= 0
            after = [producer.send(name, b"after %d" % number) for number in range(100)]
            for future in after:
                assert future.result(30).offset >= 0
        assert len(values(broker, name)) == 110


def test_a_topic_deleted_for_good_ends_in_an_error_that_says_so() -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        broker.create_topic("t")
        with headwater.Producer(bootstrap_servers=broker.bootstrap, **SHORT) as producer:
            producer.send("t", b"v").result(10)
            broker.delete_topic("t")
            with pytest.raises(DeliveryTimeoutError, match="no such topic"):
                producer.send("t", b"v").result(10)


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
            bootstrap_servers=address, socket_connection_setup_timeout_ms=200, **SHORT
        ) as producer,
        pytest.raises(KafkaError),
    ):
        producer.send("t", b"v")


def test_a_clock_that_jumps_back_does_not_hold_records() -> None:
    class Jumping:
        def __init__(self) -> None:
            self.back = 0

        def wall_ms(self) -> int:
            return time.time_ns() // 1_000_000 - self.back

        def monotonic_ms(self) -> int:
            return time.monotonic_ns() // 1_000_000

    clock = Jumping()
    with Broker() as broker:
        broker.create_topic("t")
        with headwater.Producer(bootstrap_servers=broker.bootstrap, clock=clock) as producer:
            first = producer.send("t", b"1").result(10)
            clock.back = 3_600_000
            second = producer.send("t", b"2").result(10)
    assert second.timestamp < first.timestamp


def test_a_fault_of_the_sender_itself_is_never_silent(caplog) -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("t", b"1").result(10)
            producer._core.sender._ready = None
            failed = producer.send("t", b"2")
            with pytest.raises(LoopDiedError, match="internal error of the producer in a turn"):
                failed.result(10)
            with pytest.raises(LoopDiedError, match="internal error of the producer in a turn"):
                producer.send("t", b"3")
    assert "internal error of the producer in a turn of the sender" in caplog.text

"""Quotas hold for real clients, however many connections and client ids they use."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import confluent_kafka
import pytest

import headwater
from headwater import QuotaEntity
from headwater.testing import Broker, Cluster
from headwater.wire.messages.produce import ProduceResponse
from headwater.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.integration.waiting import until
from tests.unit.broker.live import Client, batch, produce_request

RATE = 1_000_000
WINDOW_S = 10
ANYONE = QuotaEntity("ANONYMOUS")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(subprocess=True) as broker:
        yield broker


@contextmanager
def quota(broker: Broker, key: str) -> Iterator[None]:
    with headwater.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_client_quotas({ANYONE: {key: RATE}})
        yield
        admin.alter_client_quotas({ANYONE: {key: None}})


@contextmanager
def all_running(*clients: Callable[[threading.Event], None]) -> Iterator[None]:
    stop, failures = threading.Event(), []

    def run(client: Callable[[threading.Event], None]) -> None:
        try:
            client(stop)
        except Exception as failure:  # noqa: BLE001 - the test must see it
            failures.append(failure)

    threads = [threading.Thread(target=run, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []


def confluent_producer(bootstrap: str, topic: str, name: str) -> Callable[[threading.Event], None]:
    def run(stop: threading.Event) -> None:
        settings = {
            "bootstrap.servers": bootstrap, "client.id": name, "linger.ms": 0,
            "batch.size": 100_000, "queue.buffering.max.kbytes": 300,
        }  # fmt: skip
        producer = confluent_kafka.Producer(settings)
        while not stop.is_set():
            try:
                producer.produce(topic, bytes(10_000))
            except BufferError:
                producer.poll(0.05)
        producer.purge()
        producer.flush(1)

    return run


def own_producer(bootstrap: str, topic: str, name: str) -> Callable[[threading.Event], None]:
    def run(stop: threading.Event) -> None:
        with headwater.Producer(
            bootstrap_servers=bootstrap, client_id=name, batch_size=100_000, buffer_memory=300_000,
            max_block_ms=60_000,
        ) as producer:  # fmt: skip
            while not stop.is_set():
                producer.send(topic, bytes(10_000))

    return run


def new_connections(port: int, topic: str) -> Callable[[threading.Event], None]:
    """Each request on a connection of its own, with a client id of its own."""

    def run(stop: threading.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with Client(port) as client:
                client.send(produce_request(topic, batch(bytes(50_000))), 9, f"new-{number}")
                client.answer(ProduceResponse, 9)

    return run


def test_a_quota_of_produced_bytes_holds_over_any_ten_seconds(broker: Broker) -> None:
    broker.create_topic("in")
    at = broker.bootstrap
    log = broker.data_dir / "in-0" / f"{0:020}.log"
    with (
        quota(broker, "producer_byte_rate"),
        all_running(
            confluent_producer(at, "in", "one"),
            confluent_producer(at, "in", "two"),
            own_producer(at, "in", "three"),
            *[new_connections(broker.port, "in") for _ in range(3)],
        ),
    ):
        until(lambda: log.stat().st_size > RATE, "the clients are at work")
        samples = []
        begun = time.monotonic()
        while time.monotonic() - begun < WINDOW_S + 2:
            samples.append((time.monotonic(), log.stat().st_size))
            time.sleep(0.1)
    windows = [
        (later - before) / RATE / (end - start)
        for start, before in samples
        for end, later in samples
        if WINDOW_S <= end - start < WINDOW_S + 0.2
    ]
    assert len(windows) > 5
    assert max(windows) <= 1.1
    assert min(windows) >= 0.8


def test_a_quota_of_fetched_bytes_holds_for_all_consumers_together(broker: Broker) -> None:
    broker.create_topic("out")
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
        for _ in range(1_000):
            producer.send("out", bytes(10_000))
    got = [0, 0, 0]

    def confluent(rank: int) -> Callable[[threading.Event], None]:
        def run(stop: threading.Event) -> None:
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": broker.bootstrap, "group.id": f"g{rank}"}
            )
            consumer.assign([confluent_kafka.TopicPartition("out", 0, 0)])
            while not stop.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.value() is not None:
                    got[rank] += len(message.value())
            consumer.close()

        return run

    def own(stop: threading.Event) -> None:
        with headwater.Consumer(bootstrap_servers=broker.bootstrap) as consumer:
            consumer.assign([("out", 0)])
            consumer.seek_to_beginning()
            while not stop.is_set():
                got[2] += sum(len(record.value) for record in consumer.poll(0.1))

    with quota(broker, "consumer_byte_rate"), all_running(confluent(0), confluent(1), own):
        until(lambda: sum(got) > RATE // 2, "the clients are at work")
        before, begun = sum(got), time.monotonic()
        until(lambda: sum(got) - before > 5 * RATE, "five seconds of the quota")
        rate = (sum(got) - before) / (time.monotonic() - begun)
    # What a fetch brings arrives at once, and each of the three may have one on its way.
    assert 0.7 * RATE <= rate <= 1.5 * RATE
    assert all(got)


def test_a_change_is_in_force_on_the_broker_that_answers_and_soon_on_all() -> None:
    with Cluster(2) as cluster, ExitStack() as stack:
        ports = [int(cluster.address(one).rpartition(":")[2]) for one in cluster.broker_ids]
        clients = [stack.enter_context(Client(port)) for port in ports]
        for rate in range(1, 11):
            here, other = clients if rate % 2 else reversed(clients)
            set_rate(here, rate)
            assert rates(here) == [rate], "at once, also if another broker is the controller"
            until(lambda there=other, rate=rate: rates(there) == [rate], "the other broker")


def set_rate(client: Client, rate: int) -> None:
    who = AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="u")
    op = AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=float(rate))
    entry = AlterClientQuotasRequest.EntryData(entity=[who], ops=[op])
    answer = client.ask(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse, 1)
    assert [one.error_code for one in answer.entries] == [0]


def rates(client: Client) -> list[float]:
    answer = client.ask(DescribeClientQuotasRequest(), DescribeClientQuotasResponse, 1)
    return [value.value for entry in answer.entries for value in entry.values]

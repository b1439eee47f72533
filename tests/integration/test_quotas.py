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
from tests.unit.broker.live import Client, batch, fetch_request, produce_request

RATE = 1_000_000
WINDOW_S = 10
FETCH_BYTES = 100_000
ANYONE = QuotaEntity("ANONYMOUS")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(subprocess=True) as broker:
        yield broker


@contextmanager
def quotas(broker: Broker, *keys: str) -> Iterator[None]:
    with headwater.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_client_quotas({ANYONE: dict.fromkeys(keys, RATE)})
        yield
        admin.alter_client_quotas({ANYONE: dict.fromkeys(keys)})


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


class Got:
    """What consumers got together, in bytes."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.by: list[int] = []

    def consumer(self, read: Callable[..., None]) -> Callable[[threading.Event], None]:
        """A client that reads the topic, which is told where to count."""
        rank = len(self.by)
        self.by.append(0)

        def count(size: int) -> None:
            self.by[rank] += size

        return lambda stop: read(self, stop, count)


def confluent_consumer(bootstrap: str, name: str) -> Callable[..., None]:
    def run(got: Got, stop: threading.Event, count: Callable[[int], None]) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": name, "client.id": name,
                "fetch.max.bytes": FETCH_BYTES, "message.max.bytes": FETCH_BYTES,
            }
        )  # fmt: skip
        consumer.assign([confluent_kafka.TopicPartition(got.topic, 0, 0)])
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.value() is not None:
                count(len(message.value()))
        consumer.close()

    return run


def own_consumer(bootstrap: str, name: str) -> Callable[..., None]:
    def run(got: Got, stop: threading.Event, count: Callable[[int], None]) -> None:
        with headwater.Consumer(
            bootstrap_servers=bootstrap, client_id=name, fetch_max_bytes=FETCH_BYTES
        ) as consumer:
            consumer.assign([(got.topic, 0)])
            consumer.seek_to_beginning()
            while not stop.is_set():
                count(sum(len(record.value) for record in consumer.poll(0.1)))

    return run


def new_fetchers(port: int) -> Callable[..., None]:
    """Each fetch on a connection of its own, with a client id of its own."""

    def run(got: Got, stop: threading.Event, count: Callable[[int], None]) -> None:
        request = fetch_request(
            {(got.topic, 0): 0}, max_bytes=FETCH_BYTES, partition_max_bytes=FETCH_BYTES
        )
        number = 0
        while not stop.is_set():
            number += 1
            with Client(port) as client:
                client.send(request, 12, f"fetcher-{number}")
                count(len(client.receive()))

    return run


def test_quotas_of_bytes_hold_over_any_ten_seconds(broker: Broker) -> None:
    """Of produced and of fetched ones, for all clients together."""
    broker.create_topic("in")
    broker.create_topic("out")
    at, port, got = broker.bootstrap, broker.port, Got("out")
    with headwater.Producer(bootstrap_servers=at, batch_size=50_000) as producer:
        for _ in range(1_000):
            producer.send("out", bytes(10_000))
    log = broker.data_dir / "in-0" / f"{0:020}.log"
    readers = [
        got.consumer(confluent_consumer(at, "four")),
        got.consumer(own_consumer(at, "five")),
        *[got.consumer(new_fetchers(port)) for _ in range(3)],
    ]
    with (
        quotas(broker, "producer_byte_rate", "consumer_byte_rate"),
        all_running(
            confluent_producer(at, "in", "one"),
            confluent_producer(at, "in", "two"),
            own_producer(at, "in", "three"),
            *[new_connections(port, "in") for _ in range(3)],
            *readers,
        ),
    ):
        until(lambda: log.stat().st_size > RATE and sum(got.by) > RATE, "the clients are at work")
        samples = []
        begun = time.monotonic()
        while time.monotonic() - begun < WINDOW_S + 2:
            samples.append((time.monotonic(), log.stat().st_size, sum(got.by)))
            time.sleep(0.1)
    for what in (1, 2):
        windows = [
            (later[what] - before[what]) / RATE / (later[0] - before[0])
            for before in samples
            for later in samples
            if WINDOW_S <= later[0] - before[0] < WINDOW_S + 0.2
        ]
        assert len(windows) > 5
        assert max(windows) <= 1.1
        assert min(windows) >= 0.8
    assert all(got.by)


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

"""Transactions on three brokers: an outcome holds although brokers are killed before the markers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import confluent_kafka
import pytest

import headwater
from headwater.model import TRANSACTION_STATE, coordinator_partition
from headwater.testing import Cluster
from headwater.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tests.integration.waiting import until
from tests.unit.broker.live import Client

WAIT_S = 300
STATE_PARTITIONS = 3
PREPARED = {True: "PrepareCommit", False: "PrepareAbort"}
COMPLETE = {True: "CompleteCommit", False: "CompleteAbort"}
SETTINGS = {
    "transaction.state.log.num.partitions": STATE_PARTITIONS,
    "transaction.state.log.min.isr": 1,  # one broker is left for a while
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, SETTINGS) as cluster:
        yield cluster


class Librdkafka:
    """A producer of transactions without bumps of the epoch."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        self._producer = confluent_kafka.Producer({**settings, "transactional.id": name})
        self._producer.init_transactions(WAIT_S)

    def begin(self, topic: str, partitions: list[int], value: bytes) -> None:
        self._producer.begin_transaction()
        for partition in partitions:
            self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(WAIT_S) == 0

    def end(self, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction(WAIT_S)
        else:
            self._producer.abort_transaction(WAIT_S)

    def close(self) -> None:
        del self._producer


class Ours:
    """A producer of transactions, each in an epoch of its own."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._producer = headwater.Producer(
            bootstrap_servers=cluster.bootstrap,
            transactional_id=name,
            max_block_ms=WAIT_S * 1000,
        )
        self._producer.init_transactions()

    def begin(self, topic: str, partitions: list[int], value: bytes) -> None:
        self._producer.begin_transaction()
        for partition in partitions:
            self._producer.send(topic, value, partition=partition)
        self._producer.flush()

    def end(self, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close()


def state_of(cluster: Cluster, broker_id: int, name: str) -> str:
    """The state of a transaction as one broker coordinates it."""
    with Client(int(cluster.address(broker_id).rpartition(":")[2])) as client:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        answer = client.ask(request, DescribeTransactionsResponse, 0)
        return answer.transaction_states[0].transaction_state


def wait_for_state(cluster: Cluster, broker_id: int, name: str, state: str) -> None:
    reached = partial(is_in_state, cluster, broker_id, name, state)
    until(reached, f"{name}: {state} on {broker_id}", WAIT_S)


def is_in_state(cluster: Cluster, broker_id: int, name: str, state: str) -> bool:
    found = state_of(cluster, broker_id, name)
    assert found == state, found
    return True


def committed(cluster: Cluster, topic: str) -> list[bytes]:
    """The values that a read_committed consumer finds up to the end."""
    with headwater.Consumer(
        bootstrap_servers=cluster.bootstrap, isolation_level="read_committed"
    ) as consumer:
        partitions = [headwater.TopicPartition(topic, number) for number in range(3)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found: list[bytes] = []
        while any(consumer.position(at) < end for at, end in ends.items()):
            found += [record.value for record in consumer.poll(1.0)]
        return sorted(found)


def test_the_next_coordinator_writes_the_markers_that_the_killed_one_could_not(cluster):
    cluster.create_topic("data", 3, replicas=1)
    leaders = {number: cluster.leader("data", number) for number in range(3)}
    first = Ours(cluster, "first")  # makes the topic of the coordinators
    first.close()
    cluster.wait_until_in_sync([TRANSACTION_STATE])
    place = coordinator_partition("first", STATE_PARTITIONS)
    coordinator = cluster.leader(TRANSACTION_STATE, place)
    data, other = (number for number, leader in leaders.items() if leader != coordinator)
    names = [
        name
        for name in map(str, range(100))
        if coordinator_partition(name, STATE_PARTITIONS) == place
    ][:4]
    outcomes = dict(zip(names, (True, False, True, False), strict=True))
    producers = {
        name: kind(cluster, name)
        for name, kind in zip(names, (Ours, Ours, Librdkafka, Librdkafka), strict=True)
    }
    for name, producer in producers.items():
        producer.begin("data", [data, other], name.encode())

    cluster.kill(leaders[data])
    left = leaders[other]
    with ThreadPoolExecutor(len(names)) as pool:
        ends = [pool.submit(producers[name].end, commit) for name, commit in outcomes.items()]
        for name, commit in outcomes.items():
            wait_for_state(cluster, coordinator, name, PREPARED[commit])
        cluster.kill(coordinator)
        for name, commit in outcomes.items():
            wait_for_state(cluster, left, name, PREPARED[commit])
        cluster.start_broker(leaders[data])
        for name, commit in outcomes.items():
            wait_for_state(cluster, left, name, COMPLETE[commit])
        for end in ends:
            end.result(WAIT_S)
    cluster.start_broker(coordinator)
    cluster.wait_until_in_sync()
    kept = [name.encode() for name, commit in outcomes.items() if commit]
    assert committed(cluster, "data") == sorted(2 * kept)

    for name, producer in producers.items():
        producer.begin("data", [data, other], name.encode())
        producer.end(commit=True)
        producer.close()
    again = [name.encode() for name in names]
    until(
        lambda: committed(cluster, "data") == sorted(2 * kept + 2 * again),
        "the transactions after that",
        WAIT_S,
    )

"""Three brokers, three replicas: what is acknowledged survives the death of any leader."""

import threading
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headwater
from headwater.testing import Cluster
from headwater.wire.messages.fetch import FetchResponse
from tests.integration.waiting import until
from tests.unit.broker.live import Client, fetch_request

LAG_MS = 3000


@pytest.fixture(scope="module")
def cluster():
    settings = {"replica.lag.time.max.ms": LAG_MS, "zookeeper.session.timeout.ms": 3000}
    with Cluster(3, settings) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, request):
    """A topic with one partition on all brokers, of which two must be in sync."""
    name = f"t-{abs(hash(request.node.name))}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    until(lambda: len(admin.list_topics(timeout=10).brokers) == 3, "all brokers")
    wanted = NewTopic(name, 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[name].result(60)
    until(lambda: in_sync(cluster, name) == {1, 2, 3}, "all replicas in sync")
    return name


def partition(cluster: Cluster, topic: str, index: int = 0):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return admin.list_topics(topic, timeout=10).topics[topic].partitions[index]


def leader(cluster: Cluster, topic: str, index: int = 0) -> int:
    """The broker that leads now; -1 means none and is not an answer."""
    found = partition(cluster, topic, index).leader
    assert found > 0
    return found


def in_sync(cluster: Cluster, topic: str) -> set[int]:
    return set(partition(cluster, topic).isrs)


def port_of(cluster: Cluster, number: int) -> int:
    return int(cluster.address(number).rpartition(":")[2])


def idempotent(cluster: Cluster, **more) -> Producer:
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 2,
        "message.timeout.ms": 120_000,
        "socket.timeout.ms": 10_000,  # a frozen broker may be the one it has asked for its id
    }
    return Producer({**settings, **more})


def read_all(cluster: Cluster, topic: str, rack: str = "") -> list[str]:
    """Every committed value, by assignment, from the start to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "audit",
            "auto.offset.reset": "earliest",
            "client.rack": rack,
        }
    )
    at = TopicPartition(topic, 0, 0)
    try:
        consumer.assign([at])
        _, end = consumer.get_watermark_offsets(at, timeout=30, cached=False)
        values: list[str] = []

        def done():
            values.extend(
                one.value().decode() for one in consumer.consume(500, 1) if not one.error()
            )
            return consumer.position([at])[0].offset >= end

        until(done, f"all records of {topic}")
        return values
    finally:
        consumer.close()


class Load:
    """Sends numbers until it is stopped; knows which of them were acknowledged."""

    def __init__(self, send):
        self._send = send
        self._stopping = threading.Event()
        self.acknowledged: list[str] = []
        self.failures: list[object] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self._thread.join()

    def _run(self):
        number = 0
        while not self._stopping.wait(0.001):
            self._send(self, str(number))
            number += 1

    def grows(self, what: str, by: int = 50) -> None:
        """Wait until more is acknowledged."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) >= before + by, f"writes {what}")


def kill_leader_under_load(cluster: Cluster, topic: str, load: Load) -> None:
    load.grows("before the kill")
    victim = leader(cluster, topic)
    cluster.kill(victim)
    load.grows("under another leader")
    assert leader(cluster, topic) != victim
    cluster.start_broker(victim)
    until(lambda: in_sync(cluster, topic) == {1, 2, 3}, f"broker {victim} back in sync")
    load.grows("with all replicas")


def test_a_killed_leader_costs_nothing_with_librdkafka(cluster, topic):
    producer = idempotent(cluster)

    def send(load, value):
        def delivered(problem, _):
            (load.failures if problem else load.acknowledged).append(problem or value)

        producer.produce(topic, value, on_delivery=delivered)
        producer.poll(0)

    with Load(send) as load:
        for _ in range(2):
            kill_leader_under_load(cluster, topic, load)
    assert producer.flush(60) == 0
    assert load.failures == []
    assert read_all(cluster, topic) == load.acknowledged


def test_a_killed_leader_costs_nothing_with_the_own_producer(cluster, topic):
    with headwater.Producer(bootstrap_servers=cluster.bootstrap) as producer:

        def send(load, value):
            def delivered(sent):
                problem = sent.exception()
                (load.failures if problem else load.acknowledged).append(problem or value)

            producer.send(topic, value.encode(), partition=0).add_done_callback(delivered)

        with Load(send) as load:
            kill_leader_under_load(cluster, topic, load)
        producer.flush()
    assert load.failures == []
    assert read_all(cluster, topic) == load.acknowledged


def test_two_in_sync_replicas_are_needed_and_enough(cluster, topic):
    first = leader(cluster, topic)
    others = [number for number in cluster.broker_ids if number != first]
    outcomes: list[object] = []

    def write(value):
        producer = idempotent(cluster, **{"message.timeout.ms": 20_000, "retries": 3})
        producer.produce(topic, value, on_delivery=lambda problem, _: outcomes.append(problem))
        assert producer.flush(60) == 0
        return outcomes[-1]

    assert write("all") is None
    cluster.kill(others[0])
    until(lambda: in_sync(cluster, topic) == {first, others[1]}, "one replica out of sync")
    assert write("two") is None
    cluster.kill(others[1])
    until(lambda: in_sync(cluster, topic) == {first}, "two replicas out of sync")
    assert write("one").code() in (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError._MSG_TIMED_OUT)
    for number in others:
        cluster.start_broker(number)
    until(lambda: in_sync(cluster, topic) == {1, 2, 3}, "all replicas in sync again")
    assert write("all again") is None
    assert read_all(cluster, topic) == ["all", "two", "all again"]


def test_a_frozen_follower_leaves_the_set_and_comes_back(cluster, topic):
    """It is frozen for longer than the lag limit, while its session may or may not end."""
    sleeper = next(number for number in cluster.broker_ids if number != leader(cluster, topic))
    producer = idempotent(cluster)
    cluster.pause(sleeper)
    try:
        producer.produce(topic, "while one is frozen")
        assert producer.flush(60) == 0
        until(lambda: sleeper not in in_sync(cluster, topic), "the frozen follower out of sync")
    finally:
        cluster.resume(sleeper)
    until(lambda: sleeper in in_sync(cluster, topic), "the follower back in sync")
    assert read_all(cluster, topic) == ["while one is frozen"]


def test_committed_offsets_and_members_survive_their_coordinator(cluster, topic):
    producer = idempotent(cluster)
    for number in range(100):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"group-of-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 45_000,
        }
    )
    rebalances: Counter[str] = Counter()
    consumer.subscribe(
        [topic],
        on_assign=lambda *_: rebalances.update(["assigned"]),
        on_revoke=lambda *_: rebalances.update(["revoked"]),
    )
    got: list[str] = []

    def read(upto):
        got.extend(one.value().decode() for one in consumer.consume(10, 1) if not one.error())
        return len(got) >= upto

    until(lambda: read(50), "half of the records")
    consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    group = f"group-of-{topic}"
    described = admin.describe_consumer_groups([group])[group].result(30)
    coordinator = described.coordinator.id
    cluster.kill(coordinator)
    until(lambda: read(100), "the other half")

    def commits():
        consumer.commit(asynchronous=False)
        return True

    until(commits, "a commit to the next coordinator")
    assert got == [str(number) for number in range(100)]
    assert rebalances == {"assigned": 1}
    cluster.start_broker(coordinator)
    at = TopicPartition(topic, 0)
    assert consumer.committed([at], timeout=30)[0].offset == 100
    consumer.close()
    until(lambda: in_sync(cluster, topic) == {1, 2, 3}, "all replicas in sync again")


def test_a_consumer_reads_from_the_replica_in_its_rack():
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    settings = {"replica.selector.class": selector}
    with Cluster(2, settings, racks=["rack-1", "rack-2"]) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("near", 1, 2)])["near"].result(60)
        until(lambda: in_sync(cluster, "near") == {1, 2}, "both replicas in sync")
        producer = idempotent(cluster)
        values = [str(number) for number in range(100)]
        for value in values:
            producer.produce("near", value)
        assert producer.flush(60) == 0
        leads = leader(cluster, "near")
        follows = 3 - leads

        def fetch(number):
            request = fetch_request({("near", 0): 0})
            request.rack_id = f"rack-{follows}"
            with Client(port_of(cluster, number)) as client:
                return client.ask(request, FetchResponse, 12).responses[0].partitions[0]

        until(lambda: fetch(leads).preferred_read_replica == follows, "the near replica")
        until(lambda: fetch(follows).high_watermark == 100, "the high watermark at the follower")
        assert fetch(follows).records
        assert read_all(cluster, "near", rack=f"rack-{follows}") == values

"""Several brokers, one metadata store: who is alive, who leads what, and who says so."""

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

import headwater
from headwater.broker import forwarding
from headwater.broker.registration import JoinError
from headwater.errors import E, error_of
from headwater.processes.child import NotStarted
from headwater.seams.clock import SystemClock
from headwater.testing import Broker, Cluster
from headwater.wire.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.integration.metadata_stores import StoreProcess, zookeepers
from tests.integration.waiting import until
from tests.unit.broker.live import Client, Live

DEMO_TIMEOUT_S = 450
SESSION = {"zookeeper.session.timeout.ms": "4000"}


@contextlib.contextmanager
def store_in(folder: Path):
    process = StoreProcess(str(folder))
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with store_in(tmp_path_factory.mktemp("store")) as process:
        yield process


@pytest.fixture(scope="module")
def cluster(store):
    settings = {**SESSION, "offsets.topic.replication.factor": 1, "min.insync.replicas": 1}
    with Cluster(3, settings, zookeeper=store.address) as running:
        yield running


@pytest.fixture
def nodes(cluster):
    with looking_into(cluster.zookeeper) as client:
        yield client


@contextlib.contextmanager
def looking_into(zookeeper: str):
    """A client that looks into the store, below the brokers' chroot."""
    client = KazooClient(zookeeper)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def cluster_as_seen_by(address: str):
    return AdminClient({"bootstrap.servers": address}).list_topics(timeout=20)


def controller_named_by(address: str) -> int:
    """What this broker says; librdkafka may ask another one as soon as it knows it."""
    with Client(int(address.rpartition(":")[2])) as client:
        return client.ask(MetadataRequest(topics=[]), MetadataResponse, 12).controller_id


def controller(nodes) -> int:
    return json.loads(nodes.get("/controller")[0])["brokerid"]


def create(cluster, name: str, partitions: int = 6, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(30)

    def known_everywhere():
        return all(
            name in (seen := cluster_as_seen_by(cluster.address(number)).topics)
            and all(one.leader > 0 for one in seen[name].partitions.values())
            for number in cluster.broker_ids
        )

    until(known_everywhere, f"{name} on all brokers")


def produce(cluster, topic: str, values: list[str], partitions: int = 6) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number, value in enumerate(values):
        producer.produce(
            topic, value, partition=number % partitions,
            on_delivery=lambda problem, _: failures.append(problem) if problem else None,
        )  # fmt: skip
    assert producer.flush(60) == 0
    assert failures == []


def consume(cluster, topic: str, count: int) -> set[str]:
    """Read with a group, so that its coordinator is found too."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"readers-of-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    values: set[str] = set()

    def enough():
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.add(message.value().decode())
        return len(values) == count

    try:
        until(enough, f"{count} records of {topic}")
    finally:
        consumer.close()
    return values


def all_agree(cluster, nodes, live: set[int]) -> bool:
    def described_by(number: int):
        with headwater.Admin(bootstrap_servers=cluster.address(number)) as admin:
            return admin.describe_cluster()

    return all(
        {node.id for node in view.brokers} == live and view.controller_id == controller(nodes)
        for view in map(described_by, live)
    )


def test_clients_send_what_the_controller_must_answer_to_the_broker_they_reach(cluster, nodes):
    """Metadata names the broker that answers: the last known controller may be dead."""
    for number in cluster.broker_ids:
        assert controller_named_by(cluster.address(number)) == number


def test_every_broker_knows_all_brokers_and_the_controller(cluster, nodes):
    until(lambda: all_agree(cluster, nodes, {1, 2, 3}), "one view of the cluster")
    assert sorted(nodes.get_children("/brokers/ids")) == ["1", "2", "3"]
    assert (
        len({cluster_as_seen_by(cluster.address(one)).cluster_id for one in cluster.broker_ids})
        == 1
    )


def test_a_topic_is_spread_and_served_through_every_broker(cluster):
    create(cluster, "spread")
    led = cluster_as_seen_by(cluster.address(2)).topics["spread"].partitions
    assert sorted(one.leader for one in led.values()) == [1, 1, 2, 2, 3, 3]
    values = [f"value {number}" for number in range(60)]
    produce(cluster, "spread", values)
    assert consume(cluster, "spread", 60) == set(values)


def test_any_broker_answers_what_needs_the_controller(cluster, nodes):
    until(lambda: all_agree(cluster, nodes, {1, 2, 3}), "one view of the cluster")
    elsewhere = min({1, 2, 3} - {controller(nodes)})
    with Client(int(cluster.address(elsewhere).rpartition(":")[2])) as client:
        wanted = CreateTopicsRequest.CreatableTopic(
            name="forwarded", num_partitions=2, replication_factor=1
        )
        made = client.ask(
            CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), CreateTopicsResponse, 7
        )
        assert [(one.name, one.error_code, one.num_partitions) for one in made.topics] == [
            ("forwarded", 0, 2)
        ]
        more = CreatePartitionsRequest.CreatePartitionsTopic(
            name="forwarded", count=4, assignments=None
        )
        grown = client.ask(
            CreatePartitionsRequest(topics=[more], timeout_ms=20_000), CreatePartitionsResponse, 3
        )
        assert [one.error_code for one in grown.results] == [0]
        edit = IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", value="99000")
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=2, resource_name="forwarded", configs=[edit]
        )
        altered = client.ask(
            IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, 1
        )
        assert [one.error_code for one in altered.responses] == [0]
        assert b"99000" in nodes.get("/config/topics/forwarded")[0]
        again = client.ask(
            CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), CreateTopicsResponse, 7
        )
        assert again.topics[0].error_code == E.TOPIC_ALREADY_EXISTS
        gone = client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="forwarded")],
                                timeout_ms=20_000), DeleteTopicsResponse, 6,
        )  # fmt: skip
        assert [one.error_code for one in gone.responses] == [0]
    producer = Producer({"bootstrap.servers": cluster.address(elsewhere)})
    producer.produce("made-on-demand", b"value")
    assert producer.flush(60) == 0


def test_deleting_the_controllers_node_leads_to_an_election(cluster, nodes):
    epoch = int(nodes.get("/controller_epoch")[0])
    nodes.delete("/controller")
    until(lambda: int(nodes.get("/controller_epoch")[0]) > epoch, "an election")
    until(lambda: all_agree(cluster, nodes, {1, 2, 3}), "one view of the cluster")
    create(cluster, "after-the-election", 3)


def test_a_killed_controller_is_replaced_and_its_data_comes_back(cluster, nodes):
    create(cluster, "survivors")
    values = [f"value {number}" for number in range(30)]
    produce(cluster, "survivors", values)
    until(lambda: all_agree(cluster, nodes, {1, 2, 3}), "one view of the cluster")
    killed = controller(nodes)
    cluster.kill(killed)
    left = {1, 2, 3} - {killed}
    until(lambda: controller(nodes) in left, "another controller")
    until(lambda: all_agree(cluster, nodes, left), "the broker to be missed")
    led = cluster_as_seen_by(cluster.address(min(left))).topics["survivors"].partitions
    assert sorted(one.leader for one in led.values()) == [-1, -1, *sorted([*left, *left])]
    cluster.start_broker(killed)
    until(lambda: all_agree(cluster, nodes, {1, 2, 3}), "the broker to be back")
    assert consume(cluster, "survivors", 30) == set(values)


def test_a_broker_that_returns_before_its_session_ends_gets_its_partitions_back(cluster, nodes):
    create(cluster, "bounced")
    before = nodes.exists("/brokers/ids/2").czxid
    cluster.restart(2)
    until(lambda: nodes.exists("/brokers/ids/2").czxid > before, "a new registration")
    values = [f"value {number}" for number in range(30)]
    produce(cluster, "bounced", values)
    assert consume(cluster, "bounced", 30) == set(values)


def test_a_broker_that_does_not_belong_here_is_refused(cluster, store, tmp_path):
    def broker(number: int, zookeeper: str, folder: str, **settings: str) -> Broker:
        known = {"node.id": str(number), "zookeeper.connect": zookeeper}
        return Broker({**SESSION, **known, **settings}, data_dir=tmp_path / folder)

    twin = broker(3, cluster.zookeeper, "twin", **{"zookeeper.session.timeout.ms": "500"})
    with pytest.raises(JoinError, match=r"node\.id=3 is in use by a broker at 127\.0\.0\.1:"):
        twin.start()
    other = broker(1, f"{store.address}/elsewhere", "elsewhere")
    try:
        other.start()
        other.stop()
        moved = broker(1, cluster.zookeeper, "elsewhere")
        with pytest.raises(JoinError, match=r"belongs to cluster .* holds cluster"):
            moved.start()
        wiped = broker(1, f"{store.address}/wiped", "elsewhere")
        with pytest.raises(JoinError, match="is empty: restore its data, correct"):
            wiped.start()
        other.start()
    finally:
        other.stop()


class WrongClock(SystemClock):
    def __init__(self, minutes_ahead: int) -> None:
        self._ahead_ms = 60_000 * minutes_ahead

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


def test_a_broker_whose_clock_is_more_than_an_hour_off_is_refused(store, tmp_path):
    zookeeper = f"{store.address}/clocks"
    settings = {"node.id": "1", "zookeeper.connect": zookeeper}
    for minutes, problem in (
        (120, r" is 7[12]\d\d s ahead of the metadata store's \(2.* UTC\)"),
        (-120, r" is 7[12]\d\d s behind the metadata store's \(2.* UTC\)"),
    ):
        refused = Live(tmp_path, settings, clock=WrongClock(minutes))
        with pytest.raises(JoinError, match=r"this machine's clock \(2.* UTC\)" + problem):
            refused.__enter__()
    with looking_into(zookeeper) as nodes:
        assert nodes.get("/brokers/ids")[1].cversion == 0, "it never joined"
        with Live(tmp_path, settings, clock=WrongClock(50)):
            assert nodes.get_children("/brokers/ids") == ["1"]
            assert nodes.get_children("/headwater_store_marks") == ["1"]


def test_leaders_serve_while_the_store_is_away_and_everything_resumes(tmp_path):
    with store_in(tmp_path) as store, Cluster(3, SESSION, zookeeper=store.address) as cluster:
        create(cluster, "kept", 3, replicas=3)
        produce(cluster, "kept", ["before"], 3)
        logs = [cluster.data_dir / f"broker-{n}" / "broker.stderr" for n in cluster.broker_ids]
        until(lambda: all("node " in log.read_text() for log in logs), "logs")
        sizes = [len(log.read_text()) for log in logs]
        store.kill()
        until(lambda: all("lost session" in log.read_text() for log in logs), "the lease to end")
        produce(cluster, "kept", ["meanwhile"] * 30, 3)
        for log, size in zip(logs, sizes, strict=True):
            lines = log.read_text()[size:].splitlines()
            assert len(lines) <= 4, lines
        store.start()
        until(lambda: len(cluster_as_seen_by(cluster.bootstrap).brokers) == 3, "the brokers")
        create(cluster, "after", 3, replicas=3)
        produce(cluster, "kept", ["after"], 3)
        assert consume(cluster, "kept", 3) == {"before", "meanwhile", "after"}


def has_noted_the_leader(cluster, number: int) -> bool:
    """Whether the broker's log dir has a mark of the store that is later than the last election."""
    with looking_into(cluster.zookeeper) as client:
        elected = client.exists("/brokers/topics/kept/partitions/0/state").mzxid
    note = cluster.data_dir / f"broker-{number}" / "headwater-store-mark"
    return json.loads(note.read_text())["zxid"] > elected


def test_no_broker_joins_a_store_that_was_restored_from_an_older_copy(tmp_path):
    folder, older, newest = (tmp_path / name for name in ("store", "older", "newest"))
    settings = {**SESSION, "min.insync.replicas": 2}
    with store_in(folder) as store, Cluster(3, settings, zookeeper=store.address) as cluster:
        create(cluster, "kept", 1, replicas=3)
        produce(cluster, "kept", ["on all replicas"], 1)
        store.stop()
        shutil.copytree(folder, older)
        store.start()
        lagging = cluster.leader("kept")
        cluster.stop(lagging)
        values = [f"on two replicas {number}" for number in range(20)]
        produce(cluster, "kept", values, 1)
        others = {1, 2, 3} - {lagging}
        until(lambda: all(has_noted_the_leader(cluster, one) for one in others), "notes")
        cluster.kill(*others)
        store.kill()
        folder.rename(newest)
        older.rename(folder)
        store.start()
        for number in (lagging, *others):
            with pytest.raises(NotStarted, match="restored from an older copy: this broker marked"):
                cluster.start_broker(number)
        store.kill()
        folder.rename(older)
        newest.rename(folder)
        store.start()
        cluster.start_broker(1, 2, 3)
        cluster.wait_until_in_sync(["kept"])
        assert consume(cluster, "kept", 21) == {"on all replicas", *values}


def test_clusters_follow_each_other_in_a_zookeeper_whose_first_server_is_dead(store):
    with looking_into(store.address) as nodes:
        for _ in range(2):
            with Cluster(1, zookeeper=f"127.0.0.1:1,{store.address}/theirs") as cluster:
                assert cluster.controller() == 1
                (own,) = nodes.get_children("/theirs")
                assert cluster.zookeeper == f"127.0.0.1:1,{store.address}/theirs/{own}"
            assert nodes.get_children("/theirs") == [], "nothing is left"


def test_the_failover_demo_loses_nothing_on_an_ensemble_that_loses_a_member_meanwhile():
    with zookeepers(3) as members:
        path = ",".join(member.address for member in members) + "/kafka"
        demo = subprocess.Popen(
            [sys.executable, "-m", "headwater", "demo", "failover", "--zookeeper", path],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            started, ready = demo.stdout.readline(), demo.stdout.readline()
            assert "topic orders: 3 partitions, 3 replicas" in ready, started + ready
            members[0].kill()
            said, failures = demo.communicate(timeout=DEMO_TIMEOUT_S)
        finally:
            demo.kill()
            demo.communicate()
        assert demo.returncode == 0, said + failures
        assert said.endswith("lost 0   stored twice 0\n")
        with looking_into(",".join(member.address for member in members[1:])) as nodes:
            assert nodes.get_children("/kafka") == []


def test_control_requests_have_a_listener_of_their_own(store, tmp_path):
    settings = {
        "zookeeper.connect": f"{store.address}/control",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        "control.plane.listener.name": "CONTROL",
        "controlled.shutdown.enable": "false",
    }
    with (
        Live(tmp_path / "1", {**settings, "node.id": "1"}) as one,
        Live(tmp_path / "2", {**settings, "node.id": "2"}) as two,
    ):
        assert one.context.controller.active
        one.create("t", 2)
        until(lambda: two.replica("t", 0) or two.replica("t", 1), "a partition on the other broker")
        peers = two.on_loop(
            lambda: [
                (peer.listener, str(peer.principal)) for peer in two.context.connection_quotas.open
            ]
        )
        assert ("CONTROL", "Broker:1") in peers
        with two.client(listener=1) as client:
            client.send(CreateTopicsRequest(), 7)
            assert client.is_closed(), "clients are not served there"


def test_a_refusal_names_the_store_that_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(forwarding, "PATIENCE_MS", 100)
    with store_in(tmp_path / "store") as store:
        settings = {"zookeeper.connect": store.address, "zookeeper.session.timeout.ms": "1000"}
        with Live(tmp_path / "data", settings) as one:
            store.kill()
            until(lambda: not one.context.controller.active, "the end of the session")
            topic = CreateTopicsRequest.CreatableTopic(
                name="late", num_partitions=1, replication_factor=1
            )
            with one.client() as client:
                answer = client.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
            (refused,) = answer.topics
            assert error_of(refused.error_code) is E.NOT_CONTROLLER
            said = f"the metadata store at {store.address} does not answer"
            assert said in refused.error_message
            store.start()


def test_a_start_without_zookeeper_says_so(tmp_path):
    settings = {"zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": "300"}
    with pytest.raises(JoinError, match=r"no server of zookeeper\.connect=127\.0\.0\.1:1 answered"):
        Broker({**settings, "node.id": "1"}, data_dir=tmp_path).start()

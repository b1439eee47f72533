"""Three brokers for the checks that need several: ours, or Apache Kafka (`start_broker` says which)."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from tools.apache_kafka import ApacheCluster

import headwater
from headwater.testing import Cluster
from headwater.wire.messages.metadata import MetadataRequest
from tests.compat.broker_under_test import BrokerUnderTest, eventually
from tests.compat.differential.peer import Peer
from tests.compat.start_broker import SETTINGS, assert_sound, peer

CLUSTER_SETTINGS = {
    **SETTINGS,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
}
SESSION = {"zookeeper.session.timeout.ms": "6000"}  # a busy machine must not end one
PATIENCE_S = 120


class Nodes(Protocol):
    """What the checks do to brokers."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def broker_ids(self) -> list[int]: ...
    def address(self, broker_id: int, /) -> str: ...
    def kill(self, *broker_ids: int) -> None: ...
    def start_broker(self, *broker_ids: int) -> None: ...


class ThreeBrokers(BrokerUnderTest):
    """Three brokers, and the ways to prepare them."""

    def __init__(self, nodes: Nodes, is_apache: bool):
        super().__init__(nodes.bootstrap, None, is_apache)
        self.nodes = nodes

    def topic(self, partitions: int = 1, replicas: int = 3, **configs: str) -> str:
        """A new topic, with all its replicas in sync."""
        name = super().topic(partitions, replicas, **configs)
        self.wait_until_in_sync(name)
        return name

    def wait_until_in_sync(self, *topics: str) -> None:
        """Waits until every broker knows that each partition is led and its replicas in sync."""
        names = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]

        def in_sync(broker_id: int) -> bool:
            known = Peer("", self.nodes.address(broker_id)).call(MetadataRequest(topics=names), 12)
            return all(
                topic.partitions
                and all(
                    p.leader_id > 0 and {*p.isr_nodes} == {*p.replica_nodes}
                    for p in topic.partitions
                )
                for topic in known.topics
            )

        for broker_id in self.nodes.broker_ids:
            eventually(partial(in_sync, broker_id), PATIENCE_S)

    def commit(self, group: str, topic: str) -> None:
        """Makes a group, when its coordinator is ready: librdkafka does not wait for that."""

        def committed() -> bool:
            self.hand.commit(group, topic, {0: 0})
            return True

        eventually(committed, PATIENCE_S)

    def wait_for_coordinators(self) -> None:
        """Waits until the offsets topic is there and its partitions are led."""
        topic = self.topic()
        for _ in self.nodes.broker_ids:
            self.commit(self.fresh("first"), topic)
        self.wait_until_in_sync("__consumer_offsets")

    def prefer_another_leader(self, topic: str) -> int:
        """Puts a follower of partition 0 first among its replicas; returns its id."""
        found = self.hand.describe_topic(topic)[0]
        other = next(broker for broker in found.replicas if broker != found.leader)
        order = [other, *(broker for broker in found.replicas if broker != other)]
        with headwater.Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.reassign_partitions({(topic, 0): order})
        eventually(lambda: list(self.hand.describe_topic(topic)[0].replicas) == order, PATIENCE_S)
        return other

    def address_beside_the_controller(self) -> str:
        """The address of a broker that clients are not told to take for the controller."""
        with headwater.Admin(bootstrap_servers=self.bootstrap) as admin:
            controller = admin.describe_cluster().controller_id
        return self.nodes.address(next(n for n in self.nodes.broker_ids if n != controller))


@contextmanager
def start_three_brokers() -> Iterator[ThreeBrokers]:
    """Starts the brokers that the environment asks for."""
    if peer() == "apache":
        with ApacheCluster(3, CLUSTER_SETTINGS) as apache:
            brokers = ThreeBrokers(apache, is_apache=True)
            brokers.wait_for_coordinators()
            yield brokers
        return
    with Cluster(3, {**CLUSTER_SETTINGS, **SESSION}) as cluster:
        brokers = ThreeBrokers(cluster, is_apache=False)
        brokers.wait_for_coordinators()
        yield brokers
        cluster.kill(*cluster.broker_ids)
        for broker_id in cluster.broker_ids:
            folder = Path(cluster.data_dir) / f"broker-{broker_id}"
            assert_sound(folder, (folder / "broker.stderr").read_text())

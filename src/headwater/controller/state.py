"""What the controller knows: live brokers, topics, who leads each partition, overrides.

Plain data. Only `decide` changes it, and a change is made here before it is written: a write that
fails means that this picture is stale, and the controller steps down and reads everything anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.controller.store.znodes import BrokerNode, StateNode
from headwater.model import NO_LEADER, TopicPartition, Uuid

NOT_STORED = -1
"""The version of a state node that was never written."""


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker; its epoch is the czxid of that registration."""

    node: BrokerNode
    epoch: int

    @property
    def broker_id(self) -> int:
        """The broker's id."""
        return self.node.broker_id


@dataclass(slots=True)
class PartitionRegistration:
    """Assignment and leadership of one partition.

    `version` is the state node's version, Kafka's partition epoch. `granted_at` is the transaction
    that last wrote the state: leadership older than its holder's registration is void, because the
    holder has restarted since.
    """

    replicas: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    controller_epoch: int = 0
    version: int = NOT_STORED
    granted_at: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False

    def state_node(self) -> StateNode:
        """The partition's node as it is to be written."""
        return StateNode(
            self.leader, self.leader_epoch, self.isr, self.controller_epoch, self.recovering
        )


@dataclass(slots=True)
class TopicState:
    """One topic; `deleting` from the moment its deletion is wanted until nothing is left of it."""

    name: str
    topic_id: Uuid
    partitions: dict[int, PartitionRegistration]
    version: int = 0
    config: dict[str, str] = field(default_factory=dict)
    deleting: bool = False

    def replication_factor(self) -> int:
        """The number of replicas of its first partition, as Kafka reports it."""
        return len(next(iter(self.partitions.values())).replicas) if self.partitions else 0


@dataclass(slots=True)
class ClusterState:
    """Everything the store said when this controller was elected, and every change since."""

    brokers: dict[int, LiveBroker] = field(default_factory=dict)
    topics: dict[str, TopicState] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    config_nodes: set[str] = field(default_factory=set)
    """The paths below /config that are there: these are set, all others created."""
    by_metric_name: dict[str, str] = field(default_factory=dict)
    """Topics by `metric_name`, to find the ones that a new name would collide with."""
    load: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Per broker, how many partitions prefer it as leader and how many replicas it holds."""

    def add(self, topic: TopicState) -> None:
        """Take in a topic, with the partitions it has."""
        self.topics[topic.name] = topic
        self.by_metric_name[metric_name(topic.name)] = topic.name
        for partition in topic.partitions.values():
            self._count(partition.replicas, 1)

    def add_partition(
        self, topic: TopicState, index: int, partition: PartitionRegistration
    ) -> None:
        """Take in one more partition of a topic."""
        topic.partitions[index] = partition
        self._count(partition.replicas, 1)

    def drop(self, name: str) -> None:
        """Forget a topic."""
        topic = self.topics.pop(name)
        self.by_metric_name.pop(metric_name(name), None)
        for partition in topic.partitions.values():
            self._count(partition.replicas, -1)

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition of every topic that is not on its way out."""
        for topic in self.topics.values():
            if not topic.deleting:
                for index in topic.partitions:
                    yield TopicPartition(topic.name, index)

    def partition(self, at: TopicPartition) -> PartitionRegistration | None:
        """One partition, if it is there to stay."""
        topic = self.topics.get(at.topic)
        return topic.partitions.get(at.partition) if topic and not topic.deleting else None

    def _count(self, replicas: tuple[int, ...], by: int) -> None:
        for broker in replicas:
            preferred, held = self.load.get(broker, (0, 0))
            self.load[broker] = (preferred + by * (broker == replicas[0]), held + by)


def metric_name(name: str) -> str:
    """Names that differ only in '.' and '_' would share the names of their metrics."""
    return name.replace(".", "_")

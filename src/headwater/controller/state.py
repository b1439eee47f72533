"""The cluster state of the controller: live brokers, topics, leaders, overrides.

Plain data. Only `decide` changes it, before the write. After a failed write the state is stale, so the
controller resigns and the next one loads it again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.controller.store.znodes import BrokerNode, StateNode
from headwater.model import NO_LEADER, TopicPartition, Uuid

NEVER_REGISTERED = -2
"""The epoch of a broker that no controller has seen."""
NOT_STORED = -1
"""The version of a state node that was never written."""


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker; its epoch is the czxid of the registration."""

    node: BrokerNode
    epoch: int

    @property
    def broker_id(self) -> int:
        return self.node.broker_id


@dataclass(slots=True)
class PartitionRegistration:
    """Assignment and leadership of one partition.

    `version` is the version of the state node, Kafka's partition epoch.
    """

    replicas: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    controller_epoch: int = 0
    version: int = NOT_STORED
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False
    elr: tuple[int, ...] = ()
    """The eligible leader replicas: not in sync, but with every committed record (KIP-966)."""
    last_known_leader: int = NO_LEADER
    """The last leader of a partition that has none."""

    @property
    def moving(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas except those being added."""
        return tuple(one for one in self.replicas if one not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas except those being removed."""
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def caught_up(self) -> bool:
        """Whether all target replicas are in sync."""
        return set(self.target) <= set(self.isr)

    def state_node(self) -> StateNode:
        """The state node to write."""
        return StateNode(
            self.leader,
            self.leader_epoch,
            self.isr,
            self.controller_epoch,
            self.recovering,
            self.elr,
            self.last_known_leader,
        )


@dataclass(slots=True)
class TopicState:
    """One topic; `deleting` is set from the request to delete it until it is gone."""

    name: str
    topic_id: Uuid
    partitions: dict[int, PartitionRegistration]
    version: int = 0
    config: dict[str, str] = field(default_factory=dict)
    deleting: bool = False
    planned: int = field(default=0, compare=False)
    """How many partitions it will have once a creation has ended, which adds a few at a time. The next
    controller finds all of them in the store."""

    @property
    def partition_count(self) -> int:
        """The number of partitions, with those that are being added."""
        return max(self.planned, len(self.partitions))

    def replication_factor(self) -> int:
        """The number of replicas of the first partition, as Kafka reports it."""
        return len(next(iter(self.partitions.values())).replicas) if self.partitions else 0


@dataclass(slots=True)
class ClusterState:
    """The content of the store at the election of this controller, with every change since."""

    brokers: dict[int, LiveBroker] = field(default_factory=dict)
    known_epochs: dict[int, int] = field(default_factory=dict)
    """By broker: the epoch that its leaderships and in-sync memberships refer to. A broker with another
    epoch has restarted, or lost its session, since they were written."""
    stored_epochs: dict[int, int] = field(default_factory=dict)
    """The known epochs as the next controller finds them."""
    shutting_down: set[int] = field(default_factory=set)
    """The live brokers in a controlled shutdown."""
    topics: dict[str, TopicState] = field(default_factory=dict)
    entity_configs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """The overrides of brokers, users, clients and addresses, by the type and the name of their node below /config."""
    config_nodes: set[str] = field(default_factory=set)
    """The existing paths below /config: writes set these and create all others."""
    by_metric_name: dict[str, str] = field(default_factory=dict)
    """Topics by `metric_name`, to find collisions with a new name."""
    by_id: dict[Uuid, str] = field(default_factory=dict)
    """Topics by id."""
    load: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By broker: how many partitions prefer it as leader, and how many replicas it holds."""

    def has_restarted(self, broker_id: int) -> bool:
        """Whether a live broker registered again since leaders and in-sync sets were written."""
        live = self.brokers.get(broker_id)
        return live is not None and live.epoch != self.known_epochs.get(broker_id)

    def may_have_lost_records(self, broker_id: int) -> bool:
        """Whether a live broker restarted since its known epoch, and its logs may lack records.

        They lack none after a lost session, a clean stop, or a crash of the process alone.
        """
        live = self.brokers.get(broker_id)
        if live is None or not self.has_restarted(broker_id):
            return False
        known = self.known_epochs.get(broker_id, NEVER_REGISTERED)
        return not 0 <= live.node.kept_since <= known

    def has_lost_log_dirs(self, broker_id: int) -> bool:
        """Whether a live broker restarted since its known epoch, without some of its log dirs."""
        live = self.brokers.get(broker_id)
        return (
            self.may_have_lost_records(broker_id) and live is not None and live.node.lost_log_dirs
        )

    def add(self, topic: TopicState) -> None:
        """Add a topic with its partitions."""
        self.topics[topic.name] = topic
        self.by_id[topic.topic_id] = topic.name
        self.by_metric_name[metric_name(topic.name)] = topic.name
        for partition in topic.partitions.values():
            self._count(partition.replicas, 1)

    def add_partition(
        self, topic: TopicState, index: int, partition: PartitionRegistration
    ) -> None:
        """Add a partition to a topic."""
        topic.partitions[index] = partition
        self._count(partition.replicas, 1)

    def reassign(self, partition: PartitionRegistration, target: tuple[int, ...]) -> None:
        """Begin a move: until its end, the partition has both its old and its new replicas."""
        origin = partition.origin
        self._count(partition.replicas, -1)
        partition.adding = tuple(one for one in target if one not in origin)
        partition.removing = tuple(one for one in origin if one not in target)
        partition.replicas = (*target, *partition.removing)
        self._count(partition.replicas, 1)

    def settle(self, partition: PartitionRegistration) -> None:
        """End a move: the partition keeps only its new replicas."""
        self._count(partition.replicas, -1)
        partition.replicas, partition.adding, partition.removing = partition.target, (), ()
        self._count(partition.replicas, 1)

    def drop(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.by_id.pop(topic.topic_id, None)
        self.by_metric_name.pop(metric_name(name), None)
        for partition in topic.partitions.values():
            self._count(partition.replicas, -1)

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition of every topic that is not being deleted."""
        for topic in self.topics.values():
            if not topic.deleting:
                for index in topic.partitions:
                    yield TopicPartition(topic.name, index)

    def partition(self, at: TopicPartition) -> PartitionRegistration | None:
        """One partition, unless its topic is being deleted."""
        topic = self.topics.get(at.topic)
        return topic.partitions.get(at.partition) if topic and not topic.deleting else None

    def _count(self, replicas: tuple[int, ...], by: int) -> None:
        for broker in replicas:
            preferred, held = self.load.get(broker, (0, 0))
            self.load[broker] = (preferred + by * (broker == replicas[0]), held + by)


def metric_name(name: str) -> str:
    """The name as metrics show it: names that differ only in '.' and '_' collide."""
    return name.replace(".", "_")

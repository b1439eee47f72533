"""This broker's view of the cluster: brokers, topics, leaders. The controller updates it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.model import INTERNAL_TOPICS, LEADER_DURING_DELETE, NO_LEADER, TopicPartition, Uuid
from headwater.wire.messages.control import UpdateMetadataRequest


class BrokerInfo(NamedTuple):
    """A live broker and its address by listener."""

    id: int
    endpoints: dict[str, tuple[str, int]]
    rack: str | None


class PartitionInfo(NamedTuple):
    """The leader and replicas of one partition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline: tuple[int, ...]
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER


@dataclass(slots=True)
class TopicInfo:
    """A topic and its partitions."""

    name: str
    topic_id: Uuid
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        """Return whether only brokers write to it."""
        return self.name in INTERNAL_TOPICS


class MetadataCache:
    """The cluster as of the last update."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicInfo] = {}
        # New topics of which not all partitions are known yet. Nobody may use them: keys would go to
        # other partitions, and groups to other coordinators, than a moment later.
        self._incomplete: dict[str, TopicInfo] = {}
        self.name_of: dict[Uuid, str] = {}
        # The controller epoch and broker epoch of the updates, and the earlier topics that this
        # controller has not sent yet.
        self._series = (-1, -1)
        self._unconfirmed: set[str] = set()

    def apply(self, update: UpdateMetadataRequest) -> list[TopicPartition]:
        """Apply an update; return the partitions that it removes."""
        self.controller_id = update.controller_id
        series = (update.controller_epoch, update.broker_epoch)
        if series != self._series:
            self._series, self._unconfirmed = series, {*self.topics, *self._incomplete}
        if update.live_brokers:
            self.brokers = {broker.id: _broker(broker) for broker in update.live_brokers}
        removed: list[TopicPartition] = []
        for topic in update.topic_states:
            self._unconfirmed.discard(topic.topic_name)
            removed += self._apply_topic(topic)
        return removed

    def end_series(self, controller_epoch: int, broker_epoch: int) -> list[str]:
        """Forget the topics that the controller has not sent, and return their names.

        They were deleted while this broker was not registered, or could not be reached.
        """
        if (controller_epoch, broker_epoch) != self._series:
            return []
        gone = [name for name in self.topics if name in self._unconfirmed]
        for name in self._unconfirmed:
            self._remove(name)
        self._unconfirmed.clear()
        return gone

    def _apply_topic(
        self, state: UpdateMetadataRequest.UpdateMetadataTopicState
    ) -> Iterable[TopicPartition]:
        gone = [
            p.partition_index for p in state.partition_states if p.leader == LEADER_DURING_DELETE
        ]
        name = state.topic_name
        topic = self._incomplete.get(name) or self.topics.get(name)
        if topic is None or topic.topic_id != state.topic_id:
            if len(gone) == len(state.partition_states):
                return []
            self._remove(name)
            topic = self._incomplete[name] = TopicInfo(name, state.topic_id)
        for partition in state.partition_states:
            if partition.leader != LEADER_DURING_DELETE:
                topic.partitions[partition.partition_index] = _partition(partition)
        for index in gone:
            topic.partitions.pop(index, None)
        if not topic.partitions:
            self._remove(name)
        elif name in self._incomplete and len(topic.partitions) >= state.partition_count:
            self.topics[name] = self._incomplete.pop(name)
            self.name_of[topic.topic_id] = name
        return [TopicPartition(name, index) for index in gone]

    def _remove(self, name: str) -> None:
        self._incomplete.pop(name, None)
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.name_of.pop(topic.topic_id, None)

    # -- reading

    def partition(self, topic: str, index: int) -> PartitionInfo | None:
        """Return a partition, if it exists."""
        info = self.topics.get(topic)
        return None if info is None else info.partitions.get(index)

    def has_partition(self, topic: str, index: int) -> bool:
        """Return whether a partition exists."""
        return self.partition(topic, index) is not None

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0 if it does not exist."""
        info = self.topics.get(topic)
        return 0 if info is None else len(info.partitions)

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic, if it exists."""
        info = self.topics.get(name)
        return None if info is None else info.topic_id

    def endpoint(self, broker: int, listener: str) -> tuple[str, int] | None:
        """Return the address of a broker for clients of `listener`, if it is alive and has it."""
        info = self.brokers.get(broker)
        return None if info is None else info.endpoints.get(listener)


def _broker(state: UpdateMetadataRequest.UpdateMetadataBroker) -> BrokerInfo:
    endpoints = {end.listener: (end.host, end.port) for end in state.endpoints}
    return BrokerInfo(state.id, endpoints, state.rack)


def _partition(state: UpdateMetadataRequest.UpdateMetadataPartitionState) -> PartitionInfo:
    return PartitionInfo(
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        tuple(state.offline_replicas),
        state.zk_version,
        tuple(state.elr),
        state.last_known_leader,
    )

"""Elects leaders as brokers come and go, and sends the results to every broker. Pure.

Each method is a job: a generator that pauses so that the event loop can turn.
"""

from collections.abc import Callable, Iterator, Mapping

from headwater.config.keys import ConfigError
from headwater.config.topic import TopicSettings
from headwater.controller.election import elect, needs_election
from headwater.controller.outstanding import Outstanding
from headwater.controller.state import NOT_STORED, LiveBroker, PartitionRegistration
from headwater.controller.store.metadata_store import Create, Op, Set
from headwater.controller.store.znodes import StateNode, partitions_path
from headwater.model import NO_LEADER, TopicPartition

PARTITIONS_PER_STEP = 50
"""How many partitions one step changes: a millisecond or two of work."""
PARTITIONS_PER_SCAN = 4000
"""How many partitions one step checks without changing them."""

UNCLEAN = "unclean.leader.election.enable"


class LeaderElections:
    def __init__(self, outstanding: Outstanding, broker_gone: Callable[[int], None]) -> None:
        self._outstanding = outstanding
        self._broker_gone = broker_gone
        self._state = outstanding.state

    def brokers_changed(self, brokers: Mapping[int, LiveBroker]) -> Iterator[None]:
        """Apply the new list of live brokers.

        A broker that registered again counts as gone and joined: it must not keep what it led
        before its restart (KIP-380).
        """
        before = dict(self._state.brokers)
        gone = [one for one in before.values() if brokers.get(one.broker_id) != one]
        joined = [one for one in brokers.values() if before.get(one.broker_id) != one]
        for broker in gone:
            self._state.brokers.pop(broker.broker_id)
            self._broker_gone(broker.broker_id)
        if gone:
            yield from self.elect_leaders()
        self._state.brokers.clear()
        self._state.brokers.update(brokers)
        self._outstanding.send_update_metadata([])
        yield from self.elect_leaders()
        for broker in joined:
            yield from self._introduce(broker)

    def _introduce(self, joined: LiveBroker) -> Iterator[None]:
        """Send the full state to a broker that joined; writes in flight reach it later with the others."""
        everything = list(self._state.partitions())
        for start in range(0, len(everything), PARTITIONS_PER_STEP):
            known = self._outstanding.stored_partitions(
                everything[start : start + PARTITIONS_PER_STEP]
            )
            if known and self._state.brokers.get(joined.broker_id) == joined:
                self._outstanding.send_partition_states(known, only=joined.broker_id)
            yield

    def elect_leaders(self) -> Iterator[None]:
        """Elect a leader for every partition that needs one."""
        ops: list[Op] = []
        changed: list[TopicPartition] = []
        for seen, at in enumerate(list(self._state.partitions()), 1):
            partition = self._state.partition(at)
            if partition is not None and self._elect_if_needed(at, partition):
                ops += state_ops(at, partition)
                changed.append(at)
                partition.version += 1
            if len(changed) == PARTITIONS_PER_STEP:
                self._outstanding.write_partitions(ops, changed)
                ops, changed = [], []
                yield
            elif seen % PARTITIONS_PER_SCAN == 0:
                yield
        if changed:
            self._outstanding.write_partitions(ops, changed)

    def _elect_if_needed(self, at: TopicPartition, partition: PartitionRegistration) -> bool:
        """Change leader or in-sync set if necessary, under a higher leader epoch; whether they changed."""
        live = self._state.brokers
        if partition.version == NOT_STORED:
            self.first_leader(partition)
            return True
        in_sync = tuple(broker for broker in partition.isr if broker in live)
        if needs_election(partition, live):
            leader, isr, unclean = elect(partition, live, unclean=self._unclean_allowed(at.topic))
        elif in_sync != partition.isr:
            leader, isr, unclean = partition.leader, in_sync, False
        else:
            return False
        if leader == partition.leader == NO_LEADER:
            return False
        partition.leader, partition.isr = leader, isr
        partition.recovering = unclean
        partition.leader_epoch += 1
        self._grant(partition)
        return True

    def first_leader(self, partition: PartitionRegistration) -> None:
        """Elect the first leader of a partition without records: every live replica is in sync."""
        live = [broker for broker in partition.replicas if broker in self._state.brokers]
        partition.leader = live[0] if live else NO_LEADER
        partition.isr = tuple(live) or partition.replicas
        partition.leader_epoch = 0
        self._grant(partition)

    def _grant(self, partition: PartitionRegistration) -> None:
        partition.controller_epoch = self._outstanding.epoch
        leader = self._state.brokers.get(partition.leader)
        partition.granted_at = leader.epoch if leader else 0

    def _unclean_allowed(self, topic: str) -> bool:
        own = self._state.topics[topic].config.get(UNCLEAN)
        if own is None:
            return self._outstanding.settings.unclean_leader_election
        try:
            return bool(TopicSettings.key(UNCLEAN).parse(own))
        except ConfigError:
            return False


def state_ops(at: TopicPartition, partition: PartitionRegistration) -> list[Op]:
    """The operations that write a partition's state over version `partition.version`."""
    path, data = StateNode.path(at.topic, at.partition), partition.state_node().encode()
    if partition.version != NOT_STORED:
        return [Set(path, data, partition.version)]
    return [Create(f"{partitions_path(at.topic)}/{at.partition}"), Create(path, data)]

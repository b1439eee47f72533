"""Elects leaders as brokers come and go, and sends the results to every broker. Pure.

Each method is a job: a generator that pauses so that the event loop can run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from headwater.config.keys import ConfigError
from headwater.config.topic import TopicSettings
from headwater.controller.continuations import (
    EndIntroduction,
    NoteEpochs,
    Release,
    RememberEpochs,
)
from headwater.controller.control_requests import FULL, leader_and_isr
from headwater.controller.election import (
    Election,
    elect,
    eligible_beside,
    needs_election,
    surviving_isr,
)
from headwater.controller.outstanding import Outstanding
from headwater.controller.state import NOT_STORED, LiveBroker, PartitionRegistration
from headwater.controller.store.metadata_store import Create, Op, Set
from headwater.controller.store.znodes import (
    BROKER_EPOCHS,
    DEFAULT_ENTITY,
    StateNode,
    encode_broker_epochs,
    partitions_path,
)
from headwater.model import NO_LEADER, TopicPartition

PARTITIONS_PER_STEP = 50
"""How many partitions one step changes: a millisecond or two of work."""
PARTITIONS_PER_SCAN = 1500
"""How many partitions one step checks without changing them."""

SHOWN = 10
"""How many partitions a log line names."""

UNCLEAN = "unclean.leader.election.enable"
MIN_INSYNC = "min.insync.replicas"


class StateBatch:
    """States of partitions that are written together."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.changed: list[TopicPartition] = []
        # The partitions that have just lost their leader, or the last replica with every record, and
        # those whose new leader may have lost records.
        self.leaderless: list[TopicPartition] = []
        self.bereft: list[TopicPartition] = []
        self.lossy: list[TopicPartition] = []

    @property
    def full(self) -> bool:
        return len(self.changed) >= PARTITIONS_PER_STEP

    def add(self, at: TopicPartition, partition: PartitionRegistration) -> None:
        """Write the state as it is now, under the next version."""
        self.ops += state_ops(at, partition)
        self.changed.append(at)
        partition.version += 1


class LeaderElections:
    def __init__(self, outstanding: Outstanding, broker_gone: Callable[[int], None]) -> None:
        self._outstanding = outstanding
        self._broker_gone = broker_gone
        self._state = outstanding.state
        self._joined: list[LiveBroker] = []

    # -- brokers come and go

    def brokers_changed(self, brokers: Mapping[int, LiveBroker]) -> Iterator[None]:
        """Apply the new list of live brokers.

        A broker that registered again has both left and joined: it must not keep the partitions that
        it led before its restart (KIP-380).
        """
        before = dict(self._state.brokers)
        gone = [one for one in before.values() if brokers.get(one.broker_id) != one]
        joined = [one for one in brokers.values() if before.get(one.broker_id) != one]
        for broker in gone:
            self._state.brokers.pop(broker.broker_id)
            self._state.shutting_down.discard(broker.broker_id)
            self._broker_gone(broker.broker_id)
        if gone:
            yield from self.elect_leaders()
        self._state.brokers.clear()
        self._state.brokers.update(brokers)
        self._outstanding.send_update_metadata([])
        yield from self.elect_leaders()
        self._remember_epochs()
        for broker in joined:
            yield from self._introduce(broker)
        self._joined += joined

    def end_introductions(self) -> Iterator[None]:
        """Tell brokers that joined that the series is complete, deletions included."""
        joined, self._joined = self._joined, []
        for broker in joined:
            self._outstanding.once_written(EndIntroduction(broker.broker_id, broker.epoch))
        yield from ()

    def _remember_epochs(self) -> None:
        known = self._state.known_epochs
        epochs = known | {one.broker_id: one.epoch for one in self._state.brokers.values()}
        if epochs != known:
            known.update(epochs)
            self._outstanding.once_written(RememberEpochs(tuple(sorted(epochs.items()))))

    def leaders_written(self, remembered: RememberEpochs) -> None:
        """Store the brokers' epochs: no leader or in-sync set of an earlier epoch is left."""
        data = encode_broker_epochs(dict(remembered.epochs))
        self._outstanding.write([Set(BROKER_EPOCHS, data)], NoteEpochs(remembered.epochs))

    def _introduce(self, joined: LiveBroker) -> Iterator[None]:
        """Send the full state to a broker that joined; it gets states in flight with the other brokers."""
        everything = list(self._state.partitions())
        for start in range(0, len(everything), PARTITIONS_PER_STEP):
            known = self._outstanding.introducible(everything[start : start + PARTITIONS_PER_STEP])
            if known and self._state.brokers.get(joined.broker_id) == joined:
                self._outstanding.send_partition_states(known, only=joined.broker_id)
            yield

    def introduced(self, ended: EndIntroduction) -> None:
        """Tell a broker that all its replicas have been sent to it: any other log is a stray.

        A partition that was written again before its first write was done has not been sent yet.
        """
        broker = self._state.brokers.get(ended.broker_id)
        if broker is None or broker.epoch != ended.epoch:
            return
        if self._outstanding.has_unheard(broker.broker_id):
            self._outstanding.once_written(ended)
        else:
            request = leader_and_isr(self._outstanding.identity, broker, self._state, [], kind=FULL)
            self._outstanding.send(broker.broker_id, request, Release(None))

    # -- electing

    def elect_leaders(self) -> Iterator[None]:
        """Elect a leader for every partition that needs one."""
        batch = StateBatch()
        for seen, at in enumerate(list(self._state.partitions()), 1):
            partition = self._state.partition(at)
            had_leader = partition is not None and partition.leader != NO_LEADER
            elected = None if partition is None else self._elect_if_needed(at, partition)
            if partition is not None and elected is not None:
                batch.add(at, partition)
                if not partition.isr and not partition.elr:
                    batch.bereft.append(at)
                elif had_leader and partition.leader == NO_LEADER:
                    batch.leaderless.append(at)
                elif elected.lossy and len(partition.replicas) > 1:
                    batch.lossy.append(at)
            if batch.full:
                self._write(batch)
                batch = StateBatch()
                yield
            elif seen % PARTITIONS_PER_SCAN == 0:
                yield
        self._write(batch)

    def _write(self, batch: StateBatch) -> None:
        if batch.leaderless:
            self._outstanding.report(
                f"no leader for {_listed(batch.leaderless)}: none of their in-sync or eligible replicas is live; "
                "start their brokers, or accept losses with an unclean election",
                loud=True,
            )
        if batch.bereft:
            self._outstanding.report(
                f"no leader for {_listed(batch.bereft)}: their last in-sync replicas lost log dirs; "
                "accept what the other replicas lack with an unclean election",
                loud=True,
            )
        if batch.lossy:
            self._outstanding.report(
                f"the last known leader leads {_listed(batch.lossy)}: every replica that had all records "
                "is back after a power failure or without log dirs; compare with the sources of the data",
                loud=True,
            )
        if batch.changed:
            self._outstanding.write_partitions(batch.ops, batch.changed)

    def _elect_if_needed(
        self, at: TopicPartition, partition: PartitionRegistration
    ) -> Election | None:
        """Change the leader, the in-sync set or the eligible replicas if necessary."""
        if partition.version == NOT_STORED:
            return self.first_leader(partition)
        if needs_election(partition, self._state):
            elected = elect(partition, self._state, unclean=self._unclean_allowed(at.topic))
            stays = elected.leader == partition.leader == NO_LEADER
        else:
            elected = Election(partition.leader, surviving_isr(partition, self._state))
            stays = True
        stays = stays and elected.isr == partition.isr
        if stays and self._eligible(at.topic, partition, elected.isr) == partition.elr:
            return None
        self.install(at, partition, elected)
        return elected

    def install(
        self, at: TopicPartition, partition: PartitionRegistration, elected: Election
    ) -> None:
        """Apply a new leader or in-sync set, under a higher leader epoch."""
        if elected.unclean:
            self._outstanding.unclean_elections += 1
            self._outstanding.report(
                f"UNCLEAN ELECTION: broker {elected.leader} leads {at} now and was not in sync; "
                f"records that only {list(partition.isr) or 'lost log dirs'} had are lost",
                loud=True,
            )
        self.adopt_isr(at.topic, partition, elected.isr)
        if elected.unclean:
            partition.elr = ()
        if elected.leader != NO_LEADER:
            partition.last_known_leader = NO_LEADER
        elif partition.leader != NO_LEADER:
            partition.last_known_leader = partition.leader
        if self._state.has_lost_log_dirs(partition.last_known_leader):
            partition.last_known_leader = NO_LEADER
        partition.leader = elected.leader
        partition.recovering = partition.recovering or elected.unclean
        partition.leader_epoch += 1
        partition.controller_epoch = self._outstanding.epoch

    def adopt_isr(self, topic: str, partition: PartitionRegistration, isr: tuple[int, ...]) -> None:
        """Change the in-sync set, and with it the eligible leader replicas."""
        partition.elr = self._eligible(topic, partition, isr)
        partition.isr = isr

    def _eligible(
        self, topic: str, partition: PartitionRegistration, isr: tuple[int, ...]
    ) -> tuple[int, ...]:
        if not partition.elr and set(partition.isr) <= set(isr):
            return ()
        needed = min(self._min_insync(topic), len(partition.replicas))
        return eligible_beside(partition, isr, self._state, needed)

    def _min_insync(self, topic: str) -> int:
        """The min.insync.replicas of the topic, or the least that a broker may have for it."""
        own = self._state.topics[topic].config.get(MIN_INSYNC)
        if own is not None:
            return _parsed_min_insync(own)
        least, configs = self._outstanding.settings.min_insync_replicas, self._state.entity_configs
        for name in (DEFAULT_ENTITY, *map(str, self._state.brokers)):
            text = configs.get(("brokers", name), {}).get(MIN_INSYNC)
            least = least if text is None else min(least, _parsed_min_insync(text))
        return least

    def first_leader(self, partition: PartitionRegistration) -> Election:
        """Elect the first leader of a partition without records: every live replica is in sync."""
        live = [broker for broker in partition.replicas if broker in self._state.brokers]
        partition.leader = live[0] if live else NO_LEADER
        partition.isr = tuple(live) or partition.replicas
        partition.leader_epoch = 0
        partition.controller_epoch = self._outstanding.epoch
        return Election(partition.leader, partition.isr)

    def _unclean_allowed(self, topic: str) -> bool:
        own = self._state.topics[topic].config.get(UNCLEAN)
        if own is None:
            return self._outstanding.settings.unclean_leader_election
        try:
            return bool(TopicSettings.key(UNCLEAN).parse(own))
        except ConfigError:
            return False


def _parsed_min_insync(text: str) -> int:
    try:
        value = TopicSettings.key(MIN_INSYNC).parse(text)
    except ConfigError:
        return 1
    return value if isinstance(value, int) else 1


def _listed(partitions: Sequence[TopicPartition]) -> str:
    more = f" and {len(partitions) - SHOWN} more" * (len(partitions) > SHOWN)
    return ", ".join(map(str, partitions[:SHOWN])) + more


def state_ops(at: TopicPartition, partition: PartitionRegistration) -> list[Op]:
    """The operations that write a partition's state over version `partition.version`."""
    path, data = StateNode.path(at.topic, at.partition), partition.state_node().encode()
    if partition.version != NOT_STORED:
        return [Set(path, data, partition.version)]
    return [Create(f"{partitions_path(at.topic)}/{at.partition}"), Create(path, data)]

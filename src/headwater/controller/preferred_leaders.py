"""Elections on request, and the return of leadership to preferred replicas. Pure.

The preferred leader of a partition is the first replica of its assignment. A broker that returns leads
nothing at first; it gets its partitions back in the next periodic rebalance, or on request.
"""

from collections.abc import Iterator, Sequence

from headwater.controller.commands import ElectLeaders, PartitionOutcome, PartitionsAnswer
from headwater.controller.election import Election, elect
from headwater.controller.leader_elections import (
    PARTITIONS_PER_SCAN,
    PARTITIONS_PER_STEP,
    LeaderElections,
    StateBatch,
)
from headwater.controller.outstanding import Outstanding
from headwater.controller.state import PartitionRegistration
from headwater.errors import E, KafkaError
from headwater.model import NO_LEADER, TopicPartition
from headwater.observe.logs import printable


class PreferredLeaders:
    def __init__(self, outstanding: Outstanding, elections: LeaderElections) -> None:
        self._outstanding = outstanding
        self._elections = elections
        self._state = outstanding.state

    def elect(self, command: ElectLeaders, token: int) -> Iterator[None]:
        """Handle ElectLeaders; for all partitions, the answer omits those that need no election."""
        everything = command.partitions is None
        wanted = list(self._state.partitions()) if everything else list(command.partitions or ())
        outcomes: list[PartitionOutcome] = []
        batch = StateBatch()
        # Entries of a list may be refused, which costs more than skipping a partition.
        per_step = PARTITIONS_PER_SCAN if everything else PARTITIONS_PER_STEP
        for seen, at in enumerate(dict.fromkeys(wanted), 1):
            try:
                self._elect(at, batch, unclean=command.unclean)
                outcomes.append(PartitionOutcome(at))
            except KafkaError as refusal:
                if not everything or refusal.code is not E.ELECTION_NOT_NEEDED:
                    outcomes.append(PartitionOutcome(at, refusal.code, refusal.message))
            if batch.full or seen % per_step == 0:
                batch = self._write(batch, token)
                yield
        self._write(batch, token)
        self._outstanding.decided(token, PartitionsAnswer(outcomes=outcomes))

    def _elect(self, at: TopicPartition, batch: StateBatch, *, unclean: bool) -> None:
        partition = self._state.partition(at)
        if partition is None:
            why = f"there is no partition {printable(str(at))}"
            raise KafkaError(E.UNKNOWN_TOPIC_OR_PARTITION, why)
        elected = self._unclean(partition) if unclean else self._preferred(partition)
        self._elections.install(at, partition, elected)
        batch.add(at, partition)

    def _preferred(self, partition: PartitionRegistration) -> Election:
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise KafkaError(E.ELECTION_NOT_NEEDED, "the preferred replica leads already")
        if not self._may_lead(partition):
            state = "is not in sync" if preferred in self._state.brokers else "is not live"
            raise KafkaError(
                E.PREFERRED_LEADER_NOT_AVAILABLE,
                f"the preferred leader, broker {preferred}, {state}",
            )
        return Election(preferred, partition.isr)

    def _may_lead(self, partition: PartitionRegistration) -> bool:
        preferred = partition.replicas[0]
        return (
            preferred in partition.isr
            and preferred in self._state.brokers
            and preferred not in self._state.shutting_down
        )

    def _unclean(self, partition: PartitionRegistration) -> Election:
        if partition.leader in self._state.brokers:
            raise KafkaError(E.ELECTION_NOT_NEEDED, "the partition has a leader")
        elected = elect(partition, self._state, unclean=True)
        if elected.leader == NO_LEADER:
            raise KafkaError(E.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of its replicas is live")
        return elected

    def _write(self, batch: StateBatch, token: int | None = None) -> StateBatch:
        if batch.changed:
            self._outstanding.write_partitions(batch.ops, batch.changed, token)
        return StateBatch()

    # -- from time to time

    def rebalance(self) -> Iterator[None]:
        """Return leadership to the brokers that lead too few of the partitions that prefer them."""
        everything = list(self._state.partitions())
        preferring: dict[int, int] = {}
        led_elsewhere: dict[int, list[TopicPartition]] = {}
        for seen, at in enumerate(everything, 1):
            partition = self._state.partition(at)
            if partition is not None:
                preferred = partition.replicas[0]
                preferring[preferred] = preferring.get(preferred, 0) + 1
                if partition.leader != preferred:
                    led_elsewhere.setdefault(preferred, []).append(at)
            if seen % PARTITIONS_PER_SCAN == 0:
                yield
        limit = self._outstanding.settings.leader_imbalance_percentage
        for broker, partitions in led_elsewhere.items():
            if len(partitions) * 100 > limit * preferring[broker]:
                yield from self._return_to(broker, partitions)

    def _return_to(self, broker: int, partitions: Sequence[TopicPartition]) -> Iterator[None]:
        batch, moved = StateBatch(), 0
        for seen, at in enumerate(partitions, 1):
            partition = self._state.partition(at)
            if (
                partition is not None
                and partition.leader != partition.replicas[0] == broker
                and not partition.moving
                and self._may_lead(partition)
            ):
                self._elections.install(at, partition, Election(broker, partition.isr))
                batch.add(at, partition)
                moved += 1
            if batch.full or seen % PARTITIONS_PER_SCAN == 0:
                batch = self._write(batch)
                yield
        self._write(batch)
        if moved:
            self._outstanding.report(
                f"broker {broker} leads {moved} partitions that prefer it again"
            )

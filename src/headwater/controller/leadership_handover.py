"""A broker that is about to stop hands over what it leads (ControlledShutdown). Pure."""

from collections.abc import Iterator

from headwater.controller.commands import ControlledShutdown, HandoverAnswer
from headwater.controller.election import Election, elect
from headwater.controller.leader_elections import (
    PARTITIONS_PER_SCAN,
    LeaderElections,
    StateBatch,
)
from headwater.controller.outstanding import Outstanding
from headwater.controller.state import PartitionRegistration
from headwater.errors import E
from headwater.model import TopicPartition


class LeadershipHandover:
    def __init__(self, outstanding: Outstanding, elections: LeaderElections) -> None:
        self._outstanding = outstanding
        self._elections = elections
        self._state = outstanding.state

    def hand_over(self, command: ControlledShutdown, token: int) -> Iterator[None]:
        """Move leadership away and take the broker out of every in-sync set.

        Answered once the new leaders have taken over. A partition without another live in-sync replica
        stays with the broker, and the answer names it, unless it has a single replica.
        """
        broker = self._state.brokers.get(command.broker_id)
        if broker is None or broker.epoch != command.broker_epoch:
            self._outstanding.decided(token, HandoverAnswer(E.STALE_BROKER_EPOCH))
            return
        leaving = command.broker_id
        self._state.shutting_down.add(leaving)
        remaining: list[TopicPartition] = []
        led = taken = 0
        batch = StateBatch()
        for seen, at in enumerate(list(self._state.partitions()), 1):
            partition = self._state.partition(at)
            leads = partition is not None and partition.leader == leaving
            led += leads
            if partition is not None and leaving in partition.isr and len(partition.replicas) > 1:
                elected = self._without(leaving, partition)
                if elected is not None:
                    taken += leads
                    self._elections.install(at, partition, elected)
                    batch.add(at, partition)
                elif leads:
                    remaining.append(at)
            if batch.full or seen % PARTITIONS_PER_SCAN == 0:
                self._write(batch, token)
                batch = StateBatch()
                yield
        self._write(batch, token)
        self._outstanding.report(
            f"broker {leaving} stops: others take over {taken} of the {led} partitions that it leads"
        )
        self._outstanding.decided(token, HandoverAnswer(remaining=remaining))

    def _without(self, leaving: int, partition: PartitionRegistration) -> Election | None:
        """The leader and the in-sync set without the broker; None if no other broker can lead."""
        if partition.leader != leaving:
            isr = tuple(broker for broker in partition.isr if broker != leaving)
            return Election(partition.leader, isr) if partition.leader in isr else None
        elected = elect(partition, self._state)
        if elected.leader == leaving or elected.leader not in self._state.brokers:
            return None
        isr = tuple(broker for broker in elected.isr if broker != leaving)
        return Election(elected.leader, isr)

    def _write(self, batch: StateBatch, token: int) -> None:
        if batch.changed:
            self._outstanding.write_partitions(batch.ops, batch.changed, token)

"""Stores the in-sync sets that leaders propose (AlterPartition, KIP-497). Pure.

A proposal names the state that it is based on: broker epoch, leader epoch and partition epoch. The set
is stored only over exactly that state. Each member must be alive in the broker epoch that the leader
has seen (KIP-903): a broker that restarted since then may have lost records. A broker joins a set only
once its epoch is stored: the next controller would take it for a broker that has lost records.

A follower whose disk is full or has failed proposes an empty set: the stored one without itself. On a
full disk a replica still has every committed record, so it leaves like any other and may stay eligible
(KIP-966). What a failed disk has is not known: such a replica is not eligible. A leader with a failed disk
that is alone in sync proposes an empty set, too: an eligible replica leads then.
"""

from collections.abc import Iterator
from dataclasses import replace

from headwater.controller.commands import AlterPartition, IsrAnswer, IsrOutcome, IsrProposal
from headwater.controller.election import elect, surviving_elr
from headwater.controller.leader_elections import (
    PARTITIONS_PER_STEP,
    LeaderElections,
    StateBatch,
)
from headwater.controller.outstanding import Outstanding
from headwater.controller.state import PartitionRegistration
from headwater.errors import E
from headwater.model import NO_LEADER, ZERO_UUID, TopicPartition

ANY_EPOCH = -1
"""An epoch that the leader does not know."""


class IsrChanges:
    def __init__(self, outstanding: Outstanding, elections: LeaderElections) -> None:
        self._outstanding = outstanding
        self._elections = elections
        self._state = outstanding.state

    def alter(self, command: AlterPartition, token: int) -> Iterator[None]:
        """Decide about each proposal; answer once the accepted ones are durable."""
        outcomes: list[IsrOutcome] = []
        step = _Step()
        for number, proposal in enumerate(command.proposals, 1):
            if not self._is_live(command.broker_id, command.broker_epoch):
                break
            outcomes.append(self._decide(command.broker_id, proposal, step))
            if number % PARTITIONS_PER_STEP == 0:
                self._write(step, token)
                step = _Step()
                yield
        else:
            self._write(step, token)
            self._outstanding.decided(token, IsrAnswer(outcomes=outcomes))
            return
        self._write(step, token)
        self._outstanding.decided(token, IsrAnswer(E.STALE_BROKER_EPOCH))

    def _write(self, step: "_Step", token: int) -> None:
        if step.changed or step.repeated:
            self._outstanding.write_in_sync_sets(step.ops, step.changed, token)
        if step.given_up.changed:
            self._outstanding.write_partitions(step.given_up.ops, step.given_up.changed, token)

    def _is_live(self, broker_id: int, epoch: int) -> bool:
        live = self._state.brokers.get(broker_id)
        return live is not None and live.epoch == epoch

    def _decide(self, leader: int, proposal: IsrProposal, step: "_Step") -> IsrOutcome:
        by_name = proposal.topic_id == ZERO_UUID
        name = proposal.topic if by_name else self._state.by_id.get(proposal.topic_id)
        topic = self._state.topics.get(name) if name is not None else None
        if topic is None or topic.deleting:
            return IsrOutcome(E.UNKNOWN_TOPIC_OR_PARTITION if by_name else E.UNKNOWN_TOPIC_ID)
        partition = topic.partitions.get(proposal.partition)
        if partition is None:
            return IsrOutcome(E.UNKNOWN_TOPIC_OR_PARTITION)
        if not proposal.isr and leader != partition.leader:
            return self._leave(leader, proposal, topic.name, partition, step)
        error = _fenced(leader, proposal, partition)
        if error is E.NONE and _is_stored(proposal, partition):
            step.repeated = True
            return _outcome(partition)
        error = error or self._refusal(leader, proposal, partition)
        if error is not E.NONE:
            return IsrOutcome(error)
        at = TopicPartition(topic.name, proposal.partition)
        isr = tuple(broker for broker, _ in proposal.isr)
        if leader in isr:
            self._elections.adopt_isr(topic.name, partition, isr)
            partition.recovering = proposal.recovering
            partition.controller_epoch = self._outstanding.epoch
            step.add(at, partition)
        else:
            elected = elect(replace(partition, isr=isr), self._state)
            if not proposal.keeps_records:
                partition.isr = isr  # the leader is not eligible, either
            self._elections.install(at, partition, elected)
            led_by = "no live replica has every record, so nobody leads it"
            if partition.leader != NO_LEADER:
                led_by = f"broker {partition.leader} leads it now"
            self._outstanding.report(f"broker {leader} cannot write {at}: {led_by}")
            step.given_up.add(at, partition)
        return _outcome(partition)

    def _leave(
        self,
        follower: int,
        proposal: IsrProposal,
        topic: str,
        partition: PartitionRegistration,
        step: "_Step",
    ) -> IsrOutcome:
        """Remove a follower that cannot write; with a failed disk it is not eligible, either."""
        error = _overtaken(proposal, partition)
        if error is not E.NONE:
            return IsrOutcome(error)
        isr = tuple(broker for broker in partition.isr if broker != follower)
        left = isr != partition.isr
        forgotten = not proposal.keeps_records and follower in partition.elr
        if not isr or not (left or forgotten):
            step.repeated = True
            return _outcome(partition)
        at = TopicPartition(topic, proposal.partition)
        if left:
            self._outstanding.report(
                f"broker {follower} cannot write {at}: it leaves the in-sync set"
            )
        if proposal.keeps_records:
            self._elections.adopt_isr(topic, partition, isr)
        else:
            partition.isr = isr
            partition.elr = tuple(broker for broker in partition.elr if broker != follower)
        partition.controller_epoch = self._outstanding.epoch
        step.add(at, partition)
        return _outcome(partition)

    def _can_do_without(
        self, leader: int, proposal: IsrProposal, partition: PartitionRegistration, isr: set[int]
    ) -> bool:
        """Return whether another replica that has every committed record is left to lead."""
        if isr:
            return isr <= set(partition.isr)
        eligible = set(surviving_elr(partition, self._state)) - {leader}
        return bool(eligible) and not proposal.keeps_records

    def _refusal(self, leader: int, proposal: IsrProposal, partition: PartitionRegistration) -> E:
        if proposal.partition_epoch < partition.version:
            return E.INVALID_UPDATE_VERSION
        isr = {broker for broker, _ in proposal.isr}
        if len(isr) < len(proposal.isr) or not isr <= set(partition.replicas):
            return E.INVALID_REQUEST
        if leader not in isr and not self._can_do_without(leader, proposal, partition, isr):
            return E.INVALID_REQUEST
        if proposal.recovering and (len(isr) > 1 or not partition.recovering):
            return E.INVALID_REQUEST  # after an unclean election the leader recovers once, alone
        if partition.caught_up and (isr - set(partition.isr)) & set(partition.removing):
            return E.INELIGIBLE_REPLICA  # it is being deleted
        for broker, epoch in proposal.isr:
            live = self._state.brokers.get(broker)
            if live is None or epoch not in (ANY_EPOCH, live.epoch):
                return E.INELIGIBLE_REPLICA
            if broker not in partition.isr and (
                broker in self._state.shutting_down
                or self._state.stored_epochs.get(broker) != live.epoch
            ):
                return E.INELIGIBLE_REPLICA
        return E.NONE


class _Step(StateBatch):
    """The states that one multi writes.

    `repeated` is set if a leader proposes again what is already decided. The first write may still be
    in flight, so the answer waits for one more write, which may be empty. `given_up` has the partitions
    that other replicas lead from now on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.repeated = False
        self.given_up = StateBatch()


def _fenced(leader: int, proposal: IsrProposal, partition: PartitionRegistration) -> E:
    error = _overtaken(proposal, partition)
    if error is E.NONE and leader != partition.leader:
        return E.INVALID_REQUEST
    return error


def _overtaken(proposal: IsrProposal, partition: PartitionRegistration) -> E:
    if proposal.leader_epoch > partition.leader_epoch or (
        proposal.partition_epoch > partition.version
    ):
        return E.NOT_CONTROLLER  # only a newer controller can have sent that state
    if proposal.leader_epoch < partition.leader_epoch:
        return E.FENCED_LEADER_EPOCH
    return E.NONE


def _is_stored(proposal: IsrProposal, partition: PartitionRegistration) -> bool:
    isr = sorted(broker for broker, _ in proposal.isr)
    return isr == sorted(partition.isr) and proposal.recovering == partition.recovering


def _outcome(partition: PartitionRegistration) -> IsrOutcome:
    return IsrOutcome(
        E.NONE,
        partition.leader,
        partition.leader_epoch,
        partition.version,
        partition.isr,
        partition.recovering,
        partition.elr,
    )

"""A broker that is about to stop hands over what it leads (ControlledShutdown). Pure.

A session outlives a broker that lost power. If such a broker took over, the stopping broker would
leave the in-sync set although nobody else has every record. So the others have to answer first. Those
that do not within ALIVE_MS take over nothing: the rest waits until they answer or their session ends.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from headwater.controller.commands import ControlledShutdown, HandoverAnswer
from headwater.controller.continuations import NoteAlive
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

ALIVE_MS = 2_000


@dataclass(slots=True)
class _Handover:
    """A command that waits for answers."""

    command: ControlledShutdown
    silent: set[int]
    """Brokers that have not answered yet."""
    begin_without_them_ms: int | None


class LeadershipHandover:
    def __init__(self, outstanding: Outstanding, elections: LeaderElections) -> None:
        self._outstanding = outstanding
        self._elections = elections
        self._state = outstanding.state
        self._waiting: dict[int, _Handover] = {}

    def begin(
        self, command: ControlledShutdown, token: int, now_ms: int
    ) -> Iterator[Iterator[None]]:
        """Ask the other brokers whether they are alive; yield the job if there are none."""
        if self._is_stale(command):
            self._outstanding.decided(token, HandoverAnswer(E.STALE_BROKER_EPOCH))
            return
        self._state.shutting_down.add(command.broker_id)
        others = set(self._state.brokers) - self._state.shutting_down
        if others:
            self._waiting[token] = _Handover(command, others, now_ms + ALIVE_MS)
            self._outstanding.ask_if_alive(sorted(others), token)
        else:
            yield self._hand_over(command, token)

    def answered(self, note: NoteAlive) -> Iterator[Iterator[None]]:
        """Note an answer, or that a broker is gone; yield the job after the last one."""
        handover = self._waiting.get(note.token)
        if handover is None:
            return
        handover.silent.discard(note.broker_id)
        if not handover.silent:
            del self._waiting[note.token]
            yield self._hand_over(handover.command, note.token)

    def next_deadline(self) -> int | None:
        """When to call `time_passed`, or None."""
        due = (handover.begin_without_them_ms for handover in self._waiting.values())
        return min((ms for ms in due if ms is not None), default=None)

    def time_passed(self, now_ms: int) -> Iterator[Iterator[None]]:
        """Yield the jobs that begin without the brokers that are silent."""
        for token, handover in self._waiting.items():
            due_ms = handover.begin_without_them_ms
            if due_ms is not None and due_ms <= now_ms:
                handover.begin_without_them_ms = None
                silent = ", ".join(map(str, sorted(handover.silent)))
                self._outstanding.report(
                    f"broker {handover.command.broker_id} stops and hands over what it leads; "
                    f"no answer from broker {silent}, which takes over nothing",
                    loud=True,
                )
                yield self._hand_over(handover.command, token, frozenset(handover.silent))

    def _is_stale(self, command: ControlledShutdown) -> bool:
        broker = self._state.brokers.get(command.broker_id)
        return broker is None or broker.epoch != command.broker_epoch

    def _hand_over(
        self, command: ControlledShutdown, token: int, silent: Collection[int] = ()
    ) -> Iterator[None]:
        """Move leadership away and take the broker out of every in-sync set.

        Answered once the new leaders have taken over. A partition without another live in-sync replica
        stays with the broker, and the answer names it, unless it has a single replica. While a broker
        that could lead it is silent, there is no answer.
        """
        if self._is_stale(command):
            self._outstanding.decided(token, HandoverAnswer(E.STALE_BROKER_EPOCH))
            return
        leaving = command.broker_id
        remaining: list[TopicPartition] = []
        led = taken = 0
        batch = StateBatch()
        for seen, at in enumerate(list(self._state.partitions()), 1):
            partition = self._state.partition(at)
            leads = partition is not None and partition.leader == leaving
            led += leads
            if partition is not None and leaving in partition.isr and len(partition.replicas) > 1:
                elected = self._without(leaving, partition, silent)
                if elected is not None:
                    taken += leads
                    self._elections.install(at, partition, elected)
                    batch.add(at, partition)
                elif leads:
                    remaining.append(at)
            if batch.full or seen % PARTITIONS_PER_SCAN == 0:
                self._write(batch, token, silent)
                batch = StateBatch()
                yield
        self._write(batch, token, silent)
        self._outstanding.report(
            f"broker {leaving} stops: others take over {taken} of the {led} partitions that it leads"
        )
        if silent:
            if remaining or token not in self._waiting:
                return
            del self._waiting[token]
        self._outstanding.decided(token, HandoverAnswer(remaining=remaining))

    def _without(
        self, leaving: int, partition: PartitionRegistration, silent: Collection[int]
    ) -> Election | None:
        """The leader and the in-sync set without the broker; None if no other broker can lead."""
        if partition.leader != leaving:
            isr = tuple(broker for broker in partition.isr if broker != leaving)
            leads_on = partition.leader in isr and partition.leader not in silent
            return Election(partition.leader, isr) if leads_on else None
        elected = elect(partition, self._state, passed_over=silent)
        if elected.leader in {leaving, *silent} or elected.leader not in self._state.brokers:
            return None
        isr = tuple(broker for broker in elected.isr if broker != leaving)
        return Election(elected.leader, isr)

    def _write(self, batch: StateBatch, token: int, silent: Collection[int]) -> None:
        if batch.changed:
            self._outstanding.write_partitions(batch.ops, batch.changed, token, silent=silent)

"""Moves replicas to other brokers (AlterPartitionReassignments, KIP-455). Pure.

A move has three steps. First the new replicas are added. Once all of them are in sync, the old ones
lose leadership and leave the in-sync set. Once they have deleted their logs, the assignment is final.
The store shows which step a move is in, so the next controller can continue it.
"""

from collections.abc import Callable, Iterator, Sequence

from headwater.controller.commands import (
    AlterReassignments,
    ListReassignments,
    OngoingReassignment,
    PartitionOutcome,
    PartitionsAnswer,
    Reassignment,
)
from headwater.controller.continuations import FinishReassignments, NoteReplicasRemoved, Release
from headwater.controller.control_requests import remove_replicas
from headwater.controller.election import Election, elect
from headwater.controller.leader_elections import (
    PARTITIONS_PER_SCAN,
    PARTITIONS_PER_STEP,
    SHOWN,
    LeaderElections,
    StateBatch,
)
from headwater.controller.outstanding import Outstanding
from headwater.controller.state import PartitionRegistration, TopicState
from headwater.controller.store.metadata_store import Op, Set
from headwater.controller.store.znodes import TopicNode
from headwater.errors import E, KafkaError
from headwater.model import NO_LEADER, TopicPartition
from headwater.observe.logs import printable

MOVES_PER_WRITE = 200
"""How many moves of a topic one write begins or ends. Each write has the whole assignment of the topic,
so fewer moves in a write would make a large topic's moves slow."""


class Reassignments:
    def __init__(
        self,
        outstanding: Outstanding,
        elections: LeaderElections,
        later: Callable[[Iterator[None]], None],
    ) -> None:
        self._outstanding = outstanding
        self._elections = elections
        self._state = outstanding.state
        self._later = later
        # Moves whose new replicas may all be in sync; one job checks them.
        self._to_check: dict[TopicPartition, None] = {}
        # By partition: the brokers that have yet to delete their replica.
        self._stopping: dict[TopicPartition, set[int]] = {}
        # Moves whose last step one job will write.
        self._stopped: dict[TopicPartition, None] = {}

    # -- starting and canceling

    def alter(self, command: AlterReassignments, token: int) -> Iterator[None]:
        """Start or cancel moves; one impossible move refuses the whole request."""
        outcomes: dict[TopicPartition, PartitionOutcome] = {}
        refused = False
        for number, wanted in enumerate(command.partitions, 1):
            at = wanted.at
            try:
                if at in outcomes:
                    raise KafkaError(E.INVALID_REQUEST, f"{at} appears twice in the request")
                self._check(wanted, command.allow_factor_change)
                outcomes[at] = PartitionOutcome(at)
            except KafkaError as refusal:
                outcomes[at] = PartitionOutcome(at, refusal.code, refusal.message)
                refused = True
            if number % PARTITIONS_PER_STEP == 0:
                yield
        if not refused:
            yield from self._begin_all(command.partitions, token)
        done = [
            _not_attempted(one) if refused and not one.error else one for one in outcomes.values()
        ]
        self._outstanding.decided(token, PartitionsAnswer(outcomes=done))

    def _check(self, wanted: Reassignment, allow_factor_change: bool) -> None:
        partition = self._state.partition(wanted.at)
        if partition is None:
            why = f"there is no partition {printable(str(wanted.at))}"
            raise KafkaError(E.UNKNOWN_TOPIC_OR_PARTITION, why)
        if wanted.replicas is None and not partition.moving:
            raise KafkaError(E.NO_REASSIGNMENT_IN_PROGRESS, f"{wanted.at} is not being reassigned")
        target = partition.origin if wanted.replicas is None else wanted.replicas
        if not target:
            raise _bad(f"{wanted.at} has no replicas in the request")
        if not {*target, *partition.origin} & set(partition.isr):
            raise _bad(
                f"{wanted.at} is in sync only on {list(partition.isr)}, where it has nearly moved; "
                "wait until that has ended"
            )
        if len(set(target)) < len(target):
            raise _bad(f"{wanted.at} names a broker twice: {list(target)}")
        unknown = sorted(set(target) - set(self._state.brokers) - set(partition.origin))
        if unknown:
            raise _bad(f"{wanted.at} names brokers that are not live: {unknown}")
        if not allow_factor_change and len(target) != len(partition.origin):
            raise KafkaError(
                E.INVALID_REPLICATION_FACTOR,
                f"{wanted.at} has {len(partition.origin)} replicas, the request names {len(target)}",
            )

    def _begin_all(self, wanted: Sequence[Reassignment], token: int) -> Iterator[None]:
        by_topic: dict[str, list[Reassignment]] = {}
        for one in wanted:
            by_topic.setdefault(one.at.topic, []).append(one)
        for name, ones in by_topic.items():
            for start in range(0, len(ones), MOVES_PER_WRITE):
                topic = self._state.topics.get(name)
                if topic is None or topic.deleting:
                    break
                self._begin(topic, ones[start : start + MOVES_PER_WRITE], token)
                yield

    def _begin(self, topic: TopicState, wanted: Sequence[Reassignment], token: int) -> None:
        batch = StateBatch()
        dropped: list[tuple[TopicPartition, int]] = []
        for one in wanted:
            partition = topic.partitions[one.at.partition]
            # A broker that is deleting its replica may now have to keep it, or create it again: its
            # answer to the deletion no longer matters.
            self._stopping.pop(one.at, None)
            before = partition.replicas
            target = partition.origin if one.replicas is None else tuple(one.replicas)
            self._state.reassign(partition, target)
            dropped += [(one.at, broker) for broker in before if broker not in partition.replicas]
            self._elections.install(one.at, partition, self._within(partition))
            batch.add(one.at, partition)
            self._to_check[one.at] = None
            self._outstanding.report(
                f"{one.at} moves from {list(before)} to {list(target)}"
                if one.replicas is not None
                else f"the move of {one.at} is cancelled: it stays on {list(target)}"
            )
        ops: list[Op] = [_assignment(topic), *batch.ops]
        self._outstanding.write_partitions(ops, batch.changed, token)
        self._outstanding.once_written(FinishReassignments(tuple(dropped)))

    def _within(self, partition: PartitionRegistration) -> Election:
        """The leader and the in-sync set, restricted to the assigned replicas."""
        isr = tuple(broker for broker in partition.isr if broker in partition.replicas)
        if partition.leader in partition.replicas:
            return Election(partition.leader, isr)
        partition.isr = isr
        return elect(partition, self._state)

    # -- continuing

    def resume(self) -> Iterator[None]:
        """Check every move: the previous controller may have left it in any step."""
        for seen, at in enumerate(list(self._state.partitions()), 1):
            partition = self._state.partition(at)
            if partition is not None and partition.moving:
                self._to_check[at] = None
            if seen % PARTITIONS_PER_SCAN == 0:
                yield
        yield from self._continue()

    def written(self, then: FinishReassignments) -> None:
        """Delete the dropped replicas, then check the moves that were written."""
        by_broker: dict[int, list[TopicPartition]] = {}
        for at, broker_id in then.dropped:
            by_broker.setdefault(broker_id, []).append(at)
        for broker_id, partitions in by_broker.items():
            self._stop(broker_id, partitions, Release(None))
        if self._to_check:
            self._later(self._continue())

    def isr_changed(self, partitions: Sequence[TopicPartition]) -> None:
        """Check the moves among partitions whose in-sync set has changed."""
        for at in partitions:
            partition = self._state.partition(at)
            if partition is not None and partition.moving:
                self._to_check[at] = None
        if self._to_check:
            self._later(self._continue())

    def _continue(self) -> Iterator[None]:
        """Release the old replicas of each move whose new ones are all in sync."""
        checked, self._to_check = list(self._to_check), {}
        batch = StateBatch()
        ready: list[TopicPartition] = []
        for number, at in enumerate(checked, 1):
            partition = self._state.partition(at)
            if partition is not None and self._may_let_go(partition):
                ready.append(at)
                if set(partition.isr) - set(partition.target):
                    self._elections.install(at, partition, self._leaving_old(partition))
                    batch.add(at, partition)
            if len(ready) == PARTITIONS_PER_STEP or number % PARTITIONS_PER_SCAN == 0:
                batch = self._write(batch, ready)
                ready = []
                yield
        self._write(batch, ready)

    def _may_let_go(self, partition: PartitionRegistration) -> bool:
        """Whether all new replicas are in sync, with a live leader."""
        return partition.moving and partition.caught_up and partition.leader in self._state.brokers

    def _leaving_old(self, partition: PartitionRegistration) -> Election:
        isr = tuple(broker for broker in partition.isr if broker in partition.target)
        if partition.leader in isr:
            return Election(partition.leader, isr)
        live = [broker for broker in partition.target if broker in self._state.brokers]
        staying = [broker for broker in live if broker not in self._state.shutting_down]
        return Election(next(iter(staying or live), NO_LEADER), isr)

    def _write(self, batch: StateBatch, ready: Sequence[TopicPartition]) -> StateBatch:
        if batch.changed:
            self._outstanding.write_partitions(batch.ops, batch.changed)
        if ready:
            self._outstanding.once_written(FinishReassignments(ready=tuple(ready)))
        return StateBatch()

    def let_go(self, ready: Sequence[TopicPartition]) -> None:
        """Delete the old replicas: leaders and in-sync sets without them are durable."""
        by_broker: dict[int, list[TopicPartition]] = {}
        for at in ready:
            partition = self._state.partition(at)
            if partition is None or not self._may_let_go(partition) or at in self._stopping:
                continue
            live = [one for one in partition.removing if one in self._state.brokers]
            self._stopping[at] = set(live)
            for broker_id in live:
                by_broker.setdefault(broker_id, []).append(at)
            if not live:
                self._removed(at)
        for broker_id, partitions in by_broker.items():
            then = NoteReplicasRemoved(tuple(partitions), broker_id)
            self._stop(broker_id, partitions, then)

    def _stop(
        self, broker_id: int, partitions: list[TopicPartition], then: Release | NoteReplicasRemoved
    ) -> None:
        """Let a broker delete replicas, all with one request."""
        broker = self._state.brokers.get(broker_id)
        known = [at for at in partitions if self._state.partition(at) is not None]
        if broker is not None and known:
            request = remove_replicas(self._outstanding.identity, broker, self._state, known)
            self._outstanding.send(broker_id, request, then)

    def replicas_removed(self, note: NoteReplicasRemoved, error: E) -> None:
        """Finish the moves for which every live broker has answered.

        A broker that is down, or failed to delete a replica, finds a stray log at its next start.
        """
        if error is not E.NONE:
            shown = ", ".join(map(str, note.partitions[:SHOWN]))
            more = f" and {len(note.partitions) - SHOWN} more" * (len(note.partitions) > SHOWN)
            self._outstanding.report(
                f"broker {note.broker_id} has not deleted all its replicas of {shown}{more} "
                f"({error.name}); it sets them aside at its next start",
                loud=True,
            )
        for at in note.partitions:
            waiting = self._stopping.get(at)
            if waiting is not None:
                waiting.discard(note.broker_id)
                if not waiting:
                    self._removed(at)

    def _removed(self, at: TopicPartition) -> None:
        if not self._stopped:
            self._later(self._finish())
        self._stopped[at] = None

    def _finish(self) -> Iterator[None]:
        """Write the final assignments, one write per topic."""
        yield
        finished, self._stopped = list(self._stopped), {}
        by_topic: dict[str, list[TopicPartition]] = {}
        for at in finished:
            stopped = self._stopping.pop(at, None) == set()
            partition = self._state.partition(at)
            if stopped and partition is not None and self._may_let_go(partition):
                by_topic.setdefault(at.topic, []).append(at)
        for name, partitions in by_topic.items():
            for start in range(0, len(partitions), MOVES_PER_WRITE):
                topic = self._state.topics.get(name)
                if topic is None or topic.deleting:
                    break
                self._settle(topic, partitions[start : start + MOVES_PER_WRITE])
                yield

    def _settle(self, topic: TopicState, partitions: Sequence[TopicPartition]) -> None:
        batch = StateBatch()
        for at in partitions:
            partition = topic.partitions[at.partition]
            self._state.settle(partition)
            self._elections.install(at, partition, self._within(partition))
            batch.add(at, partition)
            self._outstanding.report(f"{at} has moved to {list(partition.replicas)}")
        self._outstanding.write_partitions([_assignment(topic), *batch.ops], batch.changed)

    # -- listing

    def list(self, command: ListReassignments, token: int) -> Iterator[None]:
        """List the moves in progress among the requested partitions."""
        ongoing: list[OngoingReassignment] = []
        wanted = (
            list(self._state.partitions()) if command.partitions is None else command.partitions
        )
        for seen, at in enumerate(wanted, 1):
            partition = self._state.partition(at)
            if partition is not None and partition.moving:
                ongoing.append(
                    OngoingReassignment(
                        at, partition.replicas, partition.adding, partition.removing
                    )
                )
            if seen % PARTITIONS_PER_SCAN == 0:
                yield
        self._outstanding.decided(token, PartitionsAnswer(outcomes=ongoing))


def _assignment(topic: TopicState) -> Op:
    """Write the topic's node over its known version, and count the new one."""
    node = TopicNode(
        topic.topic_id,
        {index: one.replicas for index, one in topic.partitions.items()},
        {index: one.adding for index, one in topic.partitions.items() if one.adding},
        {index: one.removing for index, one in topic.partitions.items() if one.removing},
    )
    topic.version += 1
    return Set(TopicNode.path(topic.name), node.encode(), topic.version - 1)


def _not_attempted(outcome: PartitionOutcome) -> PartitionOutcome:
    why = "nothing is moved, because another partition of the request is refused"
    return PartitionOutcome(outcome.at, E.OPERATION_NOT_ATTEMPTED, why)


def _bad(message: str) -> KafkaError:
    return KafkaError(E.INVALID_REPLICA_ASSIGNMENT, message)

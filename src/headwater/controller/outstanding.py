"""The outstanding work of a controller: the writes, control requests and commands of its term.

Every write checks the controller's epoch. A partition's state is sent to brokers only while no write
of it is in flight. A command is answered exactly once: when everything it waits for is done, or at its
deadline. The next step after a write or a request is a value (`continuations`), so that everything
outstanding can be printed and compared.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.controller.commands import Command
from headwater.controller.continuations import (
    AfterAllWrites,
    AfterSend,
    AfterWrite,
    NoteAlive,
    Release,
    SendInSyncSets,
    SendPartitionStates,
)
from headwater.controller.control_requests import (
    ControllerIdentity,
    ControlRequest,
    leader_and_isr,
    update_metadata,
)
from headwater.controller.effects import Answer, Effect, LogEvent, Send, Write
from headwater.controller.events import Elected
from headwater.controller.state import ClusterState
from headwater.controller.store.metadata_store import Check, Op
from headwater.controller.store.znodes import CONTROLLER_EPOCH
from headwater.controller.topic_rules import ControllerSettings
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition

FAR_FUTURE = 1 << 62


@dataclass(slots=True)
class PendingCommand:
    """A command in progress; answered once its outcome is known and it waits for nothing."""

    token: int
    command: Command[Any]
    deadline_ms: int
    # How many writes and requests it waits for.
    awaited: int = 0
    outcome: Any = None
    # The config notification that this broker must apply before the answer leaves.
    applied_change: int | None = None


class SentRequest(NamedTuple):
    """A control request without an answer yet."""

    broker_id: int
    then: AfterSend


class Outstanding:
    """The cluster state of one term, and everything outstanding in it."""

    def __init__(
        self, broker_id: int, settings: ControllerSettings, elected: Elected, first_ticket: int
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.state: ClusterState = elected.state
        self.epoch = elected.controller_epoch
        self.effects: list[Effect] = []
        self.ticket = first_ticket
        self.unclean_elections = 0
        self._check = Check(CONTROLLER_EPOCH, elected.epoch_version)
        self.writes: dict[int, AfterWrite] = {}
        # Steps that wait for all writes up to a ticket.
        self._behind_writes: deque[tuple[int, AfterAllWrites]] = deque()
        self.requests: dict[int, SentRequest] = {}
        self.commands: dict[int, PendingCommand] = {}
        self._next_deadline = FAR_FUTURE
        # By partition: how many writes of its state are in flight.
        self._being_written: dict[TopicPartition, int] = {}
        # Partitions whose new leader brokers do not know yet, because of another write in flight.
        self._unheard: set[TopicPartition] = set()

    @property
    def identity(self) -> ControllerIdentity:
        return ControllerIdentity(self.broker_id, self.epoch, self.settings.inter_broker_listener)

    def report(self, event: str, *, loud: bool = False) -> None:
        """Log an event that an operator may search for; a loud one needs attention."""
        self.effects.append(LogEvent(event, loud))

    # -- writes

    def write(self, ops: Sequence[Op], then: AfterWrite) -> None:
        """Write one multi that checks the controller's epoch."""
        self.ticket += 1
        self.writes[self.ticket] = then
        self.effects.append(Write(self.ticket, [self._check, *ops]))

    def once_written(self, then: AfterAllWrites) -> None:
        """Do `then` once all writes now in flight are durable."""
        self._behind_writes.append((self.ticket, then))

    def pop_due(self) -> list[AfterAllWrites]:
        """Remove and return the steps that no longer wait for a write, in order."""
        first = next(iter(self.writes), FAR_FUTURE)
        due = []
        while self._behind_writes and self._behind_writes[0][0] < first:
            due.append(self._behind_writes.popleft()[1])
        return due

    def write_partitions(
        self,
        ops: Sequence[Op],
        partitions: Sequence[TopicPartition],
        token: int | None = None,
        *,
        new: bool = False,
        silent: Collection[int] = (),
    ) -> None:
        """Write the states of partitions, then send them; the command waits for no `silent` broker."""
        self._begin_write(partitions)
        self.hold(token)
        self.write(ops, SendPartitionStates(tuple(partitions), token, new, tuple(silent)))

    def partitions_stored(self, stored: SendPartitionStates) -> None:
        """Send what `write_partitions` has made durable."""
        durable = self._end_write(stored.partitions)
        self._unheard.difference_update(durable)
        self._unheard.update(at for at in stored.partitions if at in self._being_written)
        self.send_partition_states(durable, stored.token, new=stored.new, silent=stored.silent)
        self.release(stored.token)

    def write_in_sync_sets(
        self, ops: Sequence[Op], partitions: Sequence[TopicPartition], token: int
    ) -> None:
        """Write in-sync sets that a leader proposed, then answer it and send them to all brokers."""
        self._begin_write(partitions)
        self.hold(token)
        self.write(ops, SendInSyncSets(tuple(partitions), token))

    def in_sync_sets_stored(self, stored: SendInSyncSets) -> None:
        """Answer the leader, whose high watermark waits for this."""
        durable = self._end_write(stored.partitions)
        self.release(stored.token)
        unheard = [at for at in durable if at in self._unheard]
        self._unheard.difference_update(unheard)
        if unheard:
            self.send_partition_states(unheard)
        durable = [at for at in durable if at not in unheard]
        if durable:
            self.send_update_metadata(durable)

    def _begin_write(self, partitions: Sequence[TopicPartition]) -> None:
        for at in partitions:
            self._being_written[at] = self._being_written.get(at, 0) + 1

    def _end_write(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Count the writes as done; return the partitions that are durable now."""
        for at in partitions:
            self._being_written[at] -= 1
            if not self._being_written[at]:
                del self._being_written[at]
        return self.stored_partitions(partitions)

    def stored_partitions(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The `partitions` that exist and are durable; the others must not be sent to brokers."""
        return [
            at for at in partitions if at not in self._being_written and self.state.partition(at)
        ]

    def introducible(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The `partitions` to send to a joining broker now.

        The others are sent to it when their writes end, even if only the in-sync set was written:
        otherwise the broker would take its log for a stray.
        """
        self._unheard.update(at for at in partitions if at in self._being_written)
        return self.stored_partitions(partitions)

    def has_unheard(self, broker_id: int) -> bool:
        """Whether a partition of the broker can only be sent to it when a write in flight is done."""
        return any(at in self._being_written and self._holds(broker_id, at) for at in self._unheard)

    # -- control requests

    def send(self, broker_id: int, request: ControlRequest, then: AfterSend) -> None:
        """Send a control request; if the broker goes away, its answer is BROKER_NOT_AVAILABLE."""
        self.ticket += 1
        self.requests[self.ticket] = SentRequest(broker_id, then)
        self.effects.append(Send(self.ticket, broker_id, request))

    def pop_requests_to(self, broker_id: int) -> list[AfterSend]:
        """Remove the requests that a broker will never answer; return their next steps."""
        lost = [ticket for ticket, sent in self.requests.items() if sent.broker_id == broker_id]
        return [self.requests.pop(ticket).then for ticket in lost]

    def send_partition_states(
        self,
        partitions: Sequence[TopicPartition],
        token: int | None = None,
        *,
        new: bool = False,
        only: int | None = None,
        silent: Collection[int] = (),
    ) -> None:
        """Send LeaderAndIsr to the replicas, then UpdateMetadata to every broker (or `only` one)."""
        for broker_id in self.state.brokers if only is None else (only,):
            mine = [at for at in partitions if self._holds(broker_id, at)]
            if mine:
                broker = self.state.brokers[broker_id]
                request = leader_and_isr(self.identity, broker, self.state, mine, new=new)
                waiting = None if broker_id in silent else token
                self.hold(waiting)
                self.send(broker_id, request, Release(waiting))
        self.send_update_metadata(partitions, token, only=only)

    def send_update_metadata(
        self,
        partitions: Sequence[TopicPartition],
        token: int | None = None,
        *,
        only: int | None = None,
    ) -> None:
        """Send UpdateMetadata. A command waits for this broker only: its client asks it next."""
        known = self.state.brokers
        to = list(known.values()) if only is None else [known[only]]
        requests = update_metadata(self.identity, to, self.state, partitions)
        for broker, request in zip(to, requests, strict=True):
            waiting = token if broker.broker_id == self.broker_id else None
            self.hold(waiting)
            self.send(broker.broker_id, request, Release(waiting))

    def ask_if_alive(self, brokers: Iterable[int], token: int) -> None:
        """Send brokers an UpdateMetadata without partitions, to see whether they answer."""
        to = [self.state.brokers[broker_id] for broker_id in brokers]
        for broker, request in zip(
            to, update_metadata(self.identity, to, self.state, ()), strict=True
        ):
            self.send(broker.broker_id, request, NoteAlive(broker.broker_id, token))

    def _holds(self, broker_id: int, at: TopicPartition) -> bool:
        partition = self.state.partition(at)
        return partition is not None and broker_id in partition.replicas

    # -- commands

    def begin(self, token: int, command: Command[Any], now_ms: int) -> None:
        """Begin a command; it is answered by its deadline."""
        pending = PendingCommand(token, command, now_ms + max(0, command.timeout_ms))
        self.commands[token] = pending
        self._next_deadline = min(self._next_deadline, pending.deadline_ms)

    def hold(self, token: int | None) -> None:
        """Add one to what the command waits for; ignores None and commands already answered."""
        if token in self.commands:
            self.commands[token].awaited += 1

    def release(self, token: int | None) -> None:
        """Subtract one from what the command waits for, and answer it if nothing is left."""
        if token in self.commands:
            pending = self.commands[token]
            pending.awaited -= 1
            self._answer_if_done(pending)

    def await_config_change(self, token: int, notification: int) -> None:
        """Hold the answer until this broker has applied a config notification."""
        if token in self.commands:
            self.commands[token].applied_change = notification
        self.release(token)

    def decided(self, token: int, outcome: Any) -> None:
        """Set the command's outcome, and answer it if it waits for nothing."""
        if token in self.commands:
            pending = self.commands[token]
            pending.outcome = outcome
            self._answer_if_done(pending)

    def next_deadline(self) -> int | None:
        """The first deadline of a command; the command may be answered before."""
        return self._next_deadline if self.commands else None

    def expire(self, now_ms: int) -> None:
        """Answer the commands whose deadline has passed; the work they began continues."""
        late = KafkaError(
            E.REQUEST_TIMED_OUT, "begun, but not finished within the timeout of the request"
        )
        for pending in list(self.commands.values()):
            if pending.deadline_ms <= now_ms:
                command, outcome = pending.command, pending.outcome
                self._answer(
                    pending,
                    command.refusal(late) if outcome is None else command.overdue(outcome, late),
                )
        left = (pending.deadline_ms for pending in self.commands.values())
        self._next_deadline = min(left, default=FAR_FUTURE)

    def abandon(self, why: KafkaError) -> None:
        """Refuse every command: the term is over."""
        for pending in list(self.commands.values()):
            self._answer(pending, pending.command.refusal(why))

    def _answer_if_done(self, pending: PendingCommand) -> None:
        if pending.outcome is not None and not pending.awaited:
            self._answer(pending, pending.outcome)

    def _answer(self, pending: PendingCommand, outcome: Any) -> None:
        if self.commands.pop(pending.token, None) is not None:
            self.effects.append(Answer(pending.token, outcome, pending.applied_change))

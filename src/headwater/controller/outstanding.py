"""The controller's desk: what is written, sent and waited for, and what is to happen after it.

The mechanics under the decisions. Every write carries the check of the controller's epoch, brokers
hear of a partition only when no write of it is under way, and a client's command is answered
exactly once: when all it waits for has come, or when its time is up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.controller.commands import Command
from headwater.controller.control_requests import (
    ControllerIdentity,
    ControlRequest,
    leader_and_isr,
    update_metadata,
)
from headwater.controller.effects import Answer, Effect, LogEvent, Send, Write
from headwater.controller.events import Acknowledged, Elected, Stored
from headwater.controller.state import ClusterState
from headwater.controller.store.metadata_store import Check, Op, OpResult
from headwater.controller.store.znodes import CONTROLLER_EPOCH
from headwater.controller.topic_rules import ControllerSettings
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition

FAR_FUTURE = 1 << 62


@dataclass(slots=True)
class PendingCommand:
    """A command under way. It ends when it is sealed with its outcomes and nothing is outstanding."""

    token: int
    command: Command[Any]
    deadline_ms: int
    awaited: int = 0
    outcomes: list[Any] | None = None
    applied_change: int | None = None
    """The config notification that this broker must have applied before the answer leaves."""


@dataclass(slots=True)
class _Sent:
    broker_id: int
    then: Callable[[E], None]


class Outstanding:
    """State, tickets and operations of one term as controller."""

    def __init__(
        self, broker_id: int, settings: ControllerSettings, elected: Elected, first_ticket: int
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.state: ClusterState = elected.state
        self.epoch = elected.controller_epoch
        self.effects: list[Effect] = []
        self.ticket = first_ticket
        self._check = Check(CONTROLLER_EPOCH, elected.epoch_version)
        self._writes: dict[int, Callable[[list[OpResult]], None]] = {}
        self._sends: dict[int, _Sent] = {}
        self._commands: dict[int, PendingCommand] = {}
        self._next_deadline = FAR_FUTURE
        self._in_flight: dict[TopicPartition, int] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is being written and no broker owes an answer."""
        return not self._writes and not self._sends

    @property
    def identity(self) -> ControllerIdentity:
        """The head of messages to brokers."""
        return ControllerIdentity(self.broker_id, self.epoch, self.settings.inter_broker_listener)

    def report(self, event: str) -> None:
        """Log an event that an operator may search for."""
        self.effects.append(LogEvent(event))

    # Writes

    def write(self, ops: Sequence[Op], then: Callable[[list[OpResult]], None]) -> None:
        """One multi under the check of the controller's epoch."""
        self.ticket += 1
        self._writes[self.ticket] = then
        self.effects.append(Write(self.ticket, [self._check, *ops]))

    def write_partitions(
        self,
        ops: Sequence[Op],
        partitions: Sequence[TopicPartition],
        pending: PendingCommand | None = None,
        *,
        new: bool = False,
    ) -> None:
        """Write the states of partitions, then tell the brokers of them."""
        for at in partitions:
            self._in_flight[at] = self._in_flight.get(at, 0) + 1
        self.hold(pending)

        def stored(_: list[OpResult]) -> None:
            self._landed(partitions)
            self.send_partition_states(self.stored_partitions(partitions), pending, new=new)
            self.release(pending)

        self.write(ops, stored)

    def awaits(self, ticket: int) -> bool:
        """Whether this write was begun in this term and is still under way."""
        return ticket in self._writes

    def stored(self, event: Stored) -> None:
        """A write is durable: what waited for it goes on."""
        then = self._writes.pop(event.ticket, None)
        if then is not None:
            then(event.results[1:])

    def _landed(self, partitions: Sequence[TopicPartition]) -> None:
        for at in partitions:
            self._in_flight[at] -= 1
            if not self._in_flight[at]:
                del self._in_flight[at]

    def stored_partitions(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those that are there and whose state is durable: of the others nobody may hear yet."""
        return [at for at in partitions if at not in self._in_flight and self.state.partition(at)]

    # Messages

    def send(self, broker_id: int, message: ControlRequest, then: Callable[[E], None]) -> None:
        """Tell a broker; `then` gets its error, or BROKER_NOT_AVAILABLE if it goes away."""
        self.ticket += 1
        self._sends[self.ticket] = _Sent(broker_id, then)
        self.effects.append(Send(self.ticket, broker_id, message))

    def acknowledged(self, event: Acknowledged) -> None:
        """A broker has answered."""
        sent = self._sends.pop(event.ticket, None)
        if sent is not None:
            sent.then(event.error)

    def broker_gone(self, broker_id: int) -> None:
        """Nothing more will come from this broker."""
        lost = [ticket for ticket, sent in self._sends.items() if sent.broker_id == broker_id]
        for ticket in lost:
            self._sends.pop(ticket).then(E.BROKER_NOT_AVAILABLE)

    def send_partition_states(
        self,
        partitions: Sequence[TopicPartition],
        pending: PendingCommand | None = None,
        *,
        new: bool = False,
        only: int | None = None,
    ) -> None:
        """Tell replicas who leads, then every broker (or `only` one) what to tell clients."""
        for broker_id in self.state.brokers if only is None else (only,):
            mine = [at for at in partitions if self._holds(broker_id, at)]
            if mine:
                broker = self.state.brokers[broker_id]
                message = leader_and_isr(self.identity, broker, self.state, mine, new=new)
                self.hold(pending)
                self.send(broker_id, message, lambda _: self.release(pending))
        self.send_update_metadata(partitions, pending, only=only)

    def send_update_metadata(
        self,
        partitions: Sequence[TopicPartition],
        pending: PendingCommand | None = None,
        *,
        only: int | None = None,
    ) -> None:
        """UpdateMetadata. An operation waits for this broker's own cache, as clients ask it next."""
        for broker_id in list(self.state.brokers) if only is None else (only,):
            message = update_metadata(
                self.identity, self.state.brokers[broker_id], self.state, partitions
            )
            waiting = pending if broker_id == self.broker_id else None
            self.hold(waiting)
            self.send(broker_id, message, lambda _, waiting=waiting: self.release(waiting))  # type: ignore[misc]

    def _holds(self, broker_id: int, at: TopicPartition) -> bool:
        partition = self.state.partition(at)
        return partition is not None and broker_id in partition.replicas

    # Operations

    def begin(self, token: int, command: Command[Any], now_ms: int) -> PendingCommand:
        """A command that will be answered later, or when its time is up."""
        pending = PendingCommand(token, command, now_ms + max(0, command.timeout_ms))
        self._commands[token] = pending
        self._next_deadline = min(self._next_deadline, pending.deadline_ms)
        return pending

    def hold(self, pending: PendingCommand | None) -> None:
        """One more thing to wait for."""
        if pending is not None:
            pending.awaited += 1

    def release(self, pending: PendingCommand | None) -> None:
        """One thing less."""
        if pending is not None:
            pending.awaited -= 1
            self._answer_if_done(pending)

    def seal(self, pending: PendingCommand, outcomes: list[Any]) -> None:
        """All is decided: these are the outcomes once nothing is outstanding."""
        pending.outcomes = outcomes
        self._answer_if_done(pending)

    def next_deadline(self) -> int | None:
        """When the first operation runs out of time; it may have been answered by then."""
        return self._next_deadline if self._commands else None

    def expire(self, now_ms: int) -> None:
        """Answer those whose time is up; what they began goes on."""
        late = KafkaError(E.REQUEST_TIMED_OUT, "begun, but not done within the request's timeout")
        for pending in list(self._commands.values()):
            if pending.deadline_ms <= now_ms:
                outcomes = pending.outcomes
                self._answer(
                    pending,
                    pending.command.refusal(late)
                    if outcomes is None
                    else [_late(outcome, late) for outcome in outcomes],
                )
        left = (pending.deadline_ms for pending in self._commands.values())
        self._next_deadline = min(left, default=FAR_FUTURE)

    def abandon(self, why: KafkaError) -> None:
        """The term is over: whoever waits is told so."""
        for pending in list(self._commands.values()):
            self._answer(pending, pending.command.refusal(why))

    def _answer_if_done(self, pending: PendingCommand) -> None:
        if pending.outcomes is not None and not pending.awaited:
            self._answer(pending, pending.outcomes)

    def _answer(self, pending: PendingCommand, outcomes: list[Any]) -> None:
        if self._commands.pop(pending.token, None) is not None:
            self.effects.append(Answer(pending.token, outcomes, pending.applied_change))


def _late(outcome: Any, late: KafkaError) -> Any:
    if outcome.error is not E.NONE:
        return outcome
    return replace(outcome, error=late.code, message=late.message)

"""The controller's desk: what is written, sent and waited for, and what is to happen after it.

The mechanics under the decisions. Every write carries the check of the controller's epoch, brokers
hear of a partition only when no write of it is under way, and a client's command is answered
exactly once: when all it waits for has come, or when its time is up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.controller.announcements import Sender, leader_and_isr, update_metadata
from headwater.controller.commands import Command
from headwater.controller.effects import Answer, ControlMessage, Effect, Report, Send, Write
from headwater.controller.events import Acknowledged, Elected, Stored
from headwater.controller.state import ClusterState
from headwater.controller.store import Check, Op, OpResult
from headwater.controller.topics import Rules
from headwater.controller.znodes import CONTROLLER_EPOCH
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition

FAR_FUTURE = 1 << 62


@dataclass(slots=True)
class Operation:
    """A command under way. It ends when it is sealed with its outcomes and nothing is outstanding."""

    token: int
    command: Command[Any]
    deadline_ms: int
    outstanding: int = 0
    outcomes: list[Any] | None = None
    applied_change: int | None = None
    """The config notification that this broker must have applied before the answer leaves."""


@dataclass(slots=True)
class _Sent:
    broker_id: int
    then: Callable[[E], None]


class Desk:
    """State, tickets and operations of one term as controller."""

    def __init__(self, broker_id: int, rules: Rules, elected: Elected, first_ticket: int) -> None:
        self.broker_id = broker_id
        self.rules = rules
        self.state: ClusterState = elected.state
        self.epoch = elected.controller_epoch
        self.effects: list[Effect] = []
        self.ticket = first_ticket
        self._check = Check(CONTROLLER_EPOCH, elected.epoch_version)
        self._writes: dict[int, Callable[[list[OpResult]], None]] = {}
        self._sends: dict[int, _Sent] = {}
        self._operations: dict[int, Operation] = {}
        self._next_deadline = FAR_FUTURE
        self._in_flight: dict[TopicPartition, int] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is being written and no broker owes an answer."""
        return not self._writes and not self._sends

    @property
    def sender(self) -> Sender:
        """The head of messages to brokers."""
        return Sender(self.broker_id, self.epoch, self.rules.inter_broker_listener)

    def report(self, event: str) -> None:
        """Log an event that an operator may search for."""
        self.effects.append(Report(event))

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
        operation: Operation | None = None,
        *,
        new: bool = False,
    ) -> None:
        """Write the states of partitions, then tell the brokers of them."""
        for at in partitions:
            self._in_flight[at] = self._in_flight.get(at, 0) + 1
        self.hold(operation)

        def stored(_: list[OpResult]) -> None:
            self._landed(partitions)
            self.announce(self.settled(partitions), operation, new=new)
            self.release(operation)

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

    def settled(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those that are there and whose state is durable: of the others nobody may hear yet."""
        return [at for at in partitions if at not in self._in_flight and self.state.partition(at)]

    # Messages

    def send(self, broker_id: int, message: ControlMessage, then: Callable[[E], None]) -> None:
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

    def announce(
        self,
        partitions: Sequence[TopicPartition],
        operation: Operation | None = None,
        *,
        new: bool = False,
        only: int | None = None,
    ) -> None:
        """Tell replicas who leads, then every broker (or `only` one) what to tell clients."""
        for broker_id in self.state.brokers if only is None else (only,):
            mine = [at for at in partitions if self._holds(broker_id, at)]
            if mine:
                broker = self.state.brokers[broker_id]
                message = leader_and_isr(self.sender, broker, self.state, mine, new=new)
                self.hold(operation)
                self.send(broker_id, message, lambda _: self.release(operation))
        self.tell_clients(partitions, operation, only=only)

    def tell_clients(
        self,
        partitions: Sequence[TopicPartition],
        operation: Operation | None = None,
        *,
        only: int | None = None,
    ) -> None:
        """UpdateMetadata. An operation waits for this broker's own cache, as clients ask it next."""
        for broker_id in list(self.state.brokers) if only is None else (only,):
            message = update_metadata(
                self.sender, self.state.brokers[broker_id], self.state, partitions
            )
            waiting = operation if broker_id == self.broker_id else None
            self.hold(waiting)
            self.send(broker_id, message, lambda _, waiting=waiting: self.release(waiting))  # type: ignore[misc]

    def _holds(self, broker_id: int, at: TopicPartition) -> bool:
        partition = self.state.partition(at)
        return partition is not None and broker_id in partition.replicas

    # Operations

    def begin(self, token: int, command: Command[Any], now_ms: int) -> Operation:
        """A command that will be answered later, or when its time is up."""
        operation = Operation(token, command, now_ms + max(0, command.timeout_ms))
        self._operations[token] = operation
        self._next_deadline = min(self._next_deadline, operation.deadline_ms)
        return operation

    def hold(self, operation: Operation | None) -> None:
        """One more thing to wait for."""
        if operation is not None:
            operation.outstanding += 1

    def release(self, operation: Operation | None) -> None:
        """One thing less."""
        if operation is not None:
            operation.outstanding -= 1
            self._answer_if_done(operation)

    def seal(self, operation: Operation, outcomes: list[Any]) -> None:
        """All is decided: these are the outcomes once nothing is outstanding."""
        operation.outcomes = outcomes
        self._answer_if_done(operation)

    def next_deadline(self) -> int | None:
        """When the first operation runs out of time; it may have been answered by then."""
        return self._next_deadline if self._operations else None

    def expire(self, now_ms: int) -> None:
        """Answer those whose time is up; what they began goes on."""
        late = KafkaError(E.REQUEST_TIMED_OUT, "begun, but not done within the request's timeout")
        for operation in list(self._operations.values()):
            if operation.deadline_ms <= now_ms:
                outcomes = operation.outcomes
                self._answer(
                    operation,
                    operation.command.refusal(late)
                    if outcomes is None
                    else [_late(outcome, late) for outcome in outcomes],
                )
        left = (operation.deadline_ms for operation in self._operations.values())
        self._next_deadline = min(left, default=FAR_FUTURE)

    def abandon(self, why: KafkaError) -> None:
        """The term is over: whoever waits is told so."""
        for operation in list(self._operations.values()):
            self._answer(operation, operation.command.refusal(why))

    def _answer_if_done(self, operation: Operation) -> None:
        if operation.outcomes is not None and not operation.outstanding:
            self._answer(operation, operation.outcomes)

    def _answer(self, operation: Operation, outcomes: list[Any]) -> None:
        if self._operations.pop(operation.token, None) is not None:
            self.effects.append(Answer(operation.token, outcomes, operation.applied_change))


def _late(outcome: Any, late: KafkaError) -> Any:
    if outcome.error is not E.NONE:
        return outcome
    return replace(outcome, error=late.code, message=late.message)

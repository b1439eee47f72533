"""Asks the coordinators of transactions whether partitions belong to them (KIP-890).

The questions of one round of the event loop that go to the same broker share a request, and the
partitions of one transaction share an entry. A question to a coordinator on this broker needs no
request.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from headwater.broker.context import Context
from headwater.errors import E, KafkaError, error_of
from headwater.model import TRANSACTION_STATE, TopicPartition
from headwater.replication.replica_host import TransactionalWrite
from headwater.replication.verifications import VerificationRefused
from headwater.seams.timers import CallLater
from headwater.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

log = logging.getLogger("headwater.server")

REQUESTS_IN_FLIGHT = 5
"""The most requests to one broker that wait for an answer; later questions share the next one."""
TRANSACTIONS_PER_REQUEST = 500
MOST_QUESTIONS = 20
"""How often a coordinator is asked while it completes the last transaction: clients rest for longer
than that takes. It holds each question for a moment."""

VerificationDone: TypeAlias = Callable[[KafkaError | None], None]
PartitionErrors: TypeAlias = dict[TopicPartition, E]
AskHere: TypeAlias = Callable[
    [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction,
        frozenset[TopicPartition],
        Callable[[PartitionErrors], None],
    ],
    None,
]
"""Adds or verifies partitions at a coordinator on this broker."""


class VerifierConnection(Protocol):
    """A connection to another broker."""

    def send(
        self,
        request: AddPartitionsToTxnRequest,
        answer: type[AddPartitionsToTxnResponse],
        on_reply: Callable[[AddPartitionsToTxnResponse | KafkaError], None],
    ) -> None:
        """Send a request; `on_reply` is called once."""


class _Asker(NamedTuple):
    write: TransactionalWrite
    producer_id: int
    epoch: int
    asked_before: int = 0


_Asked: TypeAlias = dict[TopicPartition, list[VerificationDone]]
_Questions: TypeAlias = dict[_Asker, _Asked]


class TransactionVerifier:
    """The questions of this broker's partitions to the coordinators of the cluster."""

    def __init__(
        self,
        context: Context,
        connect: Callable[[int, str], VerifierConnection],
        ask_here: AskHere,
        call_later: CallLater,
    ) -> None:
        self._context = context
        self._connect = connect
        self._ask_here = ask_here
        self._call_later = call_later
        self._queues: dict[int, _Questions] = {}
        self._in_flight: dict[int, int] = {}
        self._connections: dict[int, VerifierConnection] = {}
        self._send_scheduled = False

    def verify(
        self,
        at: TopicPartition,
        producer_id: int,
        epoch: int,
        write: TransactionalWrite,
        done: VerificationDone,
    ) -> None:
        """Ask whether `at` belongs to the open transaction, or add it; `done` is called later."""
        enabled = self._context.settings.transaction_partition_verification_enable
        if not enabled and not write.adds_partitions:
            self._call_later(0, partial(done, None))
            return
        broker = self._coordinator(write.transactional_id)
        if broker is None:
            self._call_later(0, partial(done, VerificationRefused(E.COORDINATOR_NOT_AVAILABLE)))
            return
        self._queue(broker, _Asker(write, producer_id, epoch), {at: [done]})

    def _queue(self, broker: int, asker: _Asker, asked: _Asked) -> None:
        questions = self._queues.setdefault(broker, {}).setdefault(asker, {})
        for at, waiting in asked.items():
            questions.setdefault(at, []).extend(waiting)
        if not self._send_scheduled:
            self._send_scheduled = True
            self._call_later(0, self._send_queued)

    def _coordinator(self, transactional_id: str) -> int | None:
        partition = self._context.transactions.partition_of(transactional_id)
        if partition is None:
            return None
        info = self._context.metadata.partition(TRANSACTION_STATE, partition)
        return None if info is None or info.leader < 0 else info.leader

    # -- sending

    def _send_queued(self) -> None:
        self._send_scheduled = False
        for broker in list(self._queues):
            self._send_to(broker)

    def _send_to(self, broker: int) -> None:
        while broker in self._queues and self._in_flight.get(broker, 0) < REQUESTS_IN_FLIGHT:
            questions = self._pop_some(broker)
            if broker == self._context.node_id:
                for asker, asked in questions.items():
                    self._ask_coordinator_here(asker, asked)
            else:
                self._ask_broker(broker, questions)

    def _pop_some(self, broker: int) -> _Questions:
        """Remove and return questions for one request; each transactional id appears once in it."""
        queue = self._queues.pop(broker)
        chosen: _Questions = {}
        ids: set[str] = set()
        rest: _Questions = {}
        for asker, asked in queue.items():
            transactional_id = asker.write.transactional_id
            if transactional_id in ids or len(chosen) == TRANSACTIONS_PER_REQUEST:
                rest[asker] = asked
            else:
                ids.add(transactional_id)
                chosen[asker] = asked
        if rest:
            self._queues[broker] = rest
        return chosen

    def _ask_coordinator_here(self, asker: _Asker, asked: _Asked) -> None:
        def answered(errors: PartitionErrors) -> None:
            self._answer(asker, asked, errors)

        self._ask_here(_transaction(asker, asked), frozenset(asked), answered)

    def _ask_broker(self, broker: int, questions: _Questions) -> None:
        self._in_flight[broker] = self._in_flight.get(broker, 0) + 1
        if broker not in self._connections:
            self._connections[broker] = self._connect(broker, "verification")
        request = AddPartitionsToTxnRequest(
            transactions=[_transaction(asker, asked) for asker, asked in questions.items()]
        )
        self._connections[broker].send(
            request, AddPartitionsToTxnResponse, partial(self._answered, broker, questions)
        )

    def _answered(
        self,
        broker: int,
        questions: _Questions,
        result: AddPartitionsToTxnResponse | KafkaError,
    ) -> None:
        self._in_flight[broker] -= 1
        errors, otherwise = _errors(result)
        for asker, asked in questions.items():
            known = errors.get(asker.write.transactional_id, {})
            self._answer(asker, asked, {at: known.get(at, otherwise) for at in asked})
        self._send_to(broker)

    def _answer(self, asker: _Asker, asked: _Asked, errors: PartitionErrors) -> None:
        """Pass the answers on; ask again while the transaction before is being completed."""
        unfinished: _Asked = {}
        if asker.write.adds_partitions and asker.asked_before < MOST_QUESTIONS:
            concurrent = E.CONCURRENT_TRANSACTIONS
            unfinished = {at: waiting for at, waiting in asked.items() if errors[at] is concurrent}
        broker = self._coordinator(asker.write.transactional_id) if unfinished else None
        if broker is not None:
            again = asker._replace(asked_before=asker.asked_before + 1)
            self._queue(broker, again, unfinished)
            asked = {at: waiting for at, waiting in asked.items() if at not in unfinished}
        for at, waiting in asked.items():
            refused = _as_writer_error(errors[at], asker.write)
            for done in waiting:
                done(refused)


def _transaction(
    asker: _Asker, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=asker.write.transactional_id,
        producer_id=asker.producer_id,
        producer_epoch=asker.epoch,
        verify_only=not asker.write.adds_partitions,
        topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )


def _errors(
    result: AddPartitionsToTxnResponse | KafkaError,
) -> tuple[dict[str, PartitionErrors], E]:
    """Return the errors by transactional id, and the error of partitions without one."""
    if isinstance(result, KafkaError):
        log.debug("transactions are not verified: %s", result.message)
        return {}, E.NETWORK_EXCEPTION
    if result.error_code == E.CLUSTER_AUTHORIZATION_FAILED:
        return {}, E.INVALID_TXN_STATE
    if result.error_code:
        return {}, error_of(result.error_code)
    found = {
        transaction.transactional_id: {
            TopicPartition(topic.name, partition.partition_index): error_of(
                partition.partition_error_code
            )
            for topic in transaction.topic_results
            for partition in topic.results_by_partition
        }
        for transaction in result.results_by_transaction
    }
    return found, E.UNKNOWN_SERVER_ERROR


def _as_writer_error(error: E, write: TransactionalWrite) -> KafkaError | None:
    """Map the coordinator's error to one that clients expect of a write."""
    if error is E.NONE:
        return None
    if error is E.PRODUCER_FENCED:
        return VerificationRefused(E.INVALID_PRODUCER_EPOCH)
    if error is E.TRANSACTION_ABORTABLE and not write.knows_abortable:
        error = E.INVALID_TXN_STATE
    if error is E.INVALID_TXN_STATE:
        return VerificationRefused(error, "the partition was not added to the transaction")
    return VerificationRefused(error)

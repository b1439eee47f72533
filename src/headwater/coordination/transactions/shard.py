"""One partition of `__transaction_state`: all transactional ids that hash to it.

`transactions` is the only hard state, and only `replay` changes it. A transaction ends in three steps:
the prepare record decides the outcome, markers are written to its partitions, the complete record
allows the next transaction. `on_prepared` gets each PreparedTransaction once its prepare record is
committed, so no marker is ever ahead of the decision; a shard that is loaded in between repeats it.
"""

import logging
from collections.abc import Sequence
from typing import TypeAlias

from headwater.coordination.deadlines import Deadlines, Now
from headwater.coordination.shard import Outcome, Token, TooLarge
from headwater.coordination.transactions import ending
from headwater.coordination.transactions.commands import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    ListedTransaction,
    ListTransactions,
    PreparedTransaction,
    ProducerAnswer,
    ProducerIdentity,
    VerifyPartitions,
)
from headwater.coordination.transactions.initializing import initialize
from headwater.coordination.transactions.metadata import FENCING_EPOCH, TransactionMetadata
from headwater.coordination.transactions.records import TransactionRecord, encode
from headwater.coordination.transactions.settings import TransactionSettings
from headwater.coordination.transactions.states import (
    BETWEEN_TRANSACTIONS,
    PREPARED,
    TransactionState,
)
from headwater.errors import E
from headwater.model import TopicPartition
from headwater.wire.codec import WireError

log = logging.getLogger(__name__)

TransactionOutcome: TypeAlias = Outcome[TransactionRecord]

WAIT_FOR_MARKERS_MS = 50
"""How long the first partitions of the next transaction wait for the end of the last one."""
EXPIRED_PER_TURN = 200


class TransactionShard:
    """Commands in, Outcomes out."""

    def __init__(
        self, settings: TransactionSettings, coordinator_epoch: int, on_prepared: Token
    ) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        self._on_prepared = on_prepared
        self._deadlines: Deadlines[str] = Deadlines()
        self._waiting: dict[str, list[tuple[Token, AddPartitions]]] = {}
        self._wait_deadlines: Deadlines[str] = Deadlines()
        self._not_encodable: set[str] = set()  # which are logged

    # -- loading and storing

    def replay(self, record: TransactionRecord) -> None:
        """Apply one record of the log, at load or right after it was staged."""
        if record.metadata is None:
            self.transactions.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = record.metadata

    def loaded(self, now: Now) -> TransactionOutcome:
        """Plan the deadlines, and have the markers of prepared transactions written again."""
        out: TransactionOutcome = Outcome()
        for transactional_id, known in self.transactions.items():
            self._plan(now, transactional_id, known)
            if known.state in PREPARED:
                self._write_markers(transactional_id, known, out)
        return out

    def survives_loss_of(self, records: Sequence[TransactionRecord]) -> bool:
        """Return True: every state changes by replay alone."""
        return True

    def too_large(self, records: Sequence[TransactionRecord]) -> TooLarge:
        """Name the transactional id; its client gets what Kafka answers."""
        return TooLarge(E.UNKNOWN_SERVER_ERROR, f"transactional id {records[0].transactional_id!r}")

    def withdraw(self, now: Now, records: Sequence[TransactionRecord]) -> TransactionOutcome:
        """Do nothing: every state changes by replay alone."""
        return Outcome()

    def summary(self) -> str:
        """The number of transactional ids, for the log."""
        count = len(self.transactions)
        return f"{count} transactional ids" if count else ""

    def parked(self) -> list[Token]:
        """The tokens that wait for markers."""
        return [token for waiting in self._waiting.values() for token, _ in waiting]

    def topics_deleted(self, topics: dict[str, None]) -> None:
        """Keep the state: the markers of deleted topics are left out when they are due."""

    # -- commands

    def init(self, now: Now, command: InitProducer, token: Token) -> TransactionOutcome:
        """InitProducerId. Answered with ProducerAnswer."""
        out: TransactionOutcome = Outcome()
        known = self.transactions.get(command.transactional_id)
        decision = initialize(known, command, now.wall_ms)
        if isinstance(decision, ProducerAnswer):
            out.reply(token, decision)
        elif decision.state is TransactionState.ONGOING:
            self._abort(now, command.transactional_id, decision, out)
            out.reply(token, ProducerAnswer(E.CONCURRENT_TRANSACTIONS))
        else:
            self._store(now, command.transactional_id, decision, out)
            out.reply(token, ProducerAnswer(producer=_identity(decision)))
        return out

    def add_partitions(self, now: Now, command: AddPartitions, token: Token) -> TransactionOutcome:
        """AddPartitionsToTxn and AddOffsetsToTxn. Answered with an error code.

        Clients send their next transaction while the markers of the last one are being written; a
        short wait is faster for them than an error and a retry.
        """
        out: TransactionOutcome = Outcome()
        known = self.transactions.get(command.transactional_id)
        if self._refuse_producer(known, command.producer) is E.CONCURRENT_TRANSACTIONS:
            self._wait_for_markers(now, command, token)
        else:
            self._add(now, known, command, token, out)
        return out

    def verify_partitions(
        self, now: Now, command: VerifyPartitions, token: Token
    ) -> TransactionOutcome:
        """AddPartitionsToTxn that only verifies. Answered with {partition: error}."""
        out: TransactionOutcome = Outcome()
        known = self.transactions.get(command.transactional_id)
        refusal = self._refuse_producer(known, command.producer)
        held: frozenset[TopicPartition] = known.partitions if known else frozenset()
        missing = E.TRANSACTION_ABORTABLE if refusal is E.NONE else refusal
        out.reply(
            token,
            {at: refusal if at in held else missing for at in command.partitions},
        )
        return out

    def end(self, now: Now, command: EndTransaction, token: Token) -> TransactionOutcome:
        """EndTxn. Answered with ProducerAnswer once the outcome is committed."""
        out: TransactionOutcome = Outcome()
        known = self.transactions.get(command.transactional_id)
        decision = ending.end(known, command, now.wall_ms)
        if isinstance(decision, ProducerAnswer):
            out.reply(token, decision)
        else:
            self._store(now, command.transactional_id, decision, out)
            self._write_markers(command.transactional_id, decision, out)
            out.reply(token, ending.answer(decision))
        return out

    def complete(self, now: Now, prepared: PreparedTransaction, token: Token) -> TransactionOutcome:
        """Every marker of a transaction is written. Answered with an error code."""
        out: TransactionOutcome = Outcome()
        known = self.transactions.get(prepared.transactional_id)
        if (
            known is None
            or known.state not in PREPARED
            or _identity(known) != prepared.producer
            or self._coordinator_epoch != prepared.coordinator_epoch
        ):
            out.reply(token, E.INVALID_TXN_STATE)
            return out
        done = known.completed(now.wall_ms)
        self._store(now, prepared.transactional_id, done, out)
        out.reply(token, E.NONE)
        self._wait_deadlines.cancel(prepared.transactional_id)
        latest: TransactionMetadata | None = done
        for waiting, command in self._waiting.pop(prepared.transactional_id, ()):
            latest = self._add(now, latest, command, waiting, out)
        return out

    def describe(self, now: Now, transactional_id: str, token: Token) -> TransactionOutcome:
        """DescribeTransactions. Answered with TransactionMetadata, or None for an unknown id."""
        out: TransactionOutcome = Outcome()
        out.reply(token, self.transactions.get(transactional_id))
        return out

    def list(self, now: Now, command: ListTransactions, token: Token) -> TransactionOutcome:
        """ListTransactions. Answered with a list of ListedTransaction."""
        out: TransactionOutcome = Outcome()
        found = [
            ListedTransaction(transactional_id, known.producer_id, known.state)
            for transactional_id, known in self.transactions.items()
            if _is_listed(now, known, command)
        ]
        out.reply(token, found)
        return out

    # -- deadlines

    def next_deadline(self) -> int | None:
        """When to call `expire`."""
        return min(
            (
                at_ms
                for at_ms in (self._deadlines.next(), self._wait_deadlines.next())
                if at_ms is not None
            ),
            default=None,
        )

    def expire(self, now: Now) -> TransactionOutcome:
        """Abort transactions that time out, and forget transactional ids that nobody uses."""
        out: TransactionOutcome = Outcome()
        while (transactional_id := self._wait_deadlines.pop_due(now.monotonic_ms)) is not None:
            for token, _ in self._waiting.pop(transactional_id, ()):
                out.reply(token, E.CONCURRENT_TRANSACTIONS)
        for _ in range(EXPIRED_PER_TURN):
            due = self._deadlines.pop_due(now.monotonic_ms)
            if due is None:
                break
            known = self.transactions.get(due)
            if known is not None:
                self._expire_alone(now, due, known, out)
        return out

    def _expire_alone(
        self, now: Now, transactional_id: str, known: TransactionMetadata, out: TransactionOutcome
    ) -> None:
        """Add what expires to `out`, unless its record would make the log refuse the whole append."""
        one: TransactionOutcome = Outcome()
        self._expire(now, transactional_id, known, one)
        try:
            for record in one.records:
                encode(record)
        except WireError as bad:
            if transactional_id not in self._not_encodable:
                self._not_encodable.add(transactional_id)
                log.error(
                    "transactional id %s cannot be expired, its record is refused: %s (producer %d, "
                    "epoch %d, %s)",
                    transactional_id,
                    bad,
                    known.producer_id,
                    known.producer_epoch,
                    known.state.value,
                )
            return
        out.records += one.records
        out.replies += one.replies

    def _expire(
        self, now: Now, transactional_id: str, known: TransactionMetadata, out: TransactionOutcome
    ) -> None:
        if known.state is TransactionState.ONGOING:
            # Its time has passed since it was planned, whatever the wall clock says now.
            retry_ms = now.monotonic_ms + self._settings.timeout_check_interval_ms
            self._abort(now, transactional_id, known, out)
            self._deadlines.set(transactional_id, retry_ms)  # if the record is refused
        elif self._left_ms(now, known) > 0:
            self._plan(now, transactional_id, known)
        elif known.state in BETWEEN_TRANSACTIONS:
            retry_ms = now.monotonic_ms + self._settings.id_expiration_check_interval_ms
            out.records.append(TransactionRecord(transactional_id, None))
            self._deadlines.set(transactional_id, retry_ms)

    def _plan(self, now: Now, transactional_id: str, known: TransactionMetadata) -> None:
        """Set when to look at a transactional id again.

        A transaction is aborted as soon as it times out: until then it hides what was written after
        it. Idle ids are looked at in steps, so that many of them share a turn.
        """
        if known.state in PREPARED:
            return
        at_ms = now.monotonic_ms + self._left_ms(now, known)
        if known.state is not TransactionState.ONGOING:
            step_ms = self._settings.id_expiration_check_interval_ms
            at_ms = -(-at_ms // step_ms) * step_ms
        self._deadlines.set(transactional_id, at_ms)

    def _left_ms(self, now: Now, known: TransactionMetadata) -> int:
        """How long a transaction may still run, or its idle transactional id be kept.

        This is asked when a transaction begins or is loaded, and not again: from then on the
        monotonic clock decides, whatever happens to the wall clock.
        """
        if known.state is TransactionState.ONGOING:
            since, limit = known.start_timestamp, known.timeout_ms
        else:
            since, limit = known.update_timestamp, self._settings.id_expiration_ms
        return min(max(since + limit - now.wall_ms, 0), limit)

    # -- steps

    def _store(
        self, now: Now, transactional_id: str, new: TransactionMetadata, out: TransactionOutcome
    ) -> None:
        out.records.append(TransactionRecord(transactional_id, new))
        known = self.transactions.get(transactional_id)
        if known is None or not known.state is new.state is TransactionState.ONGOING:
            self._plan(now, transactional_id, new)  # an open transaction keeps its deadline

    def _abort(
        self, now: Now, transactional_id: str, known: TransactionMetadata, out: TransactionOutcome
    ) -> None:
        """Abort a transaction that its producer does not end, and fence the producer."""
        fenced = known.fenced(self._settings.server_version, now.wall_ms)
        self._store(now, transactional_id, fenced, out)
        self._write_markers(transactional_id, fenced, out)

    def _write_markers(
        self, transactional_id: str, prepared: TransactionMetadata, out: TransactionOutcome
    ) -> None:
        ready = PreparedTransaction(
            transactional_id,
            _identity(prepared),
            prepared.state is TransactionState.PREPARE_COMMIT,
            prepared.partitions,
            self._coordinator_epoch,
            # Leaders take a marker of version 2 in the epoch of its transaction for a late one. No
            # transaction follows the fencing epoch, but one of an older broker may be open in it.
            0 if prepared.producer_epoch >= FENCING_EPOCH else prepared.client_version,
        )
        out.reply(self._on_prepared, ready)

    def _add(
        self,
        now: Now,
        known: TransactionMetadata | None,
        command: AddPartitions,
        token: Token,
        out: TransactionOutcome,
    ) -> TransactionMetadata | None:
        """Add partitions to `known`, and return what becomes of it."""
        refusal = self._refuse_producer(known, command.producer)
        if (
            known is not None
            and refusal is E.NONE
            and not (
                known.state is TransactionState.ONGOING and command.partitions <= known.partitions
            )
        ):
            known = known.with_partitions(command.partitions, command.client_version, now.wall_ms)
            self._store(now, command.transactional_id, known, out)
        out.reply(token, refusal)
        return known

    def _wait_for_markers(self, now: Now, command: AddPartitions, token: Token) -> None:
        key = command.transactional_id
        self._waiting.setdefault(key, []).append((token, command))
        if key not in self._wait_deadlines:
            self._wait_deadlines.set(key, now.monotonic_ms + WAIT_FOR_MARKERS_MS)

    def _refuse_producer(self, known: TransactionMetadata | None, producer: ProducerIdentity) -> E:
        if known is None:
            return E.INVALID_PRODUCER_ID_MAPPING
        if known.state in PREPARED and producer == ending.next_producer(known):
            return E.CONCURRENT_TRANSACTIONS
        if known.producer_id != producer.producer_id:
            return E.INVALID_PRODUCER_ID_MAPPING
        if known.producer_epoch != producer.epoch or known.needs_rotation:
            return E.PRODUCER_FENCED
        return E.CONCURRENT_TRANSACTIONS if known.state in PREPARED else E.NONE


def _identity(known: TransactionMetadata) -> ProducerIdentity:
    return ProducerIdentity(known.producer_id, known.producer_epoch)


def _is_listed(now: Now, known: TransactionMetadata, command: ListTransactions) -> bool:
    return (
        (not command.states or known.state.value in command.states)
        and (not command.producer_ids or known.producer_id in command.producer_ids)
        and (
            command.longer_than_ms < 0
            or now.wall_ms - known.start_timestamp > command.longer_than_ms
        )
    )

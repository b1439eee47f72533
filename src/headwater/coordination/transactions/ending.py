"""EndTxn: which requests decide the outcome, which are retries, and which are refused.

Before transaction version 2 a retry has the epoch of its transaction, and so has a request for the next
transaction. Since version 2 the end of a transaction bumps the epoch: a retry has the epoch before the
current one, and a producer may abort although it added no partition. While the markers are written, every
request is told to try again: it may be the retry of this end, or the end of the next transaction.

A transaction that the coordinator aborts in the last epoch leaves its producer without a next one: no
producer id is at hand then. The producer's own abort, which is a retry by that time, gets one.
"""

from headwater.coordination.transactions.commands import (
    EndTransaction,
    ProducerAnswer,
    ProducerIdentity,
)
from headwater.coordination.transactions.metadata import (
    EPOCH_BUMPS_AT_END,
    LAST_EPOCH,
    TransactionMetadata,
)
from headwater.coordination.transactions.states import (
    BETWEEN_TRANSACTIONS,
    PREPARED,
    TransactionState,
)
from headwater.errors import E
from headwater.model import NO_PRODUCER_ID

_S = TransactionState
_RESULT = {_S.COMPLETE_COMMIT: True, _S.COMPLETE_ABORT: False}


def end(
    known: TransactionMetadata | None, command: EndTransaction, now_ms: int
) -> ProducerAnswer | TransactionMetadata:
    """Return the prepared state, or an answer that changes nothing."""
    if known is None:
        return ProducerAnswer(E.INVALID_PRODUCER_ID_MAPPING)
    if command.client_version >= EPOCH_BUMPS_AT_END:
        refusal = _refuse_with_bumps(known, command)
    else:
        refusal = _refuse(known, command)
    if refusal is not None:
        return refusal
    return _prepare(known, command, now_ms)


def answer(prepared: TransactionMetadata) -> ProducerAnswer:
    """Return who the producer is in its next transaction; before version 2 it stays who it is."""
    if prepared.client_version < EPOCH_BUMPS_AT_END:
        return ProducerAnswer()
    return ProducerAnswer(producer=next_producer(prepared))


def next_producer(prepared: TransactionMetadata) -> ProducerIdentity:
    """Return who may begin the next transaction, after the markers of this one are written."""
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdentity(prepared.next_producer_id, 0)
    return ProducerIdentity(prepared.producer_id, prepared.producer_epoch)


def _refuse(known: TransactionMetadata, command: EndTransaction) -> ProducerAnswer | None:
    if known.producer_id != command.producer.producer_id:
        return ProducerAnswer(E.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != command.producer.epoch:
        return ProducerAnswer(E.PRODUCER_FENCED)
    if known.state in PREPARED:
        return ProducerAnswer(E.CONCURRENT_TRANSACTIONS)
    if known.state is _S.ONGOING:
        return None
    done = _RESULT.get(known.state) is command.commit
    return ProducerAnswer(E.NONE if done else E.INVALID_TXN_STATE)


def _refuse_with_bumps(
    known: TransactionMetadata, command: EndTransaction
) -> ProducerAnswer | None:
    if known.state in PREPARED:
        return ProducerAnswer(E.CONCURRENT_TRANSACTIONS)
    producer = command.producer
    is_current = producer == (known.producer_id, known.producer_epoch)
    is_retry = _is_retry(known, producer)
    if known.producer_id != producer.producer_id and not is_retry:
        return ProducerAnswer(E.INVALID_PRODUCER_ID_MAPPING)
    if not (is_current or (is_retry and known.state in _RESULT)):
        return ProducerAnswer(E.PRODUCER_FENCED)
    if known.state is _S.ONGOING or (
        is_current and not command.commit and known.state in BETWEEN_TRANSACTIONS
    ):
        return None
    if is_retry and not command.commit and known.needs_rotation:
        return None
    if not is_retry or _RESULT[known.state] is not command.commit:
        return ProducerAnswer(E.INVALID_TXN_STATE)
    return ProducerAnswer(producer=ProducerIdentity(known.producer_id, known.producer_epoch))


def _is_retry(known: TransactionMetadata, producer: ProducerIdentity) -> bool:
    """Whether the producer has the epoch before the last bump, or the id before the last rotation.

    A transaction of an older version ended without a bump: the epoch before is that of a producer
    which a newer one has fenced.
    """
    if known.client_version < EPOCH_BUMPS_AT_END:
        return False
    if producer.producer_id == known.producer_id:
        return producer.epoch + 1 == known.producer_epoch
    return producer == (known.previous_producer_id, LAST_EPOCH) and known.producer_epoch == 0


def _prepare(
    known: TransactionMetadata, command: EndTransaction, now_ms: int
) -> ProducerAnswer | TransactionMetadata:
    next_producer_id = NO_PRODUCER_ID
    if command.client_version >= EPOCH_BUMPS_AT_END and known.epoch_is_exhausted:
        if command.new_producer_id == NO_PRODUCER_ID:
            return ProducerAnswer(needs_producer_id=True)
        next_producer_id = command.new_producer_id
    return known.prepared(
        commit=command.commit,
        version=command.client_version,
        next_producer_id=next_producer_id,
        now_ms=now_ms,
    )

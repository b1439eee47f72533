"""InitProducerId with a transactional id: who gets which producer id and epoch."""

from headwater.coordination.transactions.commands import (
    InitProducer,
    ProducerAnswer,
    ProducerIdentity,
)
from headwater.coordination.transactions.metadata import LAST_EPOCH, TransactionMetadata
from headwater.coordination.transactions.states import PREPARED, TransactionState
from headwater.errors import E
from headwater.model import NO_EPOCH, NO_PRODUCER_ID

FENCED = ProducerAnswer(E.PRODUCER_FENCED)
NEEDS_PRODUCER_ID = ProducerAnswer(needs_producer_id=True)


def initialize(
    known: TransactionMetadata | None, command: InitProducer, now_ms: int
) -> ProducerAnswer | TransactionMetadata:
    """Return the new state, or an answer that changes nothing.

    An ongoing transaction is returned as it is: it has to be aborted first.
    """
    if known is None:
        if command.new_producer_id == NO_PRODUCER_ID:
            return NEEDS_PRODUCER_ID
        return TransactionMetadata(
            command.new_producer_id, 0, command.timeout_ms, update_timestamp=now_ms
        )
    expected = command.expected
    if expected is not None and not _may_continue(known, expected):
        return FENCED
    if known.state in PREPARED:
        return ProducerAnswer(E.CONCURRENT_TRANSACTIONS)
    if known.state is TransactionState.ONGOING:
        return known
    return _next_epoch(known, command, now_ms)


def _may_continue(known: TransactionMetadata, expected: ProducerIdentity) -> bool:
    """Whether the producer has the current id, or retries the request that replaced its id."""
    return expected.producer_id == known.producer_id or (
        expected.producer_id == known.previous_producer_id and expected.epoch >= LAST_EPOCH
    )


def _next_epoch(
    known: TransactionMetadata, command: InitProducer, now_ms: int
) -> ProducerAnswer | TransactionMetadata:
    epoch, timeout_ms = known.producer_epoch, command.timeout_ms
    expected = command.expected
    if expected is None:
        last_epoch = NO_EPOCH  # an older instance is fenced for good
    elif expected.epoch == epoch:
        last_epoch = epoch
    elif expected.epoch == known.last_producer_epoch:
        if not known.needs_rotation:
            return known.initialized(epoch, expected.epoch, timeout_ms, now_ms)  # a retry
        last_epoch = expected.epoch
    else:
        return FENCED
    if not known.epoch_is_exhausted:
        return known.initialized(epoch + 1, last_epoch, timeout_ms, now_ms)
    if command.new_producer_id == NO_PRODUCER_ID:
        return NEEDS_PRODUCER_ID
    return known.rotated(command.new_producer_id, last_epoch, timeout_ms, now_ms)

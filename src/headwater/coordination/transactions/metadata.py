"""What the coordinator knows of one transactional id, and the steps from one state to the next.

Each step returns a new value, which becomes the state when its record is replayed.
"""

from typing import Any, NamedTuple

from headwater.coordination.transactions.states import (
    BETWEEN_TRANSACTIONS,
    STATES,
    TransactionState,
)
from headwater.model import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

LAST_EPOCH = 2**15 - 2
"""The last epoch that a producer gets: the coordinator needs one more to fence it."""
FENCING_EPOCH = LAST_EPOCH + 1
"""The epoch that ends the last one. No producer gets it, no transaction begins in it."""
EPOCH_BUMPS_AT_END = 2
"""The transaction version since which every end of a transaction bumps the epoch (KIP-890)."""

_S = TransactionState


class TransactionMetadata(NamedTuple):
    """The stored state of one transactional id.

    `last_producer_epoch` is the epoch before the last bump that the producer asked for. It tells a
    retried request from a fenced producer, and is not stored.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    update_timestamp: int = NO_TIMESTAMP
    start_timestamp: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    last_producer_epoch: int = NO_EPOCH

    @property
    def epoch_is_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    @property
    def needs_rotation(self) -> bool:
        """Whether the last epoch was fenced, so that the producer goes on only with a new id."""
        return self.producer_epoch >= FENCING_EPOCH and self.state in BETWEEN_TRANSACTIONS

    @property
    def _bumped_epoch(self) -> int:
        """The next epoch; none follows the fencing epoch, in which older brokers let producers write."""
        return min(self.producer_epoch + 1, FENCING_EPOCH)

    def _to(self, state: TransactionState, now_ms: int, **changes: Any) -> "TransactionMetadata":
        if self.state not in STATES[state].follows:
            raise RuntimeError(f"a transaction cannot go from {self.state} to {state}")
        return self._replace(
            state=state,
            update_timestamp=now_ms,
            previous_producer_id=self.producer_id,
            **changes,
        )

    def initialized(
        self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> "TransactionMetadata":
        """Give the producer `epoch`, outside of a transaction."""
        return self._to(
            _S.EMPTY,
            now_ms,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_timestamp=NO_TIMESTAMP,
        )

    def rotated(
        self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> "TransactionMetadata":
        """Give the producer a new id, because the epochs of the old one are used up."""
        bumped = self.initialized(0, last_epoch, timeout_ms, now_ms)
        return bumped._replace(producer_id=producer_id)

    def with_partitions(
        self, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> "TransactionMetadata":
        """Add partitions; the first ones begin the transaction."""
        begins = self.state in BETWEEN_TRANSACTIONS
        return self._to(
            _S.ONGOING,
            now_ms,
            partitions=self.partitions | partitions,
            start_timestamp=now_ms if begins else self.start_timestamp,
            client_version=client_version,
        )

    def prepared(
        self, *, commit: bool, version: int, next_producer_id: int, now_ms: int
    ) -> "TransactionMetadata":
        """Decide the outcome; since version 2 the epoch of the transaction ends with it."""
        bumps = version >= EPOCH_BUMPS_AT_END
        return self._to(
            _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT,
            now_ms,
            producer_epoch=self._bumped_epoch if bumps else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if bumps else self.last_producer_epoch,
            start_timestamp=self.start_timestamp if self.state is _S.ONGOING else now_ms,
            next_producer_id=next_producer_id,
            client_version=version,
        )

    def fenced(self, server_version: int, now_ms: int) -> "TransactionMetadata":
        """Abort in a new epoch, so that the producer can no longer write."""
        aborted = self.prepared(
            commit=False, version=server_version, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
        )
        if server_version >= EPOCH_BUMPS_AT_END:
            return aborted
        return aborted._replace(
            producer_epoch=self._bumped_epoch, last_producer_epoch=NO_EPOCH, client_version=0
        )

    def completed(self, now_ms: int) -> "TransactionMetadata":
        """End the transaction: all its markers are written."""
        done = self._to(
            _S.COMPLETE_COMMIT if self.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT,
            now_ms,
            partitions=frozenset(),
            next_producer_id=NO_PRODUCER_ID,
        )
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return done._replace(producer_id=self.next_producer_id, producer_epoch=0)

"""Transactional writes that wait until the coordinator knows their partition (KIP-890).

The first write of a producer to a partition in a transaction is verified: the transaction's
coordinator confirms that the partition belongs to the open transaction, or adds it. Otherwise a late
write would begin a transaction that nobody ends, and hold the last stable offset forever. The writes
of one producer keep their order; those of others do not wait. A marker that arrives meanwhile ends
the verification: its answer may be about the transaction before.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headwater.errors import E, KafkaError
from headwater.log.producers import EPOCH_BUMP_VERSION
from headwater.records.batch import HEADER, RawHeader
from headwater.records.header_fields import BASE_SEQUENCE, PRODUCER_EPOCH, PRODUCER_ID
from headwater.replication.inbox import HeldBatch, Inbox
from headwater.replication.replica_host import Pending, TransactionalWrite

if TYPE_CHECKING:
    from headwater.replication.replica import Replica

Then: TypeAlias = Callable[[KafkaError | None], None]
"""Called once: with None when the write may happen, now, or with the reason why it may not."""

_UNAVAILABLE = frozenset(
    {
        E.NETWORK_EXCEPTION,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
    }
)


MOST_REFUSED = 1000
"""The producers whose refused batches are remembered, the newest ones."""


class VerificationRefused(KafkaError):
    """The coordinator did not confirm the transaction: the log has not been asked."""


class _Verification:
    """A question to the coordinator, and the writes that wait for its answer, in order."""

    __slots__ = ("epoch", "waiting")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.waiting: list[Then] = []


class _HeldWrite(NamedTuple):
    held: HeldBatch
    zstd_known: bool
    write: TransactionalWrite


class Verifications:
    """The verifications of one replica, by producer id."""

    __slots__ = ("_admitted", "_by_producer", "_inbox", "_refused", "_replica")

    def __init__(self, replica: "Replica", inbox: Inbox) -> None:
        self._replica = replica
        self._inbox = inbox
        self._by_producer: dict[int, _Verification] = {}
        # The producer whose writes are verified and happen right now.
        self._admitted: int | None = None
        # Epoch and least sequence of batches that could not be verified and will be sent again, by
        # producer: batches after them, in flight already, must not be accepted before (KAFKA-14920).
        self._refused: dict[int, tuple[int, int]] = {}

    # -- batches of clients

    def admits(self, header: RawHeader, pending: Pending) -> bool:
        """Return whether a transactional batch may be appended without asking the coordinator."""
        if pending.transaction is None:
            raise KafkaError(
                E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "a transactional batch needs a transactional id that its client may write to",
            )
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        return producer_id == self._admitted or self.in_transaction(producer_id, epoch)

    def hold(
        self,
        batch: memoryview,
        header: RawHeader,
        pending: Pending,
        acks: int,
        zstd_known: bool,
    ) -> None:
        """Append a batch once it is verified."""
        write = pending.transaction
        assert write is not None
        if write.adds_partitions and header[BASE_SEQUENCE]:
            self._check_first(header)
        verification = self._verification(header[PRODUCER_ID], header[PRODUCER_EPOCH], write)
        held = _HeldWrite(HeldBatch(batch, header, pending, acks), zstd_known, write)
        verification.waiting.append(lambda refused: self._append(held, refused))

    def _check_first(self, header: RawHeader) -> None:
        """Refuse a batch that is not the first of its producer, if no other one is known or waits."""
        producer_id, sequence = header[PRODUCER_ID], header[BASE_SEQUENCE]
        is_known = self._replica.log.producers.get(producer_id) is not None
        if not (is_known or producer_id in self._by_producer or self._inbox.batches):
            raise KafkaError(
                E.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins with sequence {sequence}, not 0",
            )

    def _append(self, write: _HeldWrite, refused: KafkaError | None) -> None:
        held, replica = write.held, self._replica
        held.release_memory()
        try:
            if refused is not None:
                raise self._refusal(held.header, refused, write.write)
            self._check_order(held.header)
            replica.append(
                held.batch, held.pending, held.acks, replica.host.wall_ms(), write.zstd_known
            )
        except KafkaError as failure:
            held.pending.fail(failure)

    def _refusal(
        self, header: RawHeader, refused: KafkaError, write: TransactionalWrite
    ) -> KafkaError:
        """Map a coordinator's error to one that producers retry without looking for another leader."""
        concurrent = refused.code is E.CONCURRENT_TRANSACTIONS
        if concurrent or refused.code in _UNAVAILABLE:
            self._note_refused(header)
        if refused.code in _UNAVAILABLE or (concurrent and not write.adds_partitions):
            return VerificationRefused(
                E.NOT_ENOUGH_REPLICAS,
                f"the transaction could not be verified: {refused.code.name}; send the batch again",
            )
        return refused

    def _note_refused(self, header: RawHeader) -> None:
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        sequence = header[BASE_SEQUENCE]
        known = self._refused.pop(producer_id, None)
        if known is not None and known[0] >= epoch:
            epoch, sequence = known[0], min(known[1], sequence) if known[0] == epoch else known[1]
        self._refused[producer_id] = epoch, sequence
        if len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]

    def _check_order(self, header: RawHeader) -> None:
        """Refuse a batch that overtook a refused one of its producer."""
        producer_id = header[PRODUCER_ID]
        epoch, sequence = self._refused.get(producer_id, (-1, -1))
        if epoch == header[PRODUCER_EPOCH] and sequence < header[BASE_SEQUENCE]:
            raise KafkaError(
                E.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {header[BASE_SEQUENCE]}, but {sequence} "
                "could not be verified and is missing",
            )
        self._refused.pop(producer_id, None)

    # -- any write

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether this epoch of the producer has a transaction open here."""
        return self._replica.log.producers.in_transaction(producer_id, epoch)

    def verify(self, producer_id: int, epoch: int, write: TransactionalWrite, then: Then) -> None:
        """Call `then` once the write may happen; at once if the transaction is open here."""
        if self.in_transaction(producer_id, epoch):
            then(None)
            return
        try:
            verification = self._verification(producer_id, epoch, write)
        except KafkaError as refused:
            then(refused)
        else:
            verification.waiting.append(then)

    def _verification(
        self, producer_id: int, epoch: int, write: TransactionalWrite
    ) -> _Verification:
        known = self._by_producer.get(producer_id)
        if known is not None and known.epoch == epoch:
            return known
        writer = self._replica.log.producers.get(producer_id)
        if writer is not None and epoch < writer.epoch:
            raise _fenced(producer_id, writer.epoch)
        if known is not None:
            if epoch < known.epoch:
                raise _fenced(producer_id, known.epoch)
            self._end(producer_id, known, _fenced(producer_id, epoch))
        started = self._by_producer[producer_id] = _Verification(epoch)

        def answered(refused: KafkaError | None) -> None:
            if self._by_producer.get(producer_id) is started:
                self._end(producer_id, started, refused)

        replica = self._replica
        replica.host.verify_transaction(
            replica.topic_partition, producer_id, epoch, write, answered
        )
        return started

    # -- ends

    def transaction_ended(self, marker: bytearray, transaction_version: int) -> None:
        """A marker is staged: what waits for an answer about that transaction is refused.

        Since version 2 a marker has the epoch of the next transaction, whose first batches may wait
        already: a producer goes on when the outcome is certain, before the markers are written.
        """
        header: RawHeader = HEADER.unpack_from(marker)
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        if transaction_version >= EPOCH_BUMP_VERSION:
            epoch -= 1
        refused = self._refused.get(producer_id)
        if refused is not None and refused[0] <= epoch:
            del self._refused[producer_id]
        known = self._by_producer.get(producer_id)
        if known is not None and known.epoch <= epoch:
            self._end(producer_id, known, _ended())
        if self._inbox.batches:
            self._inbox.refuse(producer_id, epoch, _ended())

    def fail_all(self, failure: KafkaError) -> None:
        """Refuse everything that waits: this replica does not lead any more."""
        for producer_id, known in list(self._by_producer.items()):
            self._end(producer_id, known, failure)
        self._refused.clear()

    def _end(self, producer_id: int, known: _Verification, refused: KafkaError | None) -> None:
        del self._by_producer[producer_id]
        outer, self._admitted = self._admitted, None if refused else producer_id
        try:
            for then in known.waiting:
                then(refused)
        finally:
            self._admitted = outer


def _ended() -> KafkaError:
    why = "the transaction has ended meanwhile; abort it and begin another one"
    return KafkaError(E.INVALID_TXN_STATE, why)


def _fenced(producer_id: int, epoch: int) -> KafkaError:
    return VerificationRefused(
        E.INVALID_PRODUCER_EPOCH,
        f"a newer epoch of producer {producer_id}, {epoch}, writes to this partition",
    )

"""The batches of one tick that a log has accepted and not yet written.

A batch that is staged has its offset, and its producer's sequence is checked; nobody can read it.
`PartitionLog.write_staged` writes everything with one call per segment, then the batches are
visible and the staging area is empty. If the write fails, `drop` undoes everything: offsets,
sequences, transactions and epochs.

Buffers are held by reference and patched in place: their owner must not reuse them before the write. A leader stages client batches (`stage`), a coordinator's own batches and markers; a
follower stages what its leader sent. The epoch begins with its first batch at the latest: after a
failure, a drop or a truncation `epoch` is NOT_BEGUN, and the next batch begins its epoch again,
which checks all that may have changed. So `stage` itself compares one number. `epoch` stays
NOT_BEGUN until the file of epochs has the epoch: a replica writes that file on a thread first.
"""

import struct

from headwater.errors import E, KafkaError
from headwater.log.epochs import EpochCache
from headwater.log.producers import ProducerStates
from headwater.log.segment import Staged
from headwater.model import TopicPartition
from headwater.records.batch import CONTROL, CRC_START, HEADER, OVERHEAD, TRANSACTIONAL, RawHeader
from headwater.records.checksum import crc32c
from headwater.records.control import read_marker
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    CRC,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAGIC_BYTE,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
)
from headwater.seams.files import Buffer

NOT_BEGUN = -2
"""No batch has this leader epoch."""

_assign = struct.Struct(">qii").pack_into


class Staging:
    """The staged batches of one log. One object for the life of the log."""

    __slots__ = (
        "_epochs", "_producers", "_topic_partition", "batches", "buffers", "end_offset", "epoch",
        "failure", "max_timestamp", "now_ms", "size",
    )  # fmt: skip

    def __init__(
        self,
        topic_partition: TopicPartition,
        epochs: EpochCache,
        producers: ProducerStates,
        end_offset: int,
    ) -> None:
        self._topic_partition = topic_partition
        self._epochs = epochs
        self._producers = producers
        # The offset of the next batch.
        self.end_offset = end_offset
        # The leader epoch that has begun, or NOT_BEGUN: the next batch must begin it.
        self.epoch = NOT_BEGUN
        # Why the log refuses appends; None while it is healthy.
        self.failure: str | None = None
        self.buffers: list[Buffer] = []
        self.batches: list[Staged] = []
        self.size = 0
        self.max_timestamp = -1
        # When the last batch was staged.
        self.now_ms = 0

    # -- the leader's epoch

    def begin_epoch(self, leader_epoch: int) -> None:
        """Begin a leader's epoch at the end of the log, once its file is written.

        Until then `epoch` stays NOT_BEGUN.
        """
        # Set first: a reader thread may report a failure at any time and close the epoch again.
        self.epoch = leader_epoch
        if self.failure is not None:
            self.epoch = NOT_BEGUN
            raise KafkaError(
                E.KAFKA_STORAGE_ERROR, f"{self._topic_partition} is offline: {self.failure}"
            )
        if leader_epoch < self._epochs.latest:
            self.epoch = NOT_BEGUN
            raise KafkaError(
                E.NOT_LEADER_OR_FOLLOWER,
                f"epoch {leader_epoch} is over, {self._epochs.latest} has begun",
            )
        if leader_epoch > self._epochs.latest:
            self._epochs.assign(leader_epoch, self.end_offset)
        if self._epochs.must_be_saved:
            self.epoch = NOT_BEGUN

    def fail(self, reason: str) -> None:
        """Refuse all appends from now on. Safe on any thread."""
        self.failure = reason
        self.epoch = NOT_BEGUN

    # -- staging as a leader

    def stage(
        self, batch: memoryview, header: RawHeader, leader_epoch: int, now_ms: int
    ) -> tuple[int, int]:
        """Stage a checked client batch and return its base and last offset.

        For a duplicate, stage nothing and return the offsets of the original.
        """
        if leader_epoch != self.epoch:
            self.begin_epoch(leader_epoch)
        base = self.end_offset
        if header[PRODUCER_ID] >= 0:
            duplicate = self._producers.admit(header, base, now_ms)
            if duplicate is not None:
                return duplicate
            if header[ATTRIBUTES] & TRANSACTIONAL:
                self._producers.begin_transaction(header[PRODUCER_ID], base)
        last = base + header[LAST_OFFSET_DELTA]
        length = header[LENGTH]
        timestamp = header[MAX_TIMESTAMP]
        _assign(batch, 0, base, length, leader_epoch)
        self.buffers.append(batch)
        length += OVERHEAD
        self.batches.append((last, length, timestamp))
        self.size += length
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.now_ms = now_ms
        self.end_offset = last + 1
        return base, last

    def stage_built(self, batch: bytearray, leader_epoch: int, now_ms: int) -> tuple[int, int]:
        """Stage a coordinator's batch: fenced by its producer's epoch, if any, without sequences."""
        header: RawHeader = HEADER.unpack_from(batch)
        if header[PRODUCER_ID] >= 0:
            self._producers.check_epoch(header[PRODUCER_ID], header[PRODUCER_EPOCH])
        return self._stage_own(batch, header, leader_epoch, now_ms)

    def stage_marker(
        self, marker: bytearray, leader_epoch: int, now_ms: int, transaction_version: int = 0
    ) -> tuple[int, int]:
        """Stage the end of a transaction: fenced by the epochs of its producer and coordinator."""
        header: RawHeader = HEADER.unpack_from(marker)
        ending = read_marker(marker) if header[ATTRIBUTES] & CONTROL else None
        if ending is None:
            raise KafkaError(E.INVALID_RECORD, "the batch is not a transaction marker")
        self._producers.check_marker(ending, transaction_version)
        return self._stage_own(marker, header, leader_epoch, now_ms)

    def _stage_own(
        self, batch: bytearray, header: RawHeader, leader_epoch: int, now_ms: int
    ) -> tuple[int, int]:
        if leader_epoch != self.epoch:
            self.begin_epoch(leader_epoch)
        base = self.end_offset
        _assign(batch, 0, base, header[LENGTH], leader_epoch)
        header = (base, header[LENGTH], leader_epoch, *header[MAGIC_BYTE:])
        self._producers.replay_batch(header, batch, now_ms)
        return self._stage_as_is(batch, header, now_ms)

    # -- staging as a follower

    def check_replicated(
        self, batch: memoryview, header: RawHeader, leader_epoch: int, *, gaps: bool
    ) -> None:
        """Raise CORRUPT_MESSAGE if a batch from the leader of `leader_epoch` must not be staged.

        The reasons: it is damaged, its offset does not follow the last one (with `gaps`: goes
        back), or its epoch is out of order.
        """
        epochs, epoch = self._epochs, header[LEADER_EPOCH]
        base, expected = header[BASE_OFFSET], self.end_offset
        if base < expected or (base > expected and not gaps):
            raise self.corrupt(f"a batch at {base} cannot follow {expected}")
        if epoch < epochs.latest:
            # This broker led an epoch in which it wrote nothing: that epoch is dropped
            # (KAFKA-10706).
            epochs.truncate_end(expected)
            self.epoch = NOT_BEGUN
        if not epochs.latest <= epoch <= leader_epoch:
            raise self.corrupt(f"the batch at {base} has leader epoch {epoch}")
        if crc32c(batch[CRC_START:]) != header[CRC]:
            raise self.corrupt(f"wrong checksum at offset {base}")

    def epoch_is_open(self, epoch: int) -> bool:
        """Return whether a batch of the epoch can be staged now; begin the epoch if nothing is staged."""
        if epoch != self.epoch and not self.batches:
            self.begin_epoch(epoch)
        return epoch == self.epoch

    def stage_replicated(self, batch: memoryview, header: RawHeader, now_ms: int) -> None:
        """Stage one checked batch of the leader, with its offsets and its epoch."""
        if header[PRODUCER_ID] >= 0 or header[ATTRIBUTES] & CONTROL:
            self._producers.replay_batch(header, batch, max(now_ms, header[MAX_TIMESTAMP]))
        self._stage_as_is(batch, header, now_ms)

    def corrupt(self, why: str) -> KafkaError:
        """Return a CORRUPT_MESSAGE error."""
        return KafkaError(E.CORRUPT_MESSAGE, f"{self._topic_partition}: {why}")

    def _stage_as_is(self, batch: Buffer, header: RawHeader, now_ms: int) -> tuple[int, int]:
        size = header[LENGTH] + OVERHEAD
        base, timestamp = header[BASE_OFFSET], header[MAX_TIMESTAMP]
        last = base + header[LAST_OFFSET_DELTA]
        self.buffers.append(batch)
        self.batches.append((last, size, timestamp))
        self.size += size
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.now_ms = now_ms
        self.end_offset = last + 1
        return base, last

    # -- emptying

    def clear(self) -> None:
        """Release the batches after they are written or lost."""
        self.buffers = []
        self.batches = []
        self.size = 0
        self.max_timestamp = -1

    def drop(self, log_end: int) -> None:
        """Undo every staged batch; the next one gets the offset `log_end`."""
        if not self.batches:
            return
        self.clear()
        self.end_offset = log_end
        self.epoch = NOT_BEGUN
        self._producers.rollback_staged(log_end)
        self._epochs.truncate_end(log_end + 1)

    def restart_at(self, offset: int) -> None:
        """After a truncation, continue at `offset`. Nothing may be staged."""
        self.end_offset = offset
        self.epoch = NOT_BEGUN
        self._epochs.truncate_end(offset)
        self._producers.restore_transactions(offset)

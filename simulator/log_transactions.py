"""What the batches of one log say about their producers: a model, read from the files alone."""

from enum import Enum
from typing import NamedTuple

from headwater.records.batch import SEQUENCES, BatchHeader
from headwater.records.control import read_marker


class BatchKind(Enum):
    """What a batch is to a reader of committed transactions."""

    PLAIN = "outside of transactions"
    DATA = "in a transaction"
    COMMIT = "a commit marker"
    ABORT = "an abort marker"


MARKERS = (BatchKind.COMMIT, BatchKind.ABORT)


class Batch(NamedTuple):
    """One batch as every replica must have it."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    kind: BatchKind = BatchKind.PLAIN
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    """-1 in batches of brokers and of producers that are not idempotent."""

    @classmethod
    def read(cls, header: BatchHeader, content: memoryview) -> "Batch":
        """Return the batch with this header; only the content of markers is looked at."""
        return cls(
            header.base_offset,
            header.last_offset,
            header.leader_epoch,
            header.crc,
            _kind(header, content),
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )


def _kind(header: BatchHeader, content: memoryview) -> BatchKind:
    if not header.transactional:
        return BatchKind.PLAIN
    if not header.control:
        return BatchKind.DATA
    marker = read_marker(content)
    assert marker is not None
    return BatchKind.COMMIT if marker.commit else BatchKind.ABORT


class EndedTransaction(NamedTuple):
    """A transaction with a marker, in one log."""

    producer_id: int
    first_offset: int
    marker_offset: int
    committed: bool


class LogTransactions:
    """The transactions of one log, from its batches in order."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """First offsets by producer id."""
        self.ended: list[EndedTransaction] = []
        self.used = False
        """Whether the log has transactions at all."""
        self._epochs: dict[int, int] = {}

    def add(self, batch: Batch) -> str:
        """Take the next batch; return what is wrong with it, or nothing."""
        if batch.kind is BatchKind.PLAIN:
            return ""
        self.used = True
        producer_id = batch.producer_id
        newest = self._epochs.get(producer_id, -1)
        self._epochs[producer_id] = max(newest, batch.producer_epoch)
        if batch.kind is BatchKind.DATA:
            self.open.setdefault(producer_id, batch.base_offset)
        elif producer_id in self.open:
            self.ended.append(
                EndedTransaction(
                    producer_id,
                    self.open.pop(producer_id),
                    batch.base_offset,
                    batch.kind is BatchKind.COMMIT,
                )
            )
        if batch.producer_epoch < newest:
            return f"{batch} comes after epoch {newest} of its producer"
        return ""

    def stable(self, high_watermark: int) -> int:
        """Return up to where a read-committed reader may read."""
        end = min([high_watermark, *self.open.values()])
        for ended in reversed(self.ended):
            if ended.marker_offset < high_watermark:
                break
            end = min(end, ended.first_offset)
        return end


class LogSequences:
    """The sequences of idempotent producers in one log, from its batches in order (I3)."""

    def __init__(self, *, created_again: bool) -> None:
        self._created_again = created_again
        self._next: dict[int, tuple[int, int]] = {}
        """The epoch and the next sequence, by producer id."""

    def add(self, batch: Batch) -> str:
        """Take the next batch; return what is wrong with it, or nothing.

        Each epoch of a producer begins with sequence 0, and has no gap and nothing twice. In a topic
        that is created again a producer goes on where it was in the one before.
        """
        any_first = batch.base_sequence if self._created_again else 0
        epoch, expected = self._next.get(batch.producer_id, (batch.producer_epoch, any_first))
        if batch.producer_epoch != epoch:
            expected = 0
        if batch.base_sequence >= 0:
            count = batch.last_offset - batch.base_offset + 1
            following = (batch.base_sequence + count) % SEQUENCES
            self._next[batch.producer_id] = batch.producer_epoch, following
            if batch.base_sequence != expected:
                return f"{batch} comes where sequence {expected} is due"
        return ""

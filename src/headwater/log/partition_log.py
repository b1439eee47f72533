"""The log of one partition: batches in, ranges of files out.

Ends: `staged_end_offset` >= `log_end_offset` >= `recovery_point`. A batch is staged (its offset
assigned, its sequence checked), then written with all others of the tick, and only then visible.
If the write fails the file is cut back, everything staged is forgotten and the error raised; where
even that fails the log refuses all further appends. One thread owns a log. Nothing here waits for
the disk except `truncate_to`, `offset_for_time` and a rare repair of an index.
"""

import logging
import struct
from collections.abc import Sequence

from headwater.errors import E, KafkaError
from headwater.log import retention
from headwater.log.aborted_index import AbortedTransaction
from headwater.log.descriptors import EXHAUSTED, Descriptors
from headwater.log.epochs import EpochCache
from headwater.log.flushing import FlushWork, snapshot_due
from headwater.log.index_rebuild import remove_snapshots, replay_producers
from headwater.log.offset_index import MAX_RELATIVE_OFFSET
from headwater.log.presence import Presence
from headwater.log.producers import ProducerStates, State
from headwater.log.segment import JITTER_SHARES, Segment, Staged
from headwater.log.segmented_log import SegmentedLog
from headwater.log.settings import LogSettings
from headwater.log.transactions import OpenTransactions
from headwater.log.truncation_note import remove_note, write_note
from headwater.model import TopicPartition, Uuid
from headwater.records.batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    OVERHEAD,
    TRANSACTIONAL,
    RawHeader,
)
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
from headwater.seams.files import Buffer, Files

log = logging.getLogger(__name__)

FLUSH_BYTES = 64 << 20
FLUSH_MS = 60_000
CLEAN, UNSEEN = -2, -1
"""Nothing is unflushed; something is, and nobody has looked at it yet."""

_assign = struct.Struct(">qii").pack_into


class PartitionLog(SegmentedLog):
    """An append-only sequence of batches."""

    __slots__ = (
        "_buffers", "_dirty_since_ms", "_now_ms", "_staged", "_staged_bytes",
        "_staged_epoch", "_staged_timestamp", "_transactions", "_unflushed_from", "aborted",
        "checkpointed", "checkpointed_at", "epochs", "has_truncation_note", "presence", "producers", "recovery_point", "snapshot_at", "snapshot_offset",
        "snapshots",
        "staged_end_offset", "topic_id", "truncations",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        descriptors: Descriptors,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        settings: LogSettings,
    ) -> None:
        super().__init__(files, descriptors, directory, topic_partition, settings)
        self.topic_id = topic_id
        self.presence = Presence()
        self.epochs = EpochCache(files, directory)
        self.producers = ProducerStates()
        self._transactions = OpenTransactions()
        self.staged_end_offset = 0
        self.recovery_point = 0
        # The recovery point that the checkpoint file has: snapshots from there on are still needed.
        self.checkpointed = 0
        # The number of truncations that the checkpoint file knows of.
        self.checkpointed_at = 0
        # Whether a note in the folder says that the checkpoint file is not to be believed.
        self.has_truncation_note = False
        # Where the newest sound producer snapshot stands.
        self.snapshot_offset = 0
        # Aborted transactions whose markers are staged: entered into an index once written.
        self.aborted: list[AbortedTransaction] = []
        # Grows with each truncation; a flush that began before one proves nothing after it.
        self.truncations = 0
        self._unflushed_from = 0
        # Since when (monotonic) something is unflushed, as far as `flush_due` was asked.
        self._dirty_since_ms = CLEAN
        self._now_ms = 0
        self._buffers: list[Buffer] = []
        self._staged: list[Staged] = []
        self._staged_bytes = 0
        self._staged_timestamp = -1
        self._staged_epoch = -1
        # Producer snapshots taken at rolls, to be written by the next flush.
        self.snapshots: list[tuple[str, dict[int, State]]] = []
        # Base and size of the active segment at the last snapshot.
        self.snapshot_at = (0, 0)

    # Appending

    def begin_epoch(self, leader_epoch: int) -> None:
        """A leader takes over: its epoch begins at the log's end (in the file before its first batch)."""
        if self.failure is not None:
            raise KafkaError(
                E.KAFKA_STORAGE_ERROR, f"{self.topic_partition} is offline: {self.failure}"
            )
        if leader_epoch < self.epochs.latest:
            raise KafkaError(
                E.NOT_LEADER_OR_FOLLOWER,
                f"epoch {leader_epoch} is over, {self.epochs.latest} has begun",
            )
        self.epochs.assign(leader_epoch, self.staged_end_offset)
        self._staged_epoch = leader_epoch

    def stage(
        self, batch: memoryview, header: RawHeader, leader_epoch: int, now_ms: int
    ) -> tuple[int, int]:
        """Give a checked client batch its place: base and last offset.

        Those of the original if it is a duplicate; then nothing is staged. The bytes are patched
        now and kept by reference until `write_staged`.
        """
        if self.failure is not None or leader_epoch != self._staged_epoch:
            self.begin_epoch(leader_epoch)
        base = self.staged_end_offset
        if header[PRODUCER_ID] >= 0:
            duplicate = self.producers.admit(header, base, now_ms)
            if duplicate is not None:
                return duplicate
            if header[ATTRIBUTES] & TRANSACTIONAL:
                self._begin_transaction(header[PRODUCER_ID], base)
        last = base + header[LAST_OFFSET_DELTA]
        length = header[LENGTH]
        timestamp = header[MAX_TIMESTAMP]
        _assign(batch, 0, base, length, leader_epoch)
        self._buffers.append(batch)
        length += OVERHEAD
        self._staged.append((last, length, timestamp))
        self._staged_bytes += length
        if timestamp > self._staged_timestamp:
            self._staged_timestamp = timestamp
        self._now_ms = now_ms
        self.staged_end_offset = last + 1
        return base, last

    def stage_built(self, batch: bytearray, leader_epoch: int, now_ms: int) -> tuple[int, int]:
        """Stage a coordinator's batch: fenced by its producer's epoch, if any, without sequences."""
        header: RawHeader = HEADER.unpack_from(batch)
        if header[PRODUCER_ID] >= 0:
            self.producers.check_epoch(header[PRODUCER_ID], header[PRODUCER_EPOCH])
        return self._stage_own(batch, header, leader_epoch, now_ms)

    def stage_marker(self, marker: bytearray, leader_epoch: int, now_ms: int) -> tuple[int, int]:
        """Stage the end of a transaction: fenced by the epochs of its producer and coordinator."""
        header: RawHeader = HEADER.unpack_from(marker)
        ending = read_marker(marker) if header[ATTRIBUTES] & CONTROL else None
        if ending is None:
            raise KafkaError(E.INVALID_RECORD, "the batch is not a transaction marker")
        self.producers.check_marker(
            header[PRODUCER_ID], header[PRODUCER_EPOCH], ending.coordinator_epoch
        )
        return self._stage_own(marker, header, leader_epoch, now_ms)

    def _stage_own(
        self, batch: bytearray, header: RawHeader, leader_epoch: int, now_ms: int
    ) -> tuple[int, int]:
        if self.failure is not None or leader_epoch != self._staged_epoch:
            self.begin_epoch(leader_epoch)
        base = self.staged_end_offset
        _assign(batch, 0, base, header[LENGTH], leader_epoch)
        header = (base, header[LENGTH], leader_epoch, *header[MAGIC_BYTE:])
        self.replay_batch(header, batch, now_ms)
        return self._stage_as_is(batch, header, now_ms)

    def stage_replicated(self, batches: Buffer, leader_epoch: int, now_ms: int) -> None:
        """Stage what the leader of `leader_epoch` sent, with its offsets and epochs.

        The bytes are kept by reference. A batch cut off at the end is left out; one that is damaged,
        does not follow the last one, or has an epoch out of order is refused with CORRUPT_MESSAGE,
        and those before it stay staged.
        """
        view = memoryview(batches)
        at = 0
        while at + HEADER_SIZE <= len(view):
            header: RawHeader = HEADER.unpack_from(view, at)
            size = header[LENGTH] + OVERHEAD
            if size < HEADER_SIZE or header[MAGIC_BYTE] != MAGIC:
                raise KafkaError(E.CORRUPT_MESSAGE, f"no batch follows {self.staged_end_offset}")
            if at + size > len(view):
                break
            self._stage_replicated(view[at : at + size], header, leader_epoch, now_ms)
            at += size

    def write_staged(self) -> None:
        """Write everything staged, with one call to the system per segment, and make it visible."""
        staged = self._staged
        if not staged:
            return
        active = self.segments[-1]
        size = active.size
        settings = self.settings
        try:
            if not active.ready:
                self.walk_active()
            if self.epochs.unsaved:
                self.epochs.save()
            total = self._staged_bytes
            if active.is_full(total, staged[-1][0], self._staged_timestamp, self._now_ms, settings):
                self._write_in_parts()
            else:
                active.append(self._buffers, staged, total, settings.index_interval_bytes)
        except OSError as error:
            self._abandon(active, size, error)
            raise
        self.size += total
        self.log_end_offset = self.staged_end_offset
        self.producers.commit_staged()
        if self.aborted:
            self._file_aborted()
        self._forget_staged()
        if self._dirty_since_ms == CLEAN:
            self._dirty_since_ms = UNSEEN

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log's end; the old one is sealed."""
        self._roll(self.log_end_offset, now_ms)

    # Transactions

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where a read-committed consumer may read."""
        return self._transactions.stable(high_watermark)

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Drop everything at and above `offset`; a batch that holds it goes as a whole."""
        self.drop_staged()
        if offset >= self.log_end_offset:
            return
        if offset <= self.segments[0].base_offset:
            self.truncate_fully(offset)
            return
        last = self.segments[self.rank(offset - 1)]
        found = self.repairing(last, lambda: last.find(last.read_blocking, offset))
        position, offset = (
            (last.size, offset) if found is None else (found[0], found[1][BASE_OFFSET])
        )
        self._begin_truncation(offset)
        while self.segments[-1] is not last:
            self.discard(self.segments.pop())
        self.size -= last.size - position
        last.cut(position, offset)
        self._end_truncation(offset)
        replay_producers(self, self._files, self._now_ms)
        self._restore_transactions()

    def truncate_fully(self, start: int) -> None:
        """Drop everything and go on at `start`."""
        self.drop_staged()
        self._begin_truncation(start)
        while self.segments:
            self.discard(self.segments.pop())
        self.add_segment(start, self._now_ms)
        self.epochs.clear()
        self.producers = ProducerStates()
        self.log_start_offset = start
        self._end_truncation(start)

    def _begin_truncation(self, offset: int) -> None:
        if max(self.checkpointed, self.recovery_point) > offset:
            write_note(self._files, self.directory, offset)
            self.has_truncation_note = True
        self.truncations += 1
        self.unsaved_from = 0
        self.snapshots = []

    def _end_truncation(self, offset: int) -> None:
        self._end_at(offset)
        self.epochs.save(sync=True)
        remove_snapshots(self._files, self.directory, above=offset)
        self.snapshot_offset = -1

    def remove_stale_note(self) -> None:
        """Drop the note of a truncation once the checkpoint was written after it."""
        if self.has_truncation_note and self.checkpointed_at == self.truncations:
            remove_note(self._files, self.directory)
            self.has_truncation_note = False

    def advance_start(self, offset: int) -> None:
        """Records below `offset` are gone for readers; retention drops their segments later."""
        if offset > self.log_end_offset:
            raise KafkaError(
                E.OFFSET_OUT_OF_RANGE, f"{offset} is above the log's end {self.log_end_offset}"
            )
        self.log_start_offset = max(self.log_start_offset, offset)

    def retain(self, now_ms: int, high_watermark: int) -> list[Segment]:
        """Drop the segments that retention has given up; which they were."""
        return retention.retain(self, now_ms, high_watermark)

    def drop_first(self) -> Segment:
        """Remove the oldest segment, which must not be the active one."""
        segment = self.segments.pop(0)
        self.discard(segment)
        # Epochs are kept for batches, not for readers: recovery holds each batch against them.
        self.epochs.truncate_start(self.segments[0].base_offset)
        self.advance_start(self.segments[0].base_offset)
        return segment

    # Flushing

    def flush_due(self, now_ms: int, looked_ms: int) -> bool:
        """Whether enough was written, or long enough ago, that the disk should have it.

        Both times are monotonic: now, and when somebody last asked.
        """
        if self._dirty_since_ms == CLEAN:
            return False
        if self._dirty_since_ms == UNSEEN:
            self._dirty_since_ms = looked_ms
        return (
            self.size - self._unflushed_from >= FLUSH_BYTES
            or now_ms - self._dirty_since_ms >= min(FLUSH_MS, self.settings.flush_ms)
            or self.log_end_offset - self.recovery_point >= self.settings.flush_messages
            or bool(self.snapshots)
        )

    def unflushed(self, *, closing: bool = False) -> FlushWork | None:
        """What the disk lacks: run it on a file thread, then hand it to `mark_flushed`."""
        if self.epochs.worth_saving(self.log_end_offset):
            self.epochs.save()
        if snapshot_due(self, closing=closing):
            self._take_snapshot(self.log_end_offset)
        if (
            self.recovery_point >= self.log_end_offset
            and not self.snapshots
            and not self.epochs.unsynced
        ):
            return None
        work = FlushWork(
            self._files, self.presence, self.directory, self.log_end_offset, self.truncations
        )
        work.gather(self)
        self._unflushed_from = self.size
        self._dirty_since_ms = CLEAN
        return work

    def _take_snapshot(self, offset: int) -> None:
        self.snapshots.append((self.snapshot_stem(offset), self.producers.written_states()))
        self.snapshot_offset = offset
        self.snapshot_at = (self.active.base_offset, self.active.size)

    def postpone_flush(self) -> None:
        """There was no room for what a flush writes beside the data: it is due again."""
        self.epochs.unsynced = True
        self._dirty_since_ms = UNSEEN
        self.unsaved_from = 0
        self.snapshot_offset = -1

    def mark_flushed(self, work: FlushWork) -> None:
        """The work was done without an error: the disk has the log up to where it ended then."""
        if work.truncations != self.truncations:
            return
        work.mark_saved()
        self.recovery_point = max(self.recovery_point, work.end_offset)
        self.remove_stale_note()
        for rank in range(self.rank(work.first_offset), len(self.segments) - 1):
            segment = self.segments[rank]
            segment.time_index.release()
            if segment not in self._warm:
                segment.index.release()

    def close(self) -> None:
        """Flush everything; the log ends here for this process. Any thread, with nobody else on it."""
        self.drop_staged()
        if self.failure is None:
            self.active.seal()
            work = self.unflushed(closing=True)
            if work is not None:
                work.run()
                self.mark_flushed(work)

    # For the rooms next door: recovery and rebuilding

    def snapshot_stem(self, offset: int) -> str:
        """Path of the producer snapshot at `offset`, without its suffix."""
        return f"{self.directory}/{offset:020d}"

    def replay_batch(self, header: RawHeader, batch: Buffer, now_ms: int) -> None:
        """Take note of a batch that is in the log already: its producer and its transaction."""
        if header[ATTRIBUTES] & CONTROL:
            self._end_transaction(batch, header, now_ms)
        elif header[PRODUCER_ID] >= 0:
            self.producers.replay(header, now_ms)
            if header[ATTRIBUTES] & TRANSACTIONAL:
                self._begin_transaction(header[PRODUCER_ID], header[BASE_OFFSET])

    def finish_load(self, end_offset: int) -> None:
        """The log is loaded: it ends here, and what was absorbed is final."""
        self.producers.commit_staged()
        self._file_aborted()
        self.size = self._unflushed_from = sum(segment.size for segment in self.segments)
        self._end_at(end_offset)
        self.active.jitter = self.draw(JITTER_SHARES)
        # Recovery may have sealed the segment before the one that it walked.
        rank = max(0, self.rank(self.recovery_point) - 1)
        self.unsaved_from = min(self.unsaved_from, self.segments[rank].base_offset)

    # Inner work

    def _stage_as_is(self, batch: Buffer, header: RawHeader, now_ms: int) -> tuple[int, int]:
        size = header[LENGTH] + OVERHEAD
        last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        self._buffers.append(batch)
        self._staged.append((last, size, header[MAX_TIMESTAMP]))
        self._staged_bytes += size
        self._staged_timestamp = max(self._staged_timestamp, header[MAX_TIMESTAMP])
        self._now_ms = now_ms
        self.staged_end_offset = last + 1
        return header[BASE_OFFSET], last

    def _stage_replicated(
        self, batch: memoryview, header: RawHeader, leader_epoch: int, now_ms: int
    ) -> None:
        expected, base = self.staged_end_offset, header[BASE_OFFSET]
        if base < expected or (base > expected and not self.settings.compacted):
            raise self._corrupt(f"a batch at {base} cannot follow {expected}")
        if header[LEADER_EPOCH] < self.epochs.latest:
            # This broker led an epoch in which it wrote nothing: it gives way (KAFKA-10706).
            self.epochs.truncate_end(expected)
        if not self.epochs.latest <= header[LEADER_EPOCH] <= leader_epoch:
            raise self._corrupt(f"the batch at {base} has leader epoch {header[LEADER_EPOCH]}")
        if crc32c(batch[CRC_START:]) != header[CRC]:
            raise self._corrupt(f"wrong checksum at offset {base}")
        if expected == self.active.base_offset and base - expected > MAX_RELATIVE_OFFSET:
            # Compaction left nothing that the empty active segment could hold.
            self._move_empty_active(base)
        if self.failure is not None or header[LEADER_EPOCH] != self._staged_epoch:
            self.begin_epoch(header[LEADER_EPOCH])
        self.replay_batch(header, batch, max(now_ms, header[MAX_TIMESTAMP]))
        self._stage_as_is(batch, header, now_ms)

    def _corrupt(self, why: str) -> KafkaError:
        return KafkaError(E.CORRUPT_MESSAGE, f"{self.topic_partition}: {why}")

    def _move_empty_active(self, base: int) -> None:
        """Let the log continue at `base`: a segment's offsets span at most 2^31."""
        if len(self.segments) == 1:
            self.truncate_fully(base)
            return
        self.discard(self.segments.pop())
        self.add_segment(base, self._now_ms)
        self.log_end_offset = self.staged_end_offset = base

    def _begin_transaction(self, producer_id: int, first_offset: int) -> None:
        if self.producers.begin_transaction(producer_id, first_offset):
            self._transactions.begin(producer_id, first_offset)

    def _end_transaction(self, batch: Buffer, header: RawHeader, now_ms: int) -> None:
        marker = read_marker(batch)
        if marker is None:
            return
        first = self.producers.end_transaction(
            header[PRODUCER_ID], header[PRODUCER_EPOCH], marker.coordinator_epoch, now_ms
        )
        stable = self._transactions.end(header[PRODUCER_ID], header[BASE_OFFSET])
        if first >= 0 and not marker.commit:
            self.aborted.append(
                AbortedTransaction(header[PRODUCER_ID], first, header[BASE_OFFSET], stable)
            )

    def _file_aborted(self) -> None:
        """Enter written markers of aborts into the indexes of the segments that hold them."""
        for aborted in self.aborted:
            self.segments[self.rank(aborted.last_offset)].aborted.append(aborted)
        self.aborted.clear()

    def _write_in_parts(self) -> None:
        """Write where one or more rolls fall between the staged batches."""
        start = part = 0
        for at, (last, size, timestamp) in enumerate(self._staged):
            if self._rolls_before(part, size, last, timestamp):
                self._write_part(start, at)
                self._roll(self._staged[at - 1][0] + 1 if at else self.log_end_offset, self._now_ms)
                start, part = at, 0
            part += size
        self._write_part(start, len(self._staged))

    def _rolls_before(self, part: int, size: int, last: int, timestamp: int) -> bool:
        """Whether a batch begins a new segment, given the bytes to be written before it."""
        if self.active.size == 0:
            return part > 0 and part + size > self.settings.segment_bytes
        return self.active.is_full(part + size, last, timestamp, self._now_ms, self.settings)

    def _write_part(self, start: int, end: int) -> None:
        if start < end:
            batches: Sequence[Staged] = self._staged[start:end]
            total = sum(row[1] for row in batches)
            interval = self.settings.index_interval_bytes
            self.active.append(self._buffers[start:end], batches, total, interval)

    def _roll(self, offset: int, now_ms: int) -> None:
        self.add_segment(offset, now_ms)
        if offset == self.log_end_offset:
            # Later in the tick the producers' states at the roll are no longer known apart.
            self._take_snapshot(offset)

    def _abandon(self, active: Segment, size: int, error: OSError) -> None:
        """A write failed: back to the visible end, as if nothing had been staged."""
        log.error(
            "append to %s failed, its staged batches are dropped: %s", self.topic_partition, error
        )
        try:
            while self.segments[-1] is not active:
                segment = self.segments.pop()
                self._descriptors.close_path(segment.path)
                self._files.unlink(segment.path)
            if active.size != size:
                active.cut(size, self.log_end_offset)
            elif error.errno not in EXHAUSTED:  # without a descriptor nothing was written
                self._files.truncate(self._descriptors.of(active.path), size)
        except OSError as worse:
            self.failure = f"{error}; cutting back failed too: {worse}"
        self.drop_staged()

    def _forget_staged(self) -> None:
        self._buffers = []
        self._staged = []
        self.aborted.clear()
        self._staged_bytes = 0
        self._staged_timestamp = -1

    def drop_staged(self) -> None:
        """Forget staged batches with their offsets, epochs, sequences and transactions."""
        if not self._staged:
            return
        self._forget_staged()
        self.staged_end_offset = self.log_end_offset
        self.producers.rollback_staged()
        self._restore_transactions()
        self.epochs.truncate_end(self.log_end_offset + 1)
        self._staged_epoch = self.epochs.latest

    def _end_at(self, offset: int) -> None:
        """The log now ends at `offset`, whatever was known of more."""
        self.log_end_offset = self.staged_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.truncate_end(offset)
        self._staged_epoch = self.epochs.latest
        self._unflushed_from = min(self._unflushed_from, self.size)
        self._restore_transactions()

    def _restore_transactions(self) -> None:
        rows = ((row.producer_id, row.transaction_start) for row in self.producers)
        self._transactions.restore(rows, self.log_end_offset)

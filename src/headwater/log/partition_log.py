"""The log of one partition: batches in, ranges of files out.

A log is made of held parts:

    staging (`staging.py`)         accepted, not written: offsets assigned, sequences checked
    segments (`log_segments.py`)   the files: reads, rolls, cuts; the one owner of the list
    producers, epochs              what batches said about their writers, and who led when

`loading.py` makes them from a folder. This class moves the ends and keeps the parts together:
`staging.end_offset` >= `log_end_offset` >= `recovery_point`. A batch is staged, then written with
all others of the tick, and only then visible. If the write fails, the file is cut back, everything
staged is dropped and the error raised; if even that fails, the log refuses all further appends. One
thread owns a log. Nothing here waits for the disk except cuts and the rare repair of an index.
"""

import errno
import logging
from collections.abc import Sequence

from headwater.errors import E, KafkaError
from headwater.log import retention, snapshots, truncation_note
from headwater.log.aborted_index import AbortedTransaction
from headwater.log.descriptors import EXHAUSTED
from headwater.log.epochs import EpochCache
from headwater.log.flushing import FlushWork, save_active_checksums, snapshot_due
from headwater.log.index_rebuild import remove_snapshots, replay_producers
from headwater.log.log_segments import LogSegments
from headwater.log.log_state import LogState
from headwater.log.offset_index import MAX_RELATIVE_OFFSET
from headwater.log.producers import ProducerStates, State
from headwater.log.segment import Segment, Staged
from headwater.log.settings import LogSettings
from headwater.log.slices import FileSlice
from headwater.log.staging import Staging
from headwater.model import TopicPartition, Uuid
from headwater.records.batch import HEADER, HEADER_SIZE, MAGIC, OVERHEAD, RawHeader
from headwater.records.header_fields import BASE_OFFSET, LEADER_EPOCH, LENGTH, MAGIC_BYTE
from headwater.seams.files import Buffer

log = logging.getLogger(__name__)

FLUSH_BYTES = 64 << 20
FLUSH_MS = 60_000
CLEAN, UNSEEN = -2, -1
"""States of the flush timer: all is flushed; something is not, since the last `flush_due`."""


class PartitionLog:
    """An append-only sequence of batches."""

    __slots__ = (
        "_dirty_since_ms", "_unflushed_from", "checkpointed", "checkpointed_at", "cleaned_end",
        "cleaning", "decided_end", "directory", "epochs", "log_end_offset",
        "log_start_offset", "note_number", "noted_start", "presence", "producers", "recovery_point", "segments", "snapshot_at",
        "snapshot_offset", "snapshots", "staging", "stored_start", "synced_end", "topic_id", "topic_partition",
        "truncation_limit", "truncations",
    )  # fmt: skip

    def __init__(
        self,
        topic_id: Uuid,
        segments: LogSegments,
        epochs: EpochCache,
        producers: ProducerStates,
        state: LogState,
    ) -> None:
        self.topic_id = topic_id
        self.topic_partition: TopicPartition = segments.topic_partition
        self.directory = segments.directory
        self.presence = epochs.presence
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset, self.log_end_offset = state.log_start_offset, state.log_end_offset
        self.staging = Staging(self.topic_partition, epochs, producers, state.log_end_offset)
        if state.failure is not None:
            self.staging.fail(state.failure)
        segments.on_damage = self.staging.fail
        # A start trusts what is below; the data alone is on the disk up to `synced_end`.
        self.recovery_point = self.synced_end = state.recovery_point
        # Every transaction that began below this offset has a marker below the recovery point.
        self.decided_end = producers.undecided_below(state.recovery_point)
        # The recovery point that the checkpoint file has: snapshots from there on are still needed.
        self.checkpointed = state.recovery_point
        # The log start that the checkpoint file has.
        self.stored_start = state.stored_start
        # The start in a note that a move left, until the checkpoint has it.
        self.noted_start = state.noted_start
        # The truncations that the checkpoint file takes into account.
        self.checkpointed_at = 0 if state.truncation_limit is None else -1
        # The limit in a note in the folder, which overrides the checkpoint file; None without one.
        self.truncation_limit, self.note_number = state.truncation_limit, state.note_number
        # The offset of the newest intact producer snapshot.
        self.snapshot_offset = state.snapshot_offset
        # Everything below this offset was compacted; retention drops nothing while it goes on.
        self.cleaned_end, self.cleaning = state.cleaned_end, False
        # Producer states at rolls; the next flush writes them.
        self.snapshots: list[tuple[str, dict[int, State]]] = []
        # Base and size of the active segment at the last snapshot.
        self.snapshot_at = (0, 0)
        # Counts truncations: a flush that began before one does not count after it.
        self.truncations = 0
        # The size of the log at the last flush.
        self._unflushed_from = segments.size
        # Since when something is unflushed, in monotonic time; `flush_due` keeps it.
        self._dirty_since_ms = CLEAN

    # -- describing

    @property
    def failure(self) -> str | None:
        """Why this log refuses appends; None while it is healthy."""
        return self.staging.failure

    def fail(self, reason: str) -> None:
        """Refuse all appends from now on. Safe on any thread."""
        self.staging.fail(reason)

    @property
    def durable_start(self) -> int:
        """The log start below which a power cut cannot bring records back."""
        return min(self.stored_start, self.log_start_offset)

    @property
    def settings(self) -> LogSettings:
        return self.segments.settings

    @property
    def size(self) -> int:
        return self.segments.size

    def configure(self, settings: LogSettings) -> None:
        """Replace the settings, with effect from the next batch on."""
        self.segments.settings = settings

    def relocate(self, directory: str) -> None:
        """Use the folder's new path after a rename; `segments.pop_files` comes first."""
        self.directory = directory
        self.segments.relocate(directory)
        self.epochs.relocate(directory)
        self.snapshots = [
            (f"{directory}/{stem.rpartition('/')[2]}", states) for stem, states in self.snapshots
        ]

    # -- writing

    def stage_replicated(
        self, batches: Buffer, leader_epoch: int, now_ms: int, *, gaps: bool = False
    ) -> None:
        """Stage what the leader of `leader_epoch` sent, with its offsets and epochs.

        A batch cut off at the end is ignored. One that is damaged, does not follow the last one, or
        has an epoch out of order raises CORRUPT_MESSAGE; those before it stay staged.
        Staging stops before a batch that begins an epoch: the caller first writes what is staged,
        then saves `epochs` (`must_be_saved`), and then stages the batch.
        """
        view, staging = memoryview(batches), self.staging
        may_skip = gaps or self.settings.compacted
        at, end = 0, len(view)
        while at + HEADER_SIZE <= end:
            header: RawHeader = HEADER.unpack_from(view, at)
            size = header[LENGTH] + OVERHEAD
            if size < HEADER_SIZE or header[MAGIC_BYTE] != MAGIC:
                raise staging.corrupt(f"no batch follows {staging.end_offset}")
            if at + size > end:
                break
            batch = view[at : at + size]
            staging.check_replicated(batch, header, leader_epoch, gaps=may_skip)
            if header[BASE_OFFSET] != staging.end_offset:
                self._make_room(header[BASE_OFFSET])
            if header[LEADER_EPOCH] != staging.epoch and not staging.epoch_is_open(
                header[LEADER_EPOCH]
            ):
                break
            staging.stage_replicated(batch, header, now_ms)
            at += size

    def _make_room(self, base: int) -> None:
        """Move the empty active segment if it cannot hold `base`: its offsets span at most 2^31."""
        expected = self.staging.end_offset
        if expected == self.segments.active.base_offset and base - expected > MAX_RELATIVE_OFFSET:
            # Compaction left a gap that is too wide for the empty active segment.
            if len(self.segments) == 1:
                self.truncate_fully(base)
                return
            self.segments.move_empty_active(base, self.log_end_offset, self.staging.now_ms)
            self.log_end_offset = self.staging.end_offset = base

    def write_staged(self) -> None:
        """Write everything staged with one system call per segment, and make it visible."""
        staging = self.staging
        batches = staging.batches
        if not batches:
            return
        segments = self.segments
        active, settings = segments.active, segments.settings
        size = active.size
        try:
            if not active.ready:
                segments.walk_active(self.log_end_offset)
            if self.epochs.saved < self.epochs.needed:
                self.epochs.save()
            total = staging.size
            if active.is_full(
                total, batches[-1][0], staging.max_timestamp, staging.now_ms, settings
            ):
                self._write_in_parts()
            else:
                active.append(staging.buffers, batches, total, settings.index_interval_bytes)
        except Exception as error:
            self._undo_append(active, size, error)
            raise
        segments.size += total
        self.log_end_offset = staging.end_offset
        producers = self.producers
        producers.commit_staged()
        if producers.aborted:
            segments.index_aborted(producers.aborted)
            producers.aborted.clear()
        staging.clear()
        if self._dirty_since_ms == CLEAN:
            self._dirty_since_ms = UNSEEN

    def drop_staged(self) -> None:
        """Drop staged batches with their offsets, epochs, sequences and transactions."""
        self.staging.drop(self.log_end_offset)

    def _write_in_parts(self) -> None:
        """Write staged batches that span several segments."""
        staging = self.staging
        batches, now_ms = staging.batches, staging.now_ms
        start = part = 0
        for at, (last, size, timestamp) in enumerate(batches):
            if self._rolls_before(part, size, last, timestamp, now_ms):
                self._write_part(start, at)
                self._roll(batches[at - 1][0] + 1 if at else self.log_end_offset, now_ms)
                start, part = at, 0
            part += size
        self._write_part(start, len(batches))

    def _rolls_before(self, part: int, size: int, last: int, timestamp: int, now_ms: int) -> bool:
        """Return whether a batch begins a new segment, given the bytes to be written before it."""
        active, settings = self.segments.active, self.settings
        if active.size == 0:
            return part > 0 and (part + size > settings.segment_bytes or not active.spans(last))
        return active.is_full(part + size, last, timestamp, now_ms, settings)

    def _write_part(self, start: int, end: int) -> None:
        if start < end:
            batches: Sequence[Staged] = self.staging.batches[start:end]
            total = sum(row[1] for row in batches)
            interval = self.settings.index_interval_bytes
            self.segments.active.append(self.staging.buffers[start:end], batches, total, interval)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the end of the log and seal the old one."""
        self._roll(self.log_end_offset, now_ms)

    def _roll(self, offset: int, now_ms: int) -> None:
        self.segments.add(offset, self.log_end_offset, now_ms)
        if offset == self.log_end_offset:
            # Copy them now: later batches of the tick change the producers' states.
            self._take_snapshot(offset)

    def _undo_append(self, active: Segment, size: int, error: Exception) -> None:
        """After a failed write, cut the file back to the visible end and drop what is staged."""
        log.error(
            "append to %s failed, its staged batches are dropped: %s", self.topic_partition, error
        )
        try:
            self.segments.undo_append(active, size, self.log_end_offset, error)
        except OSError as second:
            self.fail(f"{error}; cutting back failed too: {second}")
            if second.errno not in EXHAUSTED:  # after a failed sync, no later one may count
                raise OSError(errno.EIO, self.failure, self.directory) from second
        finally:
            # The buffers of staged batches are reused after this tick.
            self.drop_staged()

    # -- reading

    def read(self, offset: int, upper: int, max_bytes: int, at_least_one: bool) -> FileSlice | None:
        """Return whole batches of one segment, from the batch that holds `offset` to below `upper`.

        None if there is nothing. An `upper` inside a batch excludes that batch.
        """
        end = self.log_end_offset
        if offset >= upper or offset >= end:
            return None
        return self.segments.read(offset, upper, end, max_bytes, at_least_one)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset before which a read-committed consumer may read."""
        stable = self.producers.last_stable_offset(high_watermark)
        # DeleteRecords and retention may have removed the start of an open transaction.
        return stable if stable == high_watermark else max(stable, self.log_start_offset)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap the offsets from `start` to before `end`."""
        return self.segments.aborted_transactions(start, end)

    # -- truncation, as a follower: the disk has it when these return

    def truncate_to(self, offset: int) -> None:
        """Drop everything at and above `offset`, including the whole batch that holds it.

        Memory agrees with the log's file before any other file is written: if a full disk refuses
        those writes, the next flush or truncation repeats them.
        """
        self.drop_staged()
        segments = self.segments
        if offset >= self.log_end_offset:
            return
        if offset <= segments.start_offset:
            self.truncate_fully(offset)
            return
        last = segments.holding(offset - 1)
        position, offset = segments.batch_holding(last, offset)
        self._begin_truncation(offset)
        segments.cut(last, position, offset)
        self._end_truncation(offset)
        replayed = replay_producers(segments, self.producers, offset, self.staging.now_ms)
        self.snapshot_offset = replayed.snapshot_offset
        self.producers.restore_transactions(offset)
        self.decided_end = min(self.decided_end, self.producers.undecided_below(offset))
        last.save_indexes()
        segments.save_aborted_counts([last], segments)
        self.epochs.save(sync=True)

    def truncate_fully(self, start: int) -> None:
        """Drop everything and continue at `start`."""
        self.drop_staged()
        self._begin_truncation(start, whole=True)
        self.segments.replace_all(start, self.staging.now_ms)
        self.epochs.clear()
        self.producers.restore((), 0)
        self.log_start_offset = start
        self._end_truncation(start)
        self.segments.save_aborted_counts([], [])
        self.epochs.save(sync=True)

    def _begin_truncation(self, offset: int, *, whole: bool = False) -> None:
        number = self.note_number
        # With no segment left, a start must know that none was lost.
        if max(self.checkpointed, self.recovery_point) + whole > offset:
            # An earlier truncation that the checkpoint does not know may have gone further back.
            noted = self.truncation_limit
            limit = offset if noted is None else min(noted, offset)
            note = truncation_note.Note(limit, self.note_number + 1)
            truncation_note.write_note(self.segments.files, self.directory, note)
            self.truncation_limit, number = note
        if self.noted_start > offset:
            truncation_note.lower_start_note(self.segments.files, self.directory, offset)
            self.noted_start = offset
        # First, as a concurrent checkpoint must not pair a new count or number with a higher point.
        self.recovery_point = min(self.recovery_point, offset)
        self.synced_end = min(self.synced_end, offset)
        self.truncations += 1
        self.note_number = number
        # The segment that is cut holds the offset before this one, or begins here.
        self.segments.unsaved_from = min(self.segments.unsaved_from, offset - 1)
        self.snapshots = []

    def _end_truncation(self, offset: int) -> None:
        self.log_end_offset = offset
        self.staging.restart_at(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.cleaned_end = min(self.cleaned_end, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.synced_end = min(self.synced_end, offset)
        self._unflushed_from = min(self._unflushed_from, self.size)
        remove_snapshots(self.segments.files, self.directory, above=offset)
        self.snapshot_offset = -1

    def remove_stale_note(self) -> None:
        """Remove the notes of a truncation or a move once a newer checkpoint is written."""
        if self.truncation_limit is not None and self.checkpointed_at == self.truncations:
            truncation_note.remove_note(self.segments.files, self.directory)
            self.truncation_limit = None
        if 0 < self.noted_start <= self.stored_start:
            truncation_note.remove_start_note(self.segments.files, self.directory)
            self.noted_start = 0

    # -- retention

    def advance_start(self, offset: int) -> None:
        """Hide the records below `offset` from readers; retention drops their segments later."""
        if offset > self.log_end_offset:
            raise KafkaError(
                E.OFFSET_OUT_OF_RANGE, f"{offset} is above the log's end {self.log_end_offset}"
            )
        self.log_start_offset = max(self.log_start_offset, offset)

    def retain(self, now_ms: int, high_watermark: int) -> list[Segment]:
        """Drop the segments that retention allows to go, and return them."""
        return retention.retain(self, now_ms, high_watermark)

    def newest_timestamp(self, segment: Segment, *, confirmed: bool = False) -> int:
        """Return a segment's greatest timestamp; `confirmed` by its batches, not by an index alone."""
        segments = self.segments
        if not segment.ready and segment is segments.active:
            segments.walk_active(self.log_end_offset)
        if confirmed:
            return segments.confirmed_newest_timestamp(segment)
        return segments.newest_timestamp(segment)

    def drop_first(self) -> Segment:
        """Remove the oldest segment, which must not be the active one, and return it."""
        segment = self.segments.drop_first()
        start = self.segments.start_offset
        # Keep the epochs of hidden batches too: recovery checks each batch against them.
        self.epochs.truncate_start(start)
        self.advance_start(start)
        return segment

    def replace_segments(self, base_offsets: Sequence[int], size: int, suffix: str) -> bool:
        """Swap in what compaction made of these segments; False if they are not in the log any more."""
        before = self.size
        replaced = self.segments.replace(base_offsets, size, suffix, self.staging.now_ms)
        self._unflushed_from -= before - self.size
        return replaced

    # -- flushing

    def flush_due(self, now_ms: int, looked_ms: int) -> bool:
        """Return whether `flush.messages` or `flush.ms` calls for a flush.

        Both times are monotonic: now, and the time of the previous call.
        """
        if self._dirty_since_ms == CLEAN:
            return False
        if self._dirty_since_ms == UNSEEN:
            self._dirty_since_ms = looked_ms
        settings = self.settings
        return (
            self.size - self._unflushed_from >= FLUSH_BYTES
            or now_ms - self._dirty_since_ms >= min(FLUSH_MS, settings.flush_ms)
            or self.log_end_offset - self.synced_end >= settings.flush_messages
            or bool(self.snapshots)
        )

    @property
    def is_dirty(self) -> bool:
        """Return whether something was written since the last flush was collected."""
        return self._dirty_since_ms != CLEAN

    @property
    def flushes_by_age(self) -> bool:
        """Return whether it has unflushed data and no `flush.ms` of its own that asks for haste."""
        return self._dirty_since_ms != CLEAN and self.settings.flush_ms >= FLUSH_MS

    def unflushed(self, *, closing: bool = False) -> FlushWork | None:
        """Return the work of a flush: run it on a file thread, then pass it to `mark_flushed`."""
        if snapshot_due(self, closing=closing):
            self._take_snapshot(self.log_end_offset)
        if (
            self.recovery_point >= self.log_end_offset
            and not self.snapshots
            and not self.epochs.unsynced
            and not self.epochs.worth_saving(self.log_end_offset)
        ):
            return None
        work = FlushWork(self)
        self._unflushed_from, self._dirty_since_ms = self.size, CLEAN
        return work

    def _take_snapshot(self, offset: int) -> None:
        stem = snapshots.stem(self.directory, offset)
        self.snapshots.append((stem, self.producers.written_states()))
        self.snapshot_offset = offset
        active = self.segments.active
        self.snapshot_at = (active.base_offset, active.size)

    def postpone_flush(self) -> None:
        """Make the flush due again: the disk had no room for its indexes or snapshots."""
        self.epochs.unsynced = True
        self._dirty_since_ms = UNSEEN
        self.snapshot_offset = -1

    def mark_flushed(self, work: FlushWork) -> None:
        """Advance the recovery point to where the log ended when `work` was collected."""
        if work.truncations != self.truncations:
            return
        work.mark_saved()
        if work.end_offset >= self.recovery_point:
            self.recovery_point, self.decided_end = work.end_offset, work.decided_end
        self.synced_end = max(self.synced_end, self.recovery_point)
        self.remove_stale_note()
        self.segments.finish_flush(work.first_offset)

    def close(self) -> None:
        """Flush everything and close the files. Safe on any thread that has the log to itself."""
        self.drop_staged()
        if self.failure is None:
            self.segments.active.seal()
            work = self.unflushed(closing=True)
            if work is not None:
                work.run()
                self.mark_flushed(work)
            save_active_checksums(self)

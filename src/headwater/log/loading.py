"""Loading a log from its folder, after a clean stop or a crash.

After a clean stop the recovery point is the end and nothing is read. After a crash, every byte
beyond the recovery point is checked, and the log is truncated at the first incomplete batch. Data
below the recovery point was on the disk, so damage there is not a torn tail: the log goes offline
with the reason and is never truncated and served. Indexes, snapshots and checkpoints are shortcuts:
damaged ones are rebuilt and never keep a broker from starting.
"""

import errno
import logging
from dataclasses import dataclass, field

from headwater.log import aborted_counts, snapshots
from headwater.log.batch_scan import EpochRule, check, headers, require_whole
from headwater.log.descriptors import Descriptors
from headwater.log.epochs import EpochCache
from headwater.log.file_names import offset_in
from headwater.log.index_rebuild import (
    rebuild_indexes,
    remove_snapshots,
    replay_producers,
    walk_tail,
)
from headwater.log.leftovers import clear_leftovers
from headwater.log.log_segments import LogSegments
from headwater.log.log_state import LogState
from headwater.log.partition_log import PartitionLog
from headwater.log.producers import ProducerStates
from headwater.log.segment import LOG, DamagedSegment, Segment
from headwater.log.segment_checksums import CHECKSUMS
from headwater.log.truncation_note import (
    START,
    Note,
    is_damaged,
    lower_start_note,
    read_note,
    read_start_note,
    remove_note,
    write_note,
)
from headwater.model import ZERO_UUID, Uuid
from headwater.records.batch import RawHeader
from headwater.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA, LEADER_EPOCH
from headwater.seams.files import Buffer, write_again

log = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class LastKnown:
    """What the checkpoints of the log dir say about a log."""

    recovery_point: int | None = None
    certain: bool = False
    """Whether the recovery point certainly belongs to this log: an intact file has its topic id."""
    log_start: int = 0
    cleaned_end: int = 0
    note: int = 0
    """The number of the last note of a truncation that the checkpoints take into account."""
    clean: bool = False
    clean_end: tuple[int, int] | None = None
    """Size of the active segment and end offset at the clean stop, if the marker has them."""
    pages_certain: bool = False
    """Whether the page cache cannot show anything that the disk lacks, because the machine has rebooted."""


@dataclass(slots=True)
class Recovered:
    """What loading a log read, dropped and rebuilt."""

    scanned_bytes: int = 0
    dropped_bytes: int = 0
    dropped_from: int | None = None
    problem: str | None = None
    repairs: list[str] = field(default_factory=list)


class LogLoader:
    """Loads one log."""

    __slots__ = (
        "_descriptors", "_epochs", "_files", "_known", "_now_ms", "_point", "_producers",
        "_segments", "_state", "_topic_id", "_trace", "report",
    )  # fmt: skip

    def __init__(
        self,
        segments: LogSegments,
        descriptors: Descriptors,
        topic_id: Uuid,
        known: LastKnown,
        now_ms: int,
    ) -> None:
        """Fill `segments`, which must be empty, from its folder."""
        self._segments = segments
        self._files = segments.files
        self._descriptors = descriptors
        self._topic_id = topic_id
        self._epochs = EpochCache(segments.files, segments.directory)
        self._producers = ProducerStates()
        self._known = known
        self._now_ms = now_ms
        self._state = LogState()
        # Everything below this offset is known to be on the disk.
        self._point = known.recovery_point or 0
        # The highest offset that any file other than the checkpoint mentions.
        self._trace = 0
        self.report = Recovered()

    def load(self) -> PartitionLog:
        """Return the log; if it cannot be served, its `failure` says why."""
        state = self._state
        self._apply_notes()
        try:
            self._open_segments()
            offsets = snapshots.offsets(self._files, self._segments.directory)
            if self._known.recovery_point is None:
                self._point = snapshots.flushed_before(offsets)
            self._load_epochs()
            if not self._loaded_clean():
                self._find_traces(offsets)
                self._recover()
        except DamagedSegment as damage:
            state.failure = str(damage)
            self._finish(self._known.recovery_point or self._segments.active.base_offset)
            # Without the recovery point, the next start would take the damage for a torn tail.
            state.recovery_point = self._point
        state.cleaned_end = self._known.cleaned_end
        if state.cleaned_end > state.recovery_point:
            # A truncation, or damage: what was compacted is not known.
            state.cleaned_end = 0
        state.log_start_offset = max(
            self._segments.start_offset, min(self._known.log_start, state.log_end_offset)
        )
        state.stored_start = min(self._known.log_start, state.log_start_offset)
        if state.noted_start > state.log_end_offset and state.failure is None:
            # A power cut took the records up to the start; it must not hide the next ones.
            state.noted_start = state.log_end_offset
            lower_start_note(self._files, self._segments.directory, state.log_end_offset)
        if state.noted_start:
            state.stored_start = 0  # the checkpoint may not have it
        self._log_report()
        return PartitionLog(self._topic_id, self._segments, self._epochs, self._producers, state)

    def _finish(self, log_end: int) -> None:
        """Build the log that ends at `log_end`; what was replayed becomes final."""
        self._producers.commit_staged()
        self._segments.index_aborted(self._producers.aborted)
        self._segments.finish_load(self._state.recovery_point)
        self._epochs.truncate_end(log_end)
        self._producers.restore_transactions(log_end)
        self._state.log_end_offset = log_end
        self._state.recovery_point = min(self._state.recovery_point, log_end)

    def _apply_notes(self) -> None:
        note = read_note(self._files, self._segments.directory)
        self._state.note_number = self._known.note
        if note is not None and note.outdated(self._known.note):
            remove_note(self._files, self._segments.directory)
        elif note is not None:
            if not note.number:
                note = self._number(note)
            self._known.recovery_point = min(self._known.recovery_point or 0, note.limit)
            # Otherwise the start would hide what was written after the truncation.
            self._known.log_start = min(self._known.log_start, note.limit)
            self._known.clean = False
            self._point = self._known.recovery_point
            self._state.truncation_limit = note.limit
            self._state.note_number = max(self._known.note, note.number)
        self._state.noted_start = read_start_note(self._files, self._segments.directory)
        if is_damaged(self._files, self._segments.directory, START):
            log.warning(
                "%s/%s is damaged and ignored: records that were deleted before a move may be served "
                "again; delete them once more, then remove the file",
                self._segments.directory,
                START,
            )
        self._known.log_start = max(self._known.log_start, self._state.noted_start)

    def _number(self, note: Note) -> Note:
        """Give a torn note a number: otherwise it would count again if a power cut undid its removal."""
        numbered = Note(note.limit, self._known.note + 1)
        try:
            write_note(self._files, self._segments.directory, numbered)
        except OSError as failure:
            if failure.errno not in FULL:
                raise
            return note
        return numbered

    def _open_segments(self) -> None:
        directory = self._segments.directory
        names, swapped = clear_leftovers(self._files, self._descriptors, directory)
        self.report.repairs.extend(
            f"{name} from an unfinished swap of compaction" for name in swapped
        )
        if aborted_counts.FILE_NAME in names:
            self._segments.aborted_counts = aborted_counts.read_counts(self._files, directory)
        for name in names:
            base = offset_in(name, LOG)
            if base is not None:
                size = self._files.path_size(f"{directory}/{name}")
                segment = Segment(self._files, self._descriptors, directory, base, size)
                segment.created_ms = self._now_ms
                segment.aborted.expected = self._segments.aborted_counts.of(base)
                sums_name = segment.stem.rpartition("/")[2] + CHECKSUMS
                segment.checksums.absent = size > 0 and sums_name not in names
                if self._known.clean and self._known.clean_end is None:
                    segment.checksums.forget()  # Kafka has run here, and may have changed segments
                self._segments.adopt(segment)
        if not len(self._segments):
            self._begin_empty()

    def _begin_empty(self) -> None:
        """Handle a folder without segments: the log is new, or its files are lost."""
        point = self._known.recovery_point
        if point and point == self._state.truncation_limit:
            # A truncation dropped every segment, and a crash came before the new one.
            self._segments.add(point, point, self._now_ms)
            return
        if point:
            # Create no file: the next start must find the folder unchanged.
            segment = Segment(self._files, self._descriptors, self._segments.directory, point, 0)
            self._segments.adopt(segment)
            raise DamagedSegment(f"no segments, though {point} offsets were flushed")
        # A log without an id may be new: the log start may be that of an earlier topic.
        start = self._known.log_start if self._topic_id != ZERO_UUID else 0
        self._segments.add(start, start, self._now_ms)

    def _find_traces(self, offsets: list[int]) -> None:
        starts = self._epochs.starts
        active = self._segments.active
        indexed = active.base_offset + active.index.last()[0] if active.size else 0
        self._trace = max(offsets[0] if offsets else 0, starts[-1] if starts else 0, indexed)

    def _load_epochs(self) -> None:
        epochs = self._epochs
        epochs.load()
        if not epochs.damaged:
            return
        if not any(segment.size for segment in self._segments):
            epochs.damaged = False
            return
        self.report.repairs.append("leader epochs")
        for segment in self._segments:
            self._rebuild_epochs(segment)

    def _rebuild_epochs(self, segment: Segment) -> None:
        """Rebuild the epochs of the flushed batches; a torn batch may follow them."""
        next_offset = segment.base_offset
        try:
            for _, header in headers(segment):
                base = header[BASE_OFFSET]
                if not next_offset <= base < self._point:
                    return
                self._epochs.assign(header[LEADER_EPOCH], base)
                next_offset = base + header[LAST_OFFSET_DELTA] + 1
        except DamagedSegment:
            return

    def _loaded_clean(self) -> bool:
        """Load without a check after a clean stop; return False if anything differs from the marker."""
        known, active = self._known, self._segments.active
        if not known.clean or known.recovery_point is None:
            return False
        if active.base_offset > known.recovery_point:
            # A power failure undid the removal of a dropped segment.
            return False
        if known.clean_end is None:
            # Kafka's marker does not say where the logs ended.
            if not self._ends_at(active, known.recovery_point):
                return False
        elif known.clean_end != (active.size, known.recovery_point):
            return False
        self._epochs.damaged = False
        self.report.scanned_bytes += self._replay_producers(known.recovery_point)
        self._state.recovery_point = known.recovery_point
        self._finish(known.recovery_point)
        return True

    def _recover(self) -> None:
        segments = self._segments
        rank = segments.rank(self._point)
        untrusted = segments.from_rank(rank)
        if rank and untrusted[0].base_offset == self._point:
            self._seal_again(segments[rank - 1])
        sizes = [segment.size for segment in untrusted]
        end, position = self._flushed_end(untrusted[0])
        for segment in untrusted:
            self._require_intact(segment, position if segment is untrusted[0] else 0)
        segments.unlist_after(rank)
        for segment in untrusted:
            segment.checksums.doubt()
        self._begin_walk(untrusted[0], position, end)
        self._replay_producers(end)
        for segment, size in zip(untrusted, sizes, strict=True):
            if segment is not untrusted[0]:
                self._require_flushed(end)
                if not self._joined(segment, size, end):
                    continue
            end = self._walk(segment, size, end)
        self._require_flushed(end)
        self._state.recovery_point = min(self._point, end)
        self._finish(end)
        for segment, size in zip(untrusted, sizes, strict=True):
            if segment.size != size:
                segment.checksums.forget()
        for segment in segments.from_rank(rank):
            self._save_indexes(segment)
        if self.report.problem is not None:
            # Dropped files must not reappear in place of what is written from now on.
            self._files.sync_dir(segments.directory)
        # The newest version of the file may not have reached the disk before the crash.
        if self._epochs.epochs:
            self._epochs.save_with_next_flush()
        remove_snapshots(self._files, segments.directory, above=end)

    def _replay_producers(self, log_end: int) -> int:
        """Rebuild the producers' states up to `log_end` and return the number of bytes read."""
        replayed = replay_producers(self._segments, self._producers, log_end, self._now_ms)
        self._state.snapshot_offset = replayed.snapshot_offset
        start = self._segments.start_offset
        if replayed.snapshot_offset > start:
            self._producers.assume_unreplicated(start, replayed.snapshot_offset)
        return replayed.read_bytes

    def _require_flushed(self, end: int) -> None:
        """Raise if the log ends before its recovery point, unless that is uncertain."""
        if end < self._point and (self._known.certain or self._trace > end):
            raise DamagedSegment(
                f"the log ends at {end}, though {self._point} offsets were flushed"
            )

    def _require_intact(self, segment: Segment, position: int) -> None:
        """Raise if what is to be walked differs from checksums: they were made after a flush.

        A walk would take a wrong offset for the end of the log, or the damage for a torn tail.
        """
        wrong = segment.checksums.compare(self._descriptors.of(segment.path), position)
        if wrong is not None:
            raise DamagedSegment(f"{segment.path}, which was flushed, is damaged near byte {wrong}")

    def _seal_again(self, segment: Segment) -> None:
        """Seal a segment again: a crash after the roll lost its last time index entry."""
        if not segment.size:
            return
        try:
            walk_tail(segment, self._point)
        except DamagedSegment:
            rebuild_indexes(segment, self._segments.settings.index_interval_bytes)
            walk_tail(segment, self._point)
        require_whole(segment, segment.tail_positions[-1])
        segment.seal()
        segment.drop_tail_cache()
        self._save_indexes(segment)

    def _save_indexes(self, segment: Segment) -> None:
        """Save the indexes; if the disk is full, a later flush saves them."""
        try:
            segment.save_indexes()
        except OSError as failure:
            if failure.errno not in FULL:
                raise
            log.warning("the indexes of %s are not saved: %s", segment.path, failure.strerror)

    def _flushed_end(self, segment: Segment) -> tuple[int, int]:
        """Return the offset and the position at which the flushed part of the segment ends."""
        point = self._point
        if point <= segment.base_offset or not segment.size:
            return segment.base_offset, 0
        if not segment.index.entries and segment.index.damaged:
            self.report.repairs.append(segment.index.path)
            rebuild_indexes(segment, self._segments.settings.index_interval_bytes, below=point)
        try:
            found = segment.find(segment.read_blocking, point - 1)
        except DamagedSegment:
            self.report.repairs.append(segment.index.path)
            rebuild_indexes(segment, self._segments.settings.index_interval_bytes, below=point)
            found = segment.find(segment.read_blocking, point - 1)
        if found is None or found[1][BASE_OFFSET] + found[1][LAST_OFFSET_DELTA] + 1 != point:
            # No batch ends at the recovery point: the checkpoint is wrong, so check everything.
            return segment.base_offset, 0
        return point, require_whole(segment, found[0])

    def _ends_at(self, segment: Segment, offset: int) -> bool:
        if not segment.size:
            return segment.base_offset == offset
        try:
            walk_tail(segment, offset)
        except DamagedSegment:
            return False
        return True

    def _begin_walk(self, segment: Segment, position: int, offset: int) -> None:
        """Trust the first `position` bytes of the segment and drop the indexes of the rest."""
        if position == 0:
            segment.index.clear()
            segment.time_index.clear()
            segment.aborted.clear()
            segment.reset(0)
            return
        segment.cut_indexes(offset)
        segment.size = position
        walk_tail(segment, offset)

    def _joined(self, segment: Segment, size: int, end: int) -> bool:
        """Adopt the segment if it continues the last one; drop it after a gap or a torn segment."""
        if self.report.problem is None and segment.base_offset != end:
            self.report.problem = f"a segment begins at {segment.base_offset}, not at {end}"
            self.report.dropped_from = end
        if self.report.problem is not None:
            self.report.dropped_bytes += size
            self._segments.garbage.extend(segment.mark_deleted())
            return False
        self._segments.active.seal()
        self._segments.active.drop_tail_cache()
        self._segments.adopt(segment)
        self._begin_walk(segment, 0, end)
        return True

    def _walk(self, segment: Segment, file_size: int, end: int) -> int:
        """Check the rest of a segment and truncate it at the first bad batch."""
        settings = self._segments.settings

        def absorb(header: RawHeader, batch: Buffer) -> None:
            self._producers.replay_batch(header, batch, self._now_ms)

        walked = check(
            segment,
            file_size,
            end,
            EpochRule(self._epochs, end, known=not self._epochs.damaged),
            # A topic that is not compacted any more keeps the gaps.
            settings.compacted or self._known.cleaned_end > 0,
            settings.index_interval_bytes,
            absorb,
        )
        segment.ready = True
        self.report.scanned_bytes += walked.scanned
        if not self._known.pages_certain:
            self._write_again(segment, segment.size - walked.scanned)
        if walked.problem is not None:
            if walked.next_offset < self._point:
                raise DamagedSegment(
                    f"{segment.path}, flushed up to {self._point}: {walked.problem}"
                )
            self.report.problem = walked.problem
            self.report.dropped_from = walked.next_offset
            self.report.dropped_bytes += file_size - segment.size
            self._files.truncate(self._descriptors.of(segment.path), segment.size)
            self._files.fdatasync(self._descriptors.of(segment.path))
        return walked.next_offset

    def _write_again(self, segment: Segment, start: int) -> None:
        """Write what may be unflushed again: a failed sync may have lost it, although it is visible."""
        try:
            write_again(self._files, self._descriptors.of(segment.path), start, segment.size)
        except OSError as failure:
            if failure.errno not in FULL:
                raise
            log.warning("%s is not written again: %s", segment.path, failure.strerror)

    def _log_report(self) -> None:
        report, where = self.report, self._segments.topic_partition
        if self._state.failure is not None:
            log.error("%s is offline: %s", where, self._state.failure)
        elif report.dropped_bytes:
            log.warning(
                "%s: dropped %d bytes from offset %s on: %s",
                where, report.dropped_bytes, report.dropped_from, report.problem,
            )  # fmt: skip
        if report.repairs:
            log.warning("%s: rebuilt %s", where, ", ".join(report.repairs))

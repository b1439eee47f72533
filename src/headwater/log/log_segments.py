"""The segments of one log, in the order of their offsets; the last one is active and grows.

This class alone changes the list of segments. Truncation drops from its end, retention from its
start, a roll adds to it, and compaction replaces sealed segments. Readers skip gaps
between batches, and segments without a batch at or above their offset.

Reading never waits for the disk on the owner's thread: a reader thread fetches what the page cache
lacks (`slices.py`). A wrong index is rebuilt from the batches; damaged batches take the log offline
(`on_damage`). Only `PartitionLog` knows where the log ends; callers pass it in.
"""

import errno
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from headwater.errors import E, KafkaError
from headwater.log.aborted_counts import AbortedCounts, write_counts
from headwater.log.aborted_index import AbortedIndex, AbortedTransaction
from headwater.log.descriptors import EXHAUSTED, Descriptors
from headwater.log.index_rebuild import rebuild_aborted, rebuild_indexes, walk_tail
from headwater.log.segment import (
    JITTER_SHARES,
    LOG,
    SUFFIXES,
    SWAP,
    Cold,
    DamagedSegment,
    Segment,
)
from headwater.log.settings import LogSettings
from headwater.log.slices import FileSlice
from headwater.model import TopicPartition
from headwater.records.header_fields import BASE_OFFSET, MAX_TIMESTAMP
from headwater.seams.files import Files

log = logging.getLogger(__name__)
T = TypeVar("T")

WARM_SEGMENTS = 8
NOTHING = (1 << 63) - 1


class LogSegments:
    """The segments of one log."""

    __slots__ = (
        "_descriptors", "_list", "_replaced", "_warm", "aborted_counts", "active", "directory", "draw", "files", "flushing_from", "garbage",
        "on_damage", "settings", "size", "topic_partition", "unsaved_from",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        descriptors: Descriptors,
        directory: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
    ) -> None:
        self.files = files
        self._descriptors = descriptors
        self.directory = directory
        self.topic_partition = topic_partition
        # May be replaced at any time; a change takes effect with the next batch.
        self.settings = settings
        self._list: list[Segment] = []
        # The segment that grows, once there is one.
        self.active: Segment
        # Bytes of all segments.
        self.size = 0
        # Renamed files that a file thread may unlink after file.delete.delay.ms.
        self.garbage: list[str] = []
        # The sealed segments read most recently: only their indexes stay in memory.
        self._warm: list[Segment] = []
        # How many segments compaction has replaced: their renamed files need different names.
        self._replaced = 0
        # Draws the share of segment.jitter.ms that a new segment gets.
        self.draw: Callable[[int], int] = _no_jitter
        # The indexes of all segments before this offset are synced, or the last flush has them.
        self.unsaved_from = NOTHING
        # Where that flush begins, until it is done: if it fails, the next one covers the same segments.
        self.flushing_from = NOTHING
        # How many entries the indexes of aborted transactions must have.
        self.aborted_counts = AbortedCounts({})
        # Called with the reason when batches are damaged.
        self.on_damage: Callable[[str], None] = _ignore

    # -- the list

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def __getitem__(self, rank: int) -> Segment:
        return self._list[rank]

    def from_rank(self, rank: int) -> list[Segment]:
        """Return the segments from that rank on."""
        return self._list[rank:]

    @property
    def start_offset(self) -> int:
        """The base of the first segment; safe while another thread truncates the log."""
        for first in self._list[:1]:
            return first.base_offset
        return self.active.base_offset

    def use_descriptors(self, descriptors: Descriptors) -> Descriptors:
        """Open files through another set from now on, and return the set used before."""
        before, self._descriptors = self._descriptors, descriptors
        for segment in self._list:
            segment.use_descriptors(descriptors)
        return before

    def rank(self, offset: int) -> int:
        """Return the rank of the segment that holds `offset`."""
        if offset >= self.active.base_offset:
            return len(self._list) - 1
        return max(0, bisect_right(self._list, offset, key=_base_offset) - 1)

    def holding(self, offset: int) -> Segment:
        """Return the segment that holds `offset`."""
        return self._list[self.rank(offset)]

    # -- reading

    def read(
        self, offset: int, upper: int, log_end: int, max_bytes: int, at_least_one: bool
    ) -> FileSlice | None:
        """Return whole batches of one segment, from the batch that holds `offset` to below `upper`.

        None if there is nothing. An `upper` inside a batch excludes that batch.
        """
        segments = self._list
        count = len(segments)
        rank = count - 1 if offset >= self.active.base_offset else self.rank(offset)
        while rank < count:
            segment = segments[rank]
            if segment.base_offset >= upper:
                return None
            rank += 1
            end = segments[rank].base_offset if rank < count else log_end
            found = self._slice(
                segment, (offset, upper if upper < end else None, max_bytes, at_least_one)
            )
            if found is not None:
                return found if found.size else None
            # Compaction may leave nothing at or above `offset` in a segment: continue with the
            # next.
            offset = max(offset, end)
        return None

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap the offsets from `start` to before `end`."""
        found: list[AbortedTransaction] = []
        for segment in self.from_rank(self.rank(start)):
            rows, more = self._aborted_in(segment).overlapping(start, end)
            found += rows
            if not more:
                break
        found.sort(key=_first_offset)
        return found

    def _aborted_in(self, segment: Segment) -> AbortedIndex:
        index = segment.aborted
        index.load()
        if index.damaged:
            log.warning("%s is damaged; it is rebuilt", index.path)
            self.unsaved_from = min(self.unsaved_from, segment.base_offset)
            self.repairing(segment, lambda: rebuild_aborted(self, segment))
        return index

    def end_of(self, found: FileSlice, log_end: int) -> int:
        """Return an offset above every batch of the slice, as near as the index knows."""
        segment = found.segment
        relative = -1
        if segment.index.loaded:
            relative = segment.index.after_position(found.position + found.size)
        if relative >= 0:
            return segment.base_offset + relative
        rank = bisect_right(self._list, segment.base_offset, key=_base_offset)
        return self._list[rank].base_offset if rank < len(self._list) else log_end

    def end_after(self, found: FileSlice) -> int | None:
        """Return the base of the next segment if the slice ends its own, else None."""
        segment = found.segment
        rank = bisect_right(self._list, segment.base_offset, key=_base_offset)
        if max(found.position, 0) + found.size < segment.size or rank == len(self._list):
            return None
        return self._list[rank].base_offset

    def batch_holding(self, segment: Segment, offset: int) -> tuple[int, int]:
        """Return position and base offset of the batch that holds `offset`; the end if none does."""
        found = self.repairing(segment, lambda: segment.find(segment.read_blocking, offset))
        return (segment.size, offset) if found is None else (found[0], found[1][BASE_OFFSET])

    def newest_timestamp(self, segment: Segment) -> int:
        """Return a segment's greatest timestamp, or the time of its last write if it has none."""
        newest = segment.max_timestamp if segment.ready else self._last_indexed(segment)
        return newest if newest >= 0 else self.files.modified_ms(segment.path)

    def confirmed_newest_timestamp(self, segment: Segment) -> int:
        """Return the same, verified against the batches: a wrong index must not delete records.

        The last entry of the time index must match its batch, and the last batch of the segment
        must not be newer; otherwise the index is rebuilt.
        """
        newest = self.newest_timestamp(segment)
        if segment.ready or not segment.size:
            return newest
        timestamp, relative = segment.time_index.last()
        if timestamp < 0:
            return newest
        try:
            named = segment.find(segment.read_blocking, segment.base_offset + relative)
            last = segment.find_last(segment.read_blocking)
        except DamagedSegment:
            named = last = None
        if (
            named is None
            or last is None
            or not named[1][MAX_TIMESTAMP] == timestamp >= last[1][MAX_TIMESTAMP]
        ):
            log.warning("%s is damaged; it is rebuilt", segment.time_index.path)
            self._rebuild_or_fail(segment)
            timestamp, _ = segment.time_index.last()
        return timestamp

    def _last_indexed(self, segment: Segment) -> int:
        """Return the final time index entry, rebuilding a damaged index first."""
        timestamp, _ = segment.time_index.last()
        if segment.time_index.damaged:
            self._rebuild_or_fail(segment)
            timestamp, _ = segment.time_index.last()
        return timestamp

    def _slice(
        self, segment: Segment, wanted: tuple[int, int | None, int, bool]
    ) -> FileSlice | None:
        if segment is not self.active and segment not in self._warm:
            self._warm_up(segment)
        if segment.index.damaged:
            self._rebuild_or_fail(segment)
        if segment is not self.active and not segment.index.loaded:
            return FileSlice.unplaced(self.files, segment, wanted)
        try:
            found = segment.slice(segment.read_cached, *wanted)
        except Cold:
            return FileSlice.unplaced(self.files, segment, wanted)
        except DamagedSegment:
            found = self.repairing(segment, lambda: segment.slice(segment.read_blocking, *wanted))
        if found is None:
            return None
        return FileSlice(self.files, segment, found[0], found[1] - found[0])

    def _warm_up(self, segment: Segment) -> None:
        self._warm.append(segment)
        if len(self._warm) > WARM_SEGMENTS:
            cooled = self._warm.pop(0)
            cooled.index.release()
            cooled.checksums.release()

    # -- changes

    def adopt(self, segment: Segment) -> None:
        """Append a segment found in the folder to the list; it becomes the active one."""
        self._list.append(segment)
        self.active = segment

    def add(self, base_offset: int, log_end: int, now_ms: int) -> None:
        """Create a new active segment and seal the previous one, which ends at `log_end`."""
        if self._list:
            if not self.active.ready:
                self.walk_active(log_end)
            self.active.seal()
        segment = Segment.create(self.files, self._descriptors, self.directory, base_offset, now_ms)
        if self._list:
            self.active.drop_tail_cache()
        segment.jitter = self.draw(JITTER_SHARES)
        self.adopt(segment)

    def finish_load(self, recovery_point: int) -> None:
        """End the load: count the bytes of all segments and find the indexes to save."""
        self.size = sum(segment.size for segment in self._list)
        self.active.jitter = self.draw(JITTER_SHARES)
        # Recovery may have sealed the segment before the first that it walked.
        rank = max(0, self.rank(recovery_point) - 1)
        self.unsaved_from = min(self.unsaved_from, self._list[rank].base_offset)

    def unlist_after(self, rank: int) -> None:
        """Remove the segments after that rank from the list; their files stay."""
        del self._list[rank + 1 :]
        self.active = self._list[-1]

    def cut(self, last: Segment, position: int, offset: int) -> None:
        """Drop the segments after `last`, and what `last` has at and above `offset`."""
        while self.active is not last:
            self._discard(self._list.pop())
            self.active = self._list[-1]
        self.size -= last.size - position
        last.cut(position, offset)

    def replace_all(self, start: int, now_ms: int) -> None:
        """Drop every segment and begin an empty one at `start`."""
        while self._list:
            self._discard(self._list.pop())
        self.add(start, start, now_ms)

    def move_empty_active(self, base_offset: int, log_end: int, now_ms: int) -> None:
        """Replace the empty active segment, which is not the only one, by one at `base_offset`."""
        self._discard(self._list.pop())
        self.active = self._list[-1]
        self.add(base_offset, log_end, now_ms)

    def drop_first(self) -> Segment:
        """Remove the oldest segment, which must not be the active one, and return it."""
        segment = self._list.pop(0)
        self._discard(segment)
        return segment

    def replace(self, base_offsets: Sequence[int], size: int, suffix: str, now_ms: int) -> bool:
        """Replace sealed segments by the new segment of `size` bytes that compaction made of them.

        Its files have the names of the first one, with `suffix`. Return False, with nothing changed,
        unless these segments are in the list. A start after a crash finds either all of the old files,
        or the whole new segment (`leftovers.py`). Once its `.log` has been renamed, a failure takes
        the log offline, and raises EIO whatever it was: the next start finishes the swap.
        """
        rank = self.rank(base_offsets[0])
        olds = self._list[rank : rank + len(base_offsets)]
        if [old.base_offset for old in olds] != list(base_offsets) or self.active in olds:
            return False
        stem = olds[0].stem
        for part in SUFFIXES:  # what is left of a swap that failed before it began
            if self.files.exists(stem + part + SWAP):
                self.files.unlink(stem + part + SWAP)
        rename_all(self.files, stem, suffix, SWAP)
        try:
            for old in olds:
                self._replaced += 1
                self.garbage.extend(old.move_aside(self._replaced))
            rename_all(self.files, stem, SWAP, "")
        except OSError as failure:
            self.on_damage(f"a swap of compaction failed in the middle: {failure}")
            raise OSError(errno.EIO, f"half swapped: {failure}", self.directory) from failure
        for old in olds:
            self.size -= old.size
            if old in self._warm:
                self._warm.remove(old)
        new = Segment(self.files, self._descriptors, self.directory, base_offsets[0], size)
        new.created_ms = now_ms
        self.aborted_counts.forget(base_offsets)
        self._list[rank : rank + len(olds)] = [new]
        self.size += size
        return True

    def undo_append(self, active: Segment, size: int, log_end: int, error: Exception) -> None:
        """After a failed write, unlink the segments after `active` and cut it back to `size`.

        The disk has it when this returns: the next batch gets the offset and the epoch of a failed one,
        which no power cut must bring back.
        """
        if self.active is not active:
            while self.active is not active:
                segment = self._list.pop()
                self.active = self._list[-1]
                self._descriptors.close_path(segment.path)
                self.files.unlink(segment.path)
            self.files.sync_dir(self.directory)
        if active.size != size or not isinstance(error, OSError):
            active.cut(size, log_end)
        elif error.errno not in EXHAUSTED:  # without a descriptor nothing was written
            fd = self._descriptors.of(active.path)
            if self.files.size(fd) > size:
                self.files.truncate(fd, size)
                self.files.fdatasync(fd)

    def pop_files(self) -> list[int]:
        """Detach the open files of every segment and return them to be closed.

        Readers on other threads discard what they read.
        """
        popped = []
        for segment in self._list:
            segment.truncation_count += 1
            popped += self._descriptors.pop_path(segment.path)
        return popped

    def relocate(self, directory: str) -> None:
        """Use the folder's new path after a rename; `pop_files` comes first."""
        self.directory = directory
        self.garbage = [f"{directory}/{path.rpartition('/')[2]}" for path in self.garbage]
        for segment in self._list:
            segment.relocate(directory)

    def finish_flush(self, first_offset: int) -> None:
        """Free the memory of flushed segments from that offset on that only a flush or a reader needs."""
        self.flushing_from = NOTHING
        for segment in self._list[self.rank(first_offset) : -1]:
            segment.time_index.release()
            segment.checksums.release()
            if segment not in self._warm:
                segment.index.release()

    def pop_garbage(self) -> list[str]:
        """Remove and return the paths of dropped files, to be unlinked after a delay."""
        garbage, self.garbage = self.garbage, []
        return garbage

    def save_aborted_counts(self, cut: Sequence[Segment], left: Iterable[Segment]) -> None:
        """Write down that segments have fewer aborted transactions after a truncation."""
        counts = self.aborted_counts.unsaved(cut, (segment.base_offset for segment in left))
        if counts is not None:
            write_counts(self.files, self.directory, counts)
            self.aborted_counts.mark_saved(counts)

    def index_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions to the indexes of the segments that have their markers."""
        for aborted in transactions:
            self.holding(aborted.last_offset).aborted.append(aborted)

    def _discard(self, segment: Segment) -> None:
        """Rename the files of a segment that was removed from the list."""
        self.size -= segment.size
        self.garbage.extend(segment.mark_deleted())

    # -- repairs

    def walk_active(self, log_end: int) -> None:
        """Read the last batches and the newest timestamp of a loaded segment."""
        try:
            self.repairing(self.active, lambda: walk_tail(self.active, log_end))
        except KafkaError as damage:
            raise OSError(errno.EIO, damage.message, self.active.path) from damage

    def rebuild(self, segment: Segment) -> None:
        """Rebuild the indexes of a segment; the next flush saves them."""
        self.unsaved_from = min(self.unsaved_from, segment.base_offset)
        rebuild_indexes(segment, self.settings.index_interval_bytes)

    def repairing(self, segment: Segment, work: Callable[[], T]) -> T:
        """Run `work`; if it finds a wrong index entry, rebuild the indexes and run it again."""
        try:
            return work()
        except DamagedSegment as damage:
            log.warning("%s: %s; its indexes are rebuilt", self.topic_partition, damage)
        try:
            self.rebuild(segment)
            return work()
        except DamagedSegment as damage:
            raise self._take_offline(damage) from damage

    def _rebuild_or_fail(self, segment: Segment) -> None:
        """Rebuild the indexes of a segment, or take the log offline if its batches are damaged."""
        try:
            self.rebuild(segment)
        except DamagedSegment as damage:
            raise self._take_offline(damage) from damage

    def _take_offline(self, damage: DamagedSegment) -> KafkaError:
        self.on_damage(str(damage))
        return KafkaError(E.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {damage}")


def rename_all(files: Files, stem: str, old: str, new: str) -> None:
    """Rename the files of one segment from one suffix to another, the `.log` last."""
    for suffix in reversed(SUFFIXES):
        if suffix == LOG or files.exists(stem + suffix + old):
            files.rename(stem + suffix + old, stem + suffix + new)


def unlink_segment(files: Files, stem: str) -> None:
    """Unlink the files of a segment, the `.log` last; without it they are those of another one."""
    if files.exists(stem + LOG):
        for suffix in reversed(SUFFIXES):
            if files.exists(stem + suffix):
                files.unlink(stem + suffix)


def _no_jitter(_: int) -> int:
    return 0


def _ignore(_: str) -> None:
    pass


def _first_offset(aborted: AbortedTransaction) -> int:
    return aborted.first_offset


def _base_offset(segment: Segment) -> int:
    return segment.base_offset

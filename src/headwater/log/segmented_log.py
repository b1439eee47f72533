"""The segments of one log and the ways into them: what readers see of a partition.

Reading never waits for the disk on the owner's thread: what the page cache lacks is left to a
reader thread (`slices.py`). An index that leads astray is built anew from the batches; batches that
are no longer there take the log offline.
"""

import errno
import logging
from bisect import bisect_right
from collections.abc import Callable
from typing import TypeVar

from headwater.errors import E, KafkaError
from headwater.log.aborted_index import AbortedTransaction
from headwater.log.descriptors import Descriptors
from headwater.log.index_rebuild import rebuild_indexes, walk_tail
from headwater.log.segment import JITTER_SHARES, DamagedSegment, Segment
from headwater.log.settings import LogSettings
from headwater.log.slices import Cold, FileSlice
from headwater.log.time_lookup import TimeLookup
from headwater.model import TopicPartition
from headwater.records.header_fields import MAX_TIMESTAMP
from headwater.seams.files import Buffer, Files

log = logging.getLogger(__name__)
T = TypeVar("T")

WARM_SEGMENTS = 8
NOTHING = (1 << 63) - 1


class SegmentedLog:
    """Segments in the order of their offsets; the last one is active."""

    __slots__ = (
        "_descriptors", "_files", "_warm", "directory", "draw", "failure", "garbage", "log_end_offset",
        "log_start_offset", "segments", "settings", "size", "topic_partition", "unsaved_from",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        descriptors: Descriptors,
        directory: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
    ) -> None:
        self._files = files
        self._descriptors = descriptors
        self.directory = directory
        self.topic_partition = topic_partition
        # The limits; a new set may be put here at any time and holds from the next batch on.
        self.settings = settings
        self.segments: list[Segment] = []
        self.size = 0
        self.log_start_offset = 0
        self.log_end_offset = 0
        # Why this log takes no more appends; None while it is sound.
        self.failure: str | None = None
        # Files renamed away that a file thread may unlink after file.delete.delay.ms.
        self.garbage: list[str] = []
        # Sealed segments that were read last: the only ones whose indexes stay in memory.
        self._warm: list[Segment] = []
        # Draws a number below a limit: which share of segment.jitter.ms a new segment gets.
        self.draw: Callable[[int], int] = _no_jitter
        # Segments before the one that holds this offset have saved and synced all index entries.
        self.unsaved_from = NOTHING

    @property
    def files(self) -> Files:
        """Where the log lies."""
        return self._files

    @property
    def active(self) -> Segment:
        """The segment that grows."""
        return self.segments[-1]

    def rank(self, offset: int) -> int:
        """Which segment holds `offset`."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        return max(0, bisect_right(segments, offset, key=_base_offset) - 1)

    def end_of(self, rank: int) -> int:
        """Where the segment of that rank ends."""
        following = rank + 1
        return (
            self.segments[following].base_offset
            if following < len(self.segments)
            else self.log_end_offset
        )

    def read(self, offset: int, upper: int, max_bytes: int, at_least_one: bool) -> FileSlice | None:
        """Whole batches of one segment, from the one that holds `offset`, all below `upper`.

        None where there is nothing. An `upper` inside a batch excludes that batch.
        """
        if offset >= upper or offset >= self.log_end_offset:
            return None
        rank = self.rank(offset)
        while rank < len(self.segments):
            segment = self.segments[rank]
            end = self.end_of(rank)
            if segment.base_offset >= upper:
                return None
            found = self._slice(
                segment, (offset, upper if upper < end else None, max_bytes, at_least_one)
            )
            if found is not None:
                return found
            if offset < end - 1 and upper <= end:
                return None
            # Compaction may leave nothing at or above `offset` in a segment: go on in the next.
            rank += 1
            offset = max(offset, end)
        return None

    def offset_for_time(self, timestamp: int, upper: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record not older than `timestamp`.

        Reads from the disk: a broker uses `TimeLookup` on a file thread instead.
        """
        return TimeLookup(self, upper).at_or_after(timestamp)

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the greatest timestamp."""
        return TimeLookup(self, self.log_end_offset).newest()

    def newest_timestamp(self, segment: Segment) -> int:
        """The greatest timestamp of a segment; the time of its last write where records bear none."""
        if not segment.ready and segment is self.active:
            self.walk_active()
        newest = segment.max_timestamp if segment.ready else self._last_indexed(segment)
        return newest if newest >= 0 else self._files.modified_ms(segment.path)

    def confirmed_newest_timestamp(self, segment: Segment) -> int:
        """The same from the batches themselves: an index alone must not cost records.

        The entry that the time index ends with must be that of its batch, and the last batch of
        the segment may not be newer; where either fails the index is built again.
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
            log.warning("%s is damaged and built again", segment.time_index.path)
            rebuild_indexes(segment, self.settings.index_interval_bytes)
            timestamp, _ = segment.time_index.last()
        return timestamp

    def _last_indexed(self, segment: Segment) -> int:
        """The final time index entry; a damaged file lacks it and would let a segment expire early."""
        timestamp, _ = segment.time_index.last()
        if segment.time_index.damaged:
            self.rebuild(segment)
            timestamp, _ = segment.time_index.last()
        return timestamp

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap the offsets from `start` to before `end`."""
        found = []
        for rank in range(self.rank(start), len(self.segments)):
            for aborted in self.segments[rank].aborted:
                if aborted.last_offset >= start and aborted.first_offset < end:
                    found.append(aborted)
                if aborted.last_stable_offset >= end:
                    return sorted(found, key=lambda row: row.first_offset)
        return sorted(found, key=lambda row: row.first_offset)

    # Changes

    def add_segment(self, base_offset: int, now_ms: int) -> None:
        """Begin a new active segment; the one before it is sealed."""
        if self.segments:
            if not self.active.ready:
                self.walk_active()
            self.active.seal()
        segment = Segment.create(
            self._files, self._descriptors, self.directory, base_offset, now_ms
        )
        if self.segments:
            self.active.drop_tail_cache()
        segment.jitter = self.draw(JITTER_SHARES)
        self.segments.append(segment)

    def discard(self, segment: Segment) -> None:
        """Rename the files of a segment that is no longer listed."""
        self.size -= segment.size
        self.garbage.extend(segment.mark_deleted())

    def walk_active(self) -> None:
        """Learn what a loaded segment did not tell: its last batches and its newest timestamp."""
        try:
            self.repairing(self.active, lambda: walk_tail(self.active, self.log_end_offset))
        except KafkaError as damage:
            raise OSError(errno.EIO, damage.message, self.active.path) from damage

    def _slice(
        self, segment: Segment, wanted: tuple[int, int | None, int, bool]
    ) -> FileSlice | None:
        def read(size: int, position: int) -> Buffer:
            data = segment.read_now(size, position)
            if data is None or len(data) < size:
                raise Cold
            return data

        if segment is not self.segments[-1] and segment not in self._warm:
            self._warm_up(segment)
        if segment.index.damaged:
            self.rebuild(segment)
        try:
            found = segment.slice(read, *wanted)
        except Cold:
            return FileSlice.unplaced(self._files, segment, wanted)
        except DamagedSegment:
            found = self.repairing(segment, lambda: segment.slice(segment.read_blocking, *wanted))
        if found is None:
            return None
        return FileSlice(self._files, segment, found[0], found[1] - found[0])

    def _warm_up(self, segment: Segment) -> None:
        self._warm.append(segment)
        if len(self._warm) > WARM_SEGMENTS:
            self._warm.pop(0).index.release()

    def rebuild(self, segment: Segment) -> None:
        """Build the indexes of a segment again; the next flush saves them."""
        self.unsaved_from = min(self.unsaved_from, segment.base_offset)
        rebuild_indexes(segment, self.settings.index_interval_bytes)

    def repairing(self, segment: Segment, work: Callable[[], T]) -> T:
        """Do the work; if the index misled it, build the index anew and do it again."""
        try:
            return work()
        except DamagedSegment as odd:
            log.warning("%s: %s; its indexes are built anew", self.topic_partition, odd)
        try:
            self.rebuild(segment)
            return work()
        except DamagedSegment as worse:
            self.failure = str(worse)
            raise KafkaError(E.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {worse}") from worse


def _no_jitter(_: int) -> int:
    return 0


def _base_offset(segment: Segment) -> int:
    return segment.base_offset

"""When the records of a segment were written, for `min.compaction.lag.ms` and `max.compaction.lag.ms`.

After a start, the disk knows it: the time index, which can be long, and the header of the first batch.
`read_times` reads them on a thread, a few segments at a time; the loop keeps only the results.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from headwater.log.partition_log import PartitionLog
from headwater.log.presence import LogRemoved
from headwater.log.segment import Segment
from headwater.log.time_index import TimeIndex
from headwater.records.batch import HEADER, HEADER_SIZE
from headwater.records.header_fields import MAX_TIMESTAMP
from headwater.seams.files import Files, read_fully

MOST_READS = 64
"""Segments of one log that are read before the next log has its turn."""
_DAMAGED = -2


class Times(NamedTuple):
    """The times of one segment, as long as it is not truncated."""

    truncation_count: int
    first: int
    """The greatest timestamp of the first batch, -1 if it has none."""
    newest: int
    """The greatest timestamp, or the time of the last write if the records have none."""


class SegmentTimes:
    """The known times of the segments of one log that compaction has not cleaned."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Segment, Times] = {}

    def of(self, segment: Segment) -> Times | None:
        """Return the times of a segment, None if they must be read."""
        if segment.ready and segment.first_timestamp >= 0:
            return Times(0, segment.first_timestamp, segment.max_timestamp)
        known = self._known.get(segment)
        return known if known and known.truncation_count == segment.truncation_count else None

    def to_read(self, log: PartitionLog) -> Callable[[], list[tuple[Segment, Times]]] | None:
        """Return a call for a file thread that reads missing times; None if none are missing."""
        segments = log.segments
        first = segments.rank(max(log.cleaned_end, log.log_start_offset))
        dirty = [segments[rank] for rank in range(first, len(segments) - 1)]
        self._known = {segment: self._known[segment] for segment in dirty if segment in self._known}
        missing = [segment for segment in dirty if segment.size and self.of(segment) is None]
        if not missing:
            return None
        return lambda: _read(log, missing[:MOST_READS])

    def note(self, log: PartitionLog, found: list[tuple[Segment, Times]]) -> None:
        """Keep what was read; the index of a segment is rebuilt if it was damaged."""
        for segment, times in found:
            in_log = log.segments.holding(segment.base_offset) is segment
            if in_log and times.truncation_count == segment.truncation_count:
                damaged = times.newest == _DAMAGED
                newest = log.newest_timestamp(segment) if damaged else times.newest
                self._known[segment] = times._replace(newest=newest)


def _read(log: PartitionLog, segments: list[Segment]) -> list[tuple[Segment, Times]]:
    found = []
    for segment in segments:
        # Of a log that was deleted or a segment that was dropped meanwhile, nothing is of use.
        with suppress(LogRemoved, FileNotFoundError), log.presence:
            found.append((segment, _read_one(log.segments.files, segment)))
    return found


def _read_one(files: Files, segment: Segment) -> Times:
    cuts = segment.truncation_count
    try:
        fd = segment.open_for_reading()
        try:
            header = read_fully(files, fd, HEADER_SIZE, 0)
        finally:
            files.close(fd)
        # Loaded for this once: the indexes of thousands of segments would stay in memory.
        index = TimeIndex(files, segment.time_index.path, checksums=segment.checksums)
        newest = segment.max_timestamp if segment.ready else index.last()[0]
        if index.damaged or len(header) < HEADER_SIZE:
            newest = _DAMAGED
        elif newest < 0:
            newest = files.modified_ms(segment.path)
    except FileNotFoundError:
        if segment.truncation_count != cuts or not files.exists(segment.path):
            raise  # the segment was dropped
        return Times(cuts, -1, _DAMAGED)
    first = HEADER.unpack(header)[MAX_TIMESTAMP] if len(header) == HEADER_SIZE else -1
    return Times(cuts, first, newest)

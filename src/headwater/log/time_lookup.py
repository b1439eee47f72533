"""Offsets by time: the only part of the log that reads records.

A `TimeLookup` is made on the thread that owns the log, without touching the disk, and used on a file
thread: it opens its own files, so that a cold segment never holds the event loop. The time index
leads near the first batch that is new enough; only timestamps and offset deltas are read, up to the
first record that fits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from headwater.errors import E, KafkaError
from headwater.log.batch_scan import headers
from headwater.log.offset_index import OffsetIndex
from headwater.log.segment import DamagedSegment, Segment
from headwater.log.segment_checksums import read_checked
from headwater.log.time_index import TimeIndex
from headwater.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    OVERHEAD,
    RawHeader,
)
from headwater.records.compression import decompress
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAX_TIMESTAMP,
    RECORD_COUNT,
)
from headwater.records.record_scan import first_not_older
from headwater.records.rules import MAX_UNCOMPRESSED_BYTES
from headwater.seams.files import Files

if TYPE_CHECKING:
    from headwater.log.partition_log import PartitionLog

Found: TypeAlias = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""


class TimeLookup:
    """Finds records of a log by time, below the offset `upper`.

    `most_bytes` limits what the records of one batch may take uncompressed. A batch that takes
    more is not opened: it counts as one record at its first offset.
    """

    def __init__(
        self, log: "PartitionLog", upper: int, most_bytes: int = MAX_UNCOMPRESSED_BYTES
    ) -> None:
        self._log = log
        self._files = log.segments.files
        self._segments = list(log.segments)
        self._active_size = log.segments.active.size
        self._start = log.log_start_offset
        self._upper = upper
        self._most_bytes = most_bytes

    def at_or_after(self, timestamp: int) -> Found | None:
        """Return the first record that is not older than `timestamp`. Blocks; for a file thread."""
        for segment in self._segments:
            if segment.base_offset >= self._upper:
                return None
            if segment.ready and segment.max_timestamp < timestamp:
                continue
            found = None
            with self._opened(segment) as view:
                if view is not None:
                    found = view.first(timestamp, self._start, self._most_bytes)
            if found is not None:
                return found if found[1] < self._upper else None
        return None

    def newest(self) -> Found | None:
        """Return the first record with the greatest timestamp of the log. Blocks; for a file thread."""
        greatest = -1
        for segment in self._segments:
            if segment.ready:
                greatest = max(greatest, segment.max_timestamp)
                continue
            with self._opened(segment) as view:
                if view is not None:
                    greatest = max(greatest, view.newest())
        return None if greatest < 0 else self.at_or_after(greatest)

    @contextmanager
    def _opened(self, segment: Segment) -> Iterator["_View | None"]:
        """Return the segment with its own descriptor; None if it is empty or was removed."""
        active = segment is self._segments[-1]
        size = self._active_size if active else segment.size
        if not size:
            yield None
            return
        cuts = segment.truncation_count
        try:
            fd, view = self._open_view(segment, size, active)
        except FileNotFoundError:
            yield None
            return
        try:
            yield view
        except DamagedSegment as damage:
            self._log.fail(str(damage))
            raise KafkaError(E.KAFKA_STORAGE_ERROR, str(damage)) from damage
        finally:
            self._files.close(fd)
        if cuts != segment.truncation_count and segment.size < size:
            raise KafkaError(E.OFFSET_NOT_AVAILABLE, "the log was truncated during the lookup")

    def _open_view(self, segment: Segment, size: int, active: bool) -> tuple[int, "_View"]:
        """Open the file and the indexes of a segment, all of them before or all after a swap."""
        while True:
            path = segment.path
            fd = segment.open_for_reading()
            view = _View(self._files, segment, size, fd, active)
            if segment.path == path:
                return fd, view
            self._files.close(fd)


class _View:
    """One segment as a file thread sees it."""

    def __init__(self, files: Files, segment: Segment, size: int, fd: int, active: bool) -> None:
        self._files = files
        self._segment = segment
        self._fd = fd
        self._copy = segment.uncached_copy(size)
        self._sealed = not active
        self.path = segment.path
        self.size = size
        if active or segment.ready:
            self._times = segment.time_index
        else:
            # Loaded for this lookup only: the indexes of thousands of segments would stay in
            # memory.
            self._times = TimeIndex(files, segment.time_index.path, checksums=segment.checksums)
        if not active:
            self._copy.index = OffsetIndex(files, segment.index.path, checksums=segment.checksums)
            self._copy.index.load()
            self._times.load()

    def read_blocking(self, size: int, position: int) -> bytes:
        checksums = self._segment.checksums
        return read_checked(self._files, self._fd, checksums, self.path, size, position)

    def newest(self) -> int:
        """Return the greatest timestamp, from the time index and the headers after it."""
        timestamp, relative = self._times.last()
        if self._times.damaged:
            timestamp, relative = -1, -1
        try:
            found = self._copy.find(self.read_blocking, self._copy.base_offset + max(relative, 0))
        except DamagedSegment:
            found = None
        start = found[0] if found is not None and relative >= 0 else 0
        return max((header[MAX_TIMESTAMP] for _, header in headers(self, start)), default=timestamp)

    def first(self, timestamp: int, log_start: int, most_bytes: int) -> Found | None:
        """Return the first record at or after `log_start` that is not older than `timestamp`."""
        sealed_at, _ = self._times.last()
        relative = -1 if self._times.damaged else self._times.lookup(timestamp)
        if self._sealed and not self._times.damaged and sealed_at < timestamp:
            return None
        offset = max(log_start, self._copy.base_offset + max(relative, 0))
        try:
            found = self._copy.find(self.read_blocking, offset)
            start = None if found is None else found[0]
        except DamagedSegment:
            self._segment.index.damaged = True  # the owner rebuilds it on the next read
            start = 0
        if start is None:
            return None
        for position, header in headers(self, start):
            if (
                header[MAX_TIMESTAMP] >= timestamp
                and header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] >= log_start
            ):
                record = self._first_in(position, header, timestamp, log_start, most_bytes)
                if record is not None:
                    return record
        return None

    def _first_in(
        self, position: int, header: RawHeader, timestamp: int, log_start: int, most_bytes: int
    ) -> Found | None:
        base, epoch = header[BASE_OFFSET], header[LEADER_EPOCH]
        first = max(base, log_start)
        if not header[RECORD_COUNT]:
            return None  # compaction emptied the batch
        if header[ATTRIBUTES] & LOG_APPEND_TIME:
            return header[MAX_TIMESTAMP], first, epoch
        area = self.read_blocking(header[LENGTH] + OVERHEAD - HEADER_SIZE, position + HEADER_SIZE)
        if header[ATTRIBUTES] & CODEC_MASK:
            try:
                area = decompress(header[ATTRIBUTES] & CODEC_MASK, area, most_bytes, most_bytes)
            except KafkaError as refused:
                if refused.code is not E.MESSAGE_TOO_LARGE:
                    raise
                return header[MAX_TIMESTAMP], first, epoch
        found = first_not_older(
            area, header[RECORD_COUNT], timestamp - header[BASE_TIMESTAMP], first - base
        )
        return (
            None if found is None else (header[BASE_TIMESTAMP] + found[0], base + found[1], epoch)
        )

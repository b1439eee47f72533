"""Offsets by time: the one place of the log that looks inside batches.

The time index leads near the first batch that is new enough, and only that batch is decoded. These
calls read from the disk and may take milliseconds.
"""

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from headwater.log.segment import Segment
from headwater.log.walking import batch_at, headers
from headwater.records.batch import LOG_APPEND_TIME, RawHeader
from headwater.records.record import decode_records

if TYPE_CHECKING:
    from headwater.log.segmented_log import SegmentedLog

Found: TypeAlias = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""


def first_not_older(log: "SegmentedLog", timestamp: int, upper: int) -> Found | None:
    """The first record below `upper` that is not older than `timestamp`."""
    for segment in log.segments:
        if segment.base_offset >= upper:
            return None
        if segment.size and log.newest_timestamp(segment) >= timestamp:
            look = partial(_first_in, segment, timestamp, log.log_start_offset)
            found = log.repairing(segment, look)
            if found is not None:
                return found if found[1] < upper else None
    return None


def newest(log: "SegmentedLog") -> Found | None:
    """The first record that bears the greatest timestamp of the log."""
    greatest = max((log.newest_timestamp(segment) for segment in log.segments), default=-1)
    return None if greatest < 0 else first_not_older(log, greatest, log.log_end_offset)


def _first_in(segment: Segment, timestamp: int, log_start: int) -> Found | None:
    relative = segment.time_index.lookup(timestamp)
    start = max(log_start, segment.base_offset + max(relative, 0))
    found = segment.find(segment.read_blocking, start)
    if found is None:
        return None
    for position, header in headers(segment, found[0]):
        if header[8] >= timestamp:
            record = _first_record(segment, position, header, timestamp, log_start)
            if record is not None:
                return record
    return None


def _first_record(
    segment: Segment, position: int, header: RawHeader, timestamp: int, log_start: int
) -> Found | None:
    if header[5] & LOG_APPEND_TIME:
        return header[8], max(header[0], log_start), header[2]
    for record in decode_records(batch_at(segment, position, header)):
        if record.timestamp >= timestamp and record.offset >= log_start:
            return record.timestamp, record.offset, header[2]
    return None

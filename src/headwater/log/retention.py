"""What a log may forget: whole segments that are too old, too much, or below its start.

Segments go from the oldest on, never past the high watermark, and the active one only after a
roll. Their files are renamed at once and unlinked later by a file thread.
"""

from typing import TYPE_CHECKING

from headwater.log.segment import Segment

if TYPE_CHECKING:
    from headwater.log.partition_log import PartitionLog


def retain(log: "PartitionLog", now_ms: int, high_watermark: int) -> list[Segment]:
    """Drop what `retention.ms`, `retention.bytes` and DeleteRecords have given up; what was dropped."""
    if log.failure is not None:
        return []
    dropped = _drop_below_start(log, high_watermark)
    if log.settings.expires:
        dropped += _drop_old(log, now_ms, high_watermark)
        dropped += _drop_surplus(log, high_watermark)
    return dropped


def _drop_below_start(log: "PartitionLog", high_watermark: int) -> list[Segment]:
    dropped = []
    while len(log.segments) > 1 and log.segments[1].base_offset <= min(
        log.log_start_offset, high_watermark
    ):
        dropped.append(log.drop_first())
    return dropped


def _drop_old(log: "PartitionLog", now_ms: int, high_watermark: int) -> list[Segment]:
    dropped: list[Segment] = []
    if log.settings.retention_ms < 0:
        return dropped
    oldest_kept = now_ms - log.settings.retention_ms
    while _expired(log, log.segments[0], oldest_kept) and _end_of_first(log) <= high_watermark:
        if len(log.segments) == 1:
            log.roll(now_ms)
        dropped.append(log.drop_first())
    return dropped


def _drop_surplus(log: "PartitionLog", high_watermark: int) -> list[Segment]:
    dropped: list[Segment] = []
    if log.settings.retention_bytes < 0:
        return dropped
    while (
        len(log.segments) > 1
        and log.size - log.segments[0].size >= log.settings.retention_bytes
        and _end_of_first(log) <= high_watermark
    ):
        dropped.append(log.drop_first())
    return dropped


def _expired(log: "PartitionLog", segment: Segment, oldest_kept: int) -> bool:
    return segment.size > 0 and log.newest_timestamp(segment) < oldest_kept


def _end_of_first(log: "PartitionLog") -> int:
    return log.segments[1].base_offset if len(log.segments) > 1 else log.log_end_offset

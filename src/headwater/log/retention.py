"""Retention: drops whole segments that are too old, too many, or below the log's start.

Segments are dropped from the oldest on, never past the high watermark, and the active one only
after a roll. Their files are renamed at once and unlinked later by a file thread. A pass over a
log is a series of steps of bounded length, so that thousands of segments do not hold the loop.
"""

from typing import TYPE_CHECKING, NamedTuple

from headwater.log.segment import Segment

if TYPE_CHECKING:
    from headwater.log.partition_log import PartitionLog

STEP = 32
"""The most segments that one step drops."""


class RetentionStep(NamedTuple):
    """What one step did, and what is left to do."""

    dropped: list[Segment]
    more: bool
    """Whether another step is needed."""
    needs_roll: bool
    """Whether the only segment has expired: it is dropped after a roll."""


def step(log: "PartitionLog", now_ms: int, high_watermark: int, *, may_roll: bool) -> RetentionStep:
    """Drop some of the segments that `retention.ms`, `retention.bytes` or DeleteRecords release."""
    dropped: list[Segment] = []
    if log.failure is not None or log.cleaning:
        return RetentionStep(dropped, more=False, needs_roll=False)
    oldest_kept = now_ms - log.settings.retention_ms
    while _end_of_first(log) <= high_watermark:
        expired = _expires(log) and _expired(log, log.segments[0], oldest_kept)
        alone = len(log.segments) == 1
        if alone and expired and not may_roll:
            return RetentionStep(dropped, more=False, needs_roll=True)
        if not expired and (alone or not (_below_start(log) or _is_surplus(log))):
            break
        if len(dropped) == STEP:
            return RetentionStep(dropped, more=True, needs_roll=False)
        if alone:
            log.roll(now_ms)
        dropped.append(log.drop_first())
    return RetentionStep(dropped, more=False, needs_roll=False)


def retain(log: "PartitionLog", now_ms: int, high_watermark: int) -> list[Segment]:
    """Take all steps at once and return what was dropped."""
    dropped: list[Segment] = []
    more = True
    while more:
        done = step(log, now_ms, high_watermark, may_roll=True)
        dropped += done.dropped
        more = done.more
    return dropped


def _below_start(log: "PartitionLog") -> bool:
    return log.segments[1].base_offset <= log.log_start_offset


def _expires(log: "PartitionLog") -> bool:
    return log.settings.expires and log.settings.retention_ms >= 0


def _is_surplus(log: "PartitionLog") -> bool:
    limit = log.settings.retention_bytes
    return log.settings.expires and 0 <= limit <= log.size - log.segments[0].size


def _expired(log: "PartitionLog", segment: Segment, oldest_kept: int) -> bool:
    return (
        segment.size > 0
        and log.newest_timestamp(segment) < oldest_kept
        and log.newest_timestamp(segment, confirmed=True) < oldest_kept
    )


def _end_of_first(log: "PartitionLog") -> int:
    return log.segments[1].base_offset if len(log.segments) > 1 else log.log_end_offset

"""How much of a log compaction could clean now, and whether it should.

Sealed segments are cleaned, and only what all replicas have and no open transaction can change: below
the last stable offset, flushed, and older than `min.compaction.lag.ms`. A log is worth a pass once
`min.cleanable.dirty.ratio` of these bytes are new since the last one, or if a record has waited for
`max.compaction.lag.ms`.
"""

from typing import NamedTuple

from headwater.log.compaction.segment_times import SegmentTimes
from headwater.log.partition_log import PartitionLog

NO_LAG = (1 << 63) - 1


class Dirtiness(NamedTuple):
    """The part of a log that a pass would clean."""

    first_dirty: int
    end_offset: int
    """Where the last of the segments ends."""
    segments: int
    """How many segments, from the start of the log on."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """For how long a record has waited beyond `max.compaction.lag.ms`; 0 if none has."""

    @property
    def ratio(self) -> float:
        """The share of the bytes that is dirty."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def needs_pass(self, least_ratio: float) -> bool:
        """Return whether the log should be cleaned now."""
        return self.dirty_bytes > 0 and (self.ratio > least_ratio or self.overdue_ms > 0)


def measure(log: PartitionLog, stable: int, now_ms: int, times: SegmentTimes) -> Dirtiness:
    """Return how dirty a log is whose records are stable below the offset `stable`.

    What a power cut may take decides nothing: neither a later value of a key, nor a marker. Segments
    with unknown `times` are too young for `min.compaction.lag.ms`, and not overdue.
    """
    settings = log.settings
    first_dirty = max(log.cleaned_end, log.log_start_offset)
    limit = min(stable, log.recovery_point, log.decided_end)
    young = now_ms - settings.min_compaction_lag_ms
    old = now_ms - settings.max_compaction_lag_ms
    segments = log.segments
    end, count, clean, dirty, overdue_ms = segments.start_offset, 0, 0, 0, 0
    has_least_age = settings.min_compaction_lag_ms > 0
    has_greatest_age = settings.max_compaction_lag_ms < NO_LAG
    for rank in range(len(segments) - 1):
        segment, after = segments[rank], segments[rank + 1].base_offset
        if after > limit or segment.aborted.unsaved() is not None:
            break
        if after <= first_dirty:
            clean += segment.size
        else:
            if segment.size and (has_least_age or has_greatest_age):
                known = times.of(segment)
                if has_least_age and (known is None or known.newest > young):
                    break
                if has_greatest_age and not overdue_ms and known is not None and known.first > 0:
                    overdue_ms = max(0, old - known.first)
            dirty += segment.size
        end, count = after, rank + 1
    return Dirtiness(min(first_dirty, end), end, count, clean, dirty, overdue_ms)

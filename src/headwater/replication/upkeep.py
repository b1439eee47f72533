"""Access to a replica's log for housekeeping and describe requests."""

from collections.abc import Callable

from headwater.log import retention
from headwater.log.compaction.dirtiness import NO_LAG, Dirtiness, measure
from headwater.log.compaction.segment_times import SegmentTimes, Times
from headwater.log.partition_log import PartitionLog
from headwater.log.presence import Presence
from headwater.log.producers import ProducerStateEntry
from headwater.log.retention import RetentionStep
from headwater.log.scrubbing import ExpectedHeaders
from headwater.log.segment import Segment
from headwater.replication.partition import Partition


class Upkeep:
    """The background work on one replica; never past the high watermark."""

    __slots__ = ("_log", "_partition", "_times")

    def __init__(self, log: PartitionLog, partition: Partition) -> None:
        self._log = log
        self._partition = partition
        self._times = SegmentTimes()

    @property
    def is_damaged(self) -> bool:
        """Return whether the log refuses appends because its files are damaged."""
        return self._log.failure is not None

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._log.size

    @property
    def segment_count(self) -> int:
        return len(self._log.segments)

    @property
    def file_delete_delay_ms(self) -> int:
        return self._log.settings.file_delete_delay_ms

    @property
    def start_is_flushed(self) -> bool:
        """Return whether the disk has everything below the log's start: only then it can be stored."""
        return self._log.recovery_point >= self._log.log_start_offset

    @property
    def start_is_stored(self) -> bool:
        """Return whether a power cut brings back no record below the log's start."""
        return self._log.durable_start == self._log.log_start_offset

    def retain(self, now_ms: int, *, may_roll: bool) -> RetentionStep:
        """Drop some of the segments that have expired."""
        return retention.step(self._log, now_ms, self._partition.high_watermark, may_roll=may_roll)

    @property
    def may_be_cleaned(self) -> bool:
        """Return whether compaction may work on the log now."""
        return self._log.settings.compacted and not self._log.cleaning and not self.is_damaged

    @property
    def has_unflushed_segments(self) -> bool:
        """Return whether a sealed segment is not on the disk: compaction waits for that."""
        return self._log.recovery_point < self._log.segments.active.base_offset

    def times_to_read(self) -> Callable[[], list[tuple[Segment, Times]]] | None:
        """Return a call for a file thread that reads what compaction must know about the age of records.

        None if it depends on no age, or knows them all.
        """
        settings = self._log.settings
        if settings.min_compaction_lag_ms <= 0 and settings.max_compaction_lag_ms == NO_LAG:
            return None
        return self._times.to_read(self._log)

    def note_times(self, found: list[tuple[Segment, Times]]) -> None:
        """Keep what the call has read, for `dirtiness`."""
        self._times.note(self._log, found)

    def dirtiness(self, now_ms: int) -> Dirtiness:
        """Return how much of the log compaction could clean."""
        stable = self._log.last_stable_offset(self._partition.high_watermark)
        return measure(self._log, stable, now_ms, self._times)

    def should_be_cleaned(self, found: Dirtiness) -> bool:
        """Return whether a log as dirty as this is worth a pass."""
        return found.needs_pass(self._log.settings.min_cleanable_dirty_ratio)

    @property
    def sealed_segments(self) -> list[Segment]:
        """All segments but the active one."""
        return list(self._log.segments)[:-1]

    def expected_headers(self, sealed: Segment) -> ExpectedHeaders:
        """Return what the batches of a sealed segment must agree with."""
        partition_log = self._log
        segments, epochs = partition_log.segments, partition_log.epochs
        end = segments[segments.rank(sealed.base_offset) + 1].base_offset
        gaps = partition_log.settings.compacted or partition_log.cleaned_end > 0
        if epochs.damaged:
            return ExpectedHeaders(end, gaps)
        return ExpectedHeaders(end, gaps, tuple(epochs.epochs), tuple(epochs.starts))

    @property
    def presence(self) -> Presence:
        """Enter it to use names in the log's folder."""
        return self._log.presence

    def pop_garbage(self) -> list[str]:
        """Remove and return the paths of dropped files, which may be unlinked after a while."""
        return self._log.segments.pop_garbage()

    def active_producers(self) -> list[ProducerStateEntry]:
        """Return the states of the log's idempotent producers."""
        return list(self._log.producers)

    def expire_producers(self, before_ms: int) -> None:
        """Drop the states of producers that wrote nothing since `before_ms`."""
        self._log.producers.expire(before_ms)

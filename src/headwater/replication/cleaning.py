"""One pass of compaction over a replica's log: its job for a worker, and the swaps of new segments.

Retention drops nothing of the log meanwhile. A truncation may change what a worker reads: then the
pass ends without a further swap, and a later one begins from the start.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from headwater.log.compaction.dirtiness import Dirtiness
from headwater.log.compaction.jobs import (
    ANY_OFFSET,
    CleanedGroup,
    CleaningJob,
    LastBatch,
    SourceSegment,
)
from headwater.log.presence import LogRemoved
from headwater.log.producers import State
from headwater.model import NO_OFFSET
from headwater.replication.replica import Replica


@dataclass(frozen=True, slots=True)
class CleaningLimits:
    """What one worker may use."""

    map_bytes: int
    load_factor: float
    piece_bytes: int


class ReplicaCleaning:
    """A pass over one replica's log, from its beginning to `end`."""

    __slots__ = ("_log", "_replica", "_suffix", "_truncations")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._log = replica.log
        self._truncations = replica.log.truncations
        self._suffix = ""
        self._log.cleaning = True

    def job(
        self, found: Dirtiness, limits: CleaningLimits, secret: bytes, now_ms: int
    ) -> Callable[[], CleaningJob]:
        """Return a callable that makes the job, for a thread: producers can be many."""
        log, settings = self._log, self._log.settings
        states = log.producers.written_states()
        safe = min(log.recovery_point, self._replica.partition.high_watermark)
        sources = [log.segments[rank] for rank in range(found.segments)]
        job = CleaningJob(
            log.directory,
            [SourceSegment(source.base_offset, source.size) for source in sources],
            found.end_offset,
            found.first_dirty,
            now_ms,
            secret,
            settings.delete_retention_ms,
            settings.segment_bytes,
            settings.segment_index_bytes,
            settings.index_interval_bytes,
            {},
            log.segments.aborted_transactions(found.end_offset, found.end_offset),
            limits.map_bytes,
            limits.load_factor,
            limits.piece_bytes,
        )
        self._suffix = job.suffix

        def with_producers() -> CleaningJob:
            job.producers = _last_batches(states, safe)
            return job

        return with_producers

    @property
    def is_valid(self) -> bool:
        """Return whether the worker's files still belong to this log."""
        log = self._log
        return (
            self._replica.log is log
            and not log.presence.removed
            and log.failure is None
            and log.truncations == self._truncations
        )

    def swap(self, group: CleanedGroup, done: Callable[[bool, OSError | None], None]) -> None:
        """Swap a new segment in once nothing else changes the files of the log.

        `done` gets False if the pass is over because the log has changed.
        """
        replica = self._replica
        if replica.following.cutting:
            replica.following.when_cut(lambda: self.swap(group, done))
        elif replica.flushes.flushing:
            replica.flushes.when_not_flushing(lambda: self.swap(group, done))
        elif not self.is_valid:
            done(False, None)
        else:
            try:
                swapped = self._log.replace_segments(*group)
            except OSError as failure:
                done(False, failure)
            else:
                done(swapped, None)

    def sync(self) -> None:
        """Make the swaps durable, before anything relies on them. For file threads."""
        log = self._log
        with suppress(LogRemoved), log.presence:
            log.segments.files.sync_dir(log.directory)

    def cleaned_to(self, offset: int) -> None:
        """Note that everything below `offset` is compacted; `sync` comes first.

        A power cut must not bring back what was compacted while the offset says otherwise: a later
        pass would not look for it, and remove the tombstone above it.
        """
        if self.is_valid:
            self._log.cleaned_end = max(self._log.cleaned_end, offset)

    def end(self) -> None:
        """Let retention go on."""
        self._log.cleaning = False

    def remove_leftovers(self) -> None:
        """Remove files of the pass that were not swapped in. For file threads."""
        log = self._log
        files = log.segments.files
        with suppress(LogRemoved, FileNotFoundError), log.presence:
            for name in files.listdir(log.directory):
                if self._suffix and name.endswith(self._suffix):
                    files.unlink(f"{log.directory}/{name}")


def _last_batches(states: Mapping[int, State], safe: int) -> dict[int, LastBatch]:
    """Return the last batch of each producer below the offset `safe`.

    A power cut may take what is not flushed, a truncation what is above the high watermark.
    """
    found = {}
    for producer_id, (epoch, _, window, *_) in states.items():
        last = next((row[3] for row in reversed(window) if row[3] < safe), None)
        if last is None:
            last = ANY_OFFSET if window else NO_OFFSET
        found[producer_id] = LastBatch(last, epoch)
    return found

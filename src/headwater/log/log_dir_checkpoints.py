"""Writes what a log dir records about its logs: recovery points, starts, high watermarks, ends."""

import errno
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from headwater.log import checkpoints
from headwater.log.log_dir import LogDir, RunEpochs, sync_renames
from headwater.log.partition_log import PartitionLog
from headwater.model import TopicPartition
from headwater.seams.files import Files

log = logging.getLogger(__name__)

LOGS_PER_STEP = 500
"""How many logs one step of a checkpoint reads: a millisecond or two of work."""


class CheckpointFailed(OSError):
    """Some log dirs could not be written to; the others have their checkpoint."""

    def __init__(self, failures: Mapping[LogDir, OSError]) -> None:
        rows = (f"{log_dir.path}: {failure}" for log_dir, failure in failures.items())
        super().__init__("; ".join(rows))
        self.failures = failures


class Checkpoint:
    """The next checkpoint of every log dir: read from the logs in steps, then written by a file thread."""

    def __init__(
        self,
        files: Files,
        logs: Sequence[tuple[LogDir, PartitionLog]],
        high_watermark_of: Callable[[TopicPartition], int | None],
        log_dirs: Iterable[LogDir],
    ) -> None:
        self._files = files
        self._logs = logs
        self._high_watermark_of = high_watermark_of
        self._rows = {log_dir: _Rows() for log_dir in log_dirs}

    def collect(self) -> Iterator[None]:
        """Read the offsets of all logs; the loop may run after each step."""
        for number, (log_dir, row) in enumerate(self._logs, 1):
            if log_dir in self._rows and not row.presence.removed:
                self._rows[log_dir].add(row, self._high_watermark_of(row.topic_partition))
            if number % LOGS_PER_STEP == 0:
                yield

    def collect_all(self) -> Callable[[], None]:
        """Read all logs at once, and return `write`."""
        for _ in self.collect():
            pass
        return self.write

    def write(self) -> None:
        """Write the files. Safe on any thread; raise CheckpointFailed after trying all log dirs."""
        failures: dict[LogDir, OSError] = {}
        # A log that was moved has no row where it was. A power cut must not take it back there.
        sync_renames(self._rows, failures.__setitem__)
        if failures:
            raise CheckpointFailed(failures)
        for log_dir, rows in self._rows.items():
            if log_dir.offline:
                continue
            try:
                log_dir.require_disk()
                rows.write(self._files, log_dir)
                self._require_disk_still(log_dir)
            except OSError as failure:
                failures[log_dir] = failure
        if failures:
            raise CheckpointFailed(failures)

    def _require_disk_still(self, log_dir: LogDir) -> None:
        """Remove what was written into the mount point of a disk that was unmounted meanwhile."""
        try:
            log_dir.require_disk()
        except OSError as failure:
            if failure.errno == errno.ENODEV:
                for name in checkpoints.NAMES:
                    if self._files.exists(log_dir.join(name)):
                        self._files.unlink(log_dir.join(name))
            raise


class _Rows:
    """The rows of one log dir."""

    def __init__(self) -> None:
        self._rows: dict[TopicPartition, checkpoints.LogRow] = {}
        self._points: list[tuple[PartitionLog, int, int, int]] = []
        self._starts: dict[TopicPartition, int] = {}
        self._marks: dict[TopicPartition, int] = {}
        self._cleaned: dict[TopicPartition, int] = {}

    def add(self, row: PartitionLog, high_watermark: int | None) -> None:
        # First: a truncation that begins on a file thread meanwhile is not taken into account.
        truncations, note = row.truncations, row.note_number
        point = row.recovery_point
        # A start above the flushed records could outlive them, and hide what is written in their place.
        at, start = row.topic_partition, min(row.log_start_offset, point)
        self._rows[at] = checkpoints.LogRow(
            row.topic_id, point, start, high_watermark or 0, row.cleaned_end, note
        )
        self._points.append((row, point, truncations, start))
        if row.cleaned_end:
            self._cleaned[at] = row.cleaned_end
        if start > row.segments.start_offset:
            self._starts[at] = start
        if high_watermark is not None:
            self._marks[at] = high_watermark

    def write(self, files: Files, log_dir: LogDir) -> None:
        # First, so that a log of the same name that begins meanwhile knows of the row.
        log_dir.rows = log_dir.rows.merged(self._rows)
        self._drop_removed()
        checkpoints.write_log_rows(files, log_dir.join(checkpoints.LOG_CHECKPOINT), self._rows)
        log_dir.rows = checkpoints.LogRows(self._rows, points_known=True)
        for row, point, truncations, start in self._points:
            row.checkpointed, row.checkpointed_at, row.stored_start = point, truncations, start
        # Kafka's files; a start reads them only if our own is missing.
        points = {at: row.recovery_point or 0 for at, row in self._rows.items()}
        for name, offsets in (
            (checkpoints.RECOVERY_POINTS, points),
            (checkpoints.LOG_STARTS, self._starts),
            (checkpoints.HIGH_WATERMARKS, self._marks),
            (checkpoints.CLEANER_POINTS, self._cleaned),
        ):
            checkpoints.write_offsets(files, log_dir.join(name), offsets, sync=False)

    def _drop_removed(self) -> None:
        """Drop the rows of logs that were removed since they were read."""
        for row, *_ in self._points:
            if row.presence.removed:
                for rows in (self._rows, self._starts, self._marks, self._cleaned):
                    rows.pop(row.topic_partition, None)


def mark_clean(log_dir: LogDir, logs: Iterable[PartitionLog], epochs: RunEpochs) -> None:
    """Write the clean-shutdown marker, with the ends of the healthy logs."""
    ends = {
        row.directory.rpartition("/")[2]: (row.segments.active.size, row.log_end_offset)
        for row in logs
        if row.failure is None
    }
    try:
        log_dir.mark_clean(ends, epochs)
    except OSError as failure:
        _warn(f"the marker of a clean stop in {log_dir.path}", failure)


def write_last(write: Callable[[], None]) -> Container[LogDir]:
    """Write the checkpoint of a clean stop, and return the log dirs that did not take it."""
    try:
        write()
    except CheckpointFailed as failed:
        _warn("the last checkpoint", failed)
        return failed.failures
    return ()


def _warn(what: str, failure: OSError) -> None:
    """A broker stops on a full disk, too."""
    log.warning("%s is not written: %s; the next start recovers the logs", what, failure)

"""Writes what a log dir records about its logs: recovery points, starts, high watermarks, ends."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from headwater.log import checkpoints
from headwater.log.log_dir import CleanEnds, LogDir
from headwater.log.partition_log import PartitionLog
from headwater.model import TopicPartition
from headwater.seams.files import Files


def checkpoint_writes(
    files: Files,
    log_dir: LogDir,
    logs: Sequence[PartitionLog],
    high_watermarks: Mapping[TopicPartition, int],
) -> list[Callable[[], None]]:
    """Return calls for a file thread that write the checkpoints of a log dir."""
    rows = {
        row.topic_partition: checkpoints.LogRow(
            row.topic_id,
            row.recovery_point,
            row.log_start_offset,
            high_watermarks.get(row.topic_partition, 0),
        )
        for row in logs
    }
    points = [(row, row.recovery_point, row.truncations) for row in logs]
    starts = {
        row.topic_partition: row.log_start_offset
        for row in logs
        if row.log_start_offset > row.segments.start_offset
    }
    marks = {at: mark for at, mark in high_watermarks.items() if at in rows}
    return [
        partial(_write_rows, files, log_dir, rows, points),
        partial(_write_for_kafka, files, log_dir, rows, starts, marks),
    ]


def _write_rows(
    files: Files,
    log_dir: LogDir,
    rows: Mapping[TopicPartition, checkpoints.LogRow],
    points: Iterable[tuple[PartitionLog, int, int]],
) -> None:
    checkpoints.write_log_rows(files, log_dir.join(checkpoints.LOG_CHECKPOINT), rows)
    for row, point, truncations in points:
        row.checkpointed, row.checkpointed_at = point, truncations


def _write_for_kafka(
    files: Files,
    log_dir: LogDir,
    rows: Mapping[TopicPartition, checkpoints.LogRow],
    starts: Mapping[TopicPartition, int],
    marks: Mapping[TopicPartition, int],
) -> None:
    """Write Kafka's checkpoint files; a start reads them only if our own is missing."""
    points = {at: row.recovery_point or 0 for at, row in rows.items()}
    for name, offsets in (
        (checkpoints.RECOVERY_POINTS, points),
        (checkpoints.LOG_STARTS, starts),
        (checkpoints.HIGH_WATERMARKS, marks),
    ):
        checkpoints.write_offsets(files, log_dir.join(name), offsets, sync=False)


def clean_ends(logs: Iterable[PartitionLog]) -> CleanEnds:
    """Return where the healthy logs end, for the clean-shutdown marker."""
    return {
        row.directory.rpartition("/")[2]: (row.segments.active.size, row.log_end_offset)
        for row in logs
        if row.failure is None
    }

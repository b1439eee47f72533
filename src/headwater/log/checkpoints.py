"""Small text files about all logs of a folder: a version line, a count line, one row a line.

A start trusts `headwater-log-checkpoint`: it has a checksum, and its rows name the topic by id,
because a topic that was deleted and created again has the same name. Kafka's four files have the
same numbers by name only; they are written for Kafka's tools and read only if our own file is
missing or damaged. Writes are atomic. A start works without any of these files, but reads more.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.model import (
    ZERO_UUID,
    TopicPartition,
    Uuid,
    topic_name_problem,
    uuid_parse,
    uuid_text,
)
from headwater.records.checksum import crc32c
from headwater.seams.files import Files, read_file, replace_file

log = logging.getLogger(__name__)

LOG_CHECKPOINT = "headwater-log-checkpoint"

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_POINTS = "cleaner-offset-checkpoint"
NAMES = (LOG_CHECKPOINT, RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_POINTS)

_VERSION = "0"
_LOG_CHECKPOINT_VERSION = "3"
_EARLIER_VERSIONS = ("1", "2")
"""Without cleaned ends, and without the numbers of notes."""


class DamagedCheckpoint(Exception):
    """The file is damaged; the caller must do without it."""


def render_rows(rows: Iterable[tuple[str, ...]]) -> bytes:
    """Return the text of a checkpoint."""
    lines = [" ".join(row) for row in rows]
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode("ascii")


def parse_rows(content: bytes, fields: int) -> list[list[str]]:
    """Return the rows of a checkpoint; raise DamagedCheckpoint if version or count do not fit."""
    try:
        version, count, *lines = content.decode("ascii").split("\n")
        expected = int(count)
    except (ValueError, UnicodeDecodeError) as odd:
        raise DamagedCheckpoint("no version and count") from odd
    rows = [line.split(" ") for line in lines if line]
    if version != _VERSION or len(rows) != expected or any(len(row) != fields for row in rows):
        raise DamagedCheckpoint(f"version {version!r}, {len(rows)} rows for {count}")
    return rows


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Return offsets by partition, none if the file is missing; raise DamagedCheckpoint."""
    try:
        rows = parse_rows(read_file(files, path), fields=3)
    except FileNotFoundError:
        return {}
    offsets = {}
    for topic, partition, offset in rows:
        if topic_name_problem(topic) or not partition.isdecimal() or not offset.isdecimal():
            raise DamagedCheckpoint(f"row {topic!r} {partition!r} {offset!r}")
        offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets


def write_offsets(
    files: Files, path: str, offsets: Mapping[TopicPartition, int], *, sync: bool = True
) -> None:
    """Replace the file atomically by one with these offsets. Safe on any thread."""
    rows = ((topic, str(partition), str(offset)) for (topic, partition), offset in offsets.items())
    replace_file(files, path, render_rows(rows), sync=sync)


class LogRow(NamedTuple):
    """One log's row in a checkpoint."""

    topic_id: Uuid | None = None
    """The topic's id; None if the file has only names."""
    recovery_point: int | None = 0
    """Everything below this offset is on the disk; None if unknown."""
    log_start: int = 0
    high_watermark: int = 0
    cleaned_end: int = 0
    """Everything below this offset was compacted."""
    note: int = 0
    """The number of the last note of a truncation that the row takes into account."""


class LogRows:
    """The checkpointed rows of all logs of a folder."""

    def __init__(self, rows: Mapping[TopicPartition, LogRow], *, points_known: bool) -> None:
        self._rows = rows
        self._absent = LogRow(recovery_point=0 if points_known else None)

    def last_note(self, partition: TopicPartition) -> int | None:
        """Return the number of the last note that the row of this name knows; None without a row."""
        row = self._rows.get(partition)
        return None if row is None else row.note

    def merged(self, rows: Mapping[TopicPartition, LogRow]) -> "LogRows":
        """Return these rows with some replaced or added."""
        return LogRows({**self._rows, **rows}, points_known=True)

    def of(self, partition: TopicPartition, topic_id: Uuid) -> LogRow:
        """Return the row of a log, ignoring rows of other topics with the same name.

        If the log has lost its own id (zero), the row gives its start but nothing else: a topic
        of the same name may have been deleted just before. A log that began after that topic has a
        note with a higher number, which says that the start is not its own.
        """
        row = self._rows.get(partition, self._absent)
        if row.topic_id in (None, topic_id):
            return row
        if ZERO_UUID in (row.topic_id, topic_id):
            return row._replace(recovery_point=None, high_watermark=0, cleaned_end=0)
        return LogRow()


def write_log_rows(files: Files, path: str, rows: Mapping[TopicPartition, LogRow]) -> None:
    """Replace the file atomically by one with these rows and a checksum. Safe on any thread."""
    lines = [
        f"{topic} {partition} {uuid_text(row.topic_id or ZERO_UUID)} "
        f"{row.recovery_point} {row.log_start} {row.high_watermark} {row.cleaned_end} {row.note}"
        for (topic, partition), row in rows.items()
    ]
    text = "\n".join([_LOG_CHECKPOINT_VERSION, str(len(lines)), *lines, ""]).encode("ascii")
    replace_file(files, path, with_checksum(text))


def read_log_rows(files: Files, path: str) -> dict[TopicPartition, LogRow]:
    """Return the rows; raise FileNotFoundError, or DamagedCheckpoint if the checksum is wrong."""
    text = without_checksum(read_file(files, path))
    version, _, *lines = text.decode("ascii").split("\n")
    if version not in (_LOG_CHECKPOINT_VERSION, *_EARLIER_VERSIONS):
        raise DamagedCheckpoint(f"version {version!r} is not known")
    rows = {}
    for line in lines[:-1]:
        topic, partition, topic_id, *numbers = line.split(" ")
        row = LogRow(uuid_parse(topic_id), *map(int, numbers))
        rows[TopicPartition(topic, int(partition))] = row
    return rows


def with_checksum(text: bytes) -> bytes:
    """Add a last line with the checksum of all lines before."""
    return text + b"crc32c %08x\n" % crc32c(text)


def without_checksum(content: bytes) -> bytes:
    """Return the lines before the last; raise DamagedCheckpoint if that is not their checksum."""
    text = content[: content.rfind(b"\n", 0, -1) + 1]
    if content != with_checksum(text):
        raise DamagedCheckpoint("the checksum does not match")
    return text


def read_folder(files: Files, folder: str) -> LogRows:
    """Return the rows of our own checkpoint, or of Kafka's files if it is missing or damaged."""
    path, damaged = f"{folder}/{LOG_CHECKPOINT}", False
    try:
        return LogRows(read_log_rows(files, path), points_known=True)
    except FileNotFoundError:
        pass
    except DamagedCheckpoint as damage:
        log.warning("%s is damaged: every log of the folder is checked in full: %s", path, damage)
        damaged = True
    points = None if damaged else _sound_offsets(files, f"{folder}/{RECOVERY_POINTS}")
    starts = _sound_offsets(files, f"{folder}/{LOG_STARTS}") or {}
    marks = _sound_offsets(files, f"{folder}/{HIGH_WATERMARKS}") or {}
    cleaned = _sound_offsets(files, f"{folder}/{CLEANER_POINTS}") or {}
    if damaged:
        cleaned = {}  # names may be those of earlier topics
    rows = {
        at: LogRow(
            recovery_point=None if points is None else points.get(at, 0),
            log_start=starts.get(at, 0),
            high_watermark=marks.get(at, 0),
            cleaned_end=cleaned.get(at, 0),
        )
        for at in {**(points or {}), **starts, **marks, **cleaned}
    }
    return LogRows(rows, points_known=points is not None)


def _sound_offsets(files: Files, path: str) -> dict[TopicPartition, int] | None:
    """Return one of Kafka's checkpoints, or None if it is damaged."""
    try:
        return read_offsets(files, path)
    except DamagedCheckpoint as damage:
        log.warning("%s is damaged and not used: %s", path, damage)
        return None

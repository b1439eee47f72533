"""Kafka's small text files: a version line, a count line, one row a line.

They are hints with a safe fallback: whoever reads a damaged one must be able to go on without it,
at the price of more work. Writing is atomic.
"""

from collections.abc import Iterable, Mapping

from headwater.model import TopicPartition, topic_name_problem
from headwater.seams.files import Files, read_file, replace_file

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_POINTS = "cleaner-offset-checkpoint"

_VERSION = "0"


class DamagedCheckpoint(Exception):
    """The file is not what was written; the caller goes on without it."""


def render_rows(rows: Iterable[tuple[str, ...]]) -> bytes:
    """The text of a checkpoint."""
    lines = [" ".join(row) for row in rows]
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode("ascii")


def parse_rows(content: bytes, fields: int) -> list[list[str]]:
    """The rows of a checkpoint; DamagedCheckpoint if anything about it is odd."""
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
    """Offsets by partition; an absent file is empty, a damaged one raises DamagedCheckpoint."""
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


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Put the offsets in place of the file, whole or not at all. Safe on any thread."""
    rows = ((topic, str(partition), str(offset)) for (topic, partition), offset in offsets.items())
    replace_file(files, path, render_rows(rows))

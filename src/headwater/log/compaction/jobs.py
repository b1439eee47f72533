"""Jobs and answers of cleaning workers, which pass between processes as lines of JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headwater.log.aborted_index import AbortedTransaction
from headwater.log.segment import CLEANED

UNREADABLE = "unreadable"
"""The log has something that cannot be cleaned."""
DISK = "disk"
BROKEN = "broken"
"""The worker itself failed."""
ANY_OFFSET = -2
"""Every batch of the producer may be its last one on the disk."""

_PLAIN = (
    "directory", "end_offset", "first_dirty", "now_ms", "delete_retention_ms", "segment_bytes",
    "segment_index_bytes", "index_interval_bytes", "map_bytes", "load_factor", "piece_bytes",
)  # fmt: skip


class LastBatch(NamedTuple):
    """The last batch of an active producer."""

    last_offset: int
    """The last offset of the flushed batch with its last sequence.

    -1 if only markers are known, ANY_OFFSET if it is older than the batches that are known.
    """
    epoch: int


class SourceSegment(NamedTuple):
    """A sealed segment to be cleaned."""

    base_offset: int
    size: int


@dataclass(slots=True)
class CleaningJob:
    """What a pass over one log needs to know; the broker collects it and a worker carries it out."""

    directory: str
    segments: Sequence[SourceSegment]
    end_offset: int
    """Where the last of the segments ends: the base offset of the first that stays as it is."""
    first_dirty: int
    """Everything below this offset was cleaned before."""
    now_ms: int
    secret: bytes
    """Sixteen random bytes for the digests of keys; they also name the files of this job."""
    delete_retention_ms: int = 24 * 3600 * 1000
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    producers: Mapping[int, LastBatch] = field(default_factory=dict)
    """The active producers of the log."""
    later_aborted: Sequence[AbortedTransaction] = ()
    """Aborted transactions that begin before `end_offset` and end after it."""
    map_bytes: int = 128 << 20
    load_factor: float = 0.9
    piece_bytes: int = 512 << 10

    @property
    def suffix(self) -> str:
        """The suffix of the new files: no other job ever writes to them."""
        return f".{self.secret.hex()[:8]}{CLEANED}"


class CleanedGroup(NamedTuple):
    """Segments for which one new segment is ready."""

    base_offsets: list[int]
    size: int
    """Bytes of the new segment, whose base offset is the first of these."""
    suffix: str
    """What follows the names of its files."""


class CleaningFailed(Exception):
    """A worker could not clean a log."""

    def __init__(self, kind: str, reason: str, errno: int | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.errno = errno


class PassDone:
    """The end of a pass, with its counts."""

    __slots__ = ("cleaned_to", "kept_bytes", "kept_records", "keys", "read_bytes", "read_records")

    def __init__(self, counts: dict[str, int]) -> None:
        self.cleaned_to = counts["cleaned_to"]
        self.keys = counts["keys"]
        self.read_bytes, self.kept_bytes = counts["read_bytes"], counts["kept_bytes"]
        self.read_records, self.kept_records = counts["read_records"], counts["kept_records"]


def encode_job(job: CleaningJob) -> bytes:
    """Return the line of a job."""
    row = {name: getattr(job, name) for name in _PLAIN}
    row["segments"] = job.segments
    row["secret"] = job.secret.hex()
    row["producers"] = [(producer, *last) for producer, last in job.producers.items()]
    row["later_aborted"] = job.later_aborted
    return json.dumps(row).encode() + b"\n"


def decode_job(line: bytes) -> CleaningJob:
    """Return the job of a line."""
    row: dict[str, Any] = json.loads(line)
    return CleaningJob(
        **{name: row[name] for name in _PLAIN},
        segments=[SourceSegment(*segment) for segment in row["segments"]],
        secret=bytes.fromhex(row["secret"]),
        producers={producer: LastBatch(*last) for producer, *last in row["producers"]},
        later_aborted=[AbortedTransaction(*aborted) for aborted in row["later_aborted"]],
    )


def decode_answer(line: bytes) -> CleanedGroup | PassDone:
    """Return what a line of a worker says; raise CleaningFailed if the pass failed."""
    answer = json.loads(line)
    if "failed" in answer:
        raise CleaningFailed(*answer["failed"])
    if "group" in answer:
        return CleanedGroup(*answer["group"])
    return PassDone(answer["done"])

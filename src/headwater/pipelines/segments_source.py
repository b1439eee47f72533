"""`format("headwater-segments")`: archived or copied segment files as Spark reads them.

The driver finds the files and shares them out, one task for each file or piece of a large one; the
executors read, so the path must mean the same files on every machine. No broker is asked.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.errors import E, KafkaError
from headwater.log.aborted_index import AbortedTransaction
from headwater.model import TopicPartition
from headwater.pipelines.segment_rows import (
    BATCH_COLUMNS,
    HEADERS_COLUMN,
    RECORD_COLUMNS,
    Wanted,
    batches,
    records,
)
from headwater.pipelines.segments import (
    MAX_OFFSET,
    Piece,
    SegmentFile,
    aborted_in,
    find_segments,
    split,
)

_SPLIT_BYTES: Final = 128 << 20
_CHOICES: Final = {
    "level": ("records", "batches"),
    "mode": ("failfast", "permissive"),
    "isolationLevel": ("read_uncommitted", "read_committed"),
    "includeHeaders": ("false", "true"),
}
_NAMES: Final = (
    "path",
    "topic",
    "partition",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsets",
    "endingOffsets",
    "splitBytes",
    *_CHOICES,
)


class Options(NamedTuple):
    """What the user asks for, checked."""

    path: str
    level: str
    headers: bool
    failfast: bool
    committed: bool
    topic: str | None
    partition: int | None
    start_ms: int | None
    end_ms: int | None
    starts: "int | dict[TopicPartition, int]"
    ends: "int | dict[TopicPartition, int]"
    split_bytes: int

    @property
    def columns(self) -> str:
        """The schema in Spark's words."""
        if self.level == "batches":
            return BATCH_COLUMNS
        return RECORD_COLUMNS + (HEADERS_COLUMN if self.headers else "")


def parse_options(options: Mapping[str, str]) -> Options:
    """The options of a read; KafkaError for one that is unknown or makes no sense."""
    given = _known(options)
    if "path" not in given:
        raise _refused("path", "give the folder: .load(FOLDER)")
    level = _choice(given, "level")
    # Damage is what a look at batches is for: there it ends nothing unless asked to.
    lenient = given.get("mode") is None and level == "batches"
    return Options(
        path=given["path"],
        level=level,
        headers=_choice(given, "includeHeaders") == "true",
        failfast=not lenient and _choice(given, "mode") == "failfast",
        committed=_choice(given, "isolationLevel") == "read_committed",
        topic=given.get("topic"),
        partition=_number(given, "partition"),
        start_ms=_number(given, "startingTimestamp"),
        end_ms=_number(given, "endingTimestamp"),
        starts=_offsets(given, "startingOffsets", {"earliest": 0}),
        ends=_offsets(given, "endingOffsets", {"latest": MAX_OFFSET}),
        split_bytes=_number(given, "splitBytes") or _SPLIT_BYTES,
    )


class SegmentsDataSource(DataSource):
    """Segment files of Headwater or Apache Kafka."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return "headwater-segments"

    def schema(self) -> str:
        """The columns of records, or those of batches."""
        return parse_options(self.options).columns

    def reader(self, schema: StructType) -> "SegmentsReader":
        """For `spark.read`."""
        return SegmentsReader(parse_options(self.options), schema)


@dataclass
class Share(InputPartition):
    """What one task reads."""

    piece: Piece
    wanted: Wanted


class SegmentsReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        """A share for each file, several for a large one; files that cannot matter are left out."""
        options = self._options
        chosen = [s for s in find_segments(options.path, _named(options)) if self._matters(s)]
        aborted = self._aborted(chosen)
        return [
            Share(piece, self._wanted(segment, aborted.get((segment.topic, segment.partition), [])))
            for segment in chosen
            for piece in split(segment, options.split_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one share; none for the placeholder that Spark makes of no shares."""
        if not isinstance(partition, Share):
            return iter(())
        read = batches if self._options.level == "batches" else records
        return read(partition.piece, partition.wanted, self._schema)

    def _matters(self, segment: SegmentFile) -> bool:
        options = self._options
        named = options.topic in (None, segment.topic) and options.partition in (
            None,
            segment.partition,
        )
        newer = options.start_ms is None or (segment.last_timestamp or 0) >= options.start_ms
        known = segment.last_timestamp is not None
        return (
            named
            and segment.size > 0
            and segment.next_offset > _offset(options.starts, segment, 0)
            and segment.base_offset < _offset(options.ends, segment, MAX_OFFSET)
            and (newer or not known)
        )

    def _aborted(
        self, segments: list[SegmentFile]
    ) -> dict[tuple[str, int], list[AbortedTransaction]]:
        if not self._options.committed:
            return {}
        folders: dict[tuple[str, int], set[str]] = {}
        for segment in segments:
            folders.setdefault((segment.topic, segment.partition), set()).add(segment.folder)
        return {where: aborted_in(sorted(below)) for where, below in folders.items()}

    def _wanted(self, segment: SegmentFile, aborted: list[AbortedTransaction]) -> Wanted:
        options = self._options
        return Wanted(
            start_ms=options.start_ms,
            end_ms=options.end_ms,
            start_offset=_offset(options.starts, segment, 0),
            end_offset=_offset(options.ends, segment, MAX_OFFSET),
            failfast=options.failfast,
            aborted=tuple(
                row
                for row in aborted
                if row.last_offset >= segment.base_offset and row.first_offset < segment.next_offset
            ),
        )


def _named(options: Options) -> TopicPartition | None:
    if options.topic is None or options.partition is None:
        return None
    return TopicPartition(options.topic, options.partition)


def _offset(said: int | dict[TopicPartition, int], segment: SegmentFile, otherwise: int) -> int:
    if isinstance(said, int):
        return said
    return said.get(TopicPartition(segment.topic, segment.partition), otherwise)


def _refused(name: str, why: str) -> KafkaError:
    return KafkaError(E.INVALID_REQUEST, f"option {name} of headwater-segments: {why}")


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their proper names: Spark hands them over in lower case."""
    proper = {name.lower(): name for name in _NAMES}
    found = {}
    for name, value in options.items():
        if name.lower() not in proper:
            near = get_close_matches(name.lower(), proper, n=1)
            hint = (
                f"; did you mean {proper[near[0]]}?" if near else f"; there are {', '.join(_NAMES)}"
            )
            raise _refused(name, f"there is no such option{hint}")
        found[proper[name.lower()]] = value
    return found


def _choice(given: Mapping[str, str], name: str) -> str:
    choices = _CHOICES[name]
    value = given.get(name, choices[0]).lower()
    if value not in choices:
        raise _refused(name, f"{value!r} is none of {', '.join(choices)}")
    return value


def _number(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not value.isdecimal():
        raise _refused(name, f"{value!r} is no whole number")
    return int(value)


def _offsets(
    given: Mapping[str, str], name: str, words: Mapping[str, int]
) -> int | dict[TopicPartition, int]:
    """One offset for all partitions, or Kafka's JSON `{"topic": {"0": 12}}`; -2 and -1 are ends."""
    word = next(iter(words))
    value = given.get(name, word).strip()
    if value in words:
        return words[value]
    if value.isdecimal():
        return int(value)
    ends = {-2: 0, -1: MAX_OFFSET}
    try:
        return {
            TopicPartition(topic, int(partition)): ends.get(int(offset), int(offset))
            for topic, offsets in json.loads(value).items()
            for partition, offset in offsets.items()
        }
    except (ValueError, TypeError, AttributeError) as odd:
        form = '{"topic": {"0": 12}}'
        raise _refused(name, f"write {word}, an offset, or {form}, not {value!r}") from odd

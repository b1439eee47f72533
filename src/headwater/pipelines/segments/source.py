"""Registers `format("headwater-segments")`: Spark reads archived or copied segment files.

The driver finds the files and plans one task for each file or piece of a large file. The executors
read them, so the path must lead to the same files on every machine. No broker is needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.log.aborted_index import AbortedTransaction
from headwater.model import TopicPartition
from headwater.pipelines.arrow_rows import ddl
from headwater.pipelines.segments.files import (
    SegmentFile,
    SegmentSlice,
    aborted_in,
    find_segments,
    split,
)
from headwater.pipelines.segments.options import SegmentOptions, parse_options
from headwater.pipelines.segments.rows import BATCH_COLUMNS, RecordFilter, batches, records

Aborted: TypeAlias = dict[int, list[AbortedTransaction]]
"""Aborted transactions by producer id."""


class SegmentsDataSource(DataSource):
    """Segment files of Headwater or Apache Kafka."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "headwater-segments"

    def schema(self) -> str:
        """Return the columns of records or of batches."""
        options = parse_options(self.options)
        return BATCH_COLUMNS if options.level == "batches" else ddl(headers=options.headers)

    def reader(self, schema: StructType) -> "SegmentsReader":
        """For `spark.read`."""
        return SegmentsReader(parse_options(self.options), schema)


@dataclass
class SegmentTask(InputPartition):
    """The input of one task."""

    piece: SegmentSlice
    wanted: RecordFilter


class SegmentsReader(DataSourceReader):
    """Plans on the driver and reads on executors."""

    def __init__(self, options: SegmentOptions, schema: StructType) -> None:
        self._options = options
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        """Return a task for each file or piece of a large file; skip files without selected records."""
        options = self._options
        found = find_segments(options.path, options.named)
        chosen = [segment for segment in found if options.may_want(segment)]
        aborted = _aborted(chosen) if options.committed else {}
        return [
            SegmentTask(piece, self._wanted(segment, aborted.get(_place(segment), {})))
            for segment in chosen
            for piece in split(segment, options.split_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task; none for Spark's placeholder if there are no tasks."""
        if not isinstance(partition, SegmentTask):
            return iter(())
        read = batches if self._options.level == "batches" else records
        return read(partition.piece, partition.wanted, self._schema)

    def _wanted(self, segment: SegmentFile, aborted: Aborted) -> RecordFilter:
        options = self._options
        return RecordFilter(
            start_ms=options.start_ms,
            end_ms=options.end_ms,
            start_offset=options.start_of(segment),
            end_offset=options.end_of(segment),
            failfast=options.failfast,
            aborted={
                producer: [row for row in rows if row.last_offset >= segment.base_offset]
                for producer, rows in aborted.items()
            },
        )


def _place(segment: SegmentFile) -> TopicPartition:
    return TopicPartition(segment.topic, segment.partition)


def _aborted(segments: list[SegmentFile]) -> dict[TopicPartition, Aborted]:
    folders: dict[TopicPartition, set[str]] = {}
    for segment in segments:
        folders.setdefault(_place(segment), set()).add(segment.folder)
    return {where: aborted_in(below) for where, below in folders.items()}

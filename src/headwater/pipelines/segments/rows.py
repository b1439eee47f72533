"""Converts batches of segment files to Arrow: their records, or one row for each batch.

Records have the columns of `format("headwater")`; the codec writes them directly into Arrow's
buffers. A `RecordFilter` selects rows; damage either fails the read or is skipped.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import E, KafkaError
from headwater.log.aborted_index import AbortedTransaction
from headwater.pipelines.arrow_rows import ROWS, PartitionRows, offsets, spark_times, times
from headwater.pipelines.segments.files import MAX_OFFSET, SegmentSlice
from headwater.pipelines.segments.segment_scan import (
    DamagedRange,
    Found,
    SoundBatch,
    codec_name,
    scan_segment,
)
from headwater.records.batch import BatchHeader
from headwater.records.codec import ColumnReader
from headwater.records.columns import Columns

BYTES: Final = 2 << 20
"""The most bytes of records in one Arrow batch: larger ones cost the JVM more per row."""
BATCH_COLUMNS: Final = (
    "topic string, partition int, base_offset bigint, last_offset bigint, count int, codec string, "
    "base_timestamp timestamp, max_timestamp timestamp, timestamp_type int, producer_id bigint, "
    "producer_epoch int, base_sequence int, last_sequence int, leader_epoch int, size bigint, "
    "crc_ok boolean, control boolean, transactional boolean, file string, position bigint, "
    "problem string"
)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Selects records of a piece by time, from `start_ms` to below `end_ms`, and by offset."""

    start_ms: int | None = None
    end_ms: int | None = None
    start_offset: int = 0
    end_offset: int = MAX_OFFSET
    failfast: bool = True
    aborted: Mapping[int, Sequence[AbortedTransaction]] = field(default_factory=dict)
    """Aborted transactions by producer id, ordered by their ends."""

    def may_hold(self, header: BatchHeader) -> bool:
        """Return whether a batch may contain selected records."""
        return not (
            header.control
            or header.last_offset < self.start_offset
            or header.base_offset >= self.end_offset
            or (self.start_ms is not None and header.max_timestamp < self.start_ms)
            or (header.transactional and self._dropped(header))
        )

    def _dropped(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to an aborted transaction."""
        ended = self.aborted.get(header.producer_id, ())
        rank = bisect_left(ended, header.base_offset, key=attrgetter("last_offset"))
        return rank < len(ended) and ended[rank].first_offset <= header.base_offset

    def chosen(self, columns: Columns) -> Any:
        """Return a mask of the selected records; None if all are."""
        tests = []
        if self.end_offset < MAX_OFFSET:
            tests.append(pc.less(offsets(columns), self.end_offset))
        sent = times(columns).cast(pa.int64())
        if self.start_ms is not None:
            tests.append(pc.greater_equal(sent, self.start_ms))
        if self.end_ms is not None:
            tests.append(pc.less(sent, self.end_ms))
        return reduce(pc.and_, tests) if tests else None


def records(piece: SegmentSlice, wanted: RecordFilter, schema: Any) -> Iterator[Any]:
    """Yield the records of a piece as RecordBatches of `schema`."""
    reader = ColumnReader()
    segment = piece.segment
    rows = PartitionRows(segment.topic, segment.partition, headers="headers" in schema.names)
    for found in scan_segment(segment.path, segment.base_offset, piece.start, piece.end):
        problem = found if isinstance(found, DamagedRange) else _read(reader, found, wanted)
        if problem is not None and wanted.failfast:
            raise _damaged(piece, problem)
        if reader.count >= ROWS or reader.size >= BYTES:
            yield from _gathered(reader, rows, wanted, schema)
    yield from _gathered(reader, rows, wanted, schema)


def batches(piece: SegmentSlice, wanted: RecordFilter, schema: Any) -> Iterator[Any]:
    """Yield one row for each batch of a piece and for each damaged range."""
    gathered: list[dict[str, Any]] = []
    for found in scan_segment(
        piece.segment.path, piece.segment.base_offset, piece.start, piece.end
    ):
        if isinstance(found, DamagedRange) and wanted.failfast:
            raise _damaged(piece, found)
        if isinstance(found, DamagedRange) or _in_range(found.header, wanted):
            gathered.append(_row(piece, found))
        if len(gathered) >= ROWS:
            yield _table(gathered, schema)
            gathered = []
    if gathered:
        yield _table(gathered, schema)


def _read(reader: ColumnReader, batch: SoundBatch, wanted: RecordFilter) -> DamagedRange | None:
    if not wanted.may_hold(batch.header):
        return None
    try:
        reader.add(batch.data, 0, False, from_offset=wanted.start_offset)
    except KafkaError as malformed:
        return DamagedRange(batch.position, batch.size, malformed.message, batch.header)
    return None


def _damaged(piece: SegmentSlice, damage: DamagedRange) -> KafkaError:
    return KafkaError(
        E.CORRUPT_MESSAGE,
        f"{piece.segment.path}: damaged at position {damage.position}: {damage.reason}; "
        "set the option mode=permissive to skip it",
    )


def _gathered(
    reader: ColumnReader, rows: PartitionRows, wanted: RecordFilter, schema: Any
) -> Iterator[Any]:
    if not reader.count:
        return
    columns = reader.finish()
    chosen, batch = wanted.chosen(columns), rows.batch(columns)
    if chosen is not None:
        batch = batch.filter(chosen)
    if batch.num_rows:
        yield batch.select(schema.names).cast(schema)


def _in_range(header: BatchHeader, wanted: RecordFilter) -> bool:
    return not (
        header.last_offset < wanted.start_offset
        or header.base_offset >= wanted.end_offset
        or (wanted.start_ms is not None and header.max_timestamp < wanted.start_ms)
        or (wanted.end_ms is not None and header.base_timestamp >= wanted.end_ms)
    )


def _row(piece: SegmentSlice, found: Found) -> dict[str, Any]:
    header, sound = found.header, isinstance(found, SoundBatch)
    said: dict[str, Any] = {}
    if header is not None:
        said = {
            "base_offset": header.base_offset,
            "last_offset": min(header.last_offset, MAX_OFFSET),
            "count": header.count,
            "codec": codec_name(header),
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "timestamp_type": int(header.log_append_time),
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "leader_epoch": header.leader_epoch,
            "control": header.control,
            "transactional": header.transactional,
        }
    return {
        **said,
        "topic": piece.segment.topic,
        "partition": piece.segment.partition,
        "size": found.size,
        "crc_ok": sound,
        "file": piece.segment.path,
        "position": found.position,
        "problem": None if isinstance(found, SoundBatch) else found.reason,
    }


def _table(rows: list[dict[str, Any]], schema: Any) -> Any:
    columns = []
    for kind in schema:
        values = [row.get(kind.name) for row in rows]
        if pa.types.is_timestamp(kind.type):
            told = pa.array(values, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
            columns.append(spark_times(told))
        else:
            columns.append(pa.array(values, kind.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)

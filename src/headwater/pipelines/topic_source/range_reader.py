"""A range of offsets of one partition as Arrow batches with the columns of Spark's Kafka source.

Records go from the broker's bytes to Arrow's memory without becoming Python objects. While one
answer is decoded the next is on its way. A range is over when the position has passed its end: the
record before the end may be missing, by compaction or because a transaction was aborted.
"""

import logging
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.client.consumer.fetched import Fetched
from headwater.client.consumer.places import Place
from headwater.client.errors import ClientError, CorruptRecordError
from headwater.errors import E
from headwater.model import TopicPartition
from headwater.pipelines.topic_source.brokers_loop import Brokers, OutOfRange, Piece
from headwater.pipelines.topic_source.offsets import OffsetRange
from headwater.records.codec import ColumnReader
from headwater.records.columns import Column, Columns

log = logging.getLogger(__name__)

ROWS: Final = 65_536
"""The most rows of one Arrow batch, give or take a batch of the log."""
MAX_FETCH_BYTES: Final = 4 * 1024 * 1024
_TIME: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


class DataLossError(ClientError):
    """Records that a query had yet to read are gone, and `failOnDataLoss` is true."""

    CODE = E.OFFSET_OUT_OF_RANGE


REMEDY: Final = (
    "To go on without them set failOnDataLoss=false; to keep them next time raise the topic's "
    "retention above the time that the query may be behind"
)


def schema(*, headers: bool) -> Any:
    """The columns, typed exactly as Spark wants them."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", _TIME),
        pa.field("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, pa.field("headers", _HEADERS)] if headers else fields)


class RangeReader:
    """Reads ranges, one at a time."""

    def __init__(
        self, brokers: Brokers, *, headers: bool, fail_on_data_loss: bool, timeout_ms: int
    ) -> None:
        self._brokers = brokers
        self._headers = headers
        self._fail = fail_on_data_loss
        self._timeout_ms = timeout_ms
        self._schema = schema(headers=headers)

    def read(self, wanted: OffsetRange) -> Iterator[Any]:
        """The records of a range, in order, as pyarrow RecordBatches."""
        where = TopicPartition(wanted.topic, wanted.partition)
        fixed = _Fixed(wanted.topic, wanted.partition)
        position, size = wanted.start, self._brokers.settings.max_partition_fetch_bytes
        coming = self._brokers.fetch(where, position, size, self._timeout_ms)
        while position < wanted.end:
            answer = coming.result()
            if isinstance(answer, OutOfRange):
                position = self._past_loss(wanted, position, answer)
                fetched = None
            else:
                fetched = self._opened(where, position, answer)
                size = _next_size(wanted.end, position, fetched)
                position = fetched.end_offset
            if position < wanted.end:
                coming = self._brokers.fetch(where, position, size, self._timeout_ms)
            if fetched is not None:
                yield from self._batches(fetched, wanted.end, fixed)

    def _opened(self, where: TopicPartition, position: int, piece: Piece) -> Fetched:
        place = Place(where)
        place.jump(position)
        check = self._brokers.settings.check_crcs
        fetched = Fetched(place, piece.records, aborted=piece.aborted, check_crcs=check)
        if fetched.end_offset <= position:
            raise CorruptRecordError(
                f"{where}: the broker sent {fetched.size} bytes for offset {position} that hold no "
                f"whole batch; see its log"
            )
        return fetched

    def _batches(self, fetched: Fetched, end: int, fixed: "_Fixed") -> Iterator[Any]:
        """Batches of the log are gathered until they fill one of Arrow."""
        while True:
            reader = ColumnReader()
            fetched.take_columns(reader, ROWS, last=end - 1)
            if not reader.count:
                return
            yield self._shaped(reader.finish(), fixed)

    def _shaped(self, columns: Columns, fixed: "_Fixed") -> Any:
        count = columns.count
        topics, partitions = fixed.columns(count)
        offsets = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)])
        arrays = [
            _bytes(columns.keys, count),
            _bytes(columns.values, count),
            topics,
            partitions,
            offsets,
            _times(columns, count),
            _kinds(columns, count),
        ]
        if self._headers:
            arrays.append(_headers(columns))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _past_loss(self, wanted: OffsetRange, position: int, ends: OutOfRange) -> int:
        """Where to go on after records that are gone; raises where that is not wanted."""
        where = f"{wanted.topic}-{wanted.partition}"
        if position < ends.earliest:
            onward = min(ends.earliest, wanted.end)
            lost = (
                f"{where}: offsets {position} to {onward - 1} are gone before they were read: the "
                f"partition begins at {ends.earliest} now (retention, or deleted records)"
            )
        else:
            onward = wanted.end
            lost = (
                f"{where}: offsets {position} to {wanted.end - 1} are not there: the partition ends "
                f"at {ends.latest} now (the topic was deleted or made anew, or the log was cut)"
            )
        if self._fail:
            raise DataLossError(f"{lost}. {REMEDY}")
        log.warning("%s; going on without them", lost)
        return onward


class _Fixed:
    """The columns that are the same in every row of a partition, made once for the largest batch."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition
        self._made = 0
        self._topics: Any = None
        self._partitions: Any = None

    def columns(self, count: int) -> tuple[Any, Any]:
        if count > self._made:
            self._made = count
            self._topics = pa.repeat(pa.scalar(self._topic, pa.string()), count)
            self._partitions = pa.repeat(pa.scalar(self._partition, pa.int32()), count)
        return self._topics.slice(0, count), self._partitions.slice(0, count)


def _next_size(end: int, position: int, fetched: Fetched) -> int:
    """How much to ask for next: what the rest of the range should need, within bounds."""
    each = fetched.size / (fetched.end_offset - position)
    rest = int((end - fetched.end_offset) * each * 1.1) + 4096
    return min(MAX_FETCH_BYTES, rest)


def _bytes(column: Column, count: int, kind: Any = None) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind or pa.binary(), count, buffers)


def _times(columns: Columns, count: int) -> Any:
    kind = pa.timestamp("ms", tz="UTC")
    told = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(columns.timestamps)])
    try:
        return told.cast(_TIME)
    except pa.ArrowInvalid:  # a record with a time that microseconds cannot hold
        numbers = told.cast(pa.int64())
        limit = (1 << 63) // 1000 - 1
        fits = pc.and_(pc.less_equal(numbers, limit), pc.greater_equal(numbers, -limit))
        return pc.if_else(fits, told, pa.scalar(None, kind)).cast(_TIME)


def _kinds(columns: Columns, count: int) -> Any:
    told = pa.Array.from_buffers(pa.int8(), count, [None, pa.py_buffer(columns.timestamp_types)])
    return told.cast(pa.int32())


def _headers(columns: Columns) -> Any:
    """A list for each row; null where a record has none, as Spark's Kafka source has it."""
    found = columns.headers
    if found is None:
        return pa.nulls(columns.count, _HEADERS)
    pairs = pa.StructArray.from_arrays(
        [_bytes(found.keys, found.count, pa.string()), _bytes(found.values, found.count)],
        fields=list(_HEADERS.value_type),
    )
    edges = pa.Array.from_buffers(
        pa.int32(), columns.count + 1, [None, pa.py_buffer(found.offsets)]
    )
    empty = pc.equal(edges.slice(0, columns.count), edges.slice(1))
    return pa.ListArray.from_arrays(edges, pairs, type=_HEADERS, mask=empty)

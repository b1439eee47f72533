"""Decoded records as Arrow batches with the columns of Spark's Kafka source.

Defines the columns once, for Spark and for Arrow. The codec's buffers become Arrow buffers without a
copy; only timestamps, timestamp types and headers are converted.
"""

from array import array
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.records.columns import Column, Columns

ROWS: Final = 65_536
"""The most rows of one Arrow batch; the last log batch may exceed it."""

_DDL: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
_HEADERS_DDL: Final = "headers array<struct<key: string, value: binary>>"

_SENT: Final = pa.timestamp("ms", tz="UTC")
_TIME: Final = pa.timestamp("us", tz="UTC")
_LATEST: Final = (1 << 63) // 1000 - 1
"""Milliseconds that Spark's microseconds can hold."""
_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


def ddl(*, headers: bool) -> str:
    """Return the columns as Spark's DDL."""
    return f"{_DDL}, {_HEADERS_DDL}" if headers else _DDL


def schema(*, headers: bool) -> Any:
    """Return the columns as the Arrow schema that Spark expects."""
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


class PartitionRows:
    """Makes the batches of one partition."""

    def __init__(self, topic: str, partition: int, *, headers: bool) -> None:
        self._topic, self._partition = topic, partition
        self._headers = headers
        self._schema = schema(headers=headers)
        self._made = 0
        self._topics: Any = None
        self._partitions: Any = None

    def batch(self, columns: Columns) -> Any:
        """The records as a pyarrow RecordBatch."""
        count = columns.count
        arrays = [
            _bytes(columns.keys, count),
            _bytes(columns.values, count),
            *self._same(count),
            offsets(columns),
            spark_times(times(columns)),
            _kinds(columns),
        ]
        if self._headers:
            arrays.append(_lists(columns))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _same(self, count: int) -> tuple[Any, Any]:
        """Return the constant columns, built once for the largest batch."""
        if count > self._made:
            self._made = count
            self._topics = _same_text(self._topic, count)
            self._partitions = _same_number(self._partition, count)
        return self._topics.slice(0, count), self._partitions.slice(0, count)


# Built from bytes: `pyarrow.scalar` imports pandas, which takes 0.2 s.


def _same_text(text: str, count: int) -> Any:
    data = text.encode()
    ends = array("i", range(0, (count + 1) * len(data), len(data)))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _same_number(number: int, count: int) -> Any:
    buffers = [None, pa.py_buffer(array("i", [number]) * count)]
    return pa.Array.from_buffers(pa.int32(), count, buffers)


def offsets(columns: Columns) -> Any:
    """Return the offsets as an Arrow array."""
    return pa.Array.from_buffers(pa.int64(), columns.count, [None, pa.py_buffer(columns.offsets)])


def times(columns: Columns) -> Any:
    """Return the timestamps in milliseconds, as sent."""
    return pa.Array.from_buffers(_SENT, columns.count, [None, pa.py_buffer(columns.timestamps)])


def spark_times(sent: Any) -> Any:
    """Convert milliseconds to Spark's microseconds; null where they overflow."""
    try:
        return sent.cast(_TIME)
    except pa.ArrowInvalid:
        numbers = sent.cast(pa.int64())
        fits = pc.and_(pc.less_equal(numbers, _LATEST), pc.greater_equal(numbers, -_LATEST))
        return pc.if_else(fits, sent, pa.scalar(None, sent.type)).cast(_TIME)


def _bytes(column: Column, count: int, kind: Any = None) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind or pa.binary(), count, buffers)


def _kinds(columns: Columns) -> Any:
    buffers = [None, pa.py_buffer(columns.timestamp_types)]
    return pa.Array.from_buffers(pa.int8(), columns.count, buffers).cast(pa.int32())


def _lists(columns: Columns) -> Any:
    """Return the headers of each row; null if a record has none, as in Spark's Kafka source."""
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

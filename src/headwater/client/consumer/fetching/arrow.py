"""Converts fetched records to a pyarrow RecordBatch, without a Python object per record."""

from array import array
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any, TypeAlias

from headwater.client.errors import ClientError
from headwater.errors import E
from headwater.records.columns import Column, Columns

RecordBatch: TypeAlias = Any
"""A pyarrow.RecordBatch, which type checkers do not know."""
Runs = list[tuple[str, int, int]]
"""Topic, partition, and the number of consecutive rows from it."""


class ArrowMissingError(ClientError, ImportError):
    """pyarrow is not installed."""

    CODE = E.OPERATION_NOT_ATTEMPTED


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as missing:
        raise ArrowMissingError("poll_arrow() needs pyarrow: pip install pyarrow") from missing
    return pyarrow


@cache
def schema() -> Any:
    """Return the columns of `poll_arrow`, named as in Spark's Kafka source."""
    pa = _pyarrow()
    header = pa.struct([pa.field("key", pa.binary()), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.dictionary(pa.int32(), pa.string())),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
            pa.field("timestamp_type", pa.int8()),
            pa.field("headers", pa.list_(header)),
        ]
    )


def record_batch(columns: Columns, runs: Runs) -> RecordBatch:
    """Return the records of `columns`; `runs` has their partitions, in order."""
    pa = _pyarrow()
    kinds = schema()
    count = columns.count
    topics = {topic: number for number, topic in enumerate(dict.fromkeys(run[0] for run in runs))}
    indices, partitions = bytearray(), bytearray()
    for topic, partition, rows in runs:
        indices += array("i", [topics[topic]]).tobytes() * rows
        partitions += array("i", [partition]).tobytes() * rows

    def numbers(name: str, data: Any) -> Any:
        return pa.Array.from_buffers(kinds.field(name).type, count, [None, pa.py_buffer(data)])

    topic_index = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(indices)])
    return pa.RecordBatch.from_arrays(
        [
            _binary(pa, columns.keys, count),
            _binary(pa, columns.values, count),
            pa.DictionaryArray.from_arrays(topic_index, _text(pa, list(topics))),
            numbers("partition", partitions),
            numbers("offset", columns.offsets),
            numbers("timestamp", columns.timestamps),
            numbers("timestamp_type", columns.timestamp_types),
            _headers(pa, columns, kinds.field("headers").type),
        ],
        schema=kinds,
    )


def _text(pa: Any, words: Sequence[str]) -> Any:
    """Make a text array from bytes: `pyarrow.array` would first import pandas, in 0.3 seconds."""
    data = [word.encode() for word in words]
    offsets = array("i", accumulate(map(len, data), initial=0))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.string(), len(words), buffers)


def _binary(pa: Any, column: Column, count: int) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _headers(pa: Any, columns: Columns, kind: Any) -> Any:
    found = columns.headers
    if found is None:
        empty = pa.py_buffer(bytes(4 * (columns.count + 1)))
        nothing = pa.nulls(0, kind.value_type)
        return pa.Array.from_buffers(kind, columns.count, [None, empty], children=[nothing])
    pairs = pa.StructArray.from_arrays(
        [_binary(pa, found.keys, found.count), _binary(pa, found.values, found.count)],
        fields=[kind.value_type.field(0), kind.value_type.field(1)],
    )
    offsets = pa.py_buffer(found.offsets)
    return pa.Array.from_buffers(kind, columns.count, [None, offsets], children=[pairs])

"""Many records in one call, with one future for all of them.

A `Fill` writes its records from index `start` on into a batch and returns how many fit; lists of
values and rows of an Arrow table both have this form.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from headwater.client.producer.futures import BatchFuture, RecordMetadata, SendFuture
from headwater.client.waits import Deadline
from headwater.records.codec import BatchWriter, encode_columns, split_rows
from headwater.records.columns import Column

Table = Any
"""A pyarrow.Table; pyarrow has no type stubs, and only send_table needs it."""
RecordBatch = Any
"""A pyarrow.RecordBatch."""
Fill = Callable[[BatchWriter, int], int]

_CHUNK = 10_000
_PIECE = 32
"""The most values of a generator that are collected before they are added."""
_SLOW_MS = 5


class Load(NamedTuple):
    """Records for one partition, or for the sticky one if `partition` is None."""

    partition: int | None
    fill: Fill
    records: int


class SentMany:
    """The future of many records, in one or more batches."""

    __slots__ = ("_pieces", "records")

    def __init__(self) -> None:
        self.records = 0
        """The number of records."""
        self._pieces: list[tuple[BatchFuture, int, int]] = []

    def add(self, future: BatchFuture, first: int, records: int) -> None:
        """Add `records` records of a batch, beginning with index `first`."""
        self._pieces.append((future, first, records))
        self.records += records

    def done(self) -> bool:
        """Whether every record is stored or has failed."""
        return all(view.done() for view in self._views())

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Wait for all records; return the metadata of each batch's first record, or raise.

        Raises TimedOutError after `timeout` seconds; the records may still be stored.
        """
        deadline = Deadline(timeout)
        return [view.result(deadline.left()) for view in self._views()]

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        return self._all().__await__()

    async def _all(self) -> list[RecordMetadata]:
        return [await view for view in self._views()]

    def _views(self) -> Iterator[SendFuture]:
        """Yield a view of the first record of each batch, and of each part of a split batch.

        The parts are looked up after the caller has waited for the previous view, when they are
        final.
        """
        for future, first, records in self._pieces:
            index = first
            while index < first + records:
                yield SendFuture((future, index, -1))
                index = future.next_part(index)


def chunks(values: Iterable[Any], now_ms: Callable[[], int]) -> Iterator[list[Any]]:
    """Split `values` into chunks: large ones of a list, small ones of a generator.

    A generator may be slow: its values must not wait long for the next ones.
    """
    if isinstance(values, (list, tuple)):
        for start in range(0, len(values), _CHUNK):
            yield list(values[start : start + _CHUNK])
        return
    rest, size, begun = iter(values), 1, now_ms()
    while piece := list(islice(rest, size)):
        yield piece
        now = now_ms()
        size = 1 if now - begun > _SLOW_MS else min(2 * size, _PIECE)
        begun = now


def value_load(
    values: list[bytes | None], timestamp: int, as_bytes: Callable[[Any], bytes | None]
) -> Load:
    """Return the load of a list of values without keys; `as_bytes` converts values to bytes."""

    def fill(writer: BatchWriter, start: int) -> int:
        try:
            return writer.extend(timestamp, values, start)
        except TypeError:
            values[start] = as_bytes(values[start])
            return writer.extend(timestamp, values, start)

    return Load(None, fill, len(values))


def table_loads(
    batch: RecordBatch, key: str | None, value: str, timestamp: int, partitions: int
) -> Iterator[Load]:
    """Return the rows of an Arrow record batch by partition, without a Python object per row."""
    values = table_column(batch, value)
    if key is None:
        yield _rows(None, timestamp, None, values, batch.num_rows, batch.num_rows)
        return
    keys = table_column(batch, key)
    *keyed, keyless = split_rows(keys, batch.num_rows, partitions)
    for partition, rows in enumerate(keyed):
        if rows:
            yield _rows(partition, timestamp, keys, values, rows, len(rows) // 4)
    if keyless:
        yield _rows(None, timestamp, None, values, keyless, len(keyless) // 4)


def _rows(
    partition: int | None,
    timestamp: int,
    keys: Column | None,
    values: Column,
    rows: "int | bytearray",
    count: int,
) -> Load:
    def fill(writer: BatchWriter, start: int) -> int:
        return encode_columns(writer, timestamp, keys, values, rows, start)

    return Load(partition, fill, count)


def table_column(batch: RecordBatch, name: str) -> Column:
    """Return a column of bytes or text as the codec reads it."""
    import pyarrow
    from pyarrow import types

    if name not in batch.schema.names:
        raise KeyError(f"the table has no column {name!r}; it has {', '.join(batch.schema.names)}")
    array = batch.column(name)
    if types.is_large_binary(array.type) or types.is_large_string(array.type):
        array = array.cast(pyarrow.binary())
    if not types.is_binary(array.type) and not types.is_string(array.type):
        raise TypeError(f"column {name!r} is {array.type}; cast it to binary or string first")
    validity, offsets, data = array.buffers()
    return Column(offsets or bytes(4), data or b"", validity, array.offset)

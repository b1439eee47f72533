"""Columns of records in plain Python, with one object per record.

Without the compiled codec, which is faster for large tables, this gives the same buffers.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate

from headwater.errors import E, KafkaError
from headwater.records.batch import HEADER, Buffer, RawHeader, batches
from headwater.records.codec.murmur import murmur2
from headwater.records.codec.pure_reader import Row, decode_batch
from headwater.records.codec.pure_runs import after_last, following
from headwater.records.codec.pure_writer import BatchWriter
from headwater.records.columns import MAX_COLUMN_BYTES, Column, Columns, Headers
from headwater.records.header_fields import LEADER_EPOCH
from headwater.records.record import Header
from headwater.records.rules import INT64_MAX, MAX_UNCOMPRESSED_BYTES

_ALL_BITS = (1 << 64) - 1


class ColumnReader:
    """Collects columns batch by batch, from one or several partitions."""

    __slots__ = ("_rows", "count", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        """Bytes of keys, values and headers so far."""
        self._rows: list[Row] = []

    def add(
        self,
        buf: Buffer,
        pos: int = 0,
        check_crc: bool = True,
        *,
        from_offset: int = 0,
        control: bool = False,
        limit: int = MAX_UNCOMPRESSED_BYTES,
    ) -> int:
        """Append the records at and above `from_offset` of the batch at `pos`; return its size.

        Raises the errors of `decode_batch`; the columns are unchanged then.
        """
        size, rows = decode_batch(buf, pos, check_crc, control=control, limit=limit)
        self._keep([row for row in rows if row[0] >= from_offset])
        return size

    def add_run(
        self,
        buf: Buffer,
        pos: int,
        check_crc: bool,
        *,
        from_offset: int = 0,
        last: int = INT64_MAX,
        rows: int = 1,
        size: int = MAX_COLUMN_BYTES,
        limit: int = MAX_UNCOMPRESSED_BYTES,
    ) -> tuple[int, int, int]:
        """Append the batch at `pos` and those after it, up to `rows` or `size` in these columns.

        Records below `from_offset` and above `last` are left out. The run ends as in `decode_run`;
        return the position, the offset and the epoch after it.
        """
        start, next_offset, epoch = pos, from_offset, -1
        while pos == start or (
            self.count < rows
            and self.size < size
            and next_offset <= last
            and following(buf, pos, epoch)
        ):
            try:
                taken, found = decode_batch(buf, pos, check_crc, limit=limit)
                self._keep([row for row in found if from_offset <= row[0] <= last])
            except KafkaError:
                if pos == start:
                    raise
                break
            header: RawHeader = HEADER.unpack_from(buf, pos)
            next_offset, epoch = max(next_offset, after_last(header)), header[LEADER_EPOCH]
            pos += taken
        return pos, next_offset, epoch

    def _keep(self, kept: list[Row]) -> None:
        grown = self.size + sum(_weight(row) for row in kept)
        if grown > MAX_COLUMN_BYTES:
            raise KafkaError(E.MESSAGE_TOO_LARGE, "columns cannot hold more than 2 GiB")
        self._rows += kept
        self.count += len(kept)
        self.size = grown

    def finish(self) -> Columns:
        """Return everything added since the last call."""
        rows, self._rows = self._rows, []
        self.count = self.size = 0
        return Columns(
            len(rows),
            _packed("q", [row[0] for row in rows]),
            _packed("q", [row[1] for row in rows]),
            _packed("b", [row[2] for row in rows]),
            _column([row[3] for row in rows]),
            _column([row[4] for row in rows]),
            _headers([row[5] for row in rows]),
        )


def decode_columns(
    buf: Buffer,
    check_crc: bool = True,
    *,
    from_offset: int = 0,
    limit: int = MAX_UNCOMPRESSED_BYTES,
) -> Columns:
    """Return the records of all whole batches in `buf`, except control batches."""
    reader = ColumnReader()
    for pos, _ in batches(buf):
        reader.add(buf, pos, check_crc, from_offset=from_offset, limit=limit)
    return reader.finish()


def encode_columns(
    writer: BatchWriter,
    timestamps: int | Buffer,
    keys: Column | None,
    values: Column,
    rows: Buffer | int,
    start: int = 0,
) -> int:
    """Append rows of a table to a batch, from index `start` on; return how many fit.

    `rows` is the number of rows of the table, or the int32 indices of the rows to append.
    `timestamps` is one number for all rows, or an int64 for each.
    """
    if start < 0:
        raise ValueError("start is negative")
    wanted = range(rows) if isinstance(rows, int) else _numbers(rows, "i")
    times = None if isinstance(timestamps, int) else _numbers(timestamps, "q")
    key_at = _fields(keys) if keys else _null
    value_at = _fields(values)
    for index in range(start, len(wanted)):
        row = wanted[index]
        timestamp = timestamps if times is None else times[row]
        if writer.append(timestamp, key_at(row), value_at(row)) < 0:  # type: ignore[arg-type]
            return index - start
    return max(len(wanted) - start, 0)


def split_rows(keys: Column, count: int, partitions: int) -> list[bytearray]:
    """Return the int32 indices of each partition's rows by murmur2; rows without a key last."""
    if partitions < 1:
        raise ValueError(f"{count} rows cannot be split to {partitions} partitions")
    rows = [array("i") for _ in range(partitions + 1)]
    key_at = _fields(keys)
    for row in range(count):
        key = key_at(row)
        place = partitions if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions
        rows[place].append(row)
    return [bytearray(indices.tobytes()) for indices in rows]


def sum_rows(keys: Column | None, values: Column, count: int) -> int:
    """Return a 64-bit sum over the rows of a table that does not depend on their order."""
    key_at, value_at = _fields(keys) if keys else _null, _fields(values)
    total = 0
    for row in range(count):
        key, value = key_at(row), value_at(row)
        bits = 1 if key is None else _mixed(2 + (murmur2(key) & 0xFFFFFFFF))
        total += _mixed(bits + (0 if value is None else 1 + (murmur2(value) & 0xFFFFFFFF)))
    return total & _ALL_BITS


def _mixed(bits: int) -> int:
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & _ALL_BITS
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & _ALL_BITS
    return bits ^ bits >> 31


def _fields(column: Column) -> Callable[[int], bytes | None]:
    """Return a reader of the column's rows; IndexError if a row is not wholly in its buffers."""
    offsets = _numbers(column.offsets, "i")
    data = memoryview(column.data).cast("B")
    validity = None if column.validity is None else memoryview(column.validity).cast("B")
    first = column.first

    def field(row: int) -> bytes | None:
        row += first
        if row < first:
            raise IndexError(f"there is no row {row - first}")
        if validity is not None and not validity[row >> 3] >> (row & 7) & 1:
            return None
        start, end = offsets[row], offsets[row + 1]
        if not 0 <= start <= end <= len(data):
            raise IndexError(f"row {row} is not inside its column's data")
        return bytes(data[start:end])

    return field


def _null(_row: int) -> None:
    return None


def _numbers(buf: Buffer, kind: str) -> memoryview:
    return memoryview(buf).cast("B").cast(kind)  # type: ignore[call-overload, no-any-return]


def _packed(kind: str, numbers: Sequence[int]) -> bytearray:
    return bytearray(array(kind, numbers).tobytes())


def _column(fields: Sequence[bytes | None]) -> Column:
    sizes = [0 if field is None else len(field) for field in fields]
    offsets = _packed("i", list(accumulate(sizes, initial=0)))
    data = bytearray().join([field for field in fields if field is not None])
    return Column(offsets, data, _validity(fields))


def _validity(fields: Sequence[bytes | None]) -> bytearray | None:
    if None not in fields:
        return None
    bits = bytearray((len(fields) + 7) // 8)
    for row, field in enumerate(fields):
        if field is not None:
            bits[row >> 3] |= 1 << (row & 7)
    return bits


def _headers(rows: Sequence[tuple[Header, ...]]) -> Headers | None:
    if not any(rows):
        return None
    pairs = [header for headers in rows for header in headers]
    return Headers(
        _packed("i", list(accumulate(map(len, rows), initial=0))),
        _column([key.encode() for key, _ in pairs]),
        _column([value for _, value in pairs]),
        len(pairs),
    )


def _weight(row: Row) -> int:
    """Bytes of a row's key, value and headers."""
    _, _, _, key, value, headers = row
    weight = len(key or b"") + len(value or b"")
    if headers:
        weight += sum(len(name.encode()) + len(content or b"") for name, content in headers)
    return weight

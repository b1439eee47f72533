"""Records as columns in Arrow's memory layout, without knowing pyarrow.

Numbers are in native byte order. A column of bytes has `count + 1` int32 positions into one buffer of
data; validity has a bit for each row, least significant first, or is None if no row is null.
`pyarrow.py_buffer` takes each of these buffers without a copy.
"""

from typing import Final, NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_COLUMN_BYTES: Final = (1 << 31) - 1
"""The largest int32 position."""


class Column(NamedTuple):
    """Rows of bytes; `first` is the row at which a slice of a longer column begins."""

    offsets: Buffer
    data: Buffer
    validity: Buffer | None = None
    first: int = 0


class Headers(NamedTuple):
    """The headers of all rows: row i has entries `offsets[i]` to `offsets[i + 1]` of keys and values."""

    offsets: Buffer
    keys: Column
    values: Column
    count: int  # type: ignore[assignment]  # hides tuple.count


class Columns(NamedTuple):
    """Records column by column; `headers` is None where no record has any."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    offsets: Buffer
    timestamps: Buffer
    timestamp_types: Buffer
    keys: Column
    values: Column
    headers: Headers | None

"""Batches whose records are all alike, read column by column instead of record by record.

Without keys and headers, with values of one size and times close together, every field stands at a
fixed distance from the one before: a slice with a step compares it in all records at once. The size
of the area alone rules out nearly every other batch, so that trying costs those next to nothing.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import Any, Final

from headwater.records.batch import RawHeader
from headwater.records.rules import INT64_MAX, INT64_MIN
from headwater.records.varint import read_varint, write_varint

_FEWEST: Final = 24
"""Fewer records are read as quickly one by one."""
_ONE_BYTE: Final = 64
_TWO_BYTES: Final = 8192
"""Places from here on take more bytes of the record's own number."""
_FIRST_BYTES: Final = bytes(2 * n if n < 64 else (2 * n & 0x7F) | 0x80 for n in range(_TWO_BYTES))
_SECOND_BYTES: Final = bytes(2 * n >> 7 for n in range(_TWO_BYTES))
_ATTRIBUTES_TO_KEY: Final = 4
"""Bytes of a first record from its attributes to its (absent) key, if its numbers are small."""

Column = tuple[list[int], list[bytes]]
"""Timestamps and values."""


def columns_alike(area: bytes, header: RawHeader) -> Column | None:
    """Timestamps and values of records that are all alike; None where they are not."""
    count, first_ms = header[12], header[7]
    if not _FEWEST <= count <= _TWO_BYTES or not INT64_MIN + 64 <= first_ms <= INT64_MAX - 64:
        return None
    shape = _shape(area, count)
    if shape is None:
        return None
    size_field, value_size = shape
    stamps: list[int] = []
    values: list[bytes] = []
    start = 0
    for first, after in ((0, min(count, _ONE_BYTE)), (_ONE_BYTE, count)):
        if first >= after:
            break
        width = 1 if first == 0 else 2
        run = _run(area, start, first, after, size_field, value_size, width)
        if run is None:
            return None
        deltas, found, start = run
        stamps += [first_ms + (delta >> 1 ^ -(delta & 1)) for delta in deltas]
        values += found
    return stamps, values


def _shape(area: bytes, count: int) -> tuple[bytes, int] | None:
    """The value's size as it is written and as a number, if the whole area can be of its shape."""
    try:
        size, at = read_varint(area, 0)
        value_size, after = read_varint(area, at + _ATTRIBUTES_TO_KEY)
    except (IndexError, ValueError):
        return None
    size_field = area[at + _ATTRIBUTES_TO_KEY : after]
    short = _ATTRIBUTES_TO_KEY + len(size_field) + value_size + 1
    if value_size < 0 or size != short:
        return None
    ones, twos = min(count, _ONE_BYTE), max(count - _ONE_BYTE, 0)
    one, two = short + len(write_varint(short)), short + 1 + len(write_varint(short + 1))
    return (size_field, value_size) if ones * one + twos * two == len(area) else None


def _run(
    area: bytes,
    start: int,
    first: int,
    after: int,
    size_field: bytes,
    value_size: int,
    width: int,
) -> tuple[bytes, list[bytes], int] | None:
    """Time steps, values and end of the records `first` to `after`, whose places take `width` bytes."""
    count = after - first
    body = _ATTRIBUTES_TO_KEY - 1 + width + len(size_field) + value_size + 1
    length = write_varint(body)
    step = len(length) + body
    stop = start + count * step
    time_at = start + len(length) + 1
    place_at = time_at + 1
    key_at = place_at + width
    same = [(start + at, byte) for at, byte in enumerate(length)]
    same.append((key_at, 1))
    same += [(key_at + 1 + at, byte) for at, byte in enumerate(size_field)]
    same.append((start + step - 1, 0))
    if any(area[at:stop:step] != bytes((byte,)) * count for at, byte in same):
        return None
    if area[place_at:stop:step] != _FIRST_BYTES[first:after]:
        return None
    if width == 2 and area[place_at + 1 : stop : step] != _SECOND_BYTES[first:after]:
        return None
    times = area[time_at:stop:step]
    if max(times) >= 0x80:
        return None
    values_at = key_at + 1 + len(size_field)
    values = [area[at : at + value_size] for at in range(values_at, stop, step)]
    return times, values, stop


def alike_rows(
    header: RawHeader, columns: Column, head: tuple[Any, ...]
) -> Iterator[tuple[Any, ...]]:
    """The rows that `decode_batch` would give, each behind the fields of `head`."""
    stamps, values = columns
    base = header[0]
    front = [repeat(field) for field in head]
    offsets = range(base, base + len(values))
    return zip(*front, offsets, stamps, repeat(0), repeat(None), values, repeat(()), strict=False)

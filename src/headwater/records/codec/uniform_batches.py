"""Reads batches of uniform records column by column instead of record by record.

Without keys and headers, with values of one size and times close together, every field is at a fixed
distance from the previous one: a slice with a step compares it in all records at once, and one
`struct` reads all values. Batches of one shape tend to follow each other, so their layout is
cached; the size of the area alone rules out nearly every other batch.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from struct import Struct
from typing import Any, Final

from headwater.errors import KafkaError
from headwater.records.batch import RawHeader
from headwater.records.header_fields import BASE_OFFSET, BASE_TIMESTAMP, RECORD_COUNT
from headwater.records.rules import INT64_MAX, INT64_MIN
from headwater.records.varint import read_varint, write_varint

_FEWEST: Final = 6
"""The fewest records for which this is faster than one by one."""
_ONE_BYTE: Final = 64
_TWO_BYTES: Final = 8192
"""Numbers of records from here on take more bytes."""
_FIRST_BYTES: Final = bytes(2 * n if n < 64 else (2 * n & 0x7F) | 0x80 for n in range(_TWO_BYTES))
_SECOND_BYTES: Final = bytes(2 * n >> 7 for n in range(_TWO_BYTES))
_ATTRIBUTES_TO_KEY: Final = 4
"""Bytes of a first record from its attributes to its (absent) key, if its numbers are small."""
_LAYOUTS: Final = 256

Column = tuple[list[int], Sequence[bytes]]
"""Timestamps and values."""


class _Layout:
    """The positions of the fields of `count` records with values of one size."""

    __slots__ = ("fields", "times", "values")

    def __init__(self, size_field: bytes, value_size: int, count: int) -> None:
        self.fields: list[tuple[slice, bytes]] = []
        """Slices, and the bytes they must have."""
        self.times: list[slice] = []
        form, start = "", 0
        for first, after, width in ((0, _ONE_BYTE, 1), (_ONE_BYTE, count, 2)):
            rows = min(count, after) - first
            if rows > 0:
                more, start = self._add(start, first, rows, width, size_field, value_size)
                form += more
        self.values = Struct(form)

    def _add(
        self, start: int, first: int, rows: int, width: int, size_field: bytes, value_size: int
    ) -> tuple[str, int]:
        """Add records from `first` on with numbers of `width` bytes; return their format and end."""
        body = _ATTRIBUTES_TO_KEY - 1 + width + len(size_field) + value_size + 1
        length = write_varint(body)
        step = len(length) + body
        stop = start + rows * step
        time_at = start + len(length) + 1
        key_at = time_at + 1 + width
        same = [(start + at, byte) for at, byte in enumerate(length)]
        same.append((key_at, 1))
        same += [(key_at + 1 + at, byte) for at, byte in enumerate(size_field)]
        same.append((start + step - 1, 0))
        self.fields += [(slice(at, stop, step), bytes((byte,)) * rows) for at, byte in same]
        places = (_FIRST_BYTES, _SECOND_BYTES)[:width]
        self.fields += [
            (slice(time_at + 1 + at, stop, step), digits[first : first + rows])
            for at, digits in enumerate(places)
        ]
        self.times.append(slice(time_at, stop, step))
        return f"{step - value_size - 1}x{value_size}sx" * rows, stop

    def fits(self, area: bytes) -> bool:
        """Return whether the area has this layout, with any timestamps."""
        for where, expected in self.fields:  # noqa: SIM110 - all() takes twice the time
            if area[where] != expected:
                return False
        return True


_layouts: dict[tuple[int, int], _Layout] = {}
"""The last layout for each count and size. Threads may replace entries: each is complete."""


def uniform_columns(area: bytes, header: RawHeader) -> Column | None:
    """Return timestamps and values of records that are all alike; None if they are not."""
    count, first_ms = header[RECORD_COUNT], header[BASE_TIMESTAMP]
    if not _FEWEST <= count <= _TWO_BYTES or not INT64_MIN + 64 <= first_ms <= INT64_MAX - 64:
        return None
    layout = _layouts.get((count, len(area)))
    if layout is None or not layout.fits(area):
        layout = _new_layout(area, count)
        if layout is None:
            return None
    times = b"".join([area[where] for where in layout.times])
    if not times.isascii():
        return None  # one is too large for a byte
    return _stamps(times, first_ms), layout.values.unpack(area)


def _stamps(steps: bytes, first_ms: int) -> list[int]:
    meaning = {step: first_ms + (step >> 1 ^ -(step & 1)) for step in set(steps)}
    return list(map(meaning.__getitem__, steps))


def _new_layout(area: bytes, count: int) -> _Layout | None:
    """Return the layout that the first record suggests, if the whole area has it."""
    shape = _shape(area, count)
    if shape is None:
        return None
    layout = _Layout(*shape, count)
    if not layout.fits(area):
        return None
    if len(_layouts) >= _LAYOUTS:
        _layouts.clear()
    _layouts[count, len(area)] = layout
    return layout


def _shape(area: bytes, count: int) -> tuple[bytes, int] | None:
    """Return the value's size, encoded and as a number, if the whole area can have its shape."""
    try:
        size, at = read_varint(area, 0)
        value_size, after = read_varint(area, at + _ATTRIBUTES_TO_KEY)
    except (IndexError, KafkaError):
        return None  # the size is not there
    size_field = area[at + _ATTRIBUTES_TO_KEY : after]
    short = _ATTRIBUTES_TO_KEY + len(size_field) + value_size + 1
    if value_size < 0 or size != short:
        return None
    ones, twos = min(count, _ONE_BYTE), max(count - _ONE_BYTE, 0)
    one, two = short + len(write_varint(short)), short + 1 + len(write_varint(short + 1))
    return (size_field, value_size) if ones * one + twos * two == len(area) else None


def uniform_rows(
    header: RawHeader, columns: Column, head: tuple[Any, ...]
) -> Iterator[tuple[Any, ...]]:
    """Return the rows that `decode_batch` would give, each after the fields of `head`."""
    stamps, values = columns
    base = header[BASE_OFFSET]
    front = [repeat(field) for field in head]
    offsets = range(base, base + len(values))
    return zip(*front, offsets, stamps, repeat(0), repeat(None), values, repeat(()), strict=False)

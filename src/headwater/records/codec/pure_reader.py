"""Decodes the batches of a consumer into tuples, in plain Python.

The broker is not trusted: a batch that is damaged, incomplete, or made to cost memory raises
KafkaError. The result equals that of `record.decode_records`. It is one loop without calls, because
it runs for every record.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import Any, TypeAlias, TypeVar

from headwater.errors import E, KafkaError
from headwater.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    OVERHEAD,
    Buffer,
    RawHeader,
)
from headwater.records.checksum import crc32c
from headwater.records.codec.uniform_batches import uniform_columns, uniform_rows
from headwater.records.compression import decompress
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CRC,
    LENGTH,
    MAGIC_BYTE,
    MAX_TIMESTAMP,
    RECORD_COUNT,
)
from headwater.records.record import Header, read_bytes, read_headers, unreadable_format, wrap
from headwater.records.rules import INT64_MAX, INT64_MIN, MAX_UNCOMPRESSED_BYTES
from headwater.records.varint import INT64_BYTES, read_varint

Row: TypeAlias = tuple[int, int, int, bytes | None, bytes | None, tuple[Header, ...]]
"""Offset, timestamp, timestamp type, key, value, headers."""

T = TypeVar("T", bound=tuple[Any, ...])

_PLACES = 1 << 31
"""The largest distance of a record from the base offset."""
_LAST_BASE = INT64_MAX - _PLACES
_NOT_SHORT = 0x81
"""Bits of a length's first byte: it is negative, or continues in the next byte."""


def decode_batch(
    buf: Buffer,
    pos: int = 0,
    check_crc: bool = True,
    *,
    control: bool = False,
    limit: int = MAX_UNCOMPRESSED_BYTES,
) -> tuple[int, list[Row]]:
    """Return the size and the records of the batch at `pos`.

    A control batch has no records, unless `control` is set. `limit` bounds what the
    records of a compressed batch may take. CORRUPT_MESSAGE: there is no whole and undamaged batch. INVALID_RECORD: its records
    are malformed. MESSAGE_TOO_LARGE: they are larger than `limit`.
    """
    header, size = check_header(buf, pos, check_crc)
    if header[ATTRIBUTES] & CONTROL and not control:
        return size, []
    return size, _all_rows(_area(buf, pos, size, header, limit), header)


def named_rows(
    buf: Buffer,
    pos: int,
    header: RawHeader,
    kind: type[T],
    head: tuple[Any, ...],
    from_offset: int,
    limit: int,
) -> Iterable[T]:
    """Return the records at and above `from_offset` of the batch at `pos`, with a checked header.

    Each is a `kind`, a class of tuples: the fields of `head`, then those of `decode_batch`.
    """
    if header[ATTRIBUTES] & CONTROL:
        return ()
    area = _area(buf, pos, header[LENGTH] + OVERHEAD, header, limit)
    new = tuple.__new__
    if (
        not header[ATTRIBUTES] & LOG_APPEND_TIME
        and from_offset <= header[BASE_OFFSET] <= _LAST_BASE
    ):
        columns = uniform_columns(area, header)
        if columns is not None:
            return map(new, repeat(kind), uniform_rows(header, columns, head))
    rows = _all_rows(area, header)
    if rows and rows[0][0] < from_offset:
        rows = [row for row in rows if row[0] >= from_offset]
    return [new(kind, head + row) for row in rows]


def _all_rows(area: bytes, header: RawHeader) -> list[Row]:
    columns = uniform_columns(area, header)
    rows = _rows(area, header) if columns is None else list(uniform_rows(header, columns, ()))
    if not INT64_MIN + _PLACES <= header[BASE_OFFSET] <= _LAST_BASE:
        _check_offsets(rows)
    if header[ATTRIBUTES] & LOG_APPEND_TIME:
        rows = [(row[0], header[MAX_TIMESTAMP], 1, *row[3:]) for row in rows]
    return rows


def _area(buf: Buffer, pos: int, size: int, header: RawHeader, limit: int) -> bytes:
    """Return the records of a batch, uncompressed."""
    packed = memoryview(buf)[pos + HEADER_SIZE : pos + size]
    return decompress(header[ATTRIBUTES] & CODEC_MASK, packed, limit, limit)


def check_header(buf: Buffer, pos: int, check_crc: bool) -> tuple[RawHeader, int]:
    """Return the header and the size of the whole batch at `pos`."""
    left = len(buf) - pos
    if pos < 0 or left < HEADER_SIZE:
        raise _corrupt(f"{left} bytes hold no record batch")
    header: RawHeader = HEADER.unpack_from(buf, pos)
    size = header[LENGTH] + OVERHEAD
    if header[MAGIC_BYTE] != MAGIC:
        raise unreadable_format(header[MAGIC_BYTE])
    if not HEADER_SIZE <= size <= left:
        raise _corrupt(f"a batch of {size} bytes does not fit into {left}")
    if check_crc and not undamaged(buf, pos, header):
        raise _corrupt(f"the batch at offset {header[BASE_OFFSET]} does not match its checksum")
    return header, size


def undamaged(buf: Buffer, pos: int, header: RawHeader) -> bool:
    """Return whether the batch at `pos` matches its checksum."""
    return crc32c(memoryview(buf)[pos + CRC_START : pos + header[LENGTH] + OVERHEAD]) == header[CRC]


def _rows(area: bytes, header: RawHeader) -> list[Row]:  # noqa: C901, PLR0915
    """Return the records that must fill `area`; the short form of each number is read inline.

    Long for speed: one call per number would make the loop three times slower.
    """
    base_offset, first_ms, count = header[BASE_OFFSET], header[BASE_TIMESTAMP], header[RECORD_COUNT]
    # Near the limits of 64 bits even the smallest step may wrap: then none is read inline.
    short = 0x80 if INT64_MIN + 64 <= first_ms <= INT64_MAX - 64 else 0
    rows: list[Row] = []
    add = rows.append
    pos = 0
    try:
        for _ in range(count):
            byte = area[pos]
            if not byte & _NOT_SHORT:
                stop = pos + 1 + (byte >> 1)
                pos += 2
            elif not byte & 1 and area[pos + 1] < 0x80:
                stop = pos + 2 + (byte >> 1 & 0x3F | area[pos + 1] << 6)
                pos += 3
            else:
                size, pos = read_varint(area, pos)
                stop = pos + size
                pos += 1
            byte = area[pos]
            if byte < short:
                stamp = first_ms + (byte >> 1 ^ -(byte & 1))
                pos += 1
            else:
                delta, pos = read_varint(area, pos, INT64_BYTES)
                stamp = wrap(first_ms + delta)
            byte = area[pos]
            if byte < 0x80:
                place = byte >> 1 ^ -(byte & 1)
                pos += 1
            elif not byte & 1 and area[pos + 1] < 0x80:
                place = byte >> 1 & 0x3F | area[pos + 1] << 6
                pos += 2
            else:
                place, pos = read_varint(area, pos)
            byte = area[pos]
            key: bytes | None
            if byte == 1:
                key = None
                pos += 1
            elif byte & _NOT_SHORT:
                key, pos = read_bytes(area, pos)
            else:
                start, pos = pos + 1, pos + 1 + (byte >> 1)
                key = area[start:pos]
            byte = area[pos]
            value: bytes | None
            if not byte & _NOT_SHORT:
                start, pos = pos + 1, pos + 1 + (byte >> 1)
                value = area[start:pos]
            elif not byte & 1 and area[pos + 1] < 0x80:
                start, pos = pos + 2, pos + 2 + (byte >> 1 & 0x3F | area[pos + 1] << 6)
                value = area[start:pos]
            else:
                value, pos = read_bytes(area, pos)
            if area[pos]:
                headers, pos = read_headers(area, pos)
            else:
                headers = ()
                pos += 1
            if pos != stop:
                raise _malformed(f"a record ends {pos - stop:+} bytes off what it says")
            add((base_offset + place, stamp, 0, key, value, headers))
    except IndexError:
        raise _malformed("the batch ends inside a record") from None
    if pos != len(area):
        raise _malformed(f"{len(area) - pos} bytes follow the last record")
    return rows


def _check_offsets(rows: list[Row]) -> None:
    if not all(INT64_MIN <= row[0] <= INT64_MAX for row in rows):
        raise _malformed("offsets leave their 64 bits")


def _corrupt(why: str) -> KafkaError:
    return KafkaError(E.CORRUPT_MESSAGE, why)


def _malformed(why: str) -> KafkaError:
    return KafkaError(E.INVALID_RECORD, why)

"""Single records, for clients, coordinators and tools. Never on the hot path.

Timestamps are deltas from the batch's first one in 64 bits that wrap, as in Java: two clients that
read the same bytes see the same time, even for extreme values.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from headwater.errors import E, KafkaError
from headwater.model import NO_TIMESTAMP
from headwater.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Buffer,
    read_header,
)
from headwater.records.compression import decompress
from headwater.records.rules import INT64_MAX, INT64_MIN, MAX_UNCOMPRESSED_BYTES
from headwater.records.varint import INT64_BYTES, read_varint, write_varint

Header: TypeAlias = tuple[str, bytes | None]

_NULL = write_varint(-1)
_NO_HEADERS = write_varint(0)
_NOT_SHORT = 0x81
"""Bits of a length's first byte: it is negative, or continues in the next byte."""


class Record(NamedTuple):
    """One record. A builder assigns offsets, and the current time to records without one."""

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()


def decode_records(batch: Buffer, limit: int = MAX_UNCOMPRESSED_BYTES) -> list[Record]:
    """Return the records of the batch at the start of `batch`; INVALID_RECORD if it is malformed.

    The checksum is not verified here. `limit` bounds what the records of a compressed batch may
    take uncompressed; up to it any ratio is allowed, because a stored batch must be readable.
    """
    if len(batch) < HEADER_SIZE:
        raise _malformed(f"{len(batch)} bytes hold no record batch")
    header = read_header(batch)
    if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(batch):
        raise _malformed(f"{len(batch)} bytes begin with no whole record batch")
    area = memoryview(batch)[HEADER_SIZE : header.size]
    return decode_area(decompress(header.codec, area, limit, ratio_free_bytes=limit), header)


def decode_area(area: bytes, header: BatchHeader) -> list[Record]:
    """Return the records of an uncompressed records area, which they must fill exactly.

    Numbers of one byte are read inline: this runs for every record.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    stamp = header.max_timestamp if header.log_append_time else None
    records: list[Record] = []
    pos = 0
    try:
        for _ in range(header.count):
            size, pos = read_varint(area, pos)
            stop = pos + size
            delta, pos = read_varint(area, pos + 1, INT64_BYTES)
            place, pos = read_varint(area, pos)
            byte = area[pos]
            if byte & _NOT_SHORT:
                key, pos = read_bytes(area, pos)
            else:
                start, pos = pos + 1, pos + 1 + (byte >> 1)
                key = area[start:pos]
            byte = area[pos]
            if byte & _NOT_SHORT:
                value, pos = read_bytes(area, pos)
            else:
                start, pos = pos + 1, pos + 1 + (byte >> 1)
                value = area[start:pos]
            headers: tuple[Header, ...] = ()
            if area[pos]:
                headers, pos = read_headers(area, pos)
            else:
                pos += 1
            if pos != stop:
                raise _malformed(f"a record of {size} bytes ends {pos - stop:+} off")
            timestamp = wrap(base_timestamp + delta) if stamp is None else stamp
            records.append(Record(base_offset + place, timestamp, key, value, headers))
    except IndexError:
        raise _malformed("the batch ends inside a record") from None
    if pos != len(area):
        raise _malformed(f"{len(area) - pos} bytes follow the last record")
    return records


def encode_records(records: Iterable[Record], base_timestamp: int) -> bytes:
    """Return the uncompressed records area of a batch; offsets count from 0 in the given order."""
    parts: list[bytes] = []
    for place, record in enumerate(records):
        encoded = _encode(record, place, base_timestamp)
        parts += (write_varint(len(encoded)), encoded)
    return b"".join(parts)


def read_bytes(area: bytes, pos: int) -> tuple[bytes | None, int]:
    """Return the key or value at `pos`, None for null, and the position after it."""
    size, pos = read_varint(area, pos)
    if size < 0:
        if size < -1:
            raise _malformed(f"a length is {size}")
        return None, pos
    # A slice past the end of the area is shorter; callers notice the position beyond the end.
    return area[pos : pos + size], pos + size


def read_headers(area: bytes, pos: int) -> tuple[tuple[Header, ...], int]:
    """Return the headers at `pos`, and the position after them."""
    count, pos = read_varint(area, pos)
    if count < 0:
        raise _malformed(f"a record has {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        key, pos = read_bytes(area, pos)
        value, pos = read_bytes(area, pos)
        if key is None:
            raise _malformed("a header has no key")
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), pos


def _encode(record: Record, place: int, base_timestamp: int) -> bytes:
    _, timestamp, key, value, headers = record
    return b"".join(
        (
            b"\x00",
            write_varint(wrap(timestamp - base_timestamp)),
            write_varint(place),
            _NULL if key is None else write_varint(len(key)) + key,
            _NULL if value is None else write_varint(len(value)) + value,
            encode_headers(headers) if headers else _NO_HEADERS,
        )
    )


def encode_headers(headers: Sequence[Header]) -> bytes:
    """Encode the headers with their count, as at the end of a record."""
    parts = [write_varint(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += (write_varint(len(name)), name)
        parts += (_NULL,) if value is None else (write_varint(len(value)), value)
    return b"".join(parts)


def _malformed(why: str) -> KafkaError:
    return KafkaError(E.INVALID_RECORD, why)


def wrap(value: int) -> int:
    """Return `value` wrapped to a signed 64-bit number."""
    if INT64_MIN <= value <= INT64_MAX:
        return value
    return (value - INT64_MIN) % (1 << 64) + INT64_MIN


def unreadable_format(magic: int) -> KafkaError:
    """Return the error for a batch of this format, which cannot be read."""
    if 0 <= magic < MAGIC:
        return KafkaError(
            E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format {magic} is older than Kafka 0.11: rewrite the topic with a newer one",
        )
    return KafkaError(E.CORRUPT_MESSAGE, f"there is no message format {magic}")

"""Walks over the records of one batch without making an object per record.

    record = length varint · attributes i8 (unused) · timestamp delta varlong · offset delta varint
             · key length varint (-1: null) · key · value length varint (-1: null) · value
             · header count varint · headers
    header = key length varint · key utf-8 · value length varint (-1: null) · value

The walk checks the structure and summarizes keys, times and offsets: it does not know a topic's
rules. No length or count causes an allocation.
"""

from typing import TypeAlias

from headwater.errors import E, KafkaError
from headwater.records.batch import Buffer
from headwater.records.varint import INT64_BYTES, read_varint

_STEP = [1 + (byte >> 1) if byte < 0x80 and not byte & 1 else 0 for byte in range(256)]
"""The size of a key or value by its first byte, if that byte is the whole length."""
_STEP[1] = 1


RecordScan: TypeAlias = tuple[int, int, bool, bool]
"""The result of a walk: smallest and largest timestamp delta, whether a record has no key, whether
the offset deltas are 0, 1, 2 … (A plain tuple, which the hot path unpacks at once.)"""


def scan_records(buf: Buffer, pos: int, end: int, count: int) -> RecordScan:
    """Walk `count` records that must fill `buf[pos:end]`; INVALID_RECORD if they do not.

    Unrolled, with the one-byte form of each number inline: this is the hot path for single records
    and for compacted topics.
    """
    earliest = 1 << 64
    latest = -earliest
    keyless = False
    in_place = True
    try:
        for index in range(count):
            size, pos = read_varint(buf, pos)
            stop = pos + size
            delta = buf[pos + 1]
            if delta < 0x80:
                delta = delta >> 1 ^ -(delta & 1)
                pos += 2
            else:
                delta, pos = read_varint(buf, pos + 1, INT64_BYTES)
            if delta > latest:
                latest = delta
            if delta < earliest:
                earliest = delta
            if buf[pos] == index << 1 < 0x80:
                pos += 1
            else:
                place, pos = read_varint(buf, pos)
                in_place &= place == index
            size = buf[pos]
            step = _STEP[size]
            if step:
                pos += step
                keyless |= size == 1
            else:
                size, pos = _skip(buf, pos, index)
                keyless |= size < 0
            step = _STEP[buf[pos]]
            if step:
                pos += step
            else:
                _, pos = _skip(buf, pos, index)
            if buf[pos]:
                pos = _skip_headers(buf, pos, index)
            else:
                pos += 1
            if pos != stop:
                raise _malformed(index, f"its parts take {pos - stop:+} bytes of what it claims")
    except IndexError:
        raise KafkaError(E.INVALID_RECORD, "the batch ends inside a record") from None
    if pos != end:
        raise KafkaError(
            E.INVALID_RECORD, f"{count} records end {end - pos} bytes before the batch does"
        )
    return earliest, latest, keyless, in_place


def first_not_older(
    buf: Buffer, count: int, least_delta: int, least_place: int
) -> tuple[int, int] | None:
    """Return timestamp delta and offset delta of the first record that reaches both, or None.

    Reads no further than that record, and only the fields before each key.
    """
    pos = 0
    try:
        for _ in range(count):
            size, pos = read_varint(buf, pos)
            delta, at = read_varint(buf, pos + 1, INT64_BYTES)
            if delta >= least_delta:
                place, _ = read_varint(buf, at)
                if place >= least_place:
                    return delta, place
            if size < 1:
                raise _malformed(0, f"a record of {size} bytes")
            pos += size
    except IndexError:
        raise KafkaError(E.INVALID_RECORD, "the batch ends inside a record") from None
    return None


def _skip(buf: Buffer, pos: int, index: int) -> tuple[int, int]:
    """Return the length of the key or value at `pos`, and the position after it."""
    size, pos = read_varint(buf, pos)
    if size > 0:
        return size, pos + size
    if size < -1:
        raise _malformed(index, f"a length is {size}")
    return size, pos


def _skip_headers(buf: Buffer, pos: int, index: int) -> int:
    count, pos = read_varint(buf, pos)
    if count < 0:
        raise _malformed(index, f"it has {count} headers")
    for _ in range(count):
        size, pos = _skip(buf, pos, index)
        if size < 0:
            raise _malformed(index, "a header has no key")
        _, pos = _skip(buf, pos, index)
    return pos


def _malformed(index: int, why: str) -> KafkaError:
    return KafkaError(E.INVALID_RECORD, f"record {index} is malformed: {why}")

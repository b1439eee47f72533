"""Decodes adjacent batches as one run, in plain Python.

A run begins at a batch that the caller has checked and continues over batches that need no check:
whole, in format 2, neither control nor transactional, of the same leader epoch.
"""

from typing import Any

from headwater.errors import KafkaError
from headwater.records.batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    OVERHEAD,
    SEQUENCES,
    TRANSACTIONAL,
    Buffer,
    RawHeader,
)
from headwater.records.checksum import crc32c
from headwater.records.codec.pure_reader import T, check_header, named_rows, undamaged
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAGIC_BYTE,
)
from headwater.records.rules import INT64_MAX, INT64_MIN, MAX_UNCOMPRESSED_BYTES

LAST_SEQUENCE = 0xFFFFFFFF
"""Of a row of `sound_run`: the bits of the sequence."""


def read_end(buf: Buffer, offset: int, epoch: int) -> tuple[int, int]:
    """Return offset and epoch after the last whole batch in `buf`; unchanged without one."""
    pos, size = 0, len(buf)
    while pos + HEADER_SIZE <= size:
        header: RawHeader = HEADER.unpack_from(buf, pos)
        pos += max(header[LENGTH] + OVERHEAD, HEADER_SIZE)
        after = after_last(header)
        if pos > size or header[MAGIC_BYTE] != MAGIC or after == INT64_MAX:
            break
        offset, epoch = max(offset, after), header[LEADER_EPOCH]
    return offset, epoch


def sound_run(
    buf: Buffer,
    pos: int,
    stop: int,
    offset: int,
    reach: int,
    epoch: int,
    sequences: dict[int, int],
    gaps: bool,
) -> tuple[int, int, int, int, int]:
    """Position, offset, batches, records and greatest timestamp of a walk over sound batches.

    It begins at `pos` and ends at position `stop`, before a batch with the offset `reach` or a later
    one, and before everything that needs a closer look: a batch that is damaged, of another leader
    epoch, or that does not follow (with `gaps` offsets may be missing); a producer that is not in
    `sequences` or not in order. `sequences` has the epoch and the last sequence of each producer, as
    `epoch << 32 | sequence`.
    """
    view = memoryview(buf)
    size, batches, records, newest = len(view), 0, 0, -1
    while pos < stop and pos + HEADER_SIZE <= size:
        header: RawHeader = HEADER.unpack_from(view, pos)
        base, length, own, magic, crc, _, delta, _, timestamp, producer, at, first, count = header
        end = pos + length + OVERHEAD
        if (
            magic != MAGIC
            or not pos + HEADER_SIZE <= end <= size
            or not (base == offset or (gaps and base > offset))
            or delta < 0
            or base >= reach - delta
            or own != epoch
            or crc32c(view[pos + CRC_START : end]) != crc
        ):
            break
        if producer >= 0:
            known = sequences.get(producer)
            if known is None or first < 0 or known >> 32 != at:
                break
            if not gaps and known & LAST_SEQUENCE != (first - 1) % SEQUENCES:
                break
            sequences[producer] = at << 32 | (first + delta) % SEQUENCES
        offset = base + delta + 1
        batches, records, newest = batches + 1, records + count, max(newest, timestamp)
        pos = end
    return pos, offset, batches, records, newest


def after_last(header: RawHeader) -> int:
    """Return the offset after a batch, limited to 64 bits."""
    return min(header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1, INT64_MAX)


def following(buf: Buffer, pos: int, epoch: int) -> RawHeader | None:
    """Return the header of the batch at `pos` if it continues a run of `epoch`, else None."""
    left = len(buf) - pos
    if left < HEADER_SIZE:
        return None
    header: RawHeader = HEADER.unpack_from(buf, pos)
    if (
        header[MAGIC_BYTE] == MAGIC
        and HEADER_SIZE <= header[LENGTH] + OVERHEAD <= left
        and not header[ATTRIBUTES] & (CONTROL | TRANSACTIONAL)
        and header[LEADER_EPOCH] == epoch
    ):
        return header
    return None


def decode_run(
    buf: Buffer,
    pos: int,
    check_crc: bool,
    kind: type[T],
    head: tuple[Any, ...],
    *,
    from_offset: int = INT64_MIN,
    wanted: int = 1,
    limit: int = MAX_UNCOMPRESSED_BYTES,
) -> tuple[int, int, int, list[T]]:
    """Decode the batch at `pos` and those after it, until there are `wanted` records.

    Each is a `kind`, a class of tuples: the fields of `head`, then those of `decode_batch`; none is
    below `from_offset`. A run ends before a control or transactional batch, before another leader
    epoch, and before a batch that cannot be read; only the first one raises. Returns the position,
    the offset and the epoch after the run, and the records.
    """
    header, size = check_header(buf, pos, check_crc)
    rows = list(named_rows(buf, pos, header, kind, head, from_offset, limit))
    next_offset, epoch = max(from_offset, after_last(header)), header[LEADER_EPOCH]
    pos += size
    while len(rows) < wanted:
        follower = following(buf, pos, epoch)
        if follower is None or (check_crc and not undamaged(buf, pos, follower)):
            break
        try:
            rows.extend(named_rows(buf, pos, follower, kind, head, from_offset, limit))
        except KafkaError:
            break
        next_offset = max(next_offset, after_last(follower))
        pos += follower[1] + OVERHEAD
    return pos, next_offset, epoch, rows

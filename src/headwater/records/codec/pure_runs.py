"""Decodes adjacent batches as one run, in plain Python.

A run begins at a batch that the caller has checked and continues over batches that need no check:
whole, in format 2, neither control nor transactional, of the same leader epoch.
"""

from typing import Any

from headwater.errors import KafkaError
from headwater.records.batch import (
    CONTROL,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    OVERHEAD,
    TRANSACTIONAL,
    Buffer,
    RawHeader,
)
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

"""Walks over the batches of a segment: a quick one by headers, and one that checks every byte.

Both read large pieces and unpack in place. Recovery after a crash runs one checked walk over the
unflushed part; rebuilding a lost index or snapshot takes one quick walk.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from headwater.log.epochs import EpochCache
from headwater.log.offset_index import MAX_RELATIVE_OFFSET
from headwater.log.segment import DamagedSegment, Segment, Staged
from headwater.records.batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    OVERHEAD,
    RawHeader,
)
from headwater.records.checksum import crc32c
from headwater.records.header_fields import BASE_OFFSET, CRC, LENGTH, MAGIC_BYTE
from headwater.seams.files import Buffer

PIECE = 4 << 20

Absorb = Callable[[RawHeader, Buffer], None]
"""Called with the header and the bytes of each batch that has a producer id."""


class Readable(Protocol):
    """A segment's file, as a walk by headers reads it."""

    path: str
    size: int

    def read_blocking(self, size: int, position: int) -> bytes:
        """Return bytes, from the disk if they are not in the page cache."""


class Walked(NamedTuple):
    """How far a checked walk got."""

    next_offset: int
    scanned: int
    problem: str | None


def headers(
    segment: Readable, position: int = 0, piece: int = PIECE
) -> Iterator[tuple[int, RawHeader]]:
    """Yield the position and header of each batch from `position` on; raise DamagedSegment."""
    while position < segment.size:
        data = segment.read_blocking(min(piece, segment.size - position), position)
        at, last = 0, len(data) - HEADER_SIZE
        if last < 0:
            raise DamagedSegment(f"{segment.path} ends inside a batch at {position}")
        while at <= last:
            header: RawHeader = HEADER.unpack_from(data, at)
            if header[MAGIC_BYTE] != MAGIC or header[LENGTH] < HEADER_SIZE - OVERHEAD:
                raise DamagedSegment(f"no batch at {position + at} of {segment.path}")
            yield position + at, header
            at += header[LENGTH] + OVERHEAD
        position += at
    if position > segment.size:
        raise DamagedSegment(f"the last batch of {segment.path} is cut off")


def batch_at(segment: Segment, position: int, header: RawHeader) -> bytes:
    """Return the bytes of a batch that `headers` yielded."""
    return segment.read_blocking(header[LENGTH] + OVERHEAD, position)


def require_whole(segment: Segment, position: int) -> int:
    """Return where the flushed batch at `position` ends; raise DamagedSegment if it is torn."""
    header: RawHeader = HEADER.unpack_from(segment.read_blocking(HEADER_SIZE, position))
    end = position + header[LENGTH] + OVERHEAD
    if end > segment.size:
        raise DamagedSegment(
            f"{segment.path} ends inside the flushed batch at offset {header[BASE_OFFSET]}"
        )
    if crc32c(batch_at(segment, position, header)[CRC_START:]) != header[CRC]:
        raise DamagedSegment(
            f"wrong checksum at the flushed offset {header[BASE_OFFSET]} of {segment.path}"
        )
    return end


class EpochRule:
    """Which leader epoch a batch may have: the cache's, or any that does not go back."""

    __slots__ = ("_epochs", "_known", "epoch", "until")

    def __init__(self, epochs: EpochCache, offset: int, *, known: bool) -> None:
        self._epochs = epochs
        self._known = known
        self.epoch = -2
        self.until = offset

    def allows(self, epoch: int, offset: int) -> bool:
        """Return whether `epoch` fits at `offset`; `self.epoch` then holds until `self.until`."""
        if self._known:
            self.epoch = self._epochs.epoch_at(offset)
            later = [start for start in self._epochs.starts if start > offset]
            self.until = later[0] if later else 1 << 63
            # Before the cache's first epoch, only later epochs can be ruled out.
            return epoch == self.epoch or (self.epoch < 0 and epoch <= self._epochs.latest)
        if epoch < self._epochs.latest:
            return False
        self._epochs.assign(epoch, offset)
        self.epoch, self.until = epoch, 1 << 63
        return True


def check(
    segment: Segment,
    file_size: int,
    next_offset: int,
    rule: EpochRule,
    gaps: bool,
    interval: int,
    absorb: Absorb,
) -> Walked:
    """Add the batches in the file beyond `segment.size` to the segment, up to the first bad one."""
    start = segment.size
    most = segment.base_offset + MAX_RELATIVE_OFFSET if gaps else None
    problem = None
    while problem is None and segment.size < file_size:
        position = segment.size
        wanted = min(PIECE, file_size - position)
        piece = segment.read_blocking(wanted, position)
        rows, next_offset, need, problem = _check_piece(piece, next_offset, rule, most, absorb)
        if problem is None and not rows and need > len(piece):
            # One batch larger than a piece, or cut by the end of the file.
            if position + need > file_size or len(piece) < wanted:
                problem = f"{file_size - position} bytes of a batch of {need}"
            else:
                piece = segment.read_blocking(need, position)
                rows, next_offset, _, problem = _check_piece(piece, next_offset, rule, most, absorb)
        segment.index_batches(rows, interval)
    return Walked(next_offset, segment.size - start, problem)


def _check_piece(
    piece: bytes, next_offset: int, rule: EpochRule, most: int | None, absorb: Absorb
) -> tuple[list[Staged], int, int, str | None]:
    """Return the good batches, the offset after them, the size of the next one and the problem.

    Without `most`, offsets have no gaps; with it, they go up to `most`.
    """
    unpack, checksum = HEADER.unpack_from, crc32c
    view, end = memoryview(piece), len(piece)
    rows: list[Staged] = []
    at, size = 0, HEADER_SIZE
    epoch, until = rule.epoch, rule.until
    while at + HEADER_SIZE <= end:
        header = unpack(piece, at)
        (
            base,
            length,
            batch_epoch,
            magic,
            crc,
            attributes,
            delta,
            _,
            timestamp,
            producer,
            _,
            _,
            _,
        ) = header
        size = length + OVERHEAD
        if magic != MAGIC or size < HEADER_SIZE:
            return rows, next_offset, size, f"no batch where offset {next_offset} must be"
        if base != next_offset and (most is None or not next_offset < base <= most - delta):
            return rows, next_offset, size, f"base offset {base} where {next_offset} must be"
        if batch_epoch != epoch or base >= until:
            if not rule.allows(batch_epoch, base):
                return rows, next_offset, size, f"leader epoch {batch_epoch} at offset {base}"
            epoch, until = rule.epoch, rule.until
        stop = at + size
        if stop > end:
            break
        if checksum(view[at + CRC_START : stop]) != crc:
            return rows, next_offset, size, f"wrong checksum at offset {base}"
        if producer >= 0 or attributes & CONTROL:
            absorb(header, view[at:stop])
        last = base + delta
        rows.append((last, size, timestamp))
        next_offset = last + 1
        at, size = stop, HEADER_SIZE
    return rows, next_offset, size, None

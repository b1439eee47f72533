"""Reads a sealed segment again and compares it, step by step, with its checksums.

In a segment without checksums, the CRCs of the batches are checked, and their offsets and leader epochs,
which no CRC covers, are compared with those that the log has in memory. If all batches are sound, the
segment gets checksums. Steps run on file threads, one at a time, beside readers and writers.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater.log.segment import Segment
from headwater.log.segment_checksums import CHUNK, PIECE
from headwater.records.batch import CRC_START, HEADER, HEADER_SIZE, MAGIC, OVERHEAD
from headwater.records.checksum import crc32c
from headwater.seams.files import Files, read_fully


class ExpectedHeaders(NamedTuple):
    """What the headers of the batches of one segment must agree with."""

    end: int
    """Where the next segment begins."""
    gaps: bool
    """Whether compaction may have removed offsets."""
    epochs: Sequence[int] = ()
    starts: Sequence[int] = ()
    """The leader epochs of the log and where they begin."""

    def allows(self, base: int, delta: int, epoch: int, expected: int) -> bool:
        """Return whether a batch may follow what ends at the offset `expected`."""
        in_order = base == expected or (self.gaps and base > expected)
        rank = bisect_right(self.starts, base)
        known = not rank or self.epochs[rank - 1] == epoch
        return in_order and known and delta >= 0 and base + delta < self.end


class SegmentScrub:
    """The scrub of one segment."""

    __slots__ = (
        "_cuts",
        "_expected",
        "_files",
        "_segment",
        "_size",
        "_steps",
        "damaged_at",
        "proven",
    )

    def __init__(self, files: Files, segment: Segment, expected: ExpectedHeaders) -> None:
        self._files = files
        self._segment = segment
        self._size = segment.size
        self._expected = expected
        self._cuts = segment.checksums.cuts
        self._steps: Iterator[int] | None = None
        # Where the first damage was found.
        self.damaged_at: int | None = None
        # Whether the batches are sound and the segment has no checksums.
        self.proven = False

    @property
    def is_valid(self) -> bool:
        """Return whether the segment is still what it was when the scrub began."""
        segment = self._segment
        return segment.checksums.cuts == self._cuts and not segment.moving_to

    def step(self) -> int:
        """Read the next bytes and return how many; 0 at the end. For file threads."""
        if self._steps is None:
            self._steps = self._run()
        return next(self._steps, 0) if self.is_valid else 0

    def _run(self) -> Iterator[int]:
        fd = self._segment.open_for_reading()
        try:
            sums = self._segment.checksums
            sums.load()
            if sums.absent:
                yield from self._check_batches(fd)
            else:
                yield from self._compare(fd)
        finally:
            self._files.close(fd)

    def _compare(self, fd: int) -> Iterator[int]:
        sums = self._segment.checksums
        for at in range(0, self._size, PIECE):
            sums.load()
            data = read_fully(self._files, fd, min(PIECE, self._size - at), at)
            wrong = sums.damage(data, at)
            if wrong is not None and self.is_valid:
                self._found(wrong, wrong + 1)
            yield len(data)

    def _check_batches(self, fd: int) -> Iterator[int]:
        at, expected, most = 0, self._segment.base_offset, PIECE
        while at < self._size:
            data = memoryview(read_fully(self._files, fd, min(most, self._size - at), at))
            whole, expected = self._whole(data, at, expected)
            if not whole:
                if at + len(data) >= self._size or most > self._size:
                    self._found(at, self._size)
                    return
                most *= 4  # one batch is larger than a piece
            at += whole
            yield len(data)
        self.proven = self.damaged_at is None and self.is_valid

    def _whole(self, data: memoryview, start: int, expected: int) -> tuple[int, int]:
        """Check whole batches; return where the last of them ends, and the offset after it."""
        at = 0
        while at + HEADER_SIZE <= len(data):
            base, length, epoch, magic, crc, _, delta, *_ = HEADER.unpack_from(data, at)
            stop = at + length + OVERHEAD
            if magic != MAGIC or length < HEADER_SIZE - OVERHEAD or stop > len(data):
                break
            in_place = self._expected.allows(base, delta, epoch, expected)
            if not in_place or crc32c(data[at + CRC_START : stop]) != crc:
                self._found(start + at, start + stop)
            expected = base + delta + 1
            at = stop
        return at, expected

    def _found(self, start: int, end: int) -> None:
        """Serve nothing from `start` to before `end` any more."""
        if self.damaged_at is None:
            self.damaged_at = start
        sums = self._segment.checksums
        for position in range(start // CHUNK * CHUNK, end, CHUNK):
            sums.distrust(position)
        sums.refuse(self._segment.path, start)

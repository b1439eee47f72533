"""The sparse `.index`: maps an offset to a nearby earlier position in the segment.

One entry per `index.interval.bytes`: i32 last offset of a batch relative to the segment's base,
i32 file position of that batch. A lookup gives the greatest entry at or below the target; the
reader walks forward from there.
"""

import struct
from array import array
from operator import lt
from sys import byteorder
from typing import ClassVar

from headwater.log.index_file import IndexFile

MAX_RELATIVE_OFFSET = (1 << 31) - 1
NEAR = 4
"""Entries on either side of a guess among which a lookup searches first."""


class OffsetIndex(IndexFile):
    """The offset index of one segment; offsets here are relative to its base."""

    __slots__ = ()

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">ii")
    RANK: ClassVar[int] = 0

    def append(self, relative_offset: int, position: int) -> None:
        """Add the batch at `position`, whose last offset is `relative_offset`."""
        self.entries.extend(self.ENTRY.pack(relative_offset, position))

    def lookup(self, relative_offset: int) -> tuple[int, int]:
        """Return the last entry at or below the offset, or (-1, 0) for the start of the segment."""
        return self._entry(self._rank(relative_offset, 0))

    def lookup_position(self, position: int) -> tuple[int, int]:
        """Return the last entry at or before a file position, or (-1, 0)."""
        return self._entry(self._rank(position, 1))

    def after_position(self, position: int) -> int:
        """Return the offset of the first entry at or after a file position, or -1."""
        rank = self._rank(position - 1, 1)
        return self._entry(rank + 1)[0] if rank < self.count else -1

    def cut_from(self, relative_offset: int) -> None:
        """Drop the entries at and above the offset."""
        self.cut(self._rank(relative_offset - 1, 0))

    def last(self) -> tuple[int, int]:
        """The newest entry, or (-1, 0)."""
        return self._entry(self.count)

    def _rank(self, target: int, field: int) -> int:
        """Return how many entries have at most that number."""
        entries, unpack, size = self.entries, self.ENTRY.unpack_from, self.ENTRY.size
        low, high = 0, len(entries) // size
        if high > NEAR:
            # Both numbers grow evenly in most segments: the guess is near.
            last = unpack(entries, (high - 1) * size)[field]
            if target >= last:
                return high
            guess = max(target, 0) * high // last
            if guess >= NEAR and unpack(entries, (guess - NEAR) * size)[field] <= target:
                low = guess - NEAR
            if guess + NEAR < high and unpack(entries, (guess + NEAR) * size)[field] > target:
                high = guess + NEAR
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * size)[field] <= target:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry(self, rank: int) -> tuple[int, int]:
        if rank == 0:
            return -1, 0
        offset, position = self.ENTRY.unpack_from(self.entries, (rank - 1) * self.ENTRY.size)
        return offset, position

    def _good_prefix(self, data: bytearray) -> int:
        numbers = array("i")
        numbers.frombytes(memoryview(data)[: len(data) // self.ENTRY.size * self.ENTRY.size])
        if byteorder == "little":
            numbers.byteswap()
        return min(_growing(numbers[0::2]), _growing(numbers[1::2]))


def _growing(numbers: "array[int]") -> int:
    """Return the length of the prefix that is not negative and strictly growing."""
    following = numbers[1:]
    if all(map(lt, numbers, following)) and (not numbers or numbers[0] >= 0):
        return len(numbers)
    last = -1
    for count, number in enumerate(numbers):
        if number <= last:
            return count
        last = number
    return len(numbers)

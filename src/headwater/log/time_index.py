"""The sparse `.timeindex`: maps a timestamp to an offset shortly before its first record.

Each entry is i64 the greatest timestamp so far, i32 the last offset (relative to the base) of the
batch that has it. Both only grow, so no record before an entry's offset is newer than the entry.
The final entry, added at a roll or a clean close, is the newest timestamp of the segment.
"""

import struct
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import ClassVar

from headwater.log.index_file import IndexFile


class TimeIndex(IndexFile):
    """The time index of one segment; offsets here are relative to its base."""

    __slots__ = ()

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">qi")
    RANK: ClassVar[int] = 1

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Add the newest timestamp; one that is not newer than the last entry adds nothing."""
        last_timestamp, last_offset = self.last()
        if timestamp > last_timestamp and relative_offset >= last_offset:
            self.entries.extend(self.ENTRY.pack(timestamp, relative_offset))

    def last(self) -> tuple[int, int]:
        """Return the newest entry, or (-1, -1)."""
        return self._entry(self.count)

    def lookup(self, timestamp: int) -> int:
        """Return an offset below which every record is older than `timestamp`; -1 for the start."""
        entries, unpack, size = self.entries, self.ENTRY.unpack_from, self.ENTRY.size
        ranks = range(len(entries) // size)
        rank = bisect_left(ranks, timestamp, key=lambda rank: unpack(entries, rank * size)[0])
        return self._entry(rank)[1]

    def cut_from(self, relative_offset: int) -> None:
        """Drop the entries at and above the offset."""
        entries, unpack, size = self.entries, self.ENTRY.unpack_from, self.ENTRY.size
        ranks = range(len(entries) // size)
        self.cut(
            bisect_right(
                ranks, relative_offset - 1, key=lambda rank: unpack(entries, rank * size)[1]
            )
        )

    def _entry(self, rank: int) -> tuple[int, int]:
        if rank == 0:
            return -1, -1
        timestamp, offset = self.ENTRY.unpack_from(self.entries, (rank - 1) * self.ENTRY.size)
        return timestamp, offset

    def _good_prefix(self, data: bytearray) -> int:
        whole = memoryview(data)[: len(data) // self.ENTRY.size * self.ENTRY.size]
        good = 0
        for (timestamp, offset), (next_timestamp, next_offset) in pairwise(
            [(-1, -1), *self.ENTRY.iter_unpack(whole)]
        ):
            # A file system leaves zeros where an entry never reached the disk.
            zeros = next_timestamp == 0 and next_offset == 0
            if zeros or next_timestamp <= timestamp or next_offset < max(offset, 0):
                break
            good += 1
        return good

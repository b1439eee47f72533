"""The `.txnindex`: which transactions of a segment were aborted.

Each entry is i16 version 0, i64 producer id, i64 first offset, i64 last offset (the marker), i64
last stable offset when the marker was appended. Entries are in the order of their markers.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from headwater.log.index_file import IndexFile
from headwater.log.segment_checksums import SegmentChecksums
from headwater.seams.files import Files

VERSION = 0
_LAST = 3
"""The place of the last offset in an entry."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction: a read-committed consumer drops its records."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedIndex(IndexFile):
    """The aborted transactions whose markers are in one segment."""

    __slots__ = ("expected",)

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">hqqqq")
    RANK: ClassVar[int] = 2

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        fresh: bool = False,
        checksums: SegmentChecksums | None = None,
    ) -> None:
        super().__init__(files, path, fresh=fresh, checksums=checksums)
        # The file is damaged if it has fewer entries (`aborted_counts.py`).
        self.expected = 0

    @property
    def known_count(self) -> int:
        """The number of entries, or -1 if the file was not read or is damaged."""
        entries = self._entries
        return -1 if entries is None or self.damaged else len(entries) // self.ENTRY.size

    def clear(self) -> None:
        """Drop every entry before a rebuild."""
        super().clear()
        self.expected = 0

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        super().cut(count)
        self.expected = min(self.expected, count)

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a transaction whose marker was just appended."""
        self.entries.extend(self.ENTRY.pack(VERSION, *aborted))

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for _, *aborted in self.ENTRY.iter_unpack(self.entries):
            yield AbortedTransaction(*aborted)

    def overlapping(self, start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions with offsets from `start` to before `end`.

        The flag says whether later segments may have more of them.
        """
        entries, unpack, size = self.entries, self.ENTRY.unpack_from, self.ENTRY.size
        ranks = range(len(entries) // size)
        rank = bisect_left(ranks, start, key=lambda rank: unpack(entries, rank * size)[_LAST])
        found = []
        for _, producer_id, first, last, stable in self.ENTRY.iter_unpack(
            memoryview(entries)[rank * size :]
        ):
            if first < end:
                found.append(AbortedTransaction(producer_id, first, last, stable))
            if stable >= end:
                # Transactions that ended after this one began at `stable` or later.
                return found, False
        return found, True

    def unsaved(self) -> tuple[int, bytes] | None:
        """Return what the file lacks: nothing while it is damaged, or it would look intact."""
        return None if self.damaged else super().unsaved()

    def cut_from(self, offset: int) -> None:
        """Drop the transactions whose markers are at or above the (absolute) offset."""
        self.cut(sum(1 for aborted in self if aborted.last_offset < offset))

    def _load(self) -> bytearray:
        # Most segments have no aborted transaction and therefore no file.
        entries = super()._load() if self._files.exists(self.path) else bytearray()
        self._entries = entries
        if len(entries) < self.expected * self.ENTRY.size or not (entries or self._intact(entries)):
            self.damaged = True
            self._saved = -1
        return entries

    def _good_prefix(self, data: bytearray) -> int:
        whole = memoryview(data)[: len(data) // self.ENTRY.size * self.ENTRY.size]
        good, newest = 0, -1
        for version, _, first, last, _ in self.ENTRY.iter_unpack(whole):
            if version != VERSION or not 0 <= first <= last or last <= newest:
                break
            good, newest = good + 1, last
        return good

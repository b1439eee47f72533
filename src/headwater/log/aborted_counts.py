"""`headwater-aborted-checkpoint`: how many aborted transactions each segment of a log has.

A `.txnindex` that is missing, or cut between two entries, looks like one of a segment with fewer
aborted transactions, and readers would see their records. This file tells the difference: the index
of a segment that has fewer entries than it says is built again from the batches. A flush writes it
after the indexes, so it never promises more than they have, except after a truncation or a compaction
whose flush did not come; the index is then built again for nothing. Logs without aborted transactions
have no such file, and logs that Kafka wrote are not checked.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from headwater.log.aborted_index import AbortedIndex
from headwater.log.checkpoints import (
    DamagedCheckpoint,
    parse_rows,
    render_rows,
    with_checksum,
    without_checksum,
)
from headwater.seams.files import Files, read_file, replace_file

FILE_NAME = "headwater-aborted-checkpoint"


class IndexedSegment(Protocol):
    """What is counted of a segment."""

    base_offset: int
    aborted: AbortedIndex


class AbortedCounts:
    """The numbers of aborted transactions by base offset, and those in the file."""

    __slots__ = ("_counts", "_saved")

    def __init__(self, counts: Mapping[int, int]) -> None:
        self._counts = dict(counts)
        self._saved = dict(counts)

    def of(self, base_offset: int) -> int:
        """Return how many entries the index of a segment must have."""
        return self._counts.get(base_offset, 0)

    def forget(self, base_offsets: Iterable[int]) -> None:
        """Expect nothing of segments that compaction has replaced."""
        for base_offset in base_offsets:
            self._counts.pop(base_offset, None)

    def unsaved(
        self, flushed: Iterable[IndexedSegment], bases: Iterable[int]
    ) -> dict[int, int] | None:
        """Count the indexes that are flushed now; return what the file lacks, None if nothing."""
        for segment in flushed:
            count = segment.aborted.known_count
            if count > 0:
                self._counts[segment.base_offset] = count
            elif count == 0:
                self._counts.pop(segment.base_offset, None)
        if self._counts:
            there = set(bases)
            self._counts = {base: count for base, count in self._counts.items() if base in there}
        return None if self._counts == self._saved else dict(self._counts)

    def mark_saved(self, counts: dict[int, int]) -> None:
        """Note what the file has now."""
        self._saved = counts


def read_counts(files: Files, directory: str) -> AbortedCounts:
    """Read the file; without it, or if it is damaged, nothing is expected."""
    try:
        return AbortedCounts(_parsed(read_file(files, f"{directory}/{FILE_NAME}")))
    except (FileNotFoundError, DamagedCheckpoint, ValueError):
        return AbortedCounts({})


def is_damaged(files: Files, directory: str) -> bool:
    """Return whether there is a file that cannot be read."""
    try:
        _parsed(read_file(files, f"{directory}/{FILE_NAME}"))
    except FileNotFoundError:
        return False
    except (DamagedCheckpoint, ValueError):
        return True
    return False


def _parsed(content: bytes) -> dict[int, int]:
    # Earlier versions wrote no checksum.
    text = without_checksum(content) if b"crc" in content else content
    return {int(base): int(count) for base, count in parse_rows(text, fields=2)}


def write_counts(files: Files, directory: str, counts: Mapping[int, int]) -> None:
    """Replace the file. Safe on any thread."""
    rows = ((str(base), str(count)) for base, count in sorted(counts.items()))
    replace_file(files, f"{directory}/{FILE_NAME}", with_checksum(render_rows(rows)))

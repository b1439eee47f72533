"""The open transactions of one log, which limit what a read-committed consumer may read.

The last stable offset is the first record of the earliest transaction that is open, or whose marker
is at or above the high watermark: until the marker is replicated, another leader might not know the
outcome.
"""

from collections.abc import Iterable


class OpenTransactions:
    """The transactions of one log that did not end below the high watermark."""

    __slots__ = ("_ended", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._ended: list[tuple[int, int]] = []

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note a producer's first transactional batch; offsets only grow."""
        self._open.setdefault(producer_id, first_offset)

    def end(self, producer_id: int, marker_offset: int) -> int:
        """End a transaction, and return the last stable offset after its marker is replicated."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is not None:
            self._ended.append((first_offset, marker_offset))
        return min(self._open.values(), default=marker_offset + 1)

    def stable(self, high_watermark: int) -> int:
        """Return the last stable offset for a high watermark."""
        if not self._open and not self._ended:
            return high_watermark
        if self._ended:
            self._ended = [row for row in self._ended if row[1] >= high_watermark]
        unstable = [first for first, _ in self._ended]
        unstable.extend(self._open.values())
        return min(high_watermark, *unstable) if unstable else high_watermark

    def restore(self, open_now: Iterable[tuple[int, int]], log_end: int) -> None:
        """Set the open transactions (producer id, first offset) after a failed write, truncation or load."""
        self._open = {producer_id: first for producer_id, first in open_now if first >= 0}
        self._ended = [row for row in self._ended if row[1] < log_end]

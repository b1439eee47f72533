"""The open transactions of one log, which limit what a read-committed consumer may read.

The last stable offset is the first record of the earliest transaction that is open, or whose marker
is at or above the high watermark: until the marker is replicated, another leader might not know the
outcome.
"""

from collections import deque
from collections.abc import Iterable


class OpenTransactions:
    """The transactions of one log that did not end below the high watermark."""

    __slots__ = ("_ended", "_open")

    def __init__(self) -> None:
        # Producer ids and first offsets, in the order of the offsets.
        self._open: dict[int, int] = {}
        # First offsets and markers of ended transactions; both grow. A transaction that began later
        # and ended earlier than another says nothing more, and is left out.
        self._ended: deque[tuple[int, int]] = deque()

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note a producer's first transactional batch; offsets only grow."""
        self._open.setdefault(producer_id, first_offset)

    def end(self, producer_id: int, marker_offset: int) -> int:
        """End a transaction, and return the last stable offset after its marker is replicated."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is not None:
            ended = self._ended
            while ended and ended[-1][0] >= first_offset:
                ended.pop()
            ended.append((first_offset, marker_offset))
        return next(iter(self._open.values()), marker_offset + 1)

    def stable(self, high_watermark: int) -> int:
        """Return the last stable offset for a high watermark, which never goes back in a log."""
        if not self._open and not self._ended:
            return high_watermark
        self.forget_replicated(high_watermark)
        ended = self._ended
        stable = min(high_watermark, next(iter(self._open.values()), high_watermark))
        return min(stable, ended[0][0]) if ended else stable

    def undecided_below(self, end: int) -> int:
        """Return where the first transaction began that has no marker below `end`; `end` without one.

        `end` is at or above the high watermark, or the log was just loaded.
        """
        first = min(end, next(iter(self._open.values()), end))
        for first_offset, marker_offset in reversed(self._ended):
            if marker_offset < end:
                break
            first = min(first, first_offset)
        return first

    def forget_replicated(self, high_watermark: int) -> None:
        """Drop the transactions whose markers are below the high watermark."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def restore(self, open_now: Iterable[tuple[int, int]], log_end: int) -> None:
        """Set the open transactions (producer id, first offset) of a log that ends at `log_end`.

        Of the ended ones, those whose markers are still in the log are kept.
        """
        rows = [row for row in open_now if row[1] >= 0]
        self._open = dict(sorted(rows, key=lambda row: row[1]))
        ended = self._ended
        while ended and ended[-1][1] >= log_end:
            ended.pop()

    def assume_unreplicated(self, start: int, end: int) -> None:
        """Treat everything from `start` on as unstable until the high watermark reaches `end`.

        A snapshot at `end` does not say which transactions ended shortly before it.
        """
        self._ended.appendleft((start, end - 1))

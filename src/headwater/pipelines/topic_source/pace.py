"""How many rows a trigger takes, so that a batch lasts about as long as was asked for.

The option `targetBatchTime` replaces guesses at `maxOffsetsPerTrigger`: a backlog is worked off in
batches of steady length, whatever a row costs. Pure: the caller brings the times.
"""

from typing import Final

FIRST_ROWS: Final = 20_000
LEAST_ROWS: Final = 500
MOST_ROWS: Final = 1 << 40
_STEP: Final = 4.0
"""A batch is at most so many times larger or smaller than the one before."""


class Pace:
    """Learns from each batch."""

    def __init__(self, target_ms: int) -> None:
        self._target_ms = target_ms
        self._rows = FIRST_ROWS

    @property
    def rows(self) -> int:
        """What the next batch should take at most."""
        return self._rows

    def took(self, rows: int, elapsed_ms: int) -> None:
        """A batch of `rows` was over `elapsed_ms` after it was planned."""
        if rows <= 0:
            return
        factor = min(_STEP, max(1 / _STEP, self._target_ms / max(elapsed_ms, 1)))
        wanted = int(rows * factor)
        if factor > 1 and rows < self._rows:
            return  # there was no more to read: it says nothing about larger batches
        self._rows = min(MOST_ROWS, max(LEAST_ROWS, wanted))

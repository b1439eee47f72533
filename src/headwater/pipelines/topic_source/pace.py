"""Adapts the number of rows per batch to a target duration.

The option `targetBatchTime` replaces guesses at `maxOffsetsPerTrigger`: a backlog is read in batches
of steady duration, whatever a row costs. Pure: callers pass the times.
"""

from typing import Final

FIRST_ROWS: Final = 20_000
LEAST_ROWS: Final = 500
MOST_ROWS: Final = 1 << 40
_STEP: Final = 4.0
"""The largest factor between two consecutive batches."""


class Pace:
    """Estimates the size of the next batch from the last one."""

    def __init__(self, target_ms: int) -> None:
        self._target_ms = target_ms
        self._rows = FIRST_ROWS

    @property
    def rows(self) -> int:
        """The limit of the next batch."""
        return self._rows

    def took(self, rows: int, elapsed_ms: int, *, limited: bool) -> None:
        """Record that a batch of `rows` ended `elapsed_ms` after it was planned.

        `limited`: the limit cut it, so that more was left. It may have fewer rows than the limit,
        whose shares for the partitions are whole numbers.
        """
        if rows <= 0:
            return
        factor = min(_STEP, max(1 / _STEP, self._target_ms / max(elapsed_ms, 1)))
        wanted = int(rows * factor)
        if factor > 1 and not limited:
            return  # a small backlog, not the limit, made this batch small
        self._rows = min(MOST_ROWS, max(LEAST_ROWS, wanted))

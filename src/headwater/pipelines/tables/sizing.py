"""How many files a batch becomes, told from the batch before. Pure.

Nothing counts the rows of a batch before it is written: that would read its source twice.
"""

from collections.abc import Sequence
from typing import Final

from headwater.pipelines.tables.table import StagedFile

_LEAST_SHARE: Final = 8
"""A task writes at least this part of a file of the target size: below, more of them gain no time
worth the files they leave; above, the cores stay busy and compaction merges what they wrote."""

_SLOW_MS: Final = 1_000
"""A batch that takes longer is worth all cores."""
_FEWER: Final = 4
"""Batches are taken for cheap again below this part of the rows that were slow."""


class FileSizing:
    """Bounds for the next batch of a stream, learnt from what the last one came to."""

    def __init__(self, target_bytes: int) -> None:
        self._target = target_bytes
        self._bytes = 0
        self._rows = 0
        self._slow_at: int | None = None
        """How many rows were slow to write; None: no batch was."""

    @property
    def small(self) -> int:
        """Below this many bytes a file is worth merging."""
        return self._target // 2

    def tasks(self, cores: int) -> int | None:
        """How many tasks should write the next batch at most; None: as many as it has.

        Fewer tasks also read, parse and compute: only batches that are cheap get fewer than there
        are cores.
        """
        if not self._rows:
            return None
        by_size = max(1, -(-self._bytes * _LEAST_SHARE // self._target))
        return by_size if self._slow_at is None else max(by_size, cores)

    def rows_per_file(self) -> int:
        """Where a file ends, so that none grows far past the target; 0: nowhere."""
        if not self._rows:
            return 0
        return max(1, self._target * self._rows // max(1, self._bytes))

    def observe(self, files: Sequence[StagedFile], took_ms: int) -> None:
        """Takes note of a batch that was written; one of no rows teaches nothing."""
        if rows := sum(file.rows for file in files):
            if took_ms >= _SLOW_MS:
                self._slow_at = min(rows, self._slow_at or rows)
            elif self._slow_at is not None and rows < self._slow_at // _FEWER:
                self._slow_at = None
            self._rows = rows
            self._bytes = sum(file.size for file in files)

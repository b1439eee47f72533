"""Estimates how many files a batch becomes from the previous batch. Pure.

Nothing counts the rows of a batch before it is written: that would read its source twice.
"""

from collections.abc import Sequence
from typing import Final

from headwater.pipelines.tables.table import StagedFile

_LEAST_SHARE: Final = 8
"""A task writes at least this fraction of a target file: smaller tasks save too little time for the
files they leave; larger batches keep all cores busy, and compaction merges their files."""

_SLOW_MS: Final = 1_000
"""A batch that takes longer is worth all cores."""
_FEWER: Final = 4
"""Batches count as cheap again below this fraction of the rows that were slow."""


class FileSizing:
    """Limits for the next batch of a stream, estimated from the last one."""

    def __init__(self, target_bytes: int) -> None:
        self._target = target_bytes
        self._bytes = 0
        self._rows = 0
        self._slow_at: int | None = None
        """How many rows were slow to write; None if no batch was slow."""

    @property
    def small(self) -> int:
        """The size below which a file is worth merging."""
        return self._target // 2

    def tasks(self, cores: int) -> int | None:
        """Return how many tasks may write the next batch; None for no limit.

        Fewer tasks also read, parse and compute, so only cheap batches get fewer than there are
        cores.
        """
        if not self._rows:
            return None
        by_size = max(1, -(-self._bytes * _LEAST_SHARE // self._target))
        return by_size if self._slow_at is None else max(by_size, cores)

    def rows_per_file(self) -> int:
        """Return the row limit that keeps files near the target size; 0 for no limit."""
        if not self._rows:
            return 0
        return max(1, self._target * self._rows // max(1, self._bytes))

    def observe(self, files: Sequence[StagedFile], took_ms: int) -> None:
        """Record a written batch; an empty one is ignored."""
        if rows := sum(file.rows for file in files):
            if took_ms >= _SLOW_MS:
                self._slow_at = min(rows, self._slow_at or rows)
            elif self._slow_at is not None and rows < self._slow_at // _FEWER:
                self._slow_at = None
            self._rows = rows
            self._bytes = sum(file.size for file in files)

"""How many files a batch becomes, told from the batch before. Pure.

Nothing counts the rows of a batch before it is written: that would read its source twice.
"""

from collections.abc import Sequence
from typing import Final

from headwater.pipelines.tables.table import StagedFile

_LEAST_SHARE: Final = 8
"""A task writes at least this part of a file of the target size: below, more of them gain no time
worth the files they leave; above, the cores stay busy and compaction merges what they wrote."""


class FileSizing:
    """Bounds for the next batch of a stream, learnt from what the last one came to."""

    def __init__(self, target_bytes: int) -> None:
        self._target = target_bytes
        self._bytes = 0
        self._rows = 0

    @property
    def small(self) -> int:
        """Below this many bytes a file is worth merging."""
        return self._target // 2

    def tasks(self) -> int | None:
        """How many tasks should write the next batch at most; None: as many as it has."""
        if not self._rows:
            return None
        return max(1, -(-self._bytes * _LEAST_SHARE // self._target))

    def rows_per_file(self) -> int:
        """Where a file ends, so that none grows far past the target; 0: nowhere."""
        if not self._rows:
            return 0
        return max(1, self._target * self._rows // max(1, self._bytes))

    def learn(self, files: Sequence[StagedFile]) -> None:
        """Takes note of a batch that was written; one of no rows teaches nothing."""
        if rows := sum(file.rows for file in files):
            self._rows = rows
            self._bytes = sum(file.size for file in files)

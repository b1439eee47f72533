"""The one loop behind `append` and `replace`: look at the table, commit, and look again after a loss.

What differs between kinds of tables is a single attempt. Every attempt begins with the question
whether the batch is in the table by now, so that a repeated batch never gets in twice.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.pipelines.tables.staging import place
from headwater.pipelines.tables.table import DataFile, StagedFile, TableConflict
from headwater.pipelines.targets import Target

ATTEMPTS: Final = 100
"""Each lost one means that another committer won, so this many are lost only to a crowd."""


@dataclass
class TableChange:
    """What one batch does to a table."""

    files: Sequence[StagedFile]
    schema: pa.Schema
    app: str
    batch: int
    partition_by: Sequence[str]
    replaces: bool
    """All rows and columns of before are gone with it."""
    _placed: list[StagedFile] | None = None

    def placed(self, staging: str, folder: str) -> list[StagedFile]:
        """The files at their places, where the first attempt moves them."""
        if self._placed is None:
            self._placed = place(self.files, staging, folder)
        return self._placed

    def is_among(self, files: Sequence[DataFile]) -> bool:
        """Whether the table has files that this change moved: its answer was lost, not its race."""
        mine = {file.path for file in self._placed or ()}
        return not mine.isdisjoint(file.path for file in files)


class Committer(ABC):
    """A table that takes changes, one attempt at a time."""

    target: Target

    def append(
        self,
        files: Sequence[StagedFile],
        schema: pa.Schema,
        app: str,
        batch: int,
        partition_by: Sequence[str] = (),
    ) -> bool:
        """Adds the files in one atomic commit with the batch; False: it was there already."""
        return self._commit_change(TableChange(files, schema, app, batch, partition_by, False))

    def replace(
        self,
        files: Sequence[StagedFile],
        schema: pa.Schema,
        app: str,
        batch: int,
        partition_by: Sequence[str] = (),
    ) -> bool:
        """Like append, but all rows and columns of before are gone with the same commit."""
        return self._commit_change(TableChange(files, schema, app, batch, partition_by, True))

    def _commit_change(self, change: TableChange) -> bool:
        for _ in range(ATTEMPTS):
            taken = self._attempt(change)
            if taken is not None:
                return taken
        raise TableConflict(f"{self.target}: other committers were faster {ATTEMPTS} times")

    @abstractmethod
    def _attempt(self, change: TableChange) -> bool | None:
        """True: the change is in; False: its batch was; None: look again."""

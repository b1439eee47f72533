"""Repeats commits until they are decided: check the table, commit, check again after a conflict.

Backends implement a single attempt. Every attempt first checks whether the batch is in the table, so
that a repeated batch is never added twice.
"""

from collections.abc import Callable, Iterable
from typing import Final

from headwater.pipelines.tables.staging import place
from headwater.pipelines.tables.table import DataFile, StagedFile, TableChange, TableConflict
from headwater.pipelines.targets import Target

ATTEMPTS: Final = 100
"""Each lost attempt means that another committer won: only many committers cause this many."""


def commit_until_decided(attempt: Callable[[], bool | None], target: Target) -> bool:
    """Repeat an attempt while it returns None.

    Returns True if the change is in the table, False if its batch was there already.
    """
    for _ in range(ATTEMPTS):
        done = attempt()
        if done is not None:
            return done
    raise TableConflict(f"{target}: other committers won {ATTEMPTS} times in a row; try again")


class PlacedFiles:
    """The files of a change below the table's folder; the first attempt moves them there."""

    def __init__(self, change: TableChange, staging: str, folder: str) -> None:
        self._change = change
        self._staging = staging
        self._folder = folder
        self._placed: list[StagedFile] | None = None

    def files(self) -> list[StagedFile]:
        """Move the files unless that was done; return them at their new paths."""
        if self._placed is None:
            self._placed = place(self._change.files, self._staging, self._folder)
        return self._placed

    def are_among(self, files: Iterable[DataFile]) -> bool:
        """Return whether the table has these files: then the commit succeeded and only its answer was lost."""
        own = {file.path for file in self._placed or ()}
        return not own.isdisjoint(file.path for file in files)

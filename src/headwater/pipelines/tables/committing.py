"""Commits that are tried until they are decided: look at the table, commit, look again after a loss.

Backends differ in a single attempt. Every attempt begins with the question whether the batch is in
the table by now, so that a repeated batch never gets in twice.
"""

from collections.abc import Callable, Iterable
from typing import Final

from headwater.pipelines.tables.staging import place
from headwater.pipelines.tables.table import DataFile, StagedFile, TableChange, TableConflict
from headwater.pipelines.targets import Target

ATTEMPTS: Final = 100
"""Each lost attempt means that another committer won: only a crowd takes this many."""


def commit_until_decided(attempt: Callable[[], bool | None], target: Target) -> bool:
    """Repeat an attempt while it returns None.

    True: the change is in the table. False: its batch was there already.
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
        """Whether the table has these files: then the commit's answer was lost, not its race."""
        own = {file.path for file in self._placed or ()}
        return not own.isdisjoint(file.path for file in files)

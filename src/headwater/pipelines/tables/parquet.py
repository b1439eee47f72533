"""Parquet tables: a plain folder of files that any reader can list, and a log beside them.

A version is committed with its manifest, which names the staged files and their final paths. Then
the files are moved; the next user of the table finishes the moves of a committer that died. So only
the newest version can have moves left. Files that a version removes are moved below
`_headwater/replaced` before new ones arrive: readers that list the folder never see a row twice.
"""

import logging
import os
import shutil
from collections.abc import Sequence
from typing import Final, Literal

import pyarrow as pa

from headwater.pipelines.tables.committing import ATTEMPTS, commit_until_decided
from headwater.pipelines.tables.compaction import merge, merge_plan
from headwater.pipelines.tables.manifests import (
    ManifestEntry,
    ManifestLog,
    TableManifest,
    TableState,
)
from headwater.pipelines.tables.retention import remove_old
from headwater.pipelines.tables.schemas import (
    check_partitions,
    evolved_schema,
    nullable,
    plain_schema,
    same_partitions,
)
from headwater.pipelines.tables.staging import drop_attempt, new_attempt, staging_folder
from headwater.pipelines.tables.table import (
    BEFORE_ALL,
    Compaction,
    DataFile,
    StagedFile,
    TableChange,
    TableConflict,
    TableError,
    TableReplaced,
)
from headwater.pipelines.targets import Target

log = logging.getLogger(__name__)

_COMPACTION: Final = "headwater-compaction"
_TAKEN: Final = "another committer took files that were being merged"
REPLACED: Final = os.path.join("_headwater", "replaced")
"""The folder of replaced files, below the table's folder."""


class ParquetBackend:
    """A folder of Parquet files with a log of manifests."""

    keeps_partition_columns = False
    widens_columns = True

    def __init__(self, target: Target) -> None:
        self.target = target
        self._folder = os.path.abspath(target.place)
        self._log = ManifestLog(os.path.join(self._folder, "_headwater", "log"))
        self._moved_upto = BEFORE_ALL

    def exists(self) -> bool:
        return self._newest().version != BEFORE_ALL

    def version(self) -> int:
        return self._newest().version

    def schema(self) -> pa.Schema:
        return self._present().schema

    def partition_by(self) -> tuple[str, ...]:
        return self._present().partition_by

    def files(self, version: int | None = None) -> list[DataFile]:
        newest = self._present()
        state = newest if version is None else self._log.at(version)
        return [self._data_file(entry, newest) for entry in state.files.values()]

    def _data_file(self, entry: ManifestEntry, newest: TableState) -> DataFile:
        """Return the file at its current path: in the table, or replaced by a later version."""
        folder = "" if entry.path in newest.files else REPLACED
        path = os.path.join(self._folder, folder, entry.path)
        return DataFile(path, entry.rows, entry.size, entry.partition)

    def added(self, after: int, upto: int) -> list[tuple[int, list[DataFile]]]:
        newest = self._present()
        found = []
        for manifest in self._log.since(after, upto):
            if manifest.action == "replace":
                raise TableReplaced(
                    f"version {manifest.version} of {self.target} replaced its rows: a stream can "
                    "only follow appends; restart it with a new checkpoint"
                )
            new = manifest.add if manifest.action == "append" else ()
            found.append((manifest.version, [self._data_file(entry, newest) for entry in new]))
        return found

    def first_version(self) -> int:
        """Return the newest version that replaced rows or has expired files; else the first."""
        aside = os.path.join(self._folder, REPLACED)
        for version in range(self._present().version, 0, -1):
            manifest = self._log.read(version)
            gone = (path for path in manifest.remove if not os.path.exists(f"{aside}/{path}"))
            if manifest.action == "replace" or any(gone):
                return version
        return 0

    def last_batch(self, app: str) -> int:
        return self._newest().batches.get(app, BEFORE_ALL)

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with every column nullable."""
        return nullable(plain_schema(schema))

    def staging(self, app: str, batch: int) -> str:
        """Return a folder below an underscore; the files are moved after the commit."""
        return staging_folder(self._folder, app, batch)

    def commit(self, change: TableChange) -> bool:
        """Write one manifest with the columns, the files and the batch."""
        return commit_until_decided(lambda: self._attempt(change), self.target)

    def _attempt(self, change: TableChange) -> bool | None:
        state = self._newest()
        if state.batches.get(change.app, BEFORE_ALL) >= change.batch:
            return False
        partitions = self._partitions(state, change.schema, change.partition_by, change.files)
        version, columns, old = state.version + 1, change.schema, tuple(state.files)
        if not change.replaces:
            columns, old = (
                evolved_schema(
                    state.schema,
                    change.schema,
                    str(self.target),
                    widens=self.widens_columns,
                    fixed=partitions,
                ),
                (),
            )
        action: Literal["append", "replace"] = "replace" if change.replaces else "append"
        add = self._entries(change.files, version, self.staging(change.app, change.batch))
        manifest = TableManifest(
            version, action, change.app, change.batch, columns, partitions, add, old
        )
        return self._commit(manifest) or None

    def _partitions(
        self,
        state: TableState,
        schema: pa.Schema,
        partition_by: Sequence[str],
        files: Sequence[StagedFile],
    ) -> tuple[str, ...]:
        if state.version == BEFORE_ALL:
            check_partitions(schema, partition_by)
            self._warn_of_hidden_folders(partition_by)
            return tuple(partition_by)
        return same_partitions(state.partition_by, partition_by, str(self.target), files)

    def _warn_of_hidden_folders(self, partition_by: Sequence[str]) -> None:
        hidden = [name for name in partition_by if name.startswith(("_", "."))]
        if hidden:
            log.warning(
                "%s: pyarrow and pandas skip the folders of %s and find no rows; read the table with "
                "ignore_prefixes=['_headwater'], or partition it by another column",
                self.target,
                ", ".join(hidden),
            )

    def _entries(
        self, files: Sequence[StagedFile], version: int, base: str
    ) -> tuple[ManifestEntry, ...]:
        """Return the files with paths that are unique to this version."""
        found = []
        for number, file in enumerate(files):
            _, _, inside = os.path.relpath(file.path, base).partition(os.sep)
            path = os.path.join(os.path.dirname(inside), f"part-{version:08}-{number:05}.parquet")
            staged = os.path.relpath(file.path, self._folder)
            found.append(ManifestEntry(path, staged, file.rows, file.size, file.partition))
        return tuple(found)

    def drop_leftovers(self, app: str, batch: int, won: str | None = None) -> None:
        """Remove what is left in staging after the moves of the newest version."""
        self._newest()
        shutil.rmtree(self.staging(app, batch), ignore_errors=True)

    def compact(self, target_bytes: int) -> Compaction:
        """Write one manifest that replaces small files with merged ones.

        After an error that is not a conflict the merged files stay: the manifest may name them.
        """
        state = self._present()
        groups = merge_plan(self.files(), target_bytes)
        if not groups:
            return Compaction(0, 0)
        base = self.staging(_COMPACTION, state.version)
        attempt = new_attempt(base)
        old = [os.path.relpath(file.path, self._folder) for group in groups for file in group]
        try:
            merged = self._merged(state, groups, attempt)
            self._swap(old, merged, base)
        except TableConflict:
            drop_attempt(base, attempt)
            raise
        drop_attempt(base, attempt)
        return Compaction(len(old), len(merged))

    def expire(self, hours: int) -> int:
        """Remove replaced files; those of the newest version are never among them."""
        self._present()
        return remove_old(os.path.join(self._folder, REPLACED), set(), hours)

    def _merged(
        self, state: TableState, groups: Sequence[Sequence[DataFile]], attempt: str
    ) -> list[StagedFile]:
        held = pa.schema([row for row in state.schema if row.name not in state.partition_by])
        merged = []
        for number, group in enumerate(groups):
            inside = os.path.dirname(os.path.relpath(group[0].path, self._folder))
            place = os.path.join(attempt, inside, f"{number}.parquet")
            try:
                merged.append(merge(group, held, place))
            except FileNotFoundError as moved:
                raise TableConflict(f"{self.target}: {_TAKEN}") from moved
        return merged

    def _swap(self, old: Sequence[str], merged: Sequence[StagedFile], base: str) -> None:
        """Commit merged files; concurrent appends are fine, removals of merged files are conflicts."""
        for _ in range(ATTEMPTS):
            state = self._newest()
            if not all(path in state.files for path in old):
                break
            version = state.version + 1
            add = self._entries(merged, version, base)
            swap = TableManifest(
                version,
                "compact",
                _COMPACTION,
                version,
                state.schema,
                state.partition_by,
                add,
                tuple(old),
            )
            if self._commit(swap):
                return
        raise TableConflict(f"{self.target}: {_TAKEN}")

    def _commit(self, manifest: TableManifest) -> bool:
        if not self._log.commit(manifest):
            return False
        self._newest()
        return True

    def _newest(self) -> TableState:
        """Return the current state, after the moves of its newest version."""
        state = self._log.newest()
        if state.version > self._moved_upto:
            self._finish_moves(self._log.read(state.version))
            self._moved_upto = state.version
        return state

    def _finish_moves(self, manifest: TableManifest) -> None:
        for path in manifest.remove:  # a file in neither folder was removed by `expire`
            if os.path.exists(os.path.join(self._folder, path)):
                self._move(path, os.path.join(REPLACED, path), manifest.version)
        for entry in manifest.add:
            self._move(entry.staged, entry.path, manifest.version)

    def _move(self, source: str, place: str, version: int) -> None:
        """Move a file unless that was done; several processes may do it at once."""
        place = os.path.join(self._folder, place)
        if os.path.exists(place):
            return
        os.makedirs(os.path.dirname(place), exist_ok=True)
        try:
            os.rename(os.path.join(self._folder, source), place)
        except FileNotFoundError as missing:
            overtaken = self._log.newest().version > version
            if not overtaken and not os.path.exists(place):
                raise TableError(
                    f"{self.target}: the file {place} is missing; restore it from a backup, or "
                    "fill the table again"
                ) from missing

    def _present(self) -> TableState:
        state = self._newest()
        if state.version == BEFORE_ALL:
            raise TableError(f"there is no table at {self.target}")
        return state

"""Delta tables: the log is `_delta_log`, the batch of an application is Delta's own `txn` action.

Commits go through deltalake without its retries: after every conflict the log is read again to see
whether the batch is there. Between that check and the commit the log must not be read, so that any
other commit is a conflict: a driver thought dead cannot add a batch twice.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from headwater.pipelines.tables.committing import PlacedFiles, commit_until_decided
from headwater.pipelines.tables.schemas import (
    DELTA_FORBIDDEN,
    changed_fields,
    check_partitions,
    evolved_schema,
    nullable,
    plain_schema,
    same_partitions,
)
from headwater.pipelines.tables.staging import drop_losers, staging_folder
from headwater.pipelines.tables.statistics import delta_statistics
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

_UNREADABLE: Final = frozenset({"deletionVectors", "columnMapping"})

Action = dict[str, Any]


class DeltaBackend:
    """A table in Delta's format, readable by any Delta reader."""

    keeps_partition_columns = False
    # deltalake has no type widening: a wider column would break the protocol of the table.
    widens_columns = False

    def __init__(self, target: Target) -> None:
        self.target = target
        self._folder = os.path.abspath(target.place)
        self._opened: DeltaTable | None = None

    def exists(self) -> bool:
        return self._newest() is not None

    def version(self) -> int:
        table = self._newest()
        return BEFORE_ALL if table is None else int(table.version())

    def schema(self) -> pa.Schema:
        return _arrow_schema(self._present())

    def partition_by(self) -> tuple[str, ...]:
        return _partition_columns(self._present())

    def files(self, version: int | None = None) -> list[DataFile]:
        table = self._present() if version is None else DeltaTable(self._folder, version=version)
        self._check_readable(table)
        columns = table.metadata().partition_columns
        actions = pa.table(table.get_add_actions(flatten=True))
        wanted = {"path", "size_bytes", "num_records", *(f"partition.{name}" for name in columns)}
        actions = actions.select([name for name in actions.column_names if name in wanted])
        return [self._data_file(action, columns) for action in actions.to_pylist()]

    def _data_file(self, action: Action, columns: Sequence[str]) -> DataFile:
        path = os.path.join(self._folder, unquote(action["path"]))
        rows = action.get("num_records")
        partition = tuple((name, _as_text(action[f"partition.{name}"])) for name in columns)
        return DataFile(
            path, _rows(path) if rows is None else rows, action["size_bytes"], partition
        )

    def _check_readable(self, table: DeltaTable) -> None:
        features = set(table.protocol().reader_features or ())
        if unknown := features & _UNREADABLE:
            raise TableError(
                f"{self.target} uses {', '.join(unknown)}: read it with Delta's reader"
            )

    def added(self, after: int, upto: int) -> list[tuple[int, list[DataFile]]]:
        columns = self.partition_by()
        return [(v, self._added_by(v, columns)) for v in range(after + 1, upto + 1)]

    def _added_by(self, version: int, columns: Sequence[str]) -> list[DataFile]:
        try:
            actions = list(self._actions(version))
        except FileNotFoundError as gone:
            raise TableError(
                f"version {version} of {self.target} is no longer in its log: "
                "restart the stream with a new checkpoint"
            ) from gone
        if _replaces(actions):
            raise TableReplaced(
                f"version {version} of {self.target} replaced or deleted rows: a stream can only "
                "follow appends; restart it with a new checkpoint"
            )
        adds = (action["add"] for action in actions if "add" in action)
        return [self._logged_file(add, columns) for add in adds if add["dataChange"]]

    def _logged_file(self, add: Action, columns: Sequence[str]) -> DataFile:
        path = os.path.join(self._folder, unquote(add["path"]))
        rows = json.loads(add.get("stats") or "{}").get("numRecords")
        partition = tuple((name, add["partitionValues"].get(name) or None) for name in columns)
        return DataFile(path, _rows(path) if rows is None else rows, add["size"], partition)

    def first_version(self) -> int:
        """Return the newest version that replaced rows or has vacuumed files.

        Otherwise the oldest version in the log.
        """
        version = int(self._present().version())
        while version > 0 and os.path.exists(self._log_file(version - 1)):
            actions = list(self._actions(version))
            if _replaces(actions) or not all(map(os.path.exists, self._removed(actions))):
                return version
            version -= 1
        return version

    def _removed(self, actions: Iterable[Action]) -> Iterator[str]:
        for action in actions:
            if "remove" in action:
                yield os.path.join(self._folder, unquote(action["remove"]["path"]))

    def _actions(self, version: int) -> Iterator[Action]:
        with open(self._log_file(version), encoding="utf-8") as lines:
            yield from map(json.loads, lines)

    def _log_file(self, version: int) -> str:
        return os.path.join(self._folder, "_delta_log", f"{version:020}.json")

    def last_batch(self, app: str) -> int:
        table = self._newest()
        done = None if table is None else table.transaction_version(app)
        return BEFORE_ALL if done is None else done

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with every column nullable; refuse names that Delta cannot have."""
        for name in schema.names:
            if any(letter in DELTA_FORBIDDEN for letter in name):
                raise TableError(
                    f"column {name!r}: names of a Delta table have none of {DELTA_FORBIDDEN!r}; "
                    "rename it in the query"
                )
        return nullable(plain_schema(schema))

    def staging(self, app: str, batch: int) -> str:
        """Return a folder below an underscore; the files are moved before the commit."""
        return staging_folder(self._folder, app, batch)

    def commit(self, change: TableChange) -> bool:
        """Make one commit with the files and the batch, after one for new columns if there are any."""
        placed = PlacedFiles(change, self.staging(change.app, change.batch), self._folder)
        return commit_until_decided(lambda: self._attempt(change, placed), self.target)

    def _attempt(self, change: TableChange, placed: PlacedFiles) -> bool | None:
        table = self._newest()
        if table is not None and self._is_done(table, change.app, change.batch):
            return placed.are_among(self.files())
        files = placed.files()
        if table is None:
            return self._create(files, change) or None
        existing = same_partitions(
            _partition_columns(table), change.partition_by, str(self.target), change.files
        )
        if not change.replaces and not self._evolve(table, change.schema):
            return None
        schema = change.schema if change.replaces else _arrow_schema(table)
        mode = "overwrite" if change.replaces else "append"
        adds = self._adds(files, schema)
        done = self._commit(table, mode, adds, schema, existing, change.app, change.batch)
        return done or None

    def _create(self, files: Sequence[StagedFile], change: TableChange) -> bool:
        """Create the first version; return False if another committer did so at the same time."""
        check_partitions(change.schema, change.partition_by)
        os.makedirs(self._folder, exist_ok=True)
        try:
            create_table_with_add_actions(
                self._folder,
                Schema.from_arrow(change.schema),
                self._adds(files, change.schema),
                mode="error",
                partition_by=list(change.partition_by),
                commit_properties=_properties(change.app, change.batch),
            )
        except DeltaError:
            if self._newest() is None:
                raise
            return False
        return True

    def _evolve(self, table: DeltaTable, schema: pa.Schema) -> bool:
        """Add missing columns; return whether there were none (else look for the batch again)."""
        before = _arrow_schema(table)
        after = evolved_schema(before, schema, str(self.target), widens=self.widens_columns)
        changed = changed_fields(before, after)
        if not changed:
            return True
        self._restate(self.files(), after)
        with suppress(CommitFailedError):  # takes new columns and new fields of structs
            table.alter.add_columns([Field.from_arrow(field) for field in changed])
        return False

    def _commit(
        self,
        table: DeltaTable,
        mode: str,
        adds: list[Any],
        schema: pa.Schema,
        partition_by: Sequence[str],
        app: str,
        batch: int,
    ) -> bool:
        """Commit; return False after a conflict or an unknown outcome (then look again)."""
        try:
            table.create_write_transaction(
                adds,
                mode,
                Schema.from_arrow(schema),
                partition_by=list(partition_by),
                commit_properties=_properties(app, batch),
            )
        except CommitFailedError:
            return False
        return True

    def _adds(self, files: Sequence[StagedFile], schema: pa.Schema) -> list[Any]:
        held = _without(schema, [name for file in files[:1] for name, _ in file.partition])
        return [self._add(file, file.footer, held) for file in files]

    def _add(
        self,
        file: StagedFile | DataFile,
        footer: pq.FileMetaData,
        schema: pa.Schema,
        *,
        new: bool = True,
    ) -> AddAction:
        return AddAction(
            path=os.path.relpath(file.path, self._folder),
            size=file.size,
            partition_values=dict(file.partition),
            modification_time=os.stat(file.path).st_mtime_ns // 1_000_000,
            data_change=new,
            stats=delta_statistics(footer, schema),
        )

    def drop_leftovers(self, app: str, batch: int, won: str | None = None) -> None:
        drop_losers(self.staging(app, batch), self._folder, won, self.files)

    def compact(self, target_bytes: int) -> Compaction:
        """Run Delta's own optimize; the new files carry no change of data."""
        before = {file.path for file in self.files()}
        try:
            metrics = self._present().optimize.compact(target_size=target_bytes)
        except CommitFailedError as lost:
            raise TableConflict(f"{self.target}: {lost}") from lost
        except DeltaError as failed:
            raise TableError(f"{self.target} cannot be compacted: {failed}") from failed
        self._restate((file for file in self.files() if file.path not in before), self.schema())
        return Compaction(metrics["numFilesRemoved"], metrics["numFilesAdded"])

    def expire(self, hours: int) -> int:
        """Run Delta's own vacuum; commit only if there is something to remove."""
        table = self._present()
        try:
            if not table.vacuum(hours, dry_run=True, enforce_retention_duration=False):
                return 0
            return len(table.vacuum(hours, dry_run=False, enforce_retention_duration=False))
        except DeltaError as failed:
            raise TableError(f"{self.target} cannot be vacuumed: {failed}") from failed

    def _restate(self, files: Iterable[DataFile], schema: pa.Schema) -> None:
        """Rewrite the statistics of files from their footers and the columns of `schema`.

        deltalake's dataset loses rows of a file with statistics that lack a column or a bound. No
        data changes; after a conflict the statistics stay as they were.
        """
        table = self._present()
        columns = _partition_columns(table)
        held = _without(schema, columns)
        with suppress(CommitFailedError):
            table.create_write_transaction(
                [self._add(file, pq.read_metadata(file.path), held, new=False) for file in files],
                "append",
                Schema.from_arrow(_arrow_schema(table)),
                partition_by=list(columns),
                commit_properties=CommitProperties(max_commit_retries=0),
            )

    def _is_done(self, table: DeltaTable, app: str, batch: int) -> bool:
        done = table.transaction_version(app)
        return done is not None and done >= batch

    def _newest(self) -> DeltaTable | None:
        """Return the table at its newest version; reads only new log entries."""
        if self._opened is not None:
            self._opened.update_incremental()
            return self._opened
        if os.path.isdir(os.path.join(self._folder, "_delta_log")):
            try:
                self._opened = DeltaTable(self._folder)
            except TableNotFoundError:
                return None
        return self._opened

    def _present(self) -> DeltaTable:
        table = self._newest()
        if table is None:
            raise TableError(f"there is no table at {self.target}")
        return table


def _properties(app: str, batch: int) -> CommitProperties:
    return CommitProperties(max_commit_retries=0, app_transactions=[Transaction(app, batch)])


def _arrow_schema(table: DeltaTable) -> pa.Schema:
    return plain_schema(pa.schema(table.schema().to_arrow()))


def _without(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in names])


def _partition_columns(table: DeltaTable) -> tuple[str, ...]:
    return tuple(table.metadata().partition_columns)


def _replaces(actions: Iterator[Action] | list[Action]) -> bool:
    return any(action["remove"]["dataChange"] for action in actions if "remove" in action)


def _rows(path: str) -> int:
    return int(pq.read_metadata(path).num_rows)


def _as_text(value: object) -> str | None:
    """Return a partition value as the log writes it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case date():
            return value.isoformat()
        case _:
            return str(value)

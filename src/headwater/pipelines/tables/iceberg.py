"""Iceberg tables: one folder with its own catalog (SQLite), metadata and data.

The batch of an application is a table property, set in the same transaction as the files. pyiceberg
would retry a lost transaction without checking whether the batch is in the table by now, so its
retries are off, and after every conflict the table is read again.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import parquet_files_to_data_files, schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of
from pyiceberg.types import DateType
from sqlalchemy.exc import IntegrityError, OperationalError

from headwater.pipelines.tables.committing import PlacedFiles, commit_until_decided
from headwater.pipelines.tables.compaction import merge, merge_plan
from headwater.pipelines.tables.retention import remove_old
from headwater.pipelines.tables.schemas import (
    changed_fields,
    check_partitions,
    evolved_schema,
    nullable,
    plain_schema,
    same_partitions,
)
from headwater.pipelines.tables.staging import (
    drop_attempt,
    drop_losers,
    new_attempt,
    place,
    staging_folder,
)
from headwater.pipelines.tables.statistics import columns_beyond
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
from headwater.seams.clock import SystemClock

_NAME: Final = ("headwater", "rows")
_BATCH: Final = "headwater.batch."
_COMPACTION: Final = "headwater-compaction"
_NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
_PROPERTIES: Final = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_SCHEME: Final = "file://"


class IcebergBackend:
    """A table in Iceberg's format. A version is a snapshot's sequence number."""

    keeps_partition_columns = True
    widens_columns = True

    def __init__(self, target: Target) -> None:
        self.target = target
        self._folder = os.path.abspath(target.place)
        self._data = os.path.join(self._folder, "data")
        self._catalog: SqlCatalog | None = None
        self._opened: IcebergTable | None = None

    def exists(self) -> bool:
        return self._newest() is not None

    def version(self) -> int:
        """Look up the newest version; 0 is a table that never had rows."""
        table = self._newest()
        return BEFORE_ALL if table is None else _version(table)

    def schema(self) -> pa.Schema:
        return _arrow_schema(self._present())

    def partition_by(self) -> tuple[str, ...]:
        return _partition_columns(self._present())

    def files(self, version: int | None = None) -> list[DataFile]:
        table = self._present()
        snapshot = table.current_snapshot() if version is None else self._snapshot(table, version)
        if snapshot is None:
            return []
        tasks = table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
        if any(task.delete_files for task in tasks):
            raise TableError(f"{self.target} has deleted rows: read it with Iceberg's own reader")
        return [_data_file(table, task.file) for task in tasks]

    def added(self, after: int, upto: int) -> list[tuple[int, list[DataFile]]]:
        table = self._present()
        return [(version, self._added_by(table, version)) for version in range(after + 1, upto + 1)]

    def _added_by(self, table: IcebergTable, version: int) -> list[DataFile]:
        snapshot = self._snapshot(table, version)
        if snapshot is None or _is_compaction(snapshot):
            return []
        if _replaces(snapshot):
            raise TableReplaced(
                f"version {version} of {self.target} replaced or deleted rows: a stream can only "
                "follow appends; restart it with a new checkpoint"
            )
        return [_data_file(table, file) for file in _added_files(table, snapshot)]

    def _snapshot(self, table: IcebergTable, version: int) -> Snapshot | None:
        """Return the snapshot of a version; None if there were no rows yet."""
        if version == 0:
            return None
        for snapshot in _history(table):
            if snapshot.sequence_number == version:
                return snapshot
        raise TableError(
            f"version {version} of {self.target} has expired: "
            "restart the stream with a new checkpoint"
        )

    def first_version(self) -> int:
        """Return the newest version that replaced rows, else the oldest that is kept."""
        oldest = 0
        for snapshot in _history(self._present()):
            oldest = snapshot.sequence_number or 0
            if _replaces(snapshot):
                break
        return oldest

    def last_batch(self, app: str) -> int:
        table = self._newest()
        return BEFORE_ALL if table is None else _last_batch(table, app)

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with nullable columns, and integers of at least 32 bits."""
        fields = [
            field.with_type(pa.int32()) if field.type in (pa.int8(), pa.int16()) else field
            for field in plain_schema(schema)
        ]
        return nullable(pa.schema(fields))

    def staging(self, app: str, batch: int) -> str:
        """Return a folder below an underscore; the files are moved before the commit."""
        return staging_folder(self._folder, app, batch)

    def commit(self, change: TableChange) -> bool:
        """Make one transaction with the columns, the files and the batch."""
        placed = PlacedFiles(change, self.staging(change.app, change.batch), self._data)
        return commit_until_decided(lambda: self._attempt(change, placed), self.target)

    def _attempt(self, change: TableChange, placed: PlacedFiles) -> bool | None:
        table = self._newest() or self._create(change.schema, change.partition_by)
        if _last_batch(table, change.app) >= change.batch:
            return placed.are_among(self.files())
        where = str(self.target)
        same_partitions(_partition_columns(table), change.partition_by, where, change.files)
        columns = _arrow_schema(table)
        after = change.schema
        if not change.replaces:
            fixed = _partition_columns(table)
            after = evolved_schema(columns, after, where, widens=self.widens_columns, fixed=fixed)
        files = placed.files()
        transaction = table.transaction()
        _leave_out_bounds(transaction, files)
        if change.replaces:
            _set_columns(transaction, columns, after)
            self._swap(table, transaction, None, files)
        else:
            if changed := changed_fields(columns, after):
                _merge_columns(transaction, changed)
            if files:
                transaction.add_files(_addresses(files), check_duplicate_files=False)
        return self._commit(table, transaction, change.app, change.batch) or None

    def _swap(
        self,
        table: IcebergTable,
        change: Transaction,
        old: Collection[str] | None,
        new: Sequence[StagedFile],
        **notes: str,
    ) -> None:
        """Replace old files, or all if `old` is None, with new ones in one snapshot."""
        if change.table_metadata.name_mapping() is None:
            names = change.table_metadata.schema().name_mapping.model_dump_json()
            change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names})
        tasks = table.scan().plan_files() if table.current_snapshot() else ()
        paths = iter(_addresses(new))
        with change.update_snapshot(notes).overwrite() as rewrite:
            for task in tasks:
                if old is None or task.file.file_path in old:
                    rewrite.delete_data_file(task.file)
            for file in parquet_files_to_data_files(table.io, change.table_metadata, paths):
                rewrite.append_data_file(file)

    def _commit(
        self, table: IcebergTable, change: Transaction, app: str | None = None, batch: int = 0
    ) -> bool:
        """Commit; return False after a conflict (then look again)."""
        if app is not None:
            change.set_properties({_BATCH + app: str(batch)})
        try:
            change.commit_transaction()
        except CommitFailedException:
            return False
        self._hint(table)
        return True

    def _create(self, schema: pa.Schema, partition_by: Sequence[str]) -> IcebergTable:
        """Create an empty table, unless another committer does so at the same time."""
        check_partitions(schema, partition_by)
        catalog = self._open_catalog()
        # The catalog checks before it writes: a concurrent namespace is an IntegrityError.
        with suppress(NamespaceAlreadyExistsError, IntegrityError):
            catalog.create_namespace(_NAME[:1])
        change = catalog.create_table_transaction(
            _NAME, schema, location=_SCHEME + self._folder, properties=_PROPERTIES
        )
        if partition_by:
            with change.update_spec() as spec:
                for name in partition_by:
                    spec.add_identity(name)
        with suppress(TableAlreadyExistsError, CommitFailedException):
            change.commit_transaction()
        return self._present()

    def drop_leftovers(self, app: str, batch: int, won: str | None = None) -> None:
        drop_losers(self.staging(app, batch), self._data, won, self.files)

    def compact(self, target_bytes: int) -> Compaction:
        """Replace small files with merged ones in one snapshot."""
        table = self._present()
        groups = merge_plan(self.files(), target_bytes)
        if not groups:
            return Compaction(0, 0)
        base = self.staging(_COMPACTION, _version(table))
        attempt = new_attempt(base)
        schema = _arrow_schema(table)
        merged = [
            merge(group, schema, os.path.join(attempt, self._below(group[0]), f"{number}.parquet"))
            for number, group in enumerate(groups)
        ]
        old = {_SCHEME + file.path for group in groups for file in group}
        change = table.transaction()
        _leave_out_bounds(change, merged)
        self._swap(table, change, old, place(merged, base, self._data), **{_COMPACTION: "true"})
        won = self._commit(table, change)
        drop_attempt(base, attempt, None if won else self._data)
        if not won:
            raise TableConflict(f"{self.target}: another committer changed the table meanwhile")
        return Compaction(len(old), len(merged))

    def _below(self, file: DataFile) -> str:
        """Return the folder of a file relative to the data folder."""
        return os.path.dirname(os.path.relpath(file.path, self._data))

    def expire(self, hours: int) -> int:
        """Expire snapshots, then remove files that no remaining snapshot names."""
        table = self._present()
        before = SystemClock().wall_ms() - hours * 3_600_000
        expired = _superseded(table, before)
        if not expired:
            return 0
        try:
            table.maintenance.expire_snapshots().by_ids(expired).commit()
        except CommitFailedException as lost:
            raise TableConflict(f"{self.target}: {lost}") from lost
        table = self._present()
        self._hint(table)
        kept = _named_files(table)
        metadata = os.path.join(self._folder, "metadata")
        return remove_old(self._data, kept, hours) + remove_old(
            metadata, kept, hours, suffix=".avro"
        )

    def _hint(self, table: IcebergTable) -> None:
        """Write the newest metadata's name for readers without a catalog; a stale hint is harmless."""
        newest = os.path.basename(table.metadata_location).removesuffix(".metadata.json")
        place = os.path.join(self._folder, "metadata", "version-hint.text")
        with open(f"{place}.{newest}", "w", encoding="utf-8") as hint:
            hint.write(newest)
        os.replace(f"{place}.{newest}", place)

    def _open_catalog(self) -> SqlCatalog:
        if self._catalog is None:
            os.makedirs(os.path.join(self._folder, "metadata"), exist_ok=True)
            place = os.path.join(self._folder, "metadata", "catalog.db")
            where = {"uri": f"sqlite:///{place}", "warehouse": _SCHEME + self._folder}
            self._catalog = _catalog(where)
        return self._catalog

    def _newest(self) -> IcebergTable | None:
        if not os.path.exists(os.path.join(self._folder, "metadata", "catalog.db")):
            return None
        try:
            self._opened = self._open_catalog().load_table(_NAME)
        except NoSuchTableError:
            return None
        self._opened.metadata.properties.update(_NO_RETRIES)
        return self._opened

    def _present(self) -> IcebergTable:
        table = self._newest()
        if table is None:
            raise TableError(f"there is no table at {self.target}")
        return table


def _catalog(where: dict[str, str]) -> SqlCatalog:
    """Open the catalog; another process may create its two tables at the same time."""
    for _ in range(2):
        with suppress(OperationalError):
            return SqlCatalog("headwater", **where)
    return SqlCatalog("headwater", **where)


def _version(table: IcebergTable) -> int:
    """Return the sequence number of the newest snapshot; 0 if there is none."""
    snapshot = table.current_snapshot()
    return 0 if snapshot is None else snapshot.sequence_number or 0


def _arrow_schema(table: IcebergTable) -> pa.Schema:
    return plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))


def _partition_columns(table: IcebergTable) -> tuple[str, ...]:
    return tuple(
        table.schema().find_column_name(field.source_id) or "" for field in table.spec().fields
    )


def _last_batch(table: IcebergTable, app: str) -> int:
    return int(table.properties.get(_BATCH + app, BEFORE_ALL))


def _leave_out_bounds(change: Transaction, files: Sequence[StagedFile]) -> None:
    """Keep only counts for columns with times that pyiceberg cannot write as bounds."""
    beyond = {name for file in files for name in columns_beyond(file.footer)}
    if beyond:
        key = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX
        change.set_properties({f"{key}.{name}": "counts" for name in sorted(beyond)})


def _merge_columns(change: Transaction, fields: Sequence[pa.Field]) -> None:
    """Add columns and fields of structs, and promote types."""
    with change.update_schema() as update:
        update.union_by_name(pa.schema(fields))


def _set_columns(change: Transaction, old: pa.Schema, new: pa.Schema) -> None:
    """Drop columns that are gone or changed, then add those that are new or changed."""
    kept = {
        field.name for field in old if field.name in new.names and new.field(field.name) == field
    }
    if gone := [name for name in old.names if name not in kept]:
        with change.update_schema(allow_incompatible_changes=True) as update:
            for name in gone:
                update.delete_column((name,))
    if fresh := [field for field in new if field.name not in kept]:
        _merge_columns(change, fresh)


def _history(table: IcebergTable) -> Iterator[Snapshot]:
    """Return snapshots from the newest to the oldest that is kept."""
    return iter(ancestors_of(table.current_snapshot(), table.metadata))


def _is_compaction(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.get(_COMPACTION) == "true"


def _replaces(snapshot: Snapshot) -> bool:
    if snapshot.summary is None or _is_compaction(snapshot):
        return False
    return snapshot.summary.operation != Operation.APPEND


def _superseded(table: IcebergTable, before_ms: int) -> list[int]:
    """Return the ids of snapshots that were superseded before a moment.

    Readers that began after that moment use none of them. Snapshots with a tag or a branch are left
    out.
    """
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    found, current = [], False
    for snapshot in _history(table):
        if current and snapshot.snapshot_id not in named:
            found.append(snapshot.snapshot_id)
        current = current or snapshot.timestamp_ms <= before_ms
    return found


def _named_files(table: IcebergTable) -> set[str]:
    """Return all files that the snapshots of a table name: data, manifests, manifest lists."""
    found: set[str] = set()
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in found:
                found.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found.update(entry.data_file.file_path for entry in entries)
    return {path.removeprefix(_SCHEME) for path in found}


def _added_files(table: IcebergTable, snapshot: Snapshot) -> Iterator[IcebergFile]:
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            for entry in manifest.fetch_manifest_entry(table.io):
                if entry.status == ManifestEntryStatus.ADDED:
                    yield entry.data_file


def _data_file(table: IcebergTable, file: IcebergFile) -> DataFile:
    path = file.file_path.removeprefix(_SCHEME)
    names = _partition_columns(table)
    values = [_as_text(table, name, file.partition[at]) for at, name in enumerate(names)]
    partition = tuple(zip(names, values, strict=True))
    return DataFile(path, file.record_count, file.file_size_in_bytes, partition)


def _as_text(table: IcebergTable, name: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(table.schema().find_type(name), DateType) and isinstance(value, int):
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    return str(value)


def _addresses(files: Sequence[StagedFile]) -> list[str]:
    return [_SCHEME + file.path for file in files]

"""The log of a Parquet table: one JSON file per version, and regular summaries.

A version exists once its file does: the file is written elsewhere and linked into place, which only
the first of several committers can do. Entries name files relative to the table.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headwater.pipelines.tables.schemas import plain_schema
from headwater.pipelines.tables.table import BEFORE_ALL, Partition

SUM_EVERY: Final = 50
"""How many versions are read at most to load a table, after the latest summary."""


@dataclass(frozen=True)
class ManifestEntry:
    """A file of the table, and the staged path it was written to."""

    path: str
    staged: str
    rows: int
    size: int
    partition: Partition


@dataclass(frozen=True)
class TableManifest:
    """One version: its added and removed files, and its batch."""

    version: int
    action: Literal["append", "replace", "compact"]
    app: str
    batch: int
    schema: pa.Schema
    partition_by: tuple[str, ...]
    add: tuple[ManifestEntry, ...]
    remove: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableState:
    """The table at a version."""

    version: int = BEFORE_ALL
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    partition_by: tuple[str, ...] = ()
    files: dict[str, ManifestEntry] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)

    def after(self, manifest: TableManifest) -> "TableState":
        """Return the state after the next version."""
        gone = set(manifest.remove)
        kept = {path: entry for path, entry in self.files.items() if path not in gone}
        batches = self.batches
        if manifest.action != "compact":
            batches = {**batches, manifest.app: manifest.batch}
        return replace(
            self,
            version=manifest.version,
            schema=manifest.schema,
            partition_by=manifest.partition_by,
            files={**kept, **{entry.path: entry for entry in manifest.add}},
            batches=batches,
        )


class ManifestLog:
    """The versions of a table in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._state = TableState()

    def newest(self) -> TableState:
        """Return the current state; reads only versions since the last call."""
        if self._state.version == BEFORE_ALL:
            self._state = self._summed(None)
        for manifest in self.since(self._state.version):
            self._state = self._state.after(manifest)
        return self._state

    def at(self, version: int) -> TableState:
        """Return the state at a version."""
        state = self._summed(version)
        for manifest in self.since(state.version, version):
            state = state.after(manifest)
        return state

    def since(self, version: int, upto: int | None = None) -> Iterator[TableManifest]:
        """Yield the manifests above a version, in order."""
        while upto is None or version < upto:
            version += 1
            try:
                yield self.read(version)
            except FileNotFoundError:
                return

    def read(self, version: int) -> TableManifest:
        """Read one version; raises FileNotFoundError if it does not exist."""
        with open(self._file(version), encoding="utf-8") as text:
            return _manifest(json.load(text))

    def commit(self, manifest: TableManifest) -> bool:
        """Create the version; return False if another committer created one of this number."""
        os.makedirs(self._folder, exist_ok=True)
        aside = self._written_aside(_manifest_json(manifest))
        try:
            os.link(aside, self._file(manifest.version))
        except FileExistsError:
            return False
        finally:
            os.remove(aside)
        if manifest.version % SUM_EVERY == SUM_EVERY - 1:
            self._sum_up()
        return True

    def _sum_up(self) -> None:
        state = self.newest()
        os.replace(self._written_aside(_state_json(state)), self._sum_file(state.version))

    def _summed(self, upto: int | None) -> TableState:
        """Return the latest summary, or the latest up to a version."""
        with contextlib.suppress(FileNotFoundError):
            sums = [
                int(name.partition(".")[0])
                for name in os.listdir(self._folder)
                if name.endswith(".sum.json")
            ]
            fit = [version for version in sums if upto is None or version <= upto]
            if fit:
                with open(self._sum_file(max(fit)), encoding="utf-8") as text:
                    return _state(json.load(text))
        return TableState()

    def _written_aside(self, content: dict[str, Any]) -> str:
        path = os.path.join(self._folder, f".{uuid.uuid4().hex}")
        with open(path, "x", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        return path

    def _file(self, version: int) -> str:
        return os.path.join(self._folder, f"{version:020}.json")

    def _sum_file(self, version: int) -> str:
        return os.path.join(self._folder, f"{version:020}.sum.json")


def _manifest_json(manifest: TableManifest) -> dict[str, Any]:
    return {
        "version": manifest.version,
        "action": manifest.action,
        "app": manifest.app,
        "batch": manifest.batch,
        "schema": _schema_json(manifest.schema),
        "partitionBy": manifest.partition_by,
        "add": [_entry_json(entry) for entry in manifest.add],
        "remove": manifest.remove,
    }


def _manifest(content: dict[str, Any]) -> TableManifest:
    return TableManifest(
        content["version"],
        content["action"],
        content["app"],
        content["batch"],
        _schema(content["schema"]),
        tuple(content["partitionBy"]),
        tuple(_entry(entry) for entry in content["add"]),
        tuple(content["remove"]),
    )


def _state_json(state: TableState) -> dict[str, Any]:
    return {
        "version": state.version,
        "schema": _schema_json(state.schema),
        "partitionBy": state.partition_by,
        "files": [_entry_json(entry) for entry in state.files.values()],
        "batches": state.batches,
    }


def _state(content: dict[str, Any]) -> TableState:
    entries = [_entry(entry) for entry in content["files"]]
    return TableState(
        content["version"],
        _schema(content["schema"]),
        tuple(content["partitionBy"]),
        {entry.path: entry for entry in entries},
        content["batches"],
    )


def _entry_json(entry: ManifestEntry) -> dict[str, Any]:
    return {**vars(entry), "partition": dict(entry.partition)}


def _entry(content: dict[str, Any]) -> ManifestEntry:
    return ManifestEntry(**{**content, "partition": tuple(content["partition"].items())})


def _schema_json(schema: pa.Schema) -> Any:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True).jsonValue()


def _schema(content: Any) -> pa.Schema:
    return plain_schema(to_arrow_schema(StructType.fromJson(content), timezone="UTC"))

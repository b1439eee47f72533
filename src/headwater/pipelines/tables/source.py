"""`format("headwater-table")`: reads tables in Spark, whole or as a stream of new rows.

A stream's offset is a version of the table, with its name, since Spark distinguishes the inputs of a
query by their order only. It starts with all rows of one version and continues with the appends of
later ones. Compactions are not new rows; a replaced table is an error, since rows that were passed
on cannot be recalled. Executors read Parquet to Arrow.
"""

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headwater.pipelines.tables.parquet import REPLACED
from headwater.pipelines.tables.reading import spark_schema
from headwater.pipelines.tables.shaping import shaped
from headwater.pipelines.tables.table import DataFile, Table, TableError, open_table

_OPTIONS: Final = ("path", "maxFilesPerTrigger", "maxRowsPerTrigger")
_ROWS_AT_ONCE: Final = 65_536

Offset = dict[str, Any]


class FilePart(InputPartition):
    """One file for one task."""

    def __init__(self, file: DataFile) -> None:
        super().__init__(file)


class TableDataSource(DataSource):
    """Options: path (`delta:PATH`...), maxFilesPerTrigger, maxRowsPerTrigger."""

    @classmethod
    def name(cls) -> str:
        return "headwater-table"

    def schema(self) -> StructType:
        """Return the table's current columns; a stream keeps them until it is restarted."""
        return spark_schema(_existing(self.options).schema())

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return TableStreamReader(self.options, schema)


class TableReader(DataSourceReader):
    """Reads the newest version."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._table = _Source(options)
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per file."""
        return [FilePart(file) for file in self._table.open().files()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one file, on an executor."""
        return read_file(partition.value, self._schema)


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new rows, version by version."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._table = _Source(options)
        self._schema = schema
        self._last: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset before the first version, which is read whole."""
        return {**self._offset(self._table.open().first_version() - 1), "whole": True}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options set."""
        return self._table.limit

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the last version within the limit, and at least the next one."""
        self._check(start)
        newest = self._table.open().version() if self._last is None else self._last
        if newest <= start["version"]:
            return start
        return self._offset(_admitted(self._steps(start, newest), limit))

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return the newest version, for Spark's progress."""
        return self._offset(self._table.open().version())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Leave later versions to the next run."""
        self._last = self._table.open().version()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return one partition per file with new rows, in the same order for a repeated batch.

        Sinks recognize rows of a repeated batch by their task, so a log checkpoint or a compaction
        must not renumber tasks. The name of a file does not change.
        """
        steps = self._steps(start, end["version"])
        ordered = (sorted(files, key=_name) for _, files in steps)
        return [FilePart(file) for files in ordered for file in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one file, on an executor."""
        return read_file(partition.value, self._schema)

    def _offset(self, version: int) -> Offset:
        return {"version": version, "table": self._table.name}

    def _check(self, start: Offset) -> None:
        if (of := start.get("table", self._table.name)) != self._table.name:
            raise TableError(
                f"the checkpoint is of a stream from {of}, and this one reads "
                f"{self._table.name}: keep the order of a query's inputs, or use a new checkpoint"
            )

    def _steps(self, start: Offset, upto: int) -> list[tuple[int, list[DataFile]]]:
        self._check(start)
        after, table = start["version"], self._table.open()
        if not start.get("whole"):
            return table.added(after, upto) if upto > after else []
        # Spark asks for the start of a repeated first batch again, and old versions may have expired
        # since: the batch still ends with the version that it was planned for.
        first = min(after + 1, upto)
        return [(first, table.files(first)), *table.added(first, upto)]


class _Source:
    """A table by its options. It is opened where it is used, since tables cannot be pickled."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = _checked(options)
        self.limit = _limit(self._options)
        self.name = os.path.basename(self._options.get("path", "").rstrip("/"))
        self._opened: Table | None = None

    def open(self) -> Table:
        """Return the table, opened once per process."""
        if self._opened is None:
            self._opened = _existing(self._options)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


class _Steps(NamedTuple):
    files: int
    rows: int


def _admitted(steps: Sequence[tuple[int, Sequence[DataFile]]], limit: ReadLimit) -> int:
    """Return the last version within the limit; the first is always admitted."""
    most = _Steps(
        limit.max_files if isinstance(limit, ReadMaxFiles) else 1 << 62,
        limit.max_rows if isinstance(limit, ReadMaxRows) else 1 << 62,
    )
    seen = _Steps(0, 0)
    chosen = steps[0][0]
    for version, files in steps:
        seen = _Steps(seen.files + len(files), seen.rows + sum(file.rows for file in files))
        if version != steps[0][0] and (seen.files > most.files or seen.rows > most.rows):
            break
        chosen = version
    return chosen


def _name(file: DataFile) -> str:
    return os.path.basename(file.path)


def where_now(path: str) -> str:
    """Return the path of a file, or where a compaction has moved it since the batch was planned."""
    if os.path.exists(path):
        return path
    above = os.path.dirname(path)
    while above != os.path.dirname(above):
        aside = os.path.join(above, REPLACED, os.path.relpath(path, above))
        if os.path.exists(aside):
            return aside
        above = os.path.dirname(above)
    return path


def read_file(file: DataFile, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in the columns of a schema, with partition values and NULLs."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    with _opened(file) as source:
        held = [name for name in wanted.names if name in source.schema_arrow.names]
        for batch in source.iter_batches(_ROWS_AT_ONCE, columns=held):
            yield shaped(batch, wanted, dict(file.partition))


def _opened(file: DataFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(where_now(file.path))
    except FileNotFoundError as gone:
        raise TableError(
            f"{file.path} is gone: its version is older than the table's retention_hours; "
            "restart the stream with a new checkpoint"
        ) from gone


def _existing(options: Mapping[str, str]) -> Table:
    if not (path := options.get("path")):
        raise TableError("name the table with the option path, such as delta:/lake/events")
    table = open_table(path)
    if not table.exists():
        raise TableError(f"there is no table at {table.target}")
    return table


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their proper names; refuse unknown ones."""
    known = {name.lower(): name for name in _OPTIONS}
    for name in options:
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f" (did you mean {known[near[0]]}?)" if near else f": {', '.join(_OPTIONS)}"
            raise TableError(f"headwater-table has no option {name!r}{hint}")
    return {known[name.lower()]: value for name, value in options.items()}


def _limit(options: Mapping[str, str]) -> ReadLimit:
    files, rows = options.get("maxFilesPerTrigger"), options.get("maxRowsPerTrigger")
    if files is not None and rows is not None:
        raise TableError("set maxFilesPerTrigger or maxRowsPerTrigger, not both")
    if files is not None:
        return ReadMaxFiles(_positive("maxFilesPerTrigger", files))
    if rows is not None:
        return ReadMaxRows(_positive("maxRowsPerTrigger", rows))
    return ReadAllAvailable()


def _positive(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise TableError(f"{name} must be a number of at least 1, not {text!r}")
    return int(text)

"""Writes Spark batches into tables, exactly once.

The JVM writes the files where no reader looks; one commit into the table's log then names them
together with the batch. A batch in the log is not written again. Besides the write itself no Spark
job runs here, and a sink opens the log once.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from headwater.pipelines.session import connect_refusal
from headwater.pipelines.tables.retention import (
    REPLACED_HOURS,
    RETENTION_HOURS,
    expire_when_due,
)
from headwater.pipelines.tables.schemas import (
    check_partitions,
    evolved_schema,
    plain_type,
    same_partitions,
)
from headwater.pipelines.tables.sizing import FileSizing
from headwater.pipelines.tables.staging import (
    COPY_SUFFIX,
    NULL_FOLDER,
    new_attempt,
    staged_files,
)
from headwater.pipelines.tables.table import (
    StagedFile,
    Table,
    TableChange,
    TableConflict,
    TableError,
    open_table,
)
from headwater.pipelines.targets import Target
from headwater.seams.clock import SystemClock

log = logging.getLogger(__name__)

TARGET_FILE_BYTES: Final = 128 << 20
COMPACT_AFTER_FILES: Final = 64
_REPLACER: Final = "headwater-overwrite"

_WRITER_OPTIONS: Final = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}
"""No marker files; a task's files are moved in one step, so a failed task leaves none."""
_NO_FOLDER: Final = ("Mkdirs failed", "File name too long")
"""Hadoop's messages for a name that is too long."""
_FILE_FORMAT: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}


class TableSink:
    """For `foreachBatch`: appends each batch to a table, exactly once by (application, batch).

    Args:
        target: The table, as `delta:PATH`, `iceberg:PATH` or `parquet:PATH`.
        app: The application of the batches, by default the streaming query's id. Two sinks with the
            same application and table would skip each other's batches.
        partition_by: Columns that name folders, if the sink creates the table.
        target_file_bytes: The intended size of a file.
        compact_after_files: Merge small files if there are more than that; 0 disables it.
        retention_hours: Remove versions older than that, with their files; 0 disables it.
    """

    def __init__(
        self,
        target: Target | str,
        *,
        app: str | None = None,
        partition_by: Sequence[str] = (),
        target_file_bytes: int = TARGET_FILE_BYTES,
        compact_after_files: int = COMPACT_AFTER_FILES,
        retention_hours: int = RETENTION_HOURS,
    ) -> None:
        self._retention_hours = retention_hours
        self._table = open_table(target)
        self._app = app
        self._partition_by = tuple(partition_by)
        self._target_file_bytes = target_file_bytes
        self._compact_after = compact_after_files
        self._sizing = FileSizing(target_file_bytes)
        self._clock = SystemClock()
        self._small_files: int | None = None
        self._stateful: bool | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write the batch, unless the table has it."""
        _refuse_connect(batch)
        app = self._app or query_id(batch.sparkSession)
        if self._table.last_batch(app) >= batch_id:
            self._table.drop_leftovers(app, batch_id)
            self._run_for_state(batch)
            return
        if self._stateful is None:
            self._stateful = _keeps_state(batch)
        plan = _Plan(self._table, batch, self._partition_by)
        began = self._clock.monotonic_ms()
        files = self._append(plan, app, batch_id)
        self._sizing.observe(files, self._clock.monotonic_ms() - began)
        self._keep_files_few(files)
        expire_when_due(self._table, self._retention_hours)

    def check(self, rows: DataFrame) -> None:
        """Raise TableError if the table cannot take such rows, by their types; runs no query."""
        _Plan(self._table, rows, self._partition_by)

    def _append(self, plan: "_Plan", app: str, batch_id: int) -> list[StagedFile]:
        attempt = new_attempt(self._table.staging(app, batch_id))
        files = plan.write(attempt, self._sizing, stateful=bool(self._stateful))
        won: str | None = os.path.basename(attempt)
        change = TableChange(files, plan.schema, app, batch_id, plan.partition_by)
        if (files or not plan.table_exists) and not self._table.commit(change):
            won = None
        self._table.drop_leftovers(app, batch_id, won)
        return files

    def _run_for_state(self, batch: DataFrame) -> None:
        """Run a batch without writing it, for its state: Spark fails a query that skips it."""
        if _keeps_state(batch):
            batch.write.format("noop").mode("overwrite").save()

    def _keep_files_few(self, written: Sequence[StagedFile]) -> None:
        if not self._compact_after or not written:
            return
        if self._small_files is None:
            self._small_files = self._count_small()
        else:
            self._small_files += sum(file.size < self._sizing.small for file in written)
        if self._small_files > self._compact_after:
            self._compact()

    def _compact(self) -> None:
        try:
            done = self._table.compact(self._target_file_bytes)
            log.info("%s: %d files became %d", self._table.target, done.merged, done.written)
        except TableConflict as lost:
            log.info("%s: compaction is postponed: %s", self._table.target, lost)
        except TableError as failed:  # the rows are in the table: no reason to end the query
            log.warning("%s; its small files are kept", failed)
            self._compact_after = 0
        self._small_files = self._count_small()

    def _count_small(self) -> int:
        return sum(file.size < self._sizing.small for file in self._table.files())


class _Plan:
    """How a batch is written; refuses what the table cannot take before anything is written."""

    def __init__(
        self, table: Table, batch: DataFrame, partition_by: Sequence[str], *, replaces: bool = False
    ) -> None:
        self._table = table
        self._batch = batch
        self.schema = table.stored(to_arrow_schema(batch.schema, timezone="UTC"))
        self.table_exists = table.exists()
        self.partition_by = tuple(partition_by)
        if self.table_exists:
            place = str(table.target)
            self.partition_by = same_partitions(table.partition_by(), partition_by, place)
            if not replaces:
                after = evolved_schema(
                    table.schema(),
                    self.schema,
                    place,
                    widens=table.widens_columns,
                    fixed=self.partition_by,
                )
                self.schema = pa.schema([after.field(name) for name in self.schema.names])
        check_partitions(self.schema, self.partition_by)

    def write(
        self, attempt: str, sizing: FileSizing, *, stateful: bool = False
    ) -> list[StagedFile]:
        """Let the JVM write the files into the attempt's folder.

        Tasks with state are bound to their number, so they are never coalesced.
        """
        rows, folders = self._shaped(), list(self.partition_by)
        if self._table.keeps_partition_columns:
            rows = _with_nulls_of_folders(rows, self.partition_by)
            folders = [name + COPY_SUFFIX for name in self.partition_by]
            copies = zip(folders, self.partition_by, strict=True)
            rows = rows.withColumns({folder: sf.col(_quoted(name)) for folder, name in copies})
        cores = rows.sparkSession.sparkContext.defaultParallelism
        tasks = None if stateful else sizing.tasks(cores)
        if tasks is not None:
            rows = rows.coalesce(tasks)
        with _file_format(rows.sparkSession):
            writer = rows.write.options(**_WRITER_OPTIONS, maxRecordsPerFile=sizing.rows_per_file())
            try:
                writer.partitionBy(*folders).parquet(attempt)
            except (PySparkException, Py4JError) as failed:
                self._explain(failed)
                raise
        return staged_files(attempt, self.partition_by)

    def _explain(self, failed: Exception) -> None:
        """Raise a TableError if a partition value is too long to name a folder."""
        if self.partition_by and any(sign in str(failed) for sign in _NO_FOLDER):
            names = ", ".join(self.partition_by)
            raise TableError(
                f"{self._table.target}: a value of the partition columns ({names}) is too long to "
                "name a folder: shorten it in the query, or declare a quarantine for such rows"
            ) from failed

    def _shaped(self) -> DataFrame:
        """Return the batch with columns cast to the types of the table."""
        given = to_arrow_schema(self._batch.schema, timezone="UTC")
        casts = {
            field.name: from_arrow_type(field.type, prefer_timestamp_ntz=True)
            for field, own in zip(self.schema, given, strict=True)
            if field.type != plain_type(own.type, own.name)
        }
        if not casts:
            return self._batch
        fields = [
            StructField(field.name, casts.get(field.name, field.dataType), True)
            for field in self._batch.schema.fields
        ]
        return self._batch.to(StructType(fields))


def _with_nulls_of_folders(rows: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Return the rows with NULL where the value of a partition column goes into the folder of NULL.

    A file that holds the column must not have another value there: Iceberg takes the file's
    partition from the values and would skip the file in a search for NULL.
    """
    texts = [name for name in partition_by if isinstance(rows.schema[name].dataType, StringType)]
    values = {name: sf.col(_quoted(name)) for name in texts}
    return rows.withColumns(
        {name: sf.when(~value.isin("", NULL_FOLDER), value) for name, value in values.items()}
    )


def write_stream(
    df: DataFrame,
    target: Target | str,
    *,
    checkpoint: str,
    name: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    app: str | None = None,
    partition_by: Sequence[str] = (),
    target_file_bytes: int = TARGET_FILE_BYTES,
    compact_after_files: int = COMPACT_AFTER_FILES,
    retention_hours: int = RETENTION_HOURS,
) -> StreamingQuery:
    """Start a query that appends the rows of a stream to a table, exactly once.

    Args:
        df: A streaming DataFrame.
        target: The table, as `delta:PATH`, `iceberg:PATH` or `parquet:PATH`.
        checkpoint: Spark's folder for the query's progress; keep it as long as the table.
        name: The name of the query.
        trigger: Arguments of Spark's `trigger`, such as `{"processingTime": "5 seconds"}` or
            `{"availableNow": True}`.
        app: See TableSink.
        partition_by: See TableSink.
        target_file_bytes: See TableSink.
        compact_after_files: See TableSink.
        retention_hours: See TableSink.
    """
    _refuse_connect(df)
    sink = TableSink(
        target,
        app=app,
        partition_by=partition_by,
        target_file_bytes=target_file_bytes,
        compact_after_files=compact_after_files,
        retention_hours=retention_hours,
    )
    writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.start()


def overwrite(
    df: DataFrame,
    target: Target | str,
    *,
    partition_by: Sequence[str] = (),
    retention_hours: int = REPLACED_HOURS,
) -> None:
    """Replace all rows and columns of a table at once; readers see the old or the new ones.

    Versions older than `retention_hours`, and their files, are removed; 0 keeps all.
    """
    _refuse_connect(df)
    table = open_table(target)
    plan = _Plan(table, df, partition_by, replaces=True)
    batch = table.last_batch(_REPLACER) + 1
    attempt = new_attempt(table.staging(_REPLACER, batch))
    files = plan.write(attempt, FileSizing(TARGET_FILE_BYTES))
    change = TableChange(files, plan.schema, _REPLACER, batch, plan.partition_by, replaces=True)
    if not table.commit(change):
        table.drop_leftovers(_REPLACER, batch)
        raise TableConflict(f"{table.target}: another run replaced the table at the same time")
    table.drop_leftovers(_REPLACER, batch, os.path.basename(attempt))
    expire_when_due(table, retention_hours)


def query_id(spark: SparkSession) -> str:
    """Return the id of the streaming query that is writing a batch; its checkpoint keeps it."""
    found = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        raise TableError("this is not a batch of a streaming query: name its application with app=")
    return str(found)


@contextmanager
def _file_format(spark: SparkSession) -> Iterator[None]:
    """Set options for files that every reader understands; restore the session's own at the end."""
    before = {key: spark.conf.get(key) for key in _FILE_FORMAT}
    try:
        for key, value in _FILE_FORMAT.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is not None:
                spark.conf.set(key, old)


def _refuse_connect(rows: DataFrame) -> None:
    refusal = connect_refusal(rows.sparkSession)
    if refusal is not None:
        raise TableError(refusal)


def _keeps_state(rows: DataFrame) -> bool:
    """Whether tasks of the batch have state, as in aggregations and joins of streams."""
    lineage = rows._jdf.queryExecution().toRdd().toDebugString()
    return "StateStore" in lineage


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

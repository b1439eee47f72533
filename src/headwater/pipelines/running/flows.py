"""Starts flows: each with its query, expectations, target and checkpoint.

A streaming flow becomes a Structured Streaming query named `<pipeline>.<flow>`; a materialized view
is computed and replaced as a whole; a flow declared `once` is appended one time, which the table
itself records. Every writer here writes exactly once by (query id, batch id).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.pipelines.declaring.declare import Dataset, Expectation, Flow, Project, Sink
from headwater.pipelines.declaring.upgrade import fingerprint, rules_digest
from headwater.pipelines.running.checkpoints import Checkpoints
from headwater.pipelines.running.consistency import QUERY, WORK, mark_work
from headwater.pipelines.running.dataset_reader import SparkDatasetReader, table_target
from headwater.pipelines.running.dead_letters import RefusedRows, as_rows
from headwater.pipelines.running.flow_errors import FlowError
from headwater.pipelines.running.guarded_writers import GuardedWriters
from headwater.pipelines.running.preflight import REFRESHED_BY
from headwater.pipelines.running.quality import Quality, QualityGate, cached
from headwater.pipelines.tables.folder_names import fits_folder
from headwater.pipelines.tables.table import Table, TableChange, open_table
from headwater.pipelines.tables.writing import TableSink, overwrite, query_id
from headwater.pipelines.targets import Target, parse_target
from headwater.pipelines.topic_sink.topic_sink import write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from headwater.pipelines.running.quality import BatchWriter

_MADE_BY: Final = "headwater-made"
"""The application that creates tables before their first row; its only batch is 0."""


class Flows:
    """Starts the flows of one project in one session."""

    def __init__(
        self,
        project: Project,
        spark: "SparkSession",
        trigger: dict[str, Any],
        writers: GuardedWriters,
    ) -> None:
        self._project = project
        self._spark = spark
        self._trigger = trigger
        self._writers = writers
        self._datasets = SparkDatasetReader(project, spark)
        self._checkpoints = Checkpoints.of(project.storage)
        known = fingerprint(project)
        self._begun: set[Target] = set()
        """Tables that a flow of this run may have written to."""
        self._rules = {name: rules_digest(flow) for name, flow in known.items()}

    def query_name(self, flow: Flow) -> str:
        """Return the name of a flow's query and of its consumer group."""
        return f"{self._project.name}.{flow.name}"

    def start(self, flow: Flow) -> "StreamingQuery":
        """Start a streaming flow."""
        rows = self._frame(flow)
        if not rows.isStreaming:
            raise FlowError(
                flow.name,
                f"{flow.origin}: the query does not return a stream: read with hw.read_stream or "
                "hw.topic, or declare a materialized_view",
            )
        sink = self._project.declarations.sinks.get(flow.target)
        if sink is not None and not parse_target(sink.target).is_table:
            writer = self._to_topic(flow, rows, sink)
        else:
            writer = self._to_table(flow, rows, sink)
        writer = writer.queryName(self.query_name(flow)).trigger(**self._trigger)
        place = self._checkpoints.location(flow.name)
        query = writer.option("checkpointLocation", str(place)).start()
        noted = self._checkpoints.read_note(flow.name) or {}
        self._checkpoints.write_note(flow.name, {**noted, QUERY: query.id})
        return query

    def append_once(self, flow: Flow) -> None:
        """Append the rows of a batch query, unless an earlier run has done so."""
        sink = self._project.declarations.sinks.get(flow.target)
        app = f"{self.query_name(flow)}.once.{self._checkpoints.refresh_count(flow.name)}"
        if sink is not None and not parse_target(sink.target).is_table:
            self._send_once(flow, sink, app)
            return
        target, options = self._place(flow, sink)
        table = open_table(target)
        if table.last_batch(app) < 0:
            quality = self._quality(flow)
            gate = self._gate(flow, quality, TableSink(target, app=app, **options), app)
            gate(quality.judged(self._frame(flow)), 0)
            if table.last_batch(app) < 0:  # no row was good: record that the flow has run
                table.commit(TableChange([], table.schema(), app, 0))

    def _send_once(self, flow: Flow, sink: Sink, app: str) -> None:
        """Send rows to a topic and note it: a topic does not record what it got long ago."""
        noted = self._checkpoints.read_note(flow.name) or {}
        if noted.get("sent") == app:
            return
        self._send(self._frame(flow), sink, app, 0)
        self._checkpoints.write_note(flow.name, {**noted, "sent": app})

    def refresh(self, flow: Flow) -> tuple[dict[str, int], int]:
        """Replace a materialized view; return failed rows by expectation, and the rows kept."""
        dataset = self._project.declarations.datasets[flow.target]
        quality, target = self._quality(flow), table_target(self._project, dataset.name)
        rows = quality.judged(self._frame(flow))
        told = table_options(dataset.options)
        kept_for = {name: told[name] for name in ("retention_hours",) if name in told}
        with cached(rows, when=bool(quality.expectations)):
            quality.refuse(rows)
            if quality.drops and dataset.quarantine and dataset.quarantine.table:
                aside = table_target(self._project, dataset.quarantine.table)
                overwrite(as_rows(quality.bad(rows), flow.name), aside, **kept_for)
            overwrite(quality.good(rows), target, partition_by=dataset.partition_by, **kept_for)
            counts = quality.counts(rows)
        return counts, sum(file.rows for file in open_table(target).files())

    def target(self, table: str) -> Target:
        """Return where a table of the pipeline is stored."""
        return self._datasets.target(table)

    def expectations(self, flow: Flow) -> tuple[str, ...]:
        """Return the names of the expectations of a flow's target."""
        return self._quality(flow).names

    def _frame(self, flow: Flow) -> "DataFrame":
        dataset = self._project.declarations.datasets.get(flow.target)
        return declared_rows(self._datasets.frame(flow), dataset)

    def _to_topic(self, flow: Flow, rows: "DataFrame", sink: Sink) -> "DataStreamWriter":
        """Write as `format("headwater")` does, without the Python processes that Spark adds for it."""

        def send(batch: "DataFrame", batch_id: int) -> None:
            self._send(batch, sink, query_id(batch.sparkSession), batch_id)

        return rows.writeStream.foreachBatch(self._writers.guard(flow.name, send))

    def _send(self, rows: "DataFrame", sink: Sink, query: str, batch_id: int) -> None:
        connection = self._project.connection
        write_batch(
            rows,
            bootstrap_servers=connection.bootstrap_servers,
            topic=parse_target(sink.target).place,
            query=query,
            batch_id=batch_id,
            options={**connection.options, **sink.options},
        )

    def _to_table(self, flow: Flow, rows: "DataFrame", sink: Sink | None) -> "DataStreamWriter":
        target, options = self._place(flow, sink)
        self._renew_columns(rows, target)
        ensure_table(self._spark, rows, target, options.get("partition_by", ()))
        TableSink(target, **options).check(rows)
        work = (self._checkpoints.read_note(flow.name) or {}).get(WORK)
        if sink is not None and work is not None:
            mark_work(open_table(target), work)
        quality = self._quality(flow)
        self._make_quarantine(flow, quality, rows)
        gate = self._gate(flow, quality, TableSink(target, **options), None)
        watched = self._writers.guard(flow.name, gate)
        return quality.judged(rows).writeStream.foreachBatch(watched)

    def _renew_columns(self, rows: "DataFrame", target: Target) -> None:
        """Give a table that a refresh has emptied the columns of the first flow that fills it."""
        if target not in self._begun:
            replace_columns(rows.schema, open_table(target))
            self._begun.add(target)

    def _gate(
        self, flow: Flow, quality: Quality, good: "BatchWriter", app: str | None
    ) -> "BatchWriter":
        dataset = self._project.declarations.datasets.get(flow.target)
        return QualityGate(quality, good, self._aside(flow, dataset, app) if dataset else ())

    def _make_quarantine(self, flow: Flow, quality: Quality, rows: "DataFrame") -> None:
        dataset = self._project.declarations.datasets.get(flow.target)
        if quality.drops and dataset and dataset.quarantine and dataset.quarantine.table:
            aside = as_rows(quality.bad(quality.judged(rows)), flow.name)
            target = table_target(self._project, dataset.quarantine.table)
            self._renew_columns(aside, target)
            ensure_table(self._spark, aside, target, ())

    def _aside(self, flow: Flow, dataset: Dataset, app: str | None) -> "list[BatchWriter]":
        """Return the writers for refused rows."""
        writers: list[BatchWriter] = []
        rules = self._rules[flow.name] + ("-folders" if _folders_named(dataset) else "")
        refused = RefusedRows(flow.name, self.query_name(flow), rules, app)
        if dataset.quarantine and dataset.quarantine.table:
            writers.append(
                refused.into_table(table_target(self._project, dataset.quarantine.table))
            )
        if dataset.quarantine and dataset.quarantine.topic:
            connection, topic = self._project.connection, dataset.quarantine.topic
            writers.append(refused.into_topic(connection, topic))
        return writers

    def _quality(self, flow: Flow) -> Quality:
        return quality_of(self._project.declarations.datasets.get(flow.target))

    def _place(self, flow: Flow, sink: Sink | None) -> tuple[Target, dict[str, Any]]:
        """Return the target of a flow and the options of its table."""
        if sink is not None:
            return self._rooted(parse_target(sink.target)), table_options(sink.options)
        dataset = self._project.declarations.datasets[flow.target]
        options = table_options(dataset.options)
        return table_target(self._project, dataset.name), {
            **options,
            "partition_by": dataset.partition_by,
        }

    def _rooted(self, target: Target) -> Target:
        """Resolve a path of a declaration against the project's folder."""
        return Target(target.kind, str(self._project.root / target.place))


def declared_rows(rows: "DataFrame", dataset: Dataset | None) -> "DataFrame":
    """Return the rows with the columns that the dataset declares, if it declares any."""
    if dataset is None or not dataset.schema:
        return rows
    return rows.to(declared_columns(dataset.schema))


def quality_of(dataset: Dataset | None) -> Quality:
    """Return the checks of a dataset: its expectations, and that partition values fit folders."""
    return Quality((*dataset.expectations, *_folders_named(dataset)) if dataset else ())


def _folders_named(dataset: Dataset) -> list[Expectation]:
    """Return expectations that refuse values which cannot name a folder, if there is a quarantine."""
    if dataset.quarantine is None:
        return []
    return [
        Expectation(f"{name} can name a folder", fits_folder(name), "drop")
        for name in dataset.partition_by
    ]


def ensure_table(
    spark: "SparkSession", rows: "DataFrame", target: Target, partition_by: tuple[str, ...]
) -> None:
    """Create an empty table if it does not exist, so that other flows can read it at once."""
    if not open_table(target).exists():
        empty = spark.createDataFrame([], rows.schema)
        TableSink(target, app=_MADE_BY, partition_by=partition_by)(empty, 0)


def replace_columns(schema: StructType, table: Table) -> None:
    """Replace the columns of a table that a refresh has emptied with those of its flow.

    Call it before any flow of the run writes to the table.
    """
    if not table.exists() or table.files() or table.last_batch(REFRESHED_BY) < 0:
        return
    columns = table.stored(to_arrow_schema(schema, timezone="UTC"))
    folders = table.partition_by()
    if columns != table.schema() and set(folders) <= set(columns.names):
        batch = table.last_batch(REFRESHED_BY) + 1
        table.commit(TableChange([], columns, REFRESHED_BY, batch, folders, replaces=True))


def declared_columns(ddl: str) -> StructType:
    """Parse the DDL of a declaration with Spark's own parser."""
    found = StructType.fromDDL(ddl)
    if not isinstance(found, StructType):
        raise TypeError(
            f"schema {ddl!r} is a single type: write columns such as 'a BIGINT, b STRING'"
        )
    return found


def table_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a declaration as arguments of TableSink."""
    return {name: int(value) for name, value in options.items()}

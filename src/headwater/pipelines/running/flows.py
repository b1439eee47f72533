"""One flow at work: its query, its expectations, its target, its checkpoint.

A streaming flow becomes a Structured Streaming query named `<pipeline>.<flow>`; a materialized
view is computed and replaced as a whole; a flow declared `once` is appended one time, which the
table itself remembers. Every writer here is exactly once by (query id, batch id).
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.pipelines.declaring.declare import Dataset, Expectation, Flow, Project, Sink
from headwater.pipelines.declaring.upgrade import fingerprint, rules_digest
from headwater.pipelines.running.checkpoints import Checkpoints
from headwater.pipelines.running.consistency import QUERY
from headwater.pipelines.running.dataset_reader import SparkDatasetReader, table_target
from headwater.pipelines.running.dead_letters import as_records, as_rows
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
"""The application that makes tables before their first row; its only batch is 0."""


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
        self._rules = {name: rules_digest(told) for name, told in known.items()}

    def query_name(self, flow: Flow) -> str:
        """The name of a flow's query, and of its consumer group."""
        return f"{self._project.name}.{flow.name}"

    def start(self, flow: Flow) -> "StreamingQuery":
        """Start a streaming flow."""
        rows = self._frame(flow)
        if not rows.isStreaming:
            raise FlowError(flow.name, f"{flow.origin}: its query gave rows that do not stream")
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
        """Append what a batch query gives, unless an earlier run has done so."""
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
            if table.last_batch(app) < 0:  # no row was good, and that too is only true once
                table.commit(TableChange([], table.schema(), app, 0))

    def _send_once(self, flow: Flow, sink: Sink, app: str) -> None:
        """A topic cannot be asked what it got long ago: that it is done is noted here."""
        noted = self._checkpoints.read_note(flow.name) or {}
        if noted.get("sent") == app:
            return
        self._send(self._frame(flow), sink, app, 0)
        self._checkpoints.write_note(flow.name, {**noted, "sent": app})

    def refresh(self, flow: Flow) -> tuple[dict[str, int], int]:
        """Compute a materialized view anew: rows that failed by expectation, and rows kept."""
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
        """Where a table of the pipeline is kept."""
        return self._datasets.target(table)

    def expectations(self, flow: Flow) -> tuple[str, ...]:
        """The names of what the flow's target expects."""
        return self._quality(flow).names

    def _frame(self, flow: Flow) -> "DataFrame":
        dataset = self._project.declarations.datasets.get(flow.target)
        return declared_rows(self._datasets.frame(flow), dataset)

    def _to_topic(self, flow: Flow, rows: "DataFrame", sink: Sink) -> "DataStreamWriter":
        """As `format("headwater")` would, but for the processes that Spark starts for such a sink."""

        def send(batch: "DataFrame", batch_id: int) -> None:
            self._send(batch, sink, query_id(batch.sparkSession), batch_id)

        return rows.writeStream.foreachBatch(self._writers.guard(flow.name, send))

    def _send(self, rows: "DataFrame", sink: Sink, query: str, batch_id: int) -> None:
        write_batch(
            rows,
            bootstrap_servers=self._project.bootstrap_servers,
            topic=parse_target(sink.target).place,
            query=query,
            batch_id=batch_id,
            options=sink.options,
        )

    def _to_table(self, flow: Flow, rows: "DataFrame", sink: Sink | None) -> "DataStreamWriter":
        target, options = self._place(flow, sink)
        if target not in self._begun:
            replace_columns(rows.schema, open_table(target))
            self._begun.add(target)
        ensure_table(self._spark, rows, target, options.get("partition_by", ()))
        quality = self._quality(flow)
        self._make_quarantine(flow, quality, rows)
        gate = self._gate(flow, quality, TableSink(target, **options), None)
        watched = self._writers.guard(flow.name, gate)
        return quality.judged(rows).writeStream.foreachBatch(watched)

    def _gate(
        self, flow: Flow, quality: Quality, good: "BatchWriter", app: str | None
    ) -> "BatchWriter":
        dataset = self._project.declarations.datasets.get(flow.target)
        return QualityGate(quality, good, self._aside(flow, dataset, app) if dataset else ())

    def _make_quarantine(self, flow: Flow, quality: Quality, rows: "DataFrame") -> None:
        dataset = self._project.declarations.datasets.get(flow.target)
        if quality.drops and dataset and dataset.quarantine and dataset.quarantine.table:
            aside = as_rows(quality.bad(quality.judged(rows)), flow.name)
            ensure_table(
                self._spark, aside, table_target(self._project, dataset.quarantine.table), ()
            )

    def _aside(self, flow: Flow, dataset: Dataset, app: str | None) -> "list[BatchWriter]":
        """Who takes the rows that are set aside."""
        writers: list[BatchWriter] = []
        rules = self._rules[flow.name] + ("-folders" if _folders_named(dataset) else "")
        if dataset.quarantine and dataset.quarantine.table:
            target = table_target(self._project, dataset.quarantine.table)
            writers.append(QuarantineTable(target, flow.name, app, rules))
        if dataset.quarantine and dataset.quarantine.topic:
            servers, topic = self._project.bootstrap_servers, dataset.quarantine.topic
            writers.append(
                partial(send_dead_letters, servers, topic, self.query_name(flow), app, rules)
            )
        return writers

    def _quality(self, flow: Flow) -> Quality:
        return quality_of(self._project.declarations.datasets.get(flow.target))

    def _place(self, flow: Flow, sink: Sink | None) -> tuple[Target, dict[str, Any]]:
        """Where the rows go, and how the table is written."""
        if sink is not None:
            return self._rooted(parse_target(sink.target)), table_options(sink.options)
        dataset = self._project.declarations.datasets[flow.target]
        options = table_options(dataset.options)
        return table_target(self._project, dataset.name), {
            **options,
            "partition_by": dataset.partition_by,
        }

    def _rooted(self, target: Target) -> Target:
        """A path in a declaration is relative to the project, wherever the command was called."""
        return Target(target.kind, str(self._project.root / target.place))


def declared_rows(rows: "DataFrame", dataset: Dataset | None) -> "DataFrame":
    """The rows with the columns that the dataset declares, if it declares any."""
    if dataset is None or not dataset.schema:
        return rows
    return rows.to(declared_columns(dataset.schema))


def quality_of(dataset: Dataset | None) -> Quality:
    """The expectations of a dataset, and that its partition values can name folders."""
    return Quality((*dataset.expectations, *_folders_named(dataset)) if dataset else ())


def _folders_named(dataset: Dataset) -> list[Expectation]:
    """Values that cannot name a folder are set aside, where the dataset has a place for them."""
    if dataset.quarantine is None:
        return []
    return [
        Expectation(f"{name} can name a folder", fits_folder(name), "drop")
        for name in dataset.partition_by
    ]


def ensure_table(
    spark: "SparkSession", rows: "DataFrame", target: Target, partition_by: tuple[str, ...]
) -> None:
    """Make an empty table where there is none, so that others can read it from the start."""
    if not open_table(target).exists():
        empty = spark.createDataFrame([], rows.schema)
        TableSink(target, app=_MADE_BY, partition_by=partition_by)(empty, 0)


def replace_columns(schema: StructType, table: Table) -> None:
    """Give a table that a refresh has emptied the columns of the flow that fills it.

    Call it before any flow of the run writes to the table.
    """
    if not table.exists() or table.files() or table.last_batch(REFRESHED_BY) < 0:
        return
    columns = table.stored(to_arrow_schema(schema, timezone="UTC"))
    folders = table.partition_by()
    if columns != table.schema() and set(folders) <= set(columns.names):
        batch = table.last_batch(REFRESHED_BY) + 1
        table.commit(TableChange([], columns, REFRESHED_BY, batch, folders, replaces=True))


class QuarantineTable:
    """For foreachBatch: appends refused rows to a quarantine table, once by (app, rules, batch)."""

    def __init__(self, target: Target, flow: str, app: str | None, rules: str) -> None:
        self._target = target
        self._flow = flow
        self._app = app
        self._rules = rules
        self._sink: TableSink | None = None

    def __call__(self, rows: "DataFrame", batch: int) -> None:
        """Write the refused rows of one batch."""
        if self._sink is None:
            app = refusal_app(self._app, self._rules, rows)
            self._sink = TableSink(self._target, app=app)
        self._sink(as_rows(rows, self._flow), batch)


def send_dead_letters(
    servers: str, topic: str, flow: str, app: str | None, rules: str, rows: "DataFrame", batch: int
) -> None:
    """Refused rows to a dead letter topic, once by (app, rules, batch)."""
    write_batch(
        as_records(rows, flow),
        bootstrap_servers=servers,
        topic=topic,
        query=refusal_app(app, rules, rows),
        batch_id=batch,
    )


def refusal_app(app: str | None, rules: str, rows: "DataFrame") -> str:
    """Who refused rows are of: the query, and the rules that they were refused under."""
    return f"{app or query_id(rows.sparkSession)}.{rules}"


def declared_columns(ddl: str) -> StructType:
    """The columns that a declaration writes as DDL; Spark's own parser knows all of its types."""
    found = StructType.fromDDL(ddl)
    if not isinstance(found, StructType):
        raise TypeError(f"schema {ddl!r} is one type and not the columns of a table")
    return found


def table_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Options of a declaration as arguments of the table sink."""
    return {name: int(value) for name, value in options.items()}

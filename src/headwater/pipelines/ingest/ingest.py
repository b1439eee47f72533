"""Copies a topic with JSON values into a table with typed columns, exactly once.

The schema comes from a file or from the first records and is frozen beside the checkpoint, so that a
restart uses the same columns. Records that do not fit go to a dead letter topic with a reason; nothing
is lost, and no invalid value silently becomes NULL.
"""

import logging
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from headwater.client.admin import BlockingAdmin, NewTopic
from headwater.config.keys import ConfigError, nearest
from headwater.model import topic_name_problem
from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.declaring.upgrade import digest
from headwater.pipelines.ingest.ddl_types import columns
from headwater.pipelines.ingest.frozen_schema import SCHEMA, IngestError, resolve_schema
from headwater.pipelines.ingest.json_rows import (
    DATE,
    ORIGIN,
    REFUSED,
    UNKNOWN,
    JsonRows,
)
from headwater.pipelines.ingest.reading import source_options, starting
from headwater.pipelines.running.checkpoints import FOLDER, Checkpoints
from headwater.pipelines.running.consistency import (
    QUERY,
    TOPIC_IDS,
    table_mismatch,
    topic_mismatch,
)
from headwater.pipelines.running.dead_letters import RefusedRows
from headwater.pipelines.running.flow_errors import as_flow_error
from headwater.pipelines.running.flows import ensure_table
from headwater.pipelines.running.guarded_writers import GuardedWriters
from headwater.pipelines.running.progress import RunProgress
from headwater.pipelines.running.quality import QualityGate
from headwater.pipelines.running.queries import Queries
from headwater.pipelines.running.reports import FlowReport
from headwater.pipelines.running.run_lock import run_lock
from headwater.pipelines.running.session_scope import session_scope
from headwater.pipelines.tables.holding import holds_value
from headwater.pipelines.tables.schemas import DELTA_FORBIDDEN
from headwater.pipelines.tables.table import open_table
from headwater.pipelines.tables.writing import TableSink
from headwater.pipelines.targets import Target, parse_table
from headwater.pipelines.topic_source.options import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

_TRIGGER: Final = "1 second"
TARGET_BATCH_TIME: Final = "5s"
TOPIC: Final = "topic"
TARGET: Final = "target"
RENAME: Final = "rename"
"""Keys of the note: the topic, the table, and the renamed fields."""
_STARTING: Final = {"startingTimestamp", "startingOffsetsByTimestamp"}
_TOPIC_COLUMN: Final = "_topic"


@dataclass(frozen=True)
class Ingest:
    """The topic, the table and the options of one ingest."""

    topic: str
    target: Target
    connection: ConnectionSettings
    ddl: str
    """The columns; required ones are NOT NULL."""
    partition_by: tuple[str, ...] = ()
    dead_letter_topic: str = ""
    """By default the topic's name with the suffix `.dead`."""
    unknown: str = "keep"
    """What to do with fields outside of the schema: keep, drop or refuse; see JsonRows."""
    checkpoints: Checkpoints | None = None
    """By default `_checkpoints` beside the table."""
    options: Mapping[str, str] | None = None
    """Options of the source, such as startingOffsets and maxOffsetsPerTrigger."""
    topic_id: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)
    """Column names for fields whose own name is not a valid column name."""
    given_name: str = ""
    """By default `ingest.TOPIC.TABLE`."""

    @property
    def schema(self) -> StructType:
        """Return the columns as Spark's types."""
        return columns(self.ddl)

    @property
    def name(self) -> str:
        """Return the name of the query, its consumer group and its checkpoint."""
        return self.given_name or ingest_name(self.topic, self.target)

    @property
    def dead_letters(self) -> str:
        """Return the topic for records that do not fit."""
        return self.dead_letter_topic or f"{self.topic}.dead"

    @property
    def checkpoint_store(self) -> Checkpoints:
        """Return the place of the checkpoint."""
        return self.checkpoints or beside(self.target)


def plan_ingest(
    topic: str,
    target: str,
    *,
    schema: str,
    connection: ConnectionSettings,
    partition_by: Sequence[str] = (),
    dead_letter_topic: str | None = None,
    unknown: str = "keep",
    start: str = "earliest",
    checkpoint: str | None = None,
    options: Mapping[str, str] | None = None,
    types: Mapping[str, str] | None = None,
    rename: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Ingest:
    """Check the options of the command and build the ingest; reads files and topics, starts no Spark.

    Args:
        topic: The topic to read.
        target: The table, as `delta:PATH`, `iceberg:PATH` or `parquet:PATH`.
        schema: A file, or `infer`.
        connection: The brokers, and how to connect to them.
        partition_by: Partition columns of the table.
        dead_letter_topic: For records that do not fit; `<topic>.dead` by default.
        unknown: See JsonRows.
        start: `earliest`, `latest`, `committed`, or a time such as `2026-01-31T12:00Z`.
        checkpoint: A folder for checkpoints; beside the table by default.
        options: More options of the source, such as failOnDataLoss; they win over `start`.
        types: Types by field that replace inferred ones.
        rename: Column names by field, for fields whose own name is not a valid column name.
        name: Names the query, its consumer group and its checkpoint; `ingest.TOPIC.TABLE` by default.
    """
    place = parse_table(target)
    place = Target(place.kind, str(Path(place.place).absolute()))
    topic_id = check_topic(connection, topic)
    chosen = {**starting(start), **source_options(options or {})}
    checkpoints = Checkpoints(Path(checkpoint).absolute()) if checkpoint else beside(place)
    name = checked_name(name) if name is not None else ingest_name(topic, place)
    check_place(name, topic, topic_id, place, checkpoints, resumes=start == "committed")
    check_unread(name, topic, place, checkpoints, chosen, connection)
    noted = columns_so_far(name, place, checkpoints)
    ddl = resolve_schema(schema, topic, connection, noted.get(SCHEMA), types or {})
    plan = Ingest(
        topic,
        place,
        connection,
        ddl,
        tuple(partition_by),
        dead_letter_topic or "",
        unknown,
        checkpoints,
        chosen,
        topic_id,
        check_rename(noted, rename or {}),
        name,
    )
    for check in (check_columns, check_options, check_dead_letters):
        check(plan)
    return plan


def check_topic(connection: ConnectionSettings, topic: str) -> str:
    """Return the topic's id; IngestError with the nearest name, or how to create it, if it does not exist."""
    with BlockingAdmin(**connection.client) as admin:
        there = admin.list_topics()
        if topic in there:
            return admin.describe_topics([topic])[topic].topic_id.hex()
    hint = nearest(topic, there) or f"; create with: headwater topics create {topic}"
    raise IngestError(f"the topic {topic} does not exist{hint}")


def check_dead_letters(ingest: Ingest) -> None:
    """Refuse a topic for dead letters that cannot be one, or that the ingest reads."""
    if ingest.dead_letters == ingest.topic:
        raise IngestError(
            f"--dead-letter {ingest.topic}: the ingest reads this topic, and would read and refuse "
            "each refused record again; name another topic"
        )
    if told := topic_name_problem(ingest.dead_letters):
        raise IngestError(f"--dead-letter: {told}")


def check_options(ingest: Ingest) -> None:
    """Refuse options that the source does not know, before Spark starts."""
    try:
        parse(_options(ingest), streaming=True)
    except ConfigError as problem:
        raise IngestError(f"--option: {problem}") from problem


def check_place(
    name: str, topic: str, topic_id: str, target: Target, checkpoints: Checkpoints, *, resumes: bool
) -> None:
    """Refuse a checkpoint of another ingest, or one whose table or topic was replaced.

    `resumes`: if the checkpoint is lost, the offsets of the group replace it.
    """
    noted, table = checkpoints.read_note(name) or {}, open_table(target)
    query = checkpoints.query_id(name)
    moved = query is not None and noted.get(TOPIC) == topic and table.last_batch(query) >= 0
    other = noted.get(TOPIC, topic) != topic or noted.get(TARGET, str(target)) != str(target)
    if other and not moved:
        raise IngestError(
            f"{checkpoints.location(name)} is the checkpoint of {noted.get(TOPIC)} into "
            f"{noted.get(TARGET)}: give this ingest another folder with --checkpoint"
        )
    if resumes and query is None:
        return
    place = checkpoints.location(name)
    if told := table_mismatch(name, checkpoints, table):
        raise IngestError(f"{told}; or delete {place} and the table to start again")
    if told := topic_mismatch(name, checkpoints, {topic: topic_id}):
        raise IngestError(
            f"{told}; or, to add the records of the new topic to the table, delete {place}, run "
            f"headwater groups reset-offsets {name} --topic {topic} --to-earliest, and then this with "
            "--from committed"
        )


def check_unread(
    name: str,
    topic: str,
    target: Target,
    checkpoints: Checkpoints,
    options: Mapping[str, str],
    connection: ConnectionSettings,
) -> None:
    """Refuse to read a topic from its start into a table that has rows of it, without a checkpoint."""
    start = options.get("startingOffsets")
    from_start = start in ("earliest", "committed") and _STARTING.isdisjoint(options)
    if not from_start or checkpoints.read_note(name) is not None:
        return
    if not holds_value(open_table(target), _TOPIC_COLUMN, topic):
        return
    again = f"{target} has rows of {topic}, and {{}}: all records would be written again. "
    if start == "earliest":
        raise IngestError(
            again.format(f"{checkpoints.folder} has no checkpoint {name}")
            + "Name the folder of the checkpoint with --checkpoint, and its --name if it has one; if "
            "it is lost, continue with --from committed, or delete the table to start again"
        )
    group = options.get("group.id", name)
    with BlockingAdmin(**connection.client) as admin:
        if any(place.topic == topic for place in admin.group_offsets(group)):
            return
    raise IngestError(
        again.format(f"group {group} has no offsets of it")
        + "Give the --name of the ingest that wrote them; to write all records, first run "
        f"headwater groups reset-offsets {group} --topic {topic} --to-earliest"
    )


def columns_so_far(name: str, target: Target, checkpoints: Checkpoints) -> Mapping[str, Any]:
    """Return the note with the columns of earlier runs; nothing if the table was deleted since."""
    if not checkpoints.started(name) and not open_table(target).exists():
        return {}
    return checkpoints.read_note(name) or {}


def checked_name(name: str) -> str:
    """Refuse a name that cannot be a folder."""
    if not name or name in {".", ".."} or set(name) & set("/\0"):
        raise IngestError(f"--name {name!r}: write a name without a slash, such as ingest.orders")
    return name


def ingest_name(topic: str, target: Target) -> str:
    """Return the name of the ingest of a topic into a table."""
    return f"ingest.{topic}.{Path(target.place).name}"


def beside(target: Target) -> Checkpoints:
    """Return the checkpoints beside a table."""
    return Checkpoints(Path(target.place).parent / FOLDER)


def run_ingest(
    ingest: Ingest,
    *,
    once: bool,
    master: str | None = None,
    progress: RunProgress | None = None,
    settings: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    spark: "SparkSession | None" = None,
) -> FlowReport:
    """Copy the topic's records into the table: once, or continuously until `stop` is set."""
    model, writers, asked = progress or RunProgress(), GuardedWriters(), stop or threading.Event()
    opened = session_scope(
        ingest.name,
        connection=ingest.connection,
        progress=model,
        logs=ingest.checkpoint_store.folder.parent,
        master=master,
        settings=settings or {},
        spark=spark,
    )
    with (
        run_lock(ingest.checkpoint_store.lock(ingest.name), f"the ingest {ingest.name}"),
        opened as session,
    ):

        def begin(name: str) -> None:
            with as_flow_error(name):
                queries.add(name, start(ingest, session, once, writers))

        queries = Queries(model, writers, begin)
        model.announce(ingest.name, (REFUSED,))
        if asked.is_set():  # while Spark started
            return FlowReport(ingest.name, "stream")
        try:
            begin(ingest.name)
            queries.wait([ingest.name], asked)
            queries.stop()
            report = queries.reports()[0]
            warn_if_all_refused(ingest, report)
            return report
        finally:
            queries.stop()


def warn_if_all_refused(ingest: Ingest, report: FlowReport) -> None:
    """Log a warning if every record of a run was refused."""
    if report.rows and report.failed.get(REFUSED) == report.rows:
        log.warning(
            "%s: all %d records were refused, none is in %s; the reasons are in the headers of "
            "topic '%s'; check --schema",
            *(ingest.name, report.rows, ingest.target, ingest.dead_letters),
        )


def start(
    ingest: Ingest, spark: "SparkSession", once: bool, writers: GuardedWriters
) -> "StreamingQuery":
    """Start the query of an ingest."""
    ensure_topic(ingest.connection, ingest.dead_letters)
    records = spark.readStream.format("headwater").options(**_options(ingest)).load()
    rows = JsonRows(
        ingest.schema,
        unknown=ingest.unknown,
        partition_by=ingest.partition_by,
        rename=ingest.rename,
    )
    judged = rows.judged(records)
    sink = TableSink(ingest.target, partition_by=ingest.partition_by)
    ensure_table(spark, rows.good(judged), ingest.target, ingest.partition_by)
    sink.check(rows.good(judged))
    facts = {
        TOPIC: ingest.topic,
        TARGET: str(ingest.target),
        SCHEMA: ingest.ddl,
        RENAME: dict(ingest.rename),
    }
    note(ingest, {**facts, TOPIC_IDS: {ingest.topic: ingest.topic_id}})
    rules = digest(f"{ingest.unknown} {ingest.ddl}")
    refused = RefusedRows(ingest.name, ingest.name, rules)
    letters = refused.into_topic(ingest.connection, ingest.dead_letters)
    gate = QualityGate(rows, sink, [letters])
    writer = judged.writeStream.foreachBatch(writers.guard(ingest.name, gate))
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": _TRIGGER}
    place = str(ingest.checkpoint_store.location(ingest.name))
    named = writer.queryName(ingest.name).option("checkpointLocation", place)
    query = named.trigger(**trigger).start()
    note(ingest, {QUERY: query.id})
    return query


def note(ingest: Ingest, facts: Mapping[str, Any]) -> None:
    """Add facts to the note beside the checkpoint."""
    ingest.checkpoint_store.write_note(
        ingest.name, {**(ingest.checkpoint_store.read_note(ingest.name) or {}), **facts}
    )


def _options(ingest: Ingest) -> dict[str, str]:
    options = {
        "subscribe": ingest.topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        **(ingest.options or {}),
    }
    if options["startingOffsets"] == "committed":
        options.setdefault("group.id", ingest.name)
    if not _STARTING.isdisjoint(ingest.options or {}):
        del options["startingOffsets"]
    if "maxOffsetsPerTrigger" not in options:
        options.setdefault("targetBatchTime", TARGET_BATCH_TIME)
    return ingest.connection.source_options(options)


def check_columns(ingest: Ingest) -> None:
    """Refuse invalid column names and unknown partition columns."""
    names = ingest.schema.names
    for name in ingest.rename:
        if name not in names:
            raise IngestError(
                f"--rename {name}: no such field{nearest(name, dict.fromkeys(names))}"
            )
    columns_of = {name: ingest.rename.get(name, name) for name in names}
    for name, column in columns_of.items():
        if column in {*ORIGIN, UNKNOWN, DATE}:
            raise IngestError(
                f"field {name}: {column} is a column that the ingest adds itself; give the field "
                f"another column with --rename {name}=COLUMN"
            )
        if ingest.target.kind == "delta" and set(column) & set(DELTA_FORBIDDEN):
            plain = re.sub(f"[{re.escape(DELTA_FORBIDDEN)}]+", "_", name)
            raise IngestError(
                f"field {name!r} cannot be a column of a Delta table: name the column with "
                f"--rename '{name}={plain}'"
            )
    twice = [column for column, count in Counter(columns_of.values()).items() if count > 1]
    if twice:
        raise IngestError(f"--rename: two fields have the column {twice[0]}")
    for column in ingest.partition_by:
        if column not in {*columns_of.values(), *ORIGIN, DATE}:
            known = ", ".join([*columns_of.values(), *ORIGIN, DATE])
            raise IngestError(f"--partition-by {column}: no such column; there are {known}")


def check_rename(noted: Mapping[str, Any], asked: Mapping[str, str]) -> dict[str, str]:
    """Return all renamed fields; IngestError if a field had another column in an earlier run."""
    before = {**noted.get(RENAME, {})}
    known = columns(noted[SCHEMA]).names if SCHEMA in noted else []
    for name, column in asked.items():
        if name in known and before.get(name, name) != column:
            raise IngestError(
                f"--rename {name}={column}: the field's column is {before.get(name, name)} since "
                "the first run; ingest into a new table"
            )
    return {**before, **asked}


def ensure_topic(connection: ConnectionSettings, name: str) -> None:
    """Create the topic for dead letters if it does not exist."""
    with BlockingAdmin(**connection.client) as admin:
        if name not in admin.list_topics():
            admin.create_topics([NewTopic(name)])

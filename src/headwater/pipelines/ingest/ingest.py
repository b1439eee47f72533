"""A topic as a table, in one line: typed columns from JSON values, exactly once.

The schema is given as a file or inferred from the first records, and is frozen beside the
checkpoint, so that a restart means the same columns whatever has come since. Records that do not
fit go to a dead letter topic with a reason; nothing is lost and nothing is NULL in silence.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from headwater.client.admin import BlockingAdmin, NewTopic
from headwater.config.keys import nearest
from headwater.pipelines.declaring.upgrade import digest
from headwater.pipelines.ingest.ddl_types import columns
from headwater.pipelines.ingest.frozen_schema import IngestError, freeze, settle_schema
from headwater.pipelines.ingest.json_rows import (
    DATE,
    ORIGIN,
    REFUSED,
    UNKNOWN,
    JsonRows,
)
from headwater.pipelines.running.checkpoints import FOLDER, Checkpoints
from headwater.pipelines.running.flows import make, send_aside
from headwater.pipelines.running.progress import Progress
from headwater.pipelines.running.quality import Gate
from headwater.pipelines.running.watching import (
    FlowReport,
    Problems,
    Queries,
    session_for,
    told_as_flow,
)
from headwater.pipelines.tables.writing import TableSink
from headwater.pipelines.targets import Target, parse_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_TRIGGER: Final = "1 second"
TARGET_BATCH_TIME: Final = "5s"


@dataclass(frozen=True)
class Ingest:
    """What to ingest, where to, and how."""

    topic: str
    target: Target
    bootstrap_servers: str
    ddl: str
    """The columns, required ones NOT NULL."""
    partition_by: tuple[str, ...] = ()
    dead_letter_topic: str = ""
    """By default the topic's own name with `.dead` behind."""
    start: str = "earliest"
    unknown: str = "keep"
    """Fields that the schema does not know: keep, drop or refuse; see JsonRows."""
    checkpoints: Checkpoints | None = None
    """By default `_checkpoints` beside the table."""
    options: Mapping[str, str] | None = None
    """More options of the source, such as maxOffsetsPerTrigger."""

    @property
    def schema(self) -> StructType:
        """The columns as Spark's types."""
        return columns(self.ddl)

    @property
    def name(self) -> str:
        """The query's name, its consumer group's and its checkpoint's."""
        return ingest_name(self.topic, self.target)

    @property
    def dead_letters(self) -> str:
        """Where records go that do not fit."""
        return self.dead_letter_topic or f"{self.topic}.dead"

    @property
    def places(self) -> Checkpoints:
        """Where it remembers how far it is."""
        return self.checkpoints or beside(self.target)


def plan_ingest(
    topic: str,
    target: str,
    *,
    schema: str,
    bootstrap_servers: str,
    partition_by: Sequence[str] = (),
    dead_letter_topic: str | None = None,
    unknown: str = "keep",
    start: str = "earliest",
    checkpoint: str | None = None,
) -> Ingest:
    """What the words of a command mean; asks the broker and reads files, and starts no Spark."""
    place = parse_target(target)
    if not place.is_table:
        raise IngestError(f"--to {target}: write delta:PATH, iceberg:PATH or parquet:PATH")
    place = Target(place.kind, str(Path(place.place).absolute()))
    check_topic(bootstrap_servers, topic)
    places = Checkpoints(Path(checkpoint).absolute()) if checkpoint else beside(place)
    name = ingest_name(topic, place)
    ddl = settle_schema(schema, topic, bootstrap_servers, places, name)
    plan = Ingest(
        topic,
        place,
        bootstrap_servers,
        ddl,
        tuple(partition_by),
        dead_letter_topic or "",
        start,
        unknown,
        places,
    )
    check_columns(plan)
    return plan


def check_topic(bootstrap_servers: str, topic: str) -> None:
    """Refuse a topic that is not there, with the nearest that is."""
    with BlockingAdmin(bootstrap_servers=bootstrap_servers) as admin:
        there = admin.list_topics()
    if topic not in there:
        raise IngestError(f"the topic {topic} does not exist{nearest(topic, dict.fromkeys(there))}")


def ingest_name(topic: str, target: Target) -> str:
    """One ingest for each pair of a topic and a table."""
    return f"ingest.{topic}.{Path(target.place).name}"


def beside(target: Target) -> Checkpoints:
    """The place for checkpoints beside a table."""
    return Checkpoints(Path(target.place).parent / FOLDER)


def run_ingest(
    ingest: Ingest,
    *,
    once: bool,
    master: str = "local[*]",
    progress: Progress | None = None,
    settings: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    spark: "SparkSession | None" = None,
) -> FlowReport:
    """Bring what is in the topic into the table, or go on with it until `stop` is set."""
    model, problems, asked = progress or Progress(), Problems(), stop or threading.Event()
    opened = session_for(
        ingest.name,
        bootstrap_servers=ingest.bootstrap_servers,
        progress=model,
        logs=ingest.places.folder.parent,
        master=master,
        settings=settings or {},
        spark=spark,
    )
    with opened as session:
        queries = Queries(model, problems)
        model.announce(ingest.name, (REFUSED,))
        try:
            with told_as_flow(ingest.name):
                queries.add(ingest.name, start(ingest, session, once, problems))
            queries.wait([ingest.name], asked)
            queries.stop()
            return queries.reports()[0]
        finally:
            queries.stop()


def start(
    ingest: Ingest, spark: "SparkSession", once: bool, problems: Problems
) -> "StreamingQuery":
    """Start the one query of an ingest."""
    ensure_topic(ingest.bootstrap_servers, ingest.dead_letters)
    records = spark.readStream.format("headwater").options(**_options(ingest)).load()
    rows = JsonRows(ingest.schema, unknown=ingest.unknown, dated=DATE in ingest.partition_by)
    judged = rows.judged(records)
    make(spark, rows.good(judged), ingest.target, ingest.partition_by)
    freeze(ingest.ddl, ingest.places, ingest.name)
    servers, rules = ingest.bootstrap_servers, digest(f"{ingest.unknown} {ingest.ddl}")
    aside = partial(send_aside, servers, ingest.dead_letters, ingest.name, None, rules)
    gate = Gate(rows, TableSink(ingest.target, partition_by=ingest.partition_by), [aside])
    writer = judged.writeStream.foreachBatch(problems.watched(ingest.name, gate))
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": _TRIGGER}
    place = str(ingest.places.place(ingest.name))
    named = writer.queryName(ingest.name).option("checkpointLocation", place)
    return named.trigger(**trigger).start()


def _options(ingest: Ingest) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": ingest.bootstrap_servers,
        "subscribe": ingest.topic,
        "startingOffsets": ingest.start,
        "includeHeaders": "true",
        **(ingest.options or {}),
    }
    if ingest.start == "committed":
        options.setdefault("group.id", ingest.name)
    if "maxOffsetsPerTrigger" not in options:
        options.setdefault("targetBatchTime", TARGET_BATCH_TIME)
    return options


def check_columns(ingest: Ingest) -> None:
    """Refuse partition columns that are none, and fields that hide where a row came from."""
    fields = set(ingest.schema.names)
    taken = sorted(fields & {*ORIGIN, UNKNOWN, DATE})
    if taken:
        raise IngestError(f"the schema has the field {taken[0]}, which is a column of Headwater")
    for column in ingest.partition_by:
        if column not in fields | {*ORIGIN, DATE}:
            known = ", ".join([*ingest.schema.names, *ORIGIN, DATE])
            raise IngestError(f"--partition-by {column}: no such column; there are {known}")


def ensure_topic(bootstrap_servers: str, name: str) -> None:
    """Make a topic for dead letters where there is none."""
    with BlockingAdmin(bootstrap_servers=bootstrap_servers) as admin:
        if name not in admin.list_topics():
            admin.create_topics([NewTopic(name)])

"""Replays a time range of archived segments into a topic.

One task writes the records of each original partition, in the order of their offsets. The topic sink
recognizes records of an earlier attempt by the replay's id and skips them: an interrupted replay
completes when it is run again, and a finished one writes nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.client.admin import BlockingAdmin
from headwater.errors import E, KafkaError
from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.segments.files import find_segments

if TYPE_CHECKING:
    from headwater.pipelines.topic_sink.topic_sink import BatchCounts

HEADERS: Final = "replay."
"""The prefix of the headers with a record's origin."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The source, the range and the target of a replay."""

    path: str
    into: str
    start_ms: int
    end_ms: int
    topics: tuple[str, ...] = ()
    """Topics to replay; all topics of the path if empty."""
    keys: Collection[bytes] = ()
    """Replay only records with these keys; all if empty."""
    by_key: bool = False
    """Choose partitions by key; otherwise each record keeps its partition number."""
    id: str = ""
    """The id of the replay, for repeating it; derived from the fields above if empty."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of `format("headwater-segments")`."""

    @property
    def identity(self) -> str:
        """Return the given or derived id; equal replays have equal ids."""
        if self.id:
            return self.id
        said = (
            self.path,
            self.into,
            self.start_ms,
            self.end_ms,
            sorted(self.topics),
            sorted(self.keys),
            self.by_key,
            sorted(self.options.items()),
        )
        return sha256(repr(said).encode()).hexdigest()[:16]


def replay(
    spark: SparkSession, what: Replay, connection: ConnectionSettings | str
) -> "dict[str, BatchCounts]":
    """Write the records of the range; return by topic how many were written.

    Records that an earlier run with the same id wrote are not written again; they are counted as
    present. The connection may be just HOST:PORT.
    """
    from headwater.pipelines.topic_sink.sink_plan import TRANSACTIONS
    from headwater.pipelines.topic_sink.topic_sink import write_batch

    if isinstance(connection, str):
        connection = ConnectionSettings(connection)
    sources = _sources(what)
    _check_target(what, connection, max(sources.values()))
    counts = {}
    for topic, highest in sources.items():
        counts[topic] = write_batch(
            replayed(spark, what, topic, highest + 1),
            bootstrap_servers=connection.bootstrap_servers,
            topic=what.into,
            query=f"replay-{what.identity}-{topic}",
            batch_id=0,
            # a task may take longer than any transaction
            options={**connection.options, TRANSACTIONS: "off"},
        )
    return counts


def replayed(spark: SparkSession, what: Replay, topic: str, partitions: int) -> DataFrame:
    """Return the records of one topic for the sink: a task for each partition, in order."""
    read = spark.read.format("headwater-segments").options(
        **what.options,
        topic=topic,
        includeHeaders="true",
        startingTimestamp=str(what.start_ms),
        endingTimestamp=str(what.end_ms),
    )
    rows = read.load(what.path)
    if what.keys:
        rows = rows.where(f.col("key").isin([bytearray(key) for key in what.keys]))
    ordered = rows.repartitionById(partitions, "partition").sortWithinPartitions(
        "partition", "offset"
    )
    chosen = ordered.select("key", "value", _with_origin().alias("headers"), "partition")
    return chosen.drop("partition") if what.by_key else chosen


def _with_origin() -> Column:
    """Return the record's own headers and its origin."""
    milliseconds = f.unix_millis("timestamp").cast("string")
    origin = {
        "topic": f.col("topic"),
        "partition": f.col("partition").cast("string"),
        "offset": f.col("offset").cast("string"),
        "timestamp": milliseconds,
    }
    added = [
        f.struct(f.lit(HEADERS + name).alias("key"), text.cast("binary").alias("value"))
        for name, text in origin.items()
    ]
    own = f.coalesce("headers", f.array().cast("array<struct<key: string, value: binary>>"))
    return f.concat(own, f.array(*added))


def _sources(what: Replay) -> dict[str, int]:
    """Return the topics to replay, each with its highest partition."""
    if what.end_ms <= what.start_ms:
        raise KafkaError(E.INVALID_REQUEST, "the range ends before it begins")
    highest: dict[str, int] = {}
    for segment in find_segments(what.path):
        if not what.topics or segment.topic in what.topics:
            highest[segment.topic] = max(segment.partition, highest.get(segment.topic, 0))
    missing = set(what.topics) - set(highest)
    if missing or not highest:
        names = ", ".join(sorted(missing)) or "any topic"
        raise KafkaError(E.UNKNOWN_TOPIC_OR_PARTITION, f"{what.path} has no segments of {names}")
    return highest


def _check_target(what: Replay, connection: ConnectionSettings, highest: int) -> None:
    """Refuse a missing target topic or one with too few partitions before Spark reads anything."""
    with BlockingAdmin(**connection.client) as admin:
        partitions = len(admin.describe_topics([what.into])[what.into].partitions)
    if not what.by_key and partitions <= highest:
        raise KafkaError(
            E.INVALID_PARTITIONS,
            f"{what.into} has {partitions} partitions, but records come from partition {highest}: "
            "add partitions, or choose partitions by key (--by-key)",
        )

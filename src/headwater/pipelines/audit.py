"""Audits of whole logs on Spark, and what else wants every record of a log.

An audit reads headers and checksums of every batch (`level=batches`) and looks for what must not
be: damage, offsets that are missing or there twice, leader epochs that go back, batches that a
producer's log holds twice. Statistics per key and the last value of each key read the records.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.window import WindowSpec

from headwater.records.batch import SEQUENCES

DAMAGE: Final = "damage"
GAP: Final = "gap"
OVERLAP: Final = "overlap"
DUPLICATE: Final = "duplicate"
EPOCH: Final = "epoch"

_KINDS: Final = (DAMAGE, GAP, OVERLAP, DUPLICATE, EPOCH)
_SHOWN: Final = 1000


class Finding(NamedTuple):
    """Something that must not be in a log."""

    kind: str
    topic: str
    partition: int
    offset: int | None
    file: str
    position: int
    detail: str


class PartitionTotals(NamedTuple):
    """What a partition has in the files that were read."""

    topic: str
    partition: int
    files: int
    batches: int
    records: int
    bytes: int
    first_offset: int | None
    last_offset: int | None
    first_time: datetime | None
    last_time: datetime | None
    out_of_order: int
    """Batches that are older than one before them: producers may do that, so it is no finding."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit."""

    partitions: list[PartitionTotals]
    counts: dict[str, int]
    """Findings by kind."""
    findings: list[Finding]
    """The first of them, by place."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not any(self.counts.values())


def audit(
    spark: SparkSession, path: str, *, compacted: bool = False, **options: str
) -> AuditReport:
    """Read every batch that `path` means and say what is wrong.

    Args:
        spark: The session.
        path: What `format("headwater-segments")` takes.
        compacted: Offsets may be missing, as compaction leaves them.
        options: Further options of the format, such as `topic`.
    """
    read = spark.read.format("headwater-segments").options(**options, level="batches")
    batches = read.load(path).persist()
    try:
        found = findings(batches, compacted=compacted)
        counts = {row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()}
        first = found.orderBy("topic", "partition", "file", "position", "kind").limit(_SHOWN)
        return AuditReport(
            [PartitionTotals(*row) for row in totals(batches).collect()],
            {kind: counts.get(kind, 0) for kind in _KINDS},
            [Finding(*row) for row in first.collect()] if counts else [],
        )
    finally:
        batches.unpersist()


def findings(batches: DataFrame, *, compacted: bool = False) -> DataFrame:
    """One row for each thing that is wrong: kind, topic, partition, offset, file, position, detail."""
    placed = batches.where("crc_ok").withColumn("before", _before("last_offset"))
    placed = placed.withColumn("epoch_before", _before("leader_epoch"))
    kinds = [
        _findings(batches.where("not crc_ok"), DAMAGE, f.col("problem")),
        _findings(
            placed.where("base_offset <= before"),
            OVERLAP,
            f.format_string("offset %d was there already, up to %d", "base_offset", "before"),
        ),
        _findings(
            placed.where("leader_epoch < epoch_before"),
            EPOCH,
            f.format_string("leader epoch %d after %d", "leader_epoch", "epoch_before"),
        ),
        _duplicates(placed.where("before is null or base_offset > before")),
    ]
    if not compacted:
        detail = f.format_string("offset %d follows on %d", "base_offset", "before")
        kinds.append(_findings(placed.where("base_offset > before + 1"), GAP, detail))
    every = kinds[0]
    for more in kinds[1:]:
        every = every.unionByName(more)
    return every


def totals(batches: DataFrame) -> DataFrame:
    """Files, batches, records, bytes, offsets and times of each partition."""
    newest = f.max("max_timestamp").over(_by_offset().rowsBetween(Window.unboundedPreceding, -1))
    sound = f.col("crc_ok")
    timed = sound & ~f.col("control")
    return (
        batches.withColumn("late", sound & (f.col("max_timestamp") < newest))
        .groupBy("topic", "partition")
        .agg(
            f.count_distinct("file").alias("files"),
            f.count_if(sound).alias("batches"),
            f.coalesce(f.sum(f.when(timed, f.col("count"))), f.lit(0)).alias("records"),
            f.sum("size").alias("bytes"),
            f.min(f.when(sound, f.col("base_offset"))).alias("first_offset"),
            f.max(f.when(sound, f.col("last_offset"))).alias("last_offset"),
            f.min(f.when(timed, f.col("base_timestamp"))).alias("first_time"),
            f.max(f.when(timed, f.col("max_timestamp"))).alias("last_time"),
            f.count_if("late").alias("out_of_order"),
        )
        .orderBy("topic", "partition")
    )


def key_statistics(records: DataFrame) -> DataFrame:
    """For each key of a topic: count, bytes of its values, tombstones, first and last record."""
    return records.groupBy("topic", "key").agg(
        f.count("*").alias("count"),
        f.coalesce(f.sum(f.octet_length("value")), f.lit(0)).alias("bytes"),
        f.count_if(f.col("value").isNull()).alias("tombstones"),
        f.min("offset").alias("first_offset"),
        f.max("offset").alias("last_offset"),
        f.min("timestamp").alias("first_time"),
        f.max("timestamp").alias("last_time"),
    )


def latest_per_key(records: DataFrame, *, tombstones: bool = True) -> DataFrame:
    """What compaction would leave: the last record of each key in each partition.

    Args:
        records: Rows with the columns of `format("headwater")`.
        tombstones: Keep keys whose last value is null, as compaction does for a while.
    """
    place = ["topic", "partition", "key"]
    rest = [name for name in records.columns if name not in place]
    last = (
        records.where("key is not null")
        .groupBy(*place)
        .agg(f.max_by(f.struct(*rest), "offset").alias("last"))
        .select(*place, "last.*")
        .select(*records.columns)
    )
    return last if tombstones else last.where("value is not null")


def _by_offset() -> WindowSpec:
    return Window.partitionBy("topic", "partition").orderBy("base_offset", "file", "position")


def _before(column: str) -> Column:
    """The greatest value of a column in the batches before, by offset."""
    rows = _by_offset().rowsBetween(Window.unboundedPreceding, -1)
    return f.max(column).over(rows)


def _findings(rows: DataFrame, kind: str, detail: Column) -> DataFrame:
    return rows.select(
        f.lit(kind).alias("kind"),
        "topic",
        "partition",
        f.col("base_offset").alias("offset"),
        "file",
        "position",
        detail.alias("detail"),
    )


def _duplicates(batches: DataFrame) -> DataFrame:
    """Batches of an idempotent producer that do not go on behind its last one.

    Sequences count modulo 2**31, so a number far below the last one is a new round.
    """
    producer = ["topic", "partition", "producer_id", "producer_epoch"]
    last = f.lag("last_sequence").over(Window.partitionBy(*producer).orderBy("base_offset"))
    behind = f.col("last_before") - f.col("base_sequence")
    sequenced = batches.where("producer_id >= 0 and base_sequence >= 0 and not control")
    again = sequenced.withColumn("last_before", last).where(
        (behind >= 0) & (behind < SEQUENCES // 2)
    )
    detail = f.format_string(
        "producer %d epoch %d: sequence %d after %d",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "last_before",
    )
    return _findings(again, DUPLICATE, detail)

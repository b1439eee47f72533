"""Audits whole logs on Spark, and computes statistics that need every record.

An audit reads the header and the checksum of every batch (`level=batches`) and reports damage, missing
or repeated offsets, leader epochs that go back, and repeated batches of idempotent producers.
Statistics per key and the last value of each key read the records.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.window import WindowSpec

from headwater.records.batch import SEQUENCES

KINDS: Final = ("damage", "gap", "overlap", "duplicate", "epoch")
"""The kinds of findings."""

_SHOWN: Final = 1000


class Finding(NamedTuple):
    """A defect in a log."""

    kind: str
    topic: str
    partition: int
    offset: int | None
    file: str
    position: int
    detail: str


class PartitionTotals(NamedTuple):
    """The totals of a partition over the files read, and its findings by kind."""

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
    late: int
    """Batches with an older timestamp than an earlier batch; allowed, so not a finding."""
    damage: int
    gap: int
    overlap: int
    duplicate: int
    epoch: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit."""

    partitions: list[PartitionTotals]
    findings: list[Finding]
    """The first findings, by position."""

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of findings by kind."""
        return {kind: sum(getattr(part, kind) for part in self.partitions) for kind in KINDS}

    @property
    def ok(self) -> bool:
        """Return whether there are no findings."""
        return not any(self.counts.values())


def audit(
    spark: SparkSession, path: str, *, compacted: bool = False, **options: str
) -> AuditReport:
    """Read every batch of `path` and report defects.

    The files are read once, and again only if there are findings.

    Args:
        spark: The session.
        path: A path for `format("headwater-segments")`.
        compacted: Allow missing offsets, since the topic is compacted.
        options: Further options of the format, such as `topic`.
    """
    read = spark.read.format("headwater-segments").options(**options, level="batches")
    batches = checked(read.load(path), compacted=compacted)
    report = AuditReport(sorted(map(_in_utc, totals(batches).collect())), [])
    if report.ok:
        return report
    first = findings(batches).orderBy("topic", "partition", "file", "position").limit(_SHOWN)
    return AuditReport(report.partitions, [Finding(*row) for row in first.collect()])


def checked(batches: DataFrame, *, compacted: bool = False) -> DataFrame:
    """Add the columns `wrong` (defects) and `late` to batches (`level=batches`)."""
    sound = f.col("crc_ok")
    offset, sequence = f.col("base_offset"), f.col("base_sequence")
    before = f.max(f.when(sound, f.col("last_offset"))).over(_preceding())
    epoch = f.max(f.when(sound, f.col("leader_epoch"))).over(_preceding())
    newest = f.max(f.when(sound, f.col("max_timestamp"))).over(_preceding())
    gap = f.lit(False) if compacted else offset > before + 1
    wrong = [
        _wrong("damage", ~sound, f.col("problem")),
        _wrong("gap", sound & gap, f.format_string("offset %d follows on %d", offset, before)),
        _wrong(
            "overlap",
            sound & (offset <= before),
            f.format_string("offset %d, but %d was there already", offset, before),
        ),
        _wrong(
            "duplicate",
            sound & (f.coalesce(before, f.lit(-1)) < offset) & _is_repeated(),
            f.format_string("producer %d, sequence %d again", "producer_id", sequence),
        ),
        _wrong(
            "epoch",
            sound & (f.col("leader_epoch") < epoch),
            f.format_string("leader epoch %d after %d", "leader_epoch", epoch),
        ),
    ]
    late = sound & (f.col("max_timestamp") < newest)
    return batches.withColumns({"wrong": f.array_compact(f.array(*wrong)), "late": late})


def findings(batches: DataFrame) -> DataFrame:
    """Return one row for each defect of `checked` batches."""
    return batches.select("*", f.inline("wrong")).select(
        "kind", "topic", "partition", f.col("base_offset").alias("offset"), "file", "position",
        "detail",
    )  # fmt: skip


def totals(batches: DataFrame) -> DataFrame:
    """Return a row of `PartitionTotals` for each partition of `checked` batches."""
    sound = f.col("crc_ok")
    of_users = sound & ~f.col("control")
    return batches.groupBy("topic", "partition").agg(
        f.count_distinct("file").alias("files"),
        f.count_if(sound).alias("batches"),
        f.coalesce(f.sum(f.when(of_users, f.col("count"))), f.lit(0)).alias("records"),
        f.sum("size").alias("bytes"),
        f.min(f.when(sound, f.col("base_offset"))).alias("first_offset"),
        f.max(f.when(sound, f.col("last_offset"))).alias("last_offset"),
        f.min(f.when(of_users, f.col("base_timestamp"))).alias("first_time"),
        f.max(f.when(of_users, f.col("max_timestamp"))).alias("last_time"),
        f.count_if("late").alias("late"),
        *(f.count_if(f.array_contains("wrong.kind", kind)).alias(kind) for kind in KINDS),
    )


def key_statistics(records: DataFrame) -> DataFrame:
    """Return for each key: count, bytes of its values, tombstones, first and last record."""
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
    """Return the last record of each key in each partition, as compaction keeps it.

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


def _in_utc(row: Row) -> PartitionTotals:
    """Convert times to UTC: Spark returns naive times in the machine's time zone."""
    found = PartitionTotals(*row)
    first, last = found.first_time, found.last_time
    return found._replace(
        first_time=first and first.astimezone(UTC), last_time=last and last.astimezone(UTC)
    )


def _preceding() -> WindowSpec:
    """Return the window of the earlier batches of the same partition."""
    order = Window.partitionBy("topic", "partition").orderBy("base_offset", "file", "position")
    return order.rowsBetween(Window.unboundedPreceding, -1)


def _wrong(kind: str, condition: Column, detail: Column) -> Column:
    return f.when(condition, f.struct(f.lit(kind).alias("kind"), detail.alias("detail")))


def _is_repeated() -> Column:
    """Return whether an idempotent producer's batch does not follow its last one, or is a repeat.

    Sequences wrap at 2**31: the same sequence after that many offsets is not a repeat.
    """
    producer = Window.partitionBy("topic", "partition", "producer_id", "producer_epoch", "crc_ok")
    same = Window.partitionBy(
        "topic", "partition", "producer_id", "producer_epoch", "crc_ok", "base_sequence"
    )
    last = f.lag("last_sequence").over(producer.orderBy("base_offset", "file"))
    behind = last - f.col("base_sequence")
    since = f.col("base_offset") - f.lag("base_offset").over(same.orderBy("base_offset", "file"))
    numbered = (f.col("producer_id") >= 0) & (f.col("base_sequence") >= 0) & ~f.col("control")
    again = ((behind >= 0) & (behind < SEQUENCES // 2)) | (since < SEQUENCES)
    return numbered & f.coalesce(again, f.lit(False))

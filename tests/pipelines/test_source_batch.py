"""Topics as DataFrames: columns, types, and what a batch query reads."""

from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException


@pytest.fixture
def read(spark, bootstrap):
    def load(name, **options):
        reader = spark.read.format("headwater").option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", name).options(**options).load()

    return load


def test_the_columns_are_those_of_sparks_kafka_source(read, topic, produce):
    name = topic(partitions=2)
    produce(name, [b"a"], key=b"k", partition=1, timestamp=1_700_000_000_123, headers=[("h", b"1")])
    produce(name, [None], partition=0, timestamp=1_700_000_000_000)
    rows = read(name, includeHeaders="true")
    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, second = rows.orderBy("partition").selectExpr(
        "key", "value", "topic", "partition", "offset", "unix_millis(timestamp) AS ms",
        "timestampType", "headers",
    ).collect()  # fmt: skip
    assert tuple(first) == (None, None, name, 0, 0, 1_700_000_000_000, 0, None)
    assert second.headers == [("h", b"1")]
    assert tuple(second)[:7] == (b"k", b"a", name, 1, 0, 1_700_000_000_123, 0)


def test_without_being_asked_for_there_are_no_headers(read, topic):
    assert read(topic()).columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType"
    ]  # fmt: skip


def test_times_are_moments_and_not_texts(spark, read, topic, produce):
    name = topic()
    produce(name, [b"x"], timestamp=0)
    shown = read(name).selectExpr("CAST(timestamp AS STRING) AS text", "timestamp").first()
    assert shown.text == "1970-01-01 00:00:00"
    assert shown.timestamp.astimezone(UTC) == datetime.fromtimestamp(0, UTC)


def test_an_empty_topic_is_an_empty_table(read, topic):
    assert read(topic(partitions=2)).count() == 0


def test_many_rows_come_once_each_however_tasks_are_cut(read, topic, produce):
    name = topic(partitions=3)
    for partition in range(3):  # a slow machine would spread them less evenly
        produce(name, (b"%d" % n for n in range(partition, 30_000, 3)), partition=partition)
    whole = read(name)
    cut = read(name, minPartitions="7", maxRecordsPerPartition="9000")
    assert whole.rdd.getNumPartitions() == 3
    assert 5 <= cut.rdd.getNumPartitions() <= 9  # about seven: shares of partitions are rounded
    summed = "COUNT(*)", "COUNT(DISTINCT value)", "SUM(CAST(CAST(value AS STRING) AS BIGINT))"
    assert cut.selectExpr(*summed).first() == (30_000, 30_000, 30_000 * 29_999 // 2)


def test_filters_and_projections_need_no_internal_setting(read, topic, produce):
    """A source with pushFilters breaks batch reads; this one has none and lets Spark filter."""
    name = topic()
    produce(name, ["a", "b", "c"])
    found = read(name).where(f"offset >= 1 AND topic = '{name}'").select("value").collect()
    assert [row.value for row in found] == [b"b", b"c"]


def test_a_mistyped_option_is_refused_when_the_table_is_loaded(read, topic):
    with pytest.raises(PySparkException, match="did you mean startingOffsets"):
        read(topic(), startingOffset="earliest")


def test_what_a_batch_cannot_do_is_said_by_the_query(read, topic):
    with pytest.raises(PySparkException, match="startingOffsets of a batch query cannot be latest"):
        read(topic(), startingOffsets="latest").count()

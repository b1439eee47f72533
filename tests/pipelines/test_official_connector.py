"""Spark's own Kafka connector against the broker: it cannot tell it from Kafka."""

import json

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - its usual name

import headwater
from headwater import TopicPartition
from tests.pipelines.connector_jars import official_connector
from tests.pipelines.read_back import records_of

HOUR_MS = 3_600_000
NOON_MS = 1_750_000_000_000


@pytest.fixture
def kafka(spark, bootstrap):
    """`spark.read` or `spark.readStream`, of a topic, with options."""
    missing = official_connector()[1]
    if missing:
        pytest.skip(missing)

    def reader(begin, **options):
        chosen = {"kafka.bootstrap.servers": bootstrap, **options}
        return begin.format("kafka").options(**chosen).load()

    return reader


def test_a_batch_has_every_column_and_header(spark, kafka, topic, producer):
    name = topic(partitions=2)
    producer.send(
        name, b"v", key=b"k", partition=1, headers=[("h", b"1"), ("h", None)], timestamp=NOON_MS
    )
    producer.send(name, None, key=b"gone", partition=0, timestamp=NOON_MS)
    producer.flush()
    frame = kafka(spark.read, subscribe=name, includeHeaders="true").orderBy("partition")
    tombstone, row = frame.withColumn("ms", F.unix_millis("timestamp")).collect()
    assert (tombstone.key, tombstone.value, tombstone.headers) == (b"gone", None, None)
    assert (row.key, row.value, row.topic, row.partition, row.offset) == (b"k", b"v", name, 1, 0)
    assert (row.ms, row.timestampType) == (NOON_MS, 0)
    assert [(pair.key, pair.value) for pair in row.headers] == [("h", b"1"), ("h", None)]


def test_a_range_of_offsets_and_a_range_of_time_are_read_exactly(spark, kafka, topic, producer):
    name = topic()
    for number in range(10):
        producer.send(name, b"%d" % number, timestamp=NOON_MS + number * HOUR_MS)
    producer.flush()
    by_offset = kafka(
        spark.read,
        subscribe=name,
        startingOffsets=json.dumps({name: {"0": 3}}),
        endingOffsets=json.dumps({name: {"0": 5}}),
    )
    by_time = kafka(
        spark.read,
        subscribe=name,
        startingTimestamp=str(NOON_MS + 2 * HOUR_MS),
        endingTimestamp=str(NOON_MS + 6 * HOUR_MS),
    )
    assert [row.value for row in by_offset.collect()] == [b"3", b"4"]
    assert [row.value for row in by_time.orderBy("offset").collect()] == [b"2", b"3", b"4", b"5"]


def test_both_connectors_read_the_same_of_a_topic_with_transactions(
    spark, kafka, topic, produce, bootstrap, tmp_path
):
    name = topic()
    produce(name, ["a"])
    with headwater.Producer(
        bootstrap_servers=bootstrap, transactional_id=f"in-{name}", transaction_timeout_ms=900_000
    ) as sender:
        with sender.transaction():
            sender.send(name, b"b")
        sender.begin_transaction()
        sender.send_many(name, [b"aborted"] * 3).result()
        sender.abort_transaction()
        sender.begin_transaction()
        sender.send(name, b"open")
        sender.flush()
        isolation = {"kafka.isolation.level": "read_committed"}
        theirs = kafka(spark.read, subscribe=name, **isolation)
        ours = spark.read.format("headwater").options(
            **{"kafka.bootstrap.servers": bootstrap, "subscribe": name}
        )
        columns = ("offset", "value", "timestamp")
        found = ours.load().select(*columns).orderBy("offset").collect()
        assert [row.value for row in found] == [b"a", b"b"]
        assert found == theirs.select(*columns).orderBy("offset").collect()
        everything = ours.option("kafka.isolation.level", "read_uncommitted").load()
        assert everything.count() == kafka(spark.read, subscribe=name).count() == 6

        def rows_of_stream(reader, place):
            query = (
                reader.option("kafka.bootstrap.servers", bootstrap)
                .option("subscribe", name)
                .option("startingOffsets", "earliest")
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", str(tmp_path / place))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(600)
            return [row["numInputRows"] for row in query.recentProgress if row["numInputRows"]]

        stream = spark.readStream
        assert rows_of_stream(stream.format("headwater"), "ours") == [2]
        assert rows_of_stream(stream.format("kafka").options(**isolation), "theirs") == [2]
        sender.commit_transaction()
    assert rows_of_stream(stream.format("headwater"), "ours") == [1]
    assert rows_of_stream(stream.format("kafka").options(**isolation), "theirs") == [1]
    pieces = ours.option("kafka.isolation.level", "read_committed").option("minPartitions", "9")
    assert pieces.load().rdd.getNumPartitions() == 9, "some hold only markers or what was aborted"
    found = pieces.load().select(*columns).orderBy("offset").collect()
    assert [row.value for row in found] == [b"a", b"b", b"open"]
    theirs = kafka(spark.read, subscribe=name, **isolation)
    assert found == theirs.select(*columns).orderBy("offset").collect()


def test_a_pattern_finds_its_topics_and_no_other(spark, kafka, topic, produce):
    first, second, other = topic("plum"), topic("plum"), topic("pear")
    for name in (first, second, other):
        produce(name, [name])
    frame = kafka(spark.read, subscribePattern=f"{first}|{second}")
    assert sorted(row.value.decode() for row in frame.collect()) == sorted([first, second])


def test_one_partition_is_split_where_more_tasks_are_wanted(spark, kafka, topic, produce):
    name = topic()
    produce(name, map(str, range(1000)))
    frame = kafka(spark.read, subscribe=name, minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    assert frame.select("offset").distinct().count() == 1000


def test_a_stream_goes_on_where_its_checkpoint_ended(spark, kafka, topic, produce, tmp_path):
    name = topic(partitions=2)

    def run():
        frame = kafka(
            spark.readStream, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="7"
        )
        chosen = frame.select(F.col("value").cast("string"))
        query = (
            chosen.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(60)
        return sorted(int(row.value) for row in spark.read.parquet(str(tmp_path / "out")).collect())

    produce(name, map(str, range(20)), partition=0)
    assert run() == list(range(20))
    produce(name, map(str, range(20, 30)), partition=1)
    assert run() == list(range(30))


def test_a_batch_is_written_with_keys_headers_topics_and_partitions(spark, kafka, topic, bootstrap):
    left, right = topic("left", partitions=2), topic("right")
    rows = [
        (left, 1, "k1", "v1", [("h", bytearray(b"x"))]),
        (left, 0, "k2", None, None),
        (right, None, None, "v3", None),
    ]
    shape = "topic string, partition int, key string, value string, headers array<struct<key:string,value:binary>>"
    frame = spark.createDataFrame(rows, shape)
    frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option(
        "includeHeaders", "true"
    ).save()
    second, first = records_of(bootstrap, left)
    (third,) = records_of(bootstrap, right)
    assert (first.key, first.value, first.headers) == (b"k1", b"v1", (("h", b"x"),))
    assert (second.partition, second.key, second.value) == (0, b"k2", None)
    assert (third.key, third.value) == (None, b"v3")


def test_a_stream_is_written_to_another_topic(spark, kafka, topic, produce, bootstrap, tmp_path):
    source, target = topic("source", partitions=2), topic("target")
    for number in range(2):
        produce(source, [f"{number}-{index}" for index in range(50)], partition=number)
    query = (
        kafka(spark.readStream, subscribe=source, startingOffsets="earliest")
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert len({record.value for record in records_of(bootstrap, target)}) == 100


def test_lost_records_stop_a_stream_unless_it_may_lose_them(
    spark, kafka, topic, produce, bootstrap, tmp_path
):
    name = topic()
    produce(name, map(str, range(10)))

    def run(fail, seen):
        frame = kafka(
            spark.readStream,
            subscribe=name,
            startingOffsets="earliest",
            maxOffsetsPerTrigger="5",
            failOnDataLoss=fail,
        )

        def keep(batch, _):
            seen.extend(int(row.value) for row in batch.select("value").collect())

        query = (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    seen: list[int] = []
    run("true", seen)
    assert seen == list(range(10))
    produce(name, map(str, range(10, 20)))
    with headwater.Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({TopicPartition(name, 0): 15})
    with pytest.raises(StreamingQueryException, match=r"(?i)data"):
        run("true", seen)
    seen.clear()
    run("false", seen)
    assert seen == list(range(15, 20))

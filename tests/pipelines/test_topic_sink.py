"""Writing to topics from Spark: what is written, how often, and what is refused."""

import shutil
import signal
import subprocess
import sys

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from headwater import Admin, TopicPartition
from headwater.pipelines.topic_sink import topic_sink
from headwater.pipelines.topic_sink.ledger import Ledger
from headwater.pipelines.topic_sink.origin import RecordOrigin
from headwater.pipelines.topic_sink.topic_sink import write_batch
from tests.pipelines.read_back import committed_of, records_of

PATIENCE_S = 600
HEADERS = "headers array<struct<key:string,value:binary>>"


@pytest.fixture
def write(bootstrap):
    """Write a DataFrame in one go."""

    def run(frame, **options):
        chosen = {"kafka.bootstrap.servers": bootstrap, **options}
        frame.write.format("headwater").options(**chosen).mode("append").save()

    return run


@pytest.fixture
def copy(spark, bootstrap, tmp_path):
    """Copy a topic to another as a stream, all that there is; the query when it is through."""

    def run(source, target, checkpoint="checkpoint", sink=None, **options):
        chosen = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", **options}
        query = (
            spark.readStream.format("headwater")
            .options(**chosen)
            .option("subscribe", source)
            .load()
            .select("key", "value")
            .writeStream.format("headwater")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", target)
            .options(**(sink or {}))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE_S)
        return query

    return run


def marks(bootstrap, query):
    """What the group of a query's sink says: (topic, partition) -> (offset, note)."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        rows = admin.group_offsets(f"headwater-sink.{query}")
    return {place: (row.offset, row.metadata) for place, row in rows.items()}


def test_a_batch_is_written_with_keys_headers_topics_and_partitions(spark, write, topic, bootstrap):
    left, right = topic("left", partitions=2), topic("right")
    rows = [
        (left, 1, "k1", "v1", [("h", bytearray(b"x")), ("n", None)]),
        (left, 0, "k2", None, None),
        (right, None, None, "v3", None),
    ]
    write(
        spark.createDataFrame(
            rows, f"topic string, partition int, key string, value string, {HEADERS}"
        )
    )
    second, first = records_of(bootstrap, left)
    (third,) = records_of(bootstrap, right)
    assert (first.key, first.value) == (b"k1", b"v1")
    assert first.headers == (("h", b"x"), ("n", None))
    assert (second.partition, second.key, second.value) == (0, b"k2", None)
    assert (third.key, third.value, third.headers) == (None, b"v3", ())


def test_the_option_topic_wins_over_the_column_and_other_columns_are_left_out(
    spark, write, topic, bootstrap
):
    name = topic(partitions=3)
    frame = spark.range(2000).select(
        F.col("id"),
        F.lit("elsewhere").alias("topic"),
        F.col("id").cast("string").alias("key"),
        F.col("id").cast("string").cast("binary").alias("value"),
    )
    write(frame, topic=name)
    found = records_of(bootstrap, name)
    assert sorted(int(record.value) for record in found) == list(range(2000))
    assert {record.partition for record in found} == {0, 1, 2}
    assert all(record.key == record.value for record in found)


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ("id string", {"topic": "t"}, "needs a column value"),
        ("value string", {"topic": "t", "kafka.ssl.truststore.location": "x"}, "ssl"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(spark, write, shape, options, words):
    with pytest.raises(PySparkException, match=f"(?s){words}"):
        write(spark.createDataFrame([], shape), **options)


def test_a_stream_is_written_in_a_transaction_per_task_and_noted_in_groups(
    copy, topic, produce, bootstrap
):
    source, target = topic("source", partitions=2), topic("target", partitions=3)
    for number in range(2):
        produce(source, [f"{number}-{index}" for index in range(30)], partition=number)
    query = copy(source, target, maxOffsetsPerTrigger="40")
    found = records_of(bootstrap, target, committed=True)
    assert len({record.value for record in found}) == len(found) == 60
    assert {record.headers for record in found} == {()}
    held = marks(bootstrap, query.id)
    assert {tuple(note.split(" ")[:2]) for _, note in held.values()} == {("done", "1")}
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert {at: offset for at, (offset, _) in held.items()} == admin.end_offsets(held)
    for task in range(2):
        parts = marks(bootstrap, f"{query.id}.{task}")
        ((offset, note),) = parts.values()
        assert (offset, tuple(note.split(" ")[:2])) == (1, ("part", "1"))


def test_a_stream_without_transactions_has_the_origin_of_each_record_in_a_header(
    copy, topic, produce, bootstrap
):
    source, target = topic("source", partitions=2), topic("target", partitions=3)
    for number in range(2):
        produce(source, [f"{number}-{index}" for index in range(30)], partition=number)
    query = copy(source, target, maxOffsetsPerTrigger="40", sink={"transactions": "off"})
    found = records_of(bootstrap, target)
    assert len({record.value for record in found}) == len(found) == 60
    origins = {dict(record.headers)["headwater.origin"] for record in found}
    assert len(origins) == 60
    assert {origin.split(b"/")[0] for origin in origins} == {query.id.encode()}
    assert {int(origin.split(b"/")[1]) for origin in origins} == {0, 1}
    held = marks(bootstrap, query.id)
    assert {note for _, note in held.values()} == {"done 1"}
    assert sum(offset for offset, _ in held.values()) == 60


def test_a_batch_of_foreach_batch_is_written_once_however_often_it_comes(spark, topic, bootstrap):
    name, other = topic("once", partitions=2), topic("other")
    frame = spark.range(20).select(F.col("id").cast("string").alias("value"))

    def run(batch_id, query="q", target=name):
        write_batch(
            frame,
            bootstrap_servers=bootstrap,
            topic=target,
            query=f"{query}-{name}",
            batch_id=batch_id,
        )

    for batch_id in (0, 0, 1, 1):
        run(batch_id)
    with pytest.raises(PySparkException, match=r"StaleCheckpointError: .*is back at batch 0"):
        run(0)
    run(0, query="another")
    run(0, target=other)
    assert len(committed_of(bootstrap, name)) == 60
    assert len(committed_of(bootstrap, other)) == 20
    held = marks(bootstrap, f"q-{name}")
    assert {(place.topic, *note.split(" ")[:2]) for place, (_, note) in held.items()} == {
        (name, "done", "1"),
        (other, "done", "0"),
    }


def test_brokers_without_transactions_get_records_with_their_origin(
    spark, topic, bootstrap, monkeypatch, caplog
):
    monkeypatch.setattr(topic_sink, "_transactional", set())
    monkeypatch.setattr(topic_sink.Admin, "supports_transactions", lambda _: False)
    name = topic()
    frame = spark.range(3).select(F.col("id").cast("string").alias("value"))
    for _ in range(2):
        write_batch(frame, bootstrap_servers=bootstrap, topic=name, query=name, batch_id=0)
    found = records_of(bootstrap, name)
    assert [len(record.headers) for record in found] == [1, 1, 1]
    assert f"a broker of {bootstrap} has no transactions" in caplog.text


def test_a_driver_that_another_one_has_replaced_fails_and_names_its_query(
    spark, topic, produce, bootstrap, tmp_path
):
    source, target = topic("source"), topic("target")
    produce(source, map(str, range(4)))

    def each(batch, batch_id):
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if batch_id == 1:
            with Admin(bootstrap_servers=bootstrap) as admin:
                origin = RecordOrigin(query, batch_id, 0)
                Ledger(admin, query).claim(target, [0], origin, "the-second-driver")
        write_batch(
            batch.select("value"),
            bootstrap_servers=bootstrap,
            topic=target,
            query=query,
            batch_id=batch_id,
        )

    query = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "2")
        .load()
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match=f"query {query.id} is fenced.*stop one of the two"):
        query.awaitTermination(PATIENCE_S)
    assert committed_of(bootstrap, target) == [b"0", b"1"]


def test_an_older_copy_of_a_checkpoint_is_refused_before_rows_are_lost(
    copy, topic, produce, bootstrap, tmp_path
):
    source, target = topic("source"), topic("target")
    checkpoint, older = tmp_path / "checkpoint", tmp_path / "older"
    for count, values in enumerate((["a"], ["b"], ["c"])):
        produce(source, values)
        copy(source, target, checkpoint=checkpoint)
        if count == 0:
            shutil.copytree(checkpoint, older)
    produce(source, ["d"])
    with pytest.raises(PySparkException, match="restore the newest checkpoint"):
        copy(source, target, checkpoint=older)
    assert committed_of(bootstrap, target) == [b"a", b"b", b"c"]
    copy(source, target, checkpoint=checkpoint)
    assert committed_of(bootstrap, target) == [b"a", b"b", b"c", b"d"]


def test_rows_that_no_broker_takes_fail_the_write_with_the_reason(spark, write, topic, bootstrap):
    name = topic(configs={"max.message.bytes": "1000"})
    frame = spark.range(1).select(F.repeat(F.lit("x"), 5000).alias("value"))
    with pytest.raises(PySparkException, match=r"TopicWriteError: .*max\.message\.bytes"):
        write(frame, topic=name)
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.end_offsets([TopicPartition(name, 0)]) == {TopicPartition(name, 0): 0}


def test_killed_tasks_and_drivers_show_nothing_torn_and_write_every_row_once(
    copy, topic, produce, bootstrap, tmp_path
):
    source, target = topic("source", partitions=2), topic("target", partitions=2)
    for number in range(2):
        produce(source, [f"{number}-{index}" for index in range(150)], partition=number)
    checkpoint = tmp_path / "checkpoint"

    def crash(where):
        place = [bootstrap, source, target, str(checkpoint)]
        command = [sys.executable, "-m", "tests.pipelines.crashing_sink", where, *place]
        with (tmp_path / "driver.log").open("w+") as words:
            done = subprocess.run(
                command, start_new_session=True, stderr=words, check=False, timeout=600
            )
            words.seek(0)
            assert done.returncode == -signal.SIGKILL, words.read()[-3000:]
        return committed_of(bootstrap, target)

    half = crash("write")
    assert half == sorted(b"0-%d" % number for number in range(100)), "one task, whole"
    assert len(records_of(bootstrap, target)) > 100, "the other task left what nobody sees"
    assert not list(checkpoint.glob("commits/[0-9]*"))
    first_batch = crash("commit")
    assert len(set(first_batch)) == len(first_batch) == 200
    assert not list(checkpoint.glob("commits/[0-9]*"))
    copy(source, target, maxOffsetsPerTrigger="200")
    found = committed_of(bootstrap, target)
    assert len(set(found)) == len(found) == 300

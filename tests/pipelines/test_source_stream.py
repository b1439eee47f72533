"""Topics as streams: checkpoints, limits, triggers, restarts."""

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

import headwater
from tests.pipelines.connector_jars import official_connector


@pytest.fixture
def stream(spark, bootstrap):
    def load(name, **options):
        reader = spark.readStream.format("headwater").option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", name).options(**options).load()

    return load


class Sink:
    """Runs a query to the end of what is there, and keeps what each batch brought."""

    def __init__(self, checkpoint: Path):
        self.checkpoint = checkpoint
        self.batches: list[list[str]] = []
        self.progress: list[dict] = []

    def run(self, rows, **trigger):
        def keep(batch, number):
            found = batch.orderBy("partition", "offset").collect()
            self.batches.append([row.value.decode() for row in found])

        query = (
            rows.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )
        try:
            query.processAllAvailable() if trigger else query.awaitTermination(60)
        finally:
            query.stop()
        self.progress = [json.loads(one.json) for one in query.recentProgress]
        return self

    def taken(self):
        """What came since the last look."""
        found, self.batches = [value for batch in self.batches for value in batch], []
        return found

    def offsets(self):
        newest = max((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        return json.loads(newest.read_text().splitlines()[-1])


@pytest.fixture
def sink(tmp_path):
    return Sink(tmp_path / "checkpoint")


def test_a_restart_goes_on_where_the_checkpoint_is_which_is_written_as_kafkas_is(
    stream, sink, topic, produce
):
    name = topic(partitions=2)
    produce(name, ["a", "b"], partition=1)
    rows = stream(name, startingOffsets="earliest")
    assert sink.run(rows).taken() == ["a", "b"]
    assert sink.offsets() == {name: {"0": 0, "1": 2}}
    produce(name, ["c"], partition=0)
    assert sink.run(rows).taken() == ["c"]
    assert sink.offsets() == {name: {"0": 1, "1": 2}}
    assert sink.run(rows).taken() == []


def test_a_limit_holds_for_every_batch_until_all_is_read(stream, sink, topic, produce):
    name = topic(partitions=2)
    for partition in (0, 1):
        produce(name, [f"{partition}-{n}" for n in range(5)], partition=partition)
    sink.run(stream(name, startingOffsets="earliest", maxOffsetsPerTrigger="4"))
    assert [len(batch) for batch in sink.batches] == [4, 4, 2]
    assert len(set(sink.taken())) == 10


def test_a_target_time_works_off_everything(stream, sink, topic, produce):
    name = topic()
    produce(name, ["a", "b"])
    sink.run(stream(name, startingOffsets="earliest", targetBatchTime="2s"))
    assert sink.taken() == ["a", "b"]


def test_latest_reads_what_comes_after_the_start_also_if_it_comes_between_runs(
    stream, sink, topic, produce
):
    name = topic()
    produce(name, ["before"])
    rows = stream(name)
    assert sink.run(rows).taken() == []
    produce(name, ["after"])
    assert sink.run(rows).taken() == ["after"]


def test_a_query_that_starts_at_latest_reads_what_comes_while_it_runs(stream, sink, topic, produce):
    name = topic()
    produce(name, ["before"])
    found = []
    query = (
        stream(name)
        .writeStream.foreachBatch(lambda batch, _: found.extend(batch.select("value").collect()))
        .option("checkpointLocation", str(sink.checkpoint))
        .start()
    )
    try:
        query.processAllAvailable()
        produce(name, ["after"])
        query.processAllAvailable()
    finally:
        query.stop()
    assert [row.value for row in found] == [b"after"]


def test_a_running_query_sees_new_rows_and_reports_how_far_the_topic_reaches(
    stream, sink, topic, produce
):
    name = topic()
    produce(name, ["a"])
    rows = stream(name, startingOffsets="earliest", minOffsetsPerTrigger="1")
    sink.run(rows, processingTime="0 seconds")
    assert sink.taken() == ["a"]
    source = next(one for one in sink.progress if one["numInputRows"])["sources"][0]
    assert source["endOffset"] == {name: {"0": 1}}
    assert source["latestOffset"] == {name: {"0": 1}}


def test_what_retention_took_fails_the_query_with_a_clear_word(
    stream, sink, topic, produce, bootstrap
):
    name = topic()
    produce(name, ["a", "b", "c", "d"])
    rows = stream(name, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    sink.run(stream(name, startingOffsets=f'{{"{name}": {{"0": 1}}}}', maxOffsetsPerTrigger="3"))
    assert sink.taken() == ["b", "c", "d"]
    produce(name, ["e", "f"])
    with headwater.Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({(name, 0): 5})
    with pytest.raises(
        StreamingQueryException, match=r"offsets 4 to 4 were deleted before they were"
    ):
        sink.run(rows)
    lenient = stream(name, startingOffsets="earliest", failOnDataLoss="false")
    assert sink.run(lenient).taken() == ["f"]


def test_a_checkpoint_of_the_official_connector_goes_on_and_back(
    spark, bootstrap, sink, topic, produce
):
    missing = official_connector()[1]
    if missing:
        pytest.skip(missing)
    name = topic(partitions=2)
    for number, form in enumerate(("kafka", "headwater", "kafka", "headwater")):
        produce(name, [form], partition=number % 2)
        reader = spark.readStream.format(form).option("kafka.bootstrap.servers", bootstrap)
        rows = reader.option("subscribe", name).option("startingOffsets", "earliest").load()
        assert sink.run(rows).taken() == [form]


def test_a_stream_has_no_end(stream, sink, topic):
    with pytest.raises(StreamingQueryException, match="endingOffsets is for batch queries"):
        sink.run(stream(topic(), endingOffsets="latest"))

"""The lag of streaming queries, as tools for consumer groups show it."""

import json
import subprocess
import sys

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

import headwater
from headwater import TopicPartition
from headwater.pipelines.running import lag as lag_room
from headwater.pipelines.running.lag import track_lag

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def read(spark, bootstrap, tmp_path):
    """Read all that there is of a topic as a stream; the query when it is through."""

    def run(name, source, **options):
        writer = (
            spark.readStream.format("headwater")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / (name or "unnamed")))
            .trigger(availableNow=True)
        )
        query = (writer if name is None else writer.queryName(name)).start()
        assert query.awaitTermination(60)
        return query

    return run


@pytest.fixture
def lag(spark, bootstrap):
    """A listener at work, which has committed everything when the test asks."""
    listener = track_lag(spark, bootstrap)
    yield listener
    listener.stop()


def lags_by_the_cli(bootstrap, group):
    command = [sys.executable, "-m", "headwater", "groups", "describe", group, "--json"]
    done = subprocess.run(
        [*command, "--bootstrap-server", bootstrap], capture_output=True, text=True, check=True
    )
    (told,) = json.loads(done.stdout)
    return {row["partition"]: row["lag"] for row in told["partitions"]}


def committed(bootstrap, group):
    with headwater.Admin(bootstrap_servers=bootstrap) as admin:
        return {place: row.offset for place, row in admin.group_offsets(group).items()}


def test_a_query_that_caught_up_has_no_lag_in_any_tool(read, lag, topic, produce, bootstrap):
    source = topic("steps", partitions=2)
    for number in range(2):
        produce(source, map(str, range(10 + number)), partition=number)
    name = f"watched-{source}"
    query = read(name, source, maxOffsetsPerTrigger="8")
    assert lag.wait_for_end(query.runId)
    assert lags_by_the_cli(bootstrap, name) == {0: 0, 1: 0}
    asked = [ConsumerGroupTopicPartitions(name)]
    client = AdminClient({"bootstrap.servers": bootstrap})
    told = client.list_consumer_group_offsets(asked)[name].result().topic_partitions
    assert {(row.topic, row.partition, row.offset) for row in told} == {
        (source, 0, 10),
        (source, 1, 11),
    }
    produce(source, ["late"], partition=1)
    assert lags_by_the_cli(bootstrap, name) == {0: 0, 1: 1}


def test_a_run_that_died_before_its_lag_was_committed_is_made_up_for_by_the_next(
    read, topic, produce, bootstrap, request
):
    source = topic()
    name = f"restarted-{source}"
    produce(source, ["one"])
    read(name, source)  # nobody commits its lag
    assert committed(bootstrap, name) == {}
    produce(source, ["two"])
    lag = request.getfixturevalue("lag")
    query = read(name, source)
    assert lag.wait_for_end(query.runId)
    assert committed(bootstrap, name) == {TopicPartition(source, 0): 2}


def test_a_query_without_a_name_has_a_group_of_its_id(read, lag, topic, produce, bootstrap):
    source = topic()
    produce(source, ["one"])
    query = read(None, source)
    assert lag.wait_for_end(query.runId)
    assert committed(bootstrap, query.id) == {TopicPartition(source, 0): 1}


def test_a_broker_that_is_gone_and_a_callback_that_raises_leave_the_query_alone(
    spark, read, topic, produce, caplog, monkeypatch
):
    monkeypatch.setattr(lag_room, "PATIENCE_MS", 300)
    source = topic()
    produce(source, ["one", "two"])
    told = []

    def hear(progress):
        told.append(progress.numInputRows)
        raise RuntimeError("a listener's own fault")

    listener = track_lag(spark, NOWHERE, group=lambda name, _: f"group of {name}", on_progress=hear)
    query = read("told", source)
    assert listener.wait_for_end(query.runId)
    listener.stop()
    assert query.exception() is None
    assert sum(told) == 2
    assert "query told: its progress was not reported" in caplog.text
    assert "query group of told: its lag was not committed" in caplog.text

"""Spark Connect, as serverless Spark and spark-pipelines have it: topics work, the rest is refused."""

import pytest
from pyspark.sql.connect.session import SparkSession
from tools.free_ports import free_port

from headwater.pipelines import load_project, overwrite, run, track_lag
from headwater.pipelines.running.preflight import NotReadyError
from headwater.pipelines.session import register
from headwater.pipelines.tables.table import TableError
from tests.pipelines.lake import committed
from tests.pipelines.read_back import values_of

PATIENCE_S = 600


@pytest.fixture
def remote(spark):
    """A session over the network, of a server in the JVM of the suite."""
    jvm, context, port = spark._jvm, spark._jsc.sc(), str(free_port())
    context.conf().set("spark.connect.grpc.binding.address", "127.0.0.1")
    context.conf().set("spark.connect.grpc.binding.port", port)
    server = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    server.start(context)
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    register(session)
    yield session
    session.stop()
    at_once = getattr(server, "stop$default$1")()
    server.stop(at_once, at_once)


def test_topics_are_read_and_written_and_their_lag_is_shown_and_the_rest_is_refused(
    remote, bootstrap, topic, produce, tmp_path
):
    name, copied = topic(partitions=2), topic()
    produce(name, ["a", "b"], partition=0)
    produce(name, ["c"], partition=1)
    here = {"kafka.bootstrap.servers": bootstrap}
    assert remote.read.format("headwater").options(**here, subscribe=name).load().count() == 3

    rows = (
        remote.readStream.format("headwater")
        .options(**here, subscribe=name, startingOffsets="earliest")
        .load()
    )
    listener = track_lag(remote, bootstrap)
    query = (
        rows.select("value")
        .writeStream.format("headwater")
        .options(**here, topic=copied, checkpointLocation=str(tmp_path / "checkpoint"))
        .queryName(copied)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    assert listener.wait_for_end(query.runId)
    listener.stop()
    assert values_of(bootstrap, copied) == [b"a", b"b", b"c"]
    assert committed(bootstrap, copied) == {(name, 0): 2, (name, 1): 1}

    target = f"delta:{tmp_path}/table"
    with pytest.raises(TableError, match="Spark Connect"):
        overwrite(rows, target)
    definitions = tmp_path / "tables.sql"
    definitions.write_text(f"CREATE STREAMING TABLE t AS SELECT * FROM STREAM topic.`{name}`;")
    with pytest.raises(NotReadyError, match="Spark Connect"):
        run(load_project(definitions), spark=remote)

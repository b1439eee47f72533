"""Runs in processes of their own: a Spark cluster by its URL, signals, exit codes."""

import os
import signal
import subprocess
import sys
import time

from tools.spark_cluster import SparkCluster

from tests.pipelines.lake import rows_of
from tests.pipelines.projects import copied, shop

PATIENCE_S = 200
SMALL = ["--spark", "spark.sql.shuffle.partitions=1", "--spark", "spark.driver.memory=512m"]


def command(*words, out):
    """The command line as people type it."""
    arguments = [sys.executable, "-m", "headwater", "pipeline", *map(str, words)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(arguments, stdout=out, stderr=out, env=environment)


def until(true, process, what):
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert process.poll() is None, f"the run ended before {what}"
        assert time.monotonic() < deadline, f"no {what} in time"
        time.sleep(0.05)


def committed_versions(table):
    """How many commits a Delta table has, without opening it."""
    return len(list((table / "_delta_log").glob("*.json")))


def count(table):
    return len(rows_of(table)) if committed_versions(table) else 0


def test_a_cluster_by_its_url_runs_a_pipeline_until_it_is_told_to_stop(
    bootstrap, topic, produce, tmp_path
):
    events = topic("events", partitions=2)
    project = copied(tmp_path / "far", bootstrap, events)
    produce(events, map(str, range(100)))
    with SparkCluster(workers=2) as cluster, (tmp_path / "out").open("wb") as out:
        far = ["--spark", "spark.driver.host=127.0.0.1", "--spark", "spark.executor.memory=512m"]
        process = command(
            *("run", project.root, "--continuous", "--master", cluster.url, *SMALL, *far), out=out
        )
        try:
            until(lambda: count(project.storage / "copy") == 100, process, "100 rows")
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    said = (tmp_path / "out").read_text()
    assert "far.raw: rows 100" in said
    assert "Exception" not in said


def test_an_ingest_in_a_process_of_its_own_infers_a_schema_and_fills_the_table(
    bootstrap, topic, produce, tmp_path
):
    orders, lake = topic("orders"), tmp_path / "lake"
    produce(orders, ['{"id": 1, "price": 9.5}', '{"id": "one"}', '{"id": 2, "price": 1}'])
    words = ["ingest", orders, "--to", f"delta:{lake / 'orders'}", "--schema", "infer"]
    with (tmp_path / "out").open("wb") as out:
        ended = command(*words, "--bootstrap-server", bootstrap, *SMALL, out=out).wait(PATIENCE_S)
    said = (tmp_path / "out").read_text()
    assert (ended, "Traceback" in said) == (0, False), said
    assert rows_of(lake / "orders", "id", "price") == [("1", 9.5), ("2", 1.0), ("one", None)]


def test_a_mistake_in_the_graph_is_one_line_and_exit_code_2_before_spark_starts(
    bootstrap, tmp_path
):
    project = shop(tmp_path / "typo", bootstrap, "no-such-topic")
    with (tmp_path / "out").open("wb") as out:
        assert command("run", project.root, out=out).wait(60) == 2
    said = (tmp_path / "out").read_text().splitlines()
    assert len(said) == 1
    assert "shop.py:" in said[0]
    assert "no-such-topic, which does not exist" in said[0]

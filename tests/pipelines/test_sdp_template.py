"""The project for Spark's own spark-pipelines, run as its users run it."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet

import headwater
from headwater.pipelines.java import java_home
from headwater.pipelines.templates import write_template
from headwater.testing import Broker


def test_a_new_project_fills_its_tables_from_the_topic(tmp_path):
    folder = tmp_path / "shop"
    write_template("sdp", folder, "shop")
    with Broker() as broker:
        broker.create_topic("events")
        _send(broker.bootstrap, 50)
        environment = {
            **os.environ,
            "HEADWATER_BOOTSTRAP": broker.bootstrap,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [str(Path(sys.executable).parent / "spark-pipelines"), "run"]
        command += ["--properties-file", "spark.conf"]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout[-3000:]
    events = pyarrow.parquet.read_table(folder / "tables" / "events").to_pylist()
    assert sorted(int(row["event"]) for row in events) == list(range(50))
    counted = pyarrow.parquet.read_table(folder / "tables" / "events_per_minute").to_pylist()
    assert sum(row["events"] for row in counted) == 50


def _send(bootstrap: str, count: int) -> None:
    with headwater.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_many("events", [b"%d" % number for number in range(count)]).result()

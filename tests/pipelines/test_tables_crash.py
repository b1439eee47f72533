"""Queries into tables, killed at every step of a batch: each row is there once afterwards."""

import os
import signal
import subprocess
import sys

from headwater.pipelines.tables.reading import read_table
from headwater.pipelines.tables.table import open_table
from tests.pipelines.table_victim import KINDS, start

KILLS = [("before the files", 1), ("after the files", 2), ("after the commit", 3)]
"""Each resumed query does the batch that the one before it died in, and dies in the next."""
BATCHES = 5


def test_queries_killed_at_every_step_resume_and_no_row_is_lost_or_doubled(spark, tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(BATCHES):
        lines = [f'{{"id": {number * 2 + i}, "day": "{i}"}}' for i in range(2)]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines))
        os.utime(tmp_path / "in" / f"{number}.json", (number, number))  # the order they are read in

    for step, batch in KILLS:
        kill(tmp_path, step, batch)
        whole = batch + (step == "after the commit")
        for kind in KINDS:
            assert ids(spark, tmp_path, kind) == list(range(2 * whole)), (step, kind)

    for kind, query in [(kind, start(spark, str(tmp_path), kind)) for kind in KINDS]:
        query.awaitTermination()
        table = open_table(f"{kind}:{tmp_path}/{kind}")
        assert ids(spark, tmp_path, kind) == list(range(2 * BATCHES)), kind
        assert {file.path for file in table.files()} == files_on_disk(table.target.place), kind
        assert os.listdir(os.path.dirname(table.staging(query.id, 0))) == [], kind
    assert spark.read.parquet(f"{tmp_path}/parquet").count() == 2 * BATCHES


def kill(folder, step, batch):
    """Run the queries until they die."""
    victim = [sys.executable, "-m", "tests.pipelines.table_victim", str(folder), step, str(batch)]
    done = subprocess.run(victim, capture_output=True, timeout=200, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]


def ids(spark, folder, kind):
    return sorted(row.id for row in read_table(spark, f"{kind}:{folder}/{kind}").collect())


def files_on_disk(folder):
    """Every Parquet file, those under an underscore as well: nothing else was left."""
    return {
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(".parquet")
    }

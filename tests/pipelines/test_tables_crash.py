"""Queries into tables, killed at every step of a batch: each row is there once afterwards."""

import os
import signal
import subprocess
import sys

import pytest

from headwater.pipelines.tables.reading import read_table
from headwater.pipelines.tables.table import open_table
from tests.pipelines.table_victim import KINDS, STEPS, start


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_query_resumes_and_no_row_is_lost_or_doubled(spark, tmp_path, step):
    (tmp_path / "in").mkdir()
    for number in range(3):
        lines = [f'{{"id": {number * 2 + i}, "day": "{i}"}}' for i in range(2)]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines))
    victim = [sys.executable, "-m", "tests.pipelines.table_victim", str(tmp_path), step]
    done = subprocess.run(victim, capture_output=True, timeout=200, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    for kind, query in [(kind, start(spark, str(tmp_path), kind)) for kind in KINDS]:
        query.awaitTermination()
        table = open_table(f"{kind}:{tmp_path}/{kind}")
        rows = read_table(spark, table.target)
        assert sorted(row.id for row in rows.collect()) == list(range(6)), kind
        assert {file.path for file in table.files()} == files_on_disk(table.target.place), kind
        assert os.listdir(os.path.dirname(table.staging(query.id, 0))) == [], kind
    assert spark.read.parquet(f"{tmp_path}/parquet").count() == 6


def files_on_disk(folder):
    """Every Parquet file, those under an underscore as well: nothing else was left."""
    return {
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(".parquet")
    }

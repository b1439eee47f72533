"""The tool that kills under a running pipeline, with few kills: two of each victim."""

import pytest
from tools.pipeline_chaos import run

SEED = 5


@pytest.mark.timeout(300)
def test_kills_of_drivers_executors_and_brokers_lose_and_double_nothing(tmp_path):
    told = []
    report = run(6, SEED, tmp_path, told.append)
    assert report.problems == [], told
    assert report.kills == {"driver": 2, "executor": 2, "broker": 2}
    assert report.whole > 100
    assert report.broken > 5

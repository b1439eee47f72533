"""The tool that kills under a running pipeline, with few kills: each kind of victim."""

from tools.pipeline_chaos import run

SEED = 5
MASTER = "local-cluster[1,2,1024]"
"""One executor that must come back, where the long run has two: a JVM less for each driver."""


def test_kills_of_drivers_executors_and_brokers_lose_and_double_nothing(tmp_path):
    told = []
    victims = ("driver", "executor", "broker", "broker")
    report = run(len(victims), SEED, tmp_path, told.append, MASTER, victims=victims)
    assert report.problems == [], told
    assert report.kills == {"driver": 1, "executor": 1, "broker": 2}
    assert report.whole > 100
    assert report.broken > 5

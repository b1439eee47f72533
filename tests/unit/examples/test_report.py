"""The parts of the report that need no Spark."""

from datetime import UTC, datetime

import pandas as pd
import pytest
from examples.behavior.__main__ import HERE, evening_ms
from examples.behavior.charts import top_items
from examples.behavior.graph import picture
from examples.behavior.recording import Recorder
from examples.behavior.report import cell, header
from matplotlib.figure import Figure

from headwater.pipelines import load_project


def progress(batch, end, latest):
    return {
        "name": "behavior.bronze",
        "batchId": batch,
        "timestamp": f"2026-01-02T03:04:0{batch}.000Z",
        "numInputRows": 10,
        "durationMs": {"addBatch": 400, "triggerExecution": 500},
        "sources": [{"endOffset": {"t": {"0": end}}, "latestOffset": {"t": {"0": latest}}}],
    }


def test_the_graph_has_every_topic_and_dataset_with_its_count():
    declarations = load_project(HERE).declarations
    drawn = picture(declarations, {"bronze": 1234, "topic:behavior": 5678})
    for name in ("behavior", "user-profile", "behavior.dead", "behavior-purchases", "quarantine"):
        assert f">{name}</text>" in drawn
    for name in declarations.datasets:
        assert f">{name}</text>" in drawn
    assert "1,234 rows" in drawn
    assert "5,678 records" in drawn


def test_a_batch_is_recorded_once_with_the_lag_of_its_own_moment():
    recorder = Recorder()
    recorder.announce("behavior.bronze")
    reports = [progress(0, end=10, latest=30), progress(1, end=30, latest=30)]
    for report in (*reports, *reports, progress(0, 10, 30) | {"name": "another.query"}):
        recorder.observe(report)
    assert recorder.batches()[["rows", "lag"]].to_numpy().tolist() == [[10, 20], [10, 0]]


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        ("revenue", 1234.5, "€1,234.50"),
        ("of_first", 0.743, "74%"),
        ("of_previous", float("nan"), "-"),
        ("events", 12345, "12,345"),
        ("minutes", 3.25, "3.25"),
        ("minute", pd.Timestamp("2026-01-02 19:03"), "2026-01-02 19:03"),
        ("level", "plus", "plus"),
    ],
)
def test_values_are_written_for_people(column, value, shown):
    assert cell(column, value) == shown


def test_times_name_their_zone():
    assert header("minute") == "minute (UTC)"
    assert header("events") == "events"


@pytest.mark.parametrize(("now", "day"), [("2026-05-02T23:59", 1), ("2026-05-03T00:00", 2)])
def test_the_evening_is_over_and_began_at_six(now, day):
    began = datetime.fromtimestamp(evening_ms(datetime.fromisoformat(now + "+00:00")) / 1000, UTC)
    assert began == datetime(2026, 5, day, 18, tzinfo=UTC)


def test_an_item_that_was_bought_and_never_looked_at_has_a_place_in_the_picture():
    axes = Figure().subplots()
    found = pd.DataFrame(
        {"item_id": ["a", "b"], "category": "shoes", "browsed": [0, 9], "revenue": [2.0, 1.0]}
    )
    top_items(axes, found)
    assert 0 < axes.get_xlim()[0] < 1

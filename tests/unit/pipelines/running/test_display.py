"""What people see of a run, on a terminal and in a pipe."""

import io

import pytest

from headwater.pipelines.running import display as module
from headwater.pipelines.running.display import Display
from headwater.pipelines.running.progress import RunProgress
from tests.integration.waiting import until


class Terminal(io.StringIO):
    def isatty(self):
        return True


def progress():
    model = RunProgress()
    model.announce("shop.bronze", ("has a user",))
    model.observe(
        {
            "name": "shop.bronze",
            "batchId": 0,
            "timestamp": "2026-01-31T12:00:00.000Z",
            "numInputRows": 12_000,
            "durationMs": {"triggerExecution": 2000, "addBatch": 1900},
            "sources": [
                {
                    "startOffset": {"events": {"0": 0}},
                    "endOffset": {"events": {"0": 12_000}},
                    "latestOffset": {"events": {"0": 42_000}},
                }
            ],
            "observedMetrics": {"headwater_quality": {"rows": 12_000, "e0": 3}},
        }
    )
    model.note("shop.gold refreshed: 7 rows")
    return model


def test_in_a_pipe_each_query_is_a_line_and_a_quiet_pipeline_says_nothing_twice():
    out, model = io.StringIO(), progress()
    with Display(model, out) as display:
        display.show()
        display.show()
    assert out.getvalue().splitlines() == [
        "shop.bronze: rows 12,000, rows/s 6,000, arriving/s 0, lag 30,000, catch-up in 5s,"
        " batch 2.0s, failed 3 has a user",
        "shop.gold refreshed: 7 rows",
    ]


def test_on_a_terminal_it_is_a_table_with_the_last_note():
    out = Terminal()
    with Display(progress(), out):
        pass
    shown = out.getvalue()
    for text in ("flow", "catch-up", "shop.bronze", "30,000", "in 5s", "shop.gold refreshed"):
        assert text in shown


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(module, "_SOON_S", 0.01)
    monkeypatch.setattr(module, "_LINES_S", 0.01)


def test_in_a_pipe_a_start_that_takes_long_is_told_again_and_again(often):
    out, model = io.StringIO(), RunProgress()
    with Display(model, out), model.noted("starting Spark"):
        until(lambda: out.getvalue().count("starting Spark (") >= 3, "the wait is shown")
    assert out.getvalue().splitlines()[:2] == ["starting Spark", "starting Spark (0 s)"]


def test_a_topic_without_records_is_told_only_for_a_while(often, monkeypatch):
    monkeypatch.setattr(module, "_FIRST_BATCH", 3)
    out, model = io.StringIO(), RunProgress()
    model.announce("shop.bronze")
    with Display(model, out):
        until(lambda: out.getvalue().count("\n") == 3, "the wait is shown")
        model.note("shop.gold refreshed: 7 rows")
        until(lambda: "shop.gold" in out.getvalue(), "the note is shown")
    *waits, last = out.getvalue().splitlines()
    assert (waits, last) == (
        ["waiting for the first batch (0 s)"] * 3,
        "shop.gold refreshed: 7 rows",
    )

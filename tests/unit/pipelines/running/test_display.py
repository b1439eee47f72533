"""What people see of a run, on a terminal and in a pipe."""

import io

from headwater.pipelines.running.display import Display
from headwater.pipelines.running.progress import RunProgress


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

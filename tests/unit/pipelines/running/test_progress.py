"""The model of progress: rates that make sense, counted once, from what Spark tells."""

import json
from datetime import UTC, datetime

import pytest

from headwater.pipelines.running.display import duration, line, lines
from headwater.pipelines.running.progress import QUALITY, FlowProgress, RunProgress


def told(
    batch, at_s, *, read, latest, start=None, rows=None, took_ms=1000, failed=None, idle=False
):
    """A report as Spark writes it, for one topic with one partition."""
    durations = {"triggerExecution": took_ms, "latestOffset": 1}
    if not idle:
        durations["addBatch"] = took_ms - 1
    source = {
        "description": "Headwater",
        "startOffset": None if start is None else {"events": {"0": start}},
        "endOffset": {"events": {"0": read}},
        "latestOffset": {"events": {"0": latest}},
    }
    return {
        "name": "shop.bronze",
        "batchId": batch,
        "timestamp": datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z"),
        "numInputRows": rows if rows is not None else (0 if idle else read - (start or 0)),
        "durationMs": durations,
        "sources": [source],
        "observedMetrics": {QUALITY: {"rows": 1, **(failed or {})}} if failed else {},
    }


@pytest.fixture
def flow():
    return FlowProgress("shop.bronze", ("has a user", "price is positive"))


def test_lag_is_what_is_written_and_not_read(flow):
    assert flow.lag is None
    flow.observe(told(0, 0, start=0, read=300, latest=1000))
    assert flow.lag == 700


def test_the_first_batch_already_has_a_rate(flow):
    flow.observe(told(0, 0, start=0, read=500, latest=1000, took_ms=2000))
    assert flow.rows_per_second == 250
    assert flow.arriving_per_second == 0


def test_a_fresh_query_whose_start_is_not_told_has_a_rate_too(flow):
    flow.observe(told(0, 0, read=500, latest=500, rows=200, took_ms=2000))
    assert flow.rows_per_second == 100


def test_time_to_catch_up_counts_what_arrives_meanwhile(flow):
    """6000 behind at 1000 a second are not gone in 6 seconds when 333 a second arrive."""
    flow.observe(told(0, 0, start=0, read=1000, latest=8000))
    flow.observe(told(1, 1, start=1000, read=2000, latest=8400, took_ms=1000))
    flow.observe(told(2, 2, start=2000, read=3000, latest=9000, took_ms=1000))
    assert flow.rows_per_second == pytest.approx(1000)
    assert flow.arriving_per_second == pytest.approx(1000 / 3)
    assert flow.eta_s == pytest.approx(6000 / (1000 - 1000 / 3))


def test_a_query_that_falls_behind_has_no_time_to_catch_up(flow):
    flow.observe(told(0, 0, start=0, read=100, latest=1000))
    flow.observe(told(1, 1, start=100, read=200, latest=5000))
    assert flow.eta_s is None
    assert "catch-up never at this rate" in line(flow)


def test_a_query_that_has_read_everything_is_caught_up(flow):
    flow.observe(told(0, 0, start=0, read=100, latest=100))
    assert flow.eta_s == 0
    assert "catch-up done" in line(flow)


def test_idle_triggers_let_the_rate_sink_and_count_no_batch(flow):
    flow.observe(told(0, 0, start=0, read=1000, latest=1000))
    busy = flow.rows_per_second
    flow.observe(told(0, 9, read=1000, latest=1000, idle=True))
    assert (flow.batches, flow.rows) == (1, 1000)
    assert flow.rows_per_second == pytest.approx(busy / 10)
    assert flow.batch_ms == 1000


def test_rates_forget_what_was_long_ago(flow):
    flow.observe(told(0, 0, start=0, read=100_000, latest=100_000))
    for second in range(1, 200):
        flow.observe(
            told(second, second, start=100_000 + 10 * (second - 1), read=100_000 + 10 * second,
                 latest=100_000 + 10 * second)
        )  # fmt: skip
    assert flow.rows_per_second == pytest.approx(10, rel=0.1)


def test_a_report_that_comes_twice_is_counted_once(flow):
    report = told(4, 10, start=0, read=10, latest=20, failed={"e0": 3, "e1": 0})
    flow.observe(report)
    flow.observe(report)
    flow.observe(told(3, 1, start=0, read=5, latest=20))
    assert (flow.batches, flow.rows) == (1, 10)
    assert flow.failed == {"has a user": 3, "price is positive": 0}
    assert flow.lag == 10


def test_quality_counts_add_up_over_batches(flow):
    flow.observe(told(0, 0, start=0, read=10, latest=10, failed={"e0": 3, "e1": 1}))
    flow.observe(told(1, 1, start=10, read=20, latest=20, failed={"e0": 2}))
    assert flow.failed == {"has a user": 5, "price is positive": 1}
    assert "5 has a user; 1 price is positive" in line(flow)


def test_offsets_may_come_as_text_and_sources_may_have_none(flow):
    report = told(0, 0, start=0, read=7, latest=9)
    for key in ("startOffset", "endOffset", "latestOffset"):
        report["sources"][0][key] = json.dumps(report["sources"][0][key])
    report["sources"].append({"description": "table", "endOffset": {"version": 3}})
    flow.observe(report)
    assert flow.lag == 2


def test_a_query_that_reads_tables_only_has_no_lag_in_records(flow):
    report = told(0, 0, start=0, read=7, latest=9)
    report["sources"] = [{"description": "table", "endOffset": '{"version": 3}'}]
    flow.observe(report)
    assert flow.lag is None
    assert flow.rows == 7
    assert "lag -" in line(flow)


def test_only_announced_queries_are_followed():
    progress = RunProgress()
    progress.observe(told(0, 0, start=0, read=7, latest=9))
    assert not progress.flows
    progress.announce("shop.bronze")
    progress.observe(told(0, 0, start=0, read=7, latest=9))
    progress.note("gold refreshed: 4 rows")
    assert [text.partition(":")[0] for text in lines(progress)] == ["shop.bronze", "gold refreshed"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59, "59s"), (750, "12m30s"), (11_100, "3h05m")]
)
def test_durations_are_said_as_people_say_them(seconds, text):
    assert duration(seconds) == text


def test_rows_that_a_watermark_drops_are_counted_once_per_batch(flow):
    report = told(0, 0, start=0, read=300, latest=300)
    report["stateOperators"] = [{"numRowsDroppedByWatermark": 4}, {"operatorName": "dedupe"}]
    flow.observe(report)
    flow.observe(report)
    assert flow.late == 4
    assert line(flow).endswith("failed 4 late")


def test_a_flow_fed_by_tables_tells_how_many_versions_it_is_behind(flow):
    report = told(0, 0, read=1, latest=1)
    assert flow.versions_behind is None
    tables = [
        {"endOffset": {"version": 4, "table": "bronze"}, "latestOffset": {"version": 7}},
        {"endOffset": json.dumps({"version": 2}), "latestOffset": None},
    ]
    flow.observe({**report, "sources": tables})
    assert flow.versions_behind == 3
    assert "lag 3 versions," in line(flow)
    flow.observe({**told(1, 9, read=1, latest=3), "sources": [*report["sources"], tables[0]]})
    assert "lag 0 and 3 versions," in line(flow)

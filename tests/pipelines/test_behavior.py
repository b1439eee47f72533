"""The reference pipeline, run in the middle of an evening and again at its end, and as `make run`."""

import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from examples.behavior.__main__ import HERE, _gold
from examples.behavior.charts import CHARTS
from examples.behavior.checks import check_all
from examples.behavior.events import Shop, Truth
from examples.behavior.produce import EVENTS, PROFILES, create_topics, produce
from examples.behavior.recording import Recorder
from rich.console import Console

from headwater.pipelines import load_project, run
from tests.integration.waiting import until
from tests.pages import ROOT
from tests.unit.examples.recount import recount

START_MS = 1_700_000_000_000 // 60_000 * 60_000
QUIET = Console(quiet=True)
PATIENCE_S = 600
MARK = "HEADWATER_TEST_MARK"


@pytest.fixture
def evening():
    """What comes before the pipeline is run for the first time, what comes after, and both."""
    whole, shop = Truth(), Shop(11, users=500, items=100)
    arrivals = shop.arrivals(4000, START_MS, whole)
    return arrivals[:2500], arrivals[2500:], whole, list(shop.profiles(START_MS))


def wrong(truth):
    """Truths that are each wrong by one in one number."""
    for behavior in ("browse", "buy"):
        yield replace(truth, good=truth.good + Counter({behavior: 1}))
    yield replace(truth, repeated=truth.repeated + 1)
    yield replace(truth, too_late=truth.too_late - 1, repeated=truth.repeated + 1)
    yield replace(truth, cents=truth.cents - 1)


@pytest.fixture
def one_topic_for_each_behavior(monkeypatch):
    """The harder of the two forms: `make run` shows the other one."""
    monkeypatch.setenv("BEHAVIOR_TOPICS", "per-behavior")


@pytest.mark.usefixtures("one_topic_for_each_behavior")
def test_all_that_was_sent_is_where_it_belongs_and_a_second_run_adds_only_what_is_new(
    spark, bootstrap, evening, tmp_path
):
    before, after, whole, profiles = evening
    tables = tmp_path / "tables"
    project = load_project(HERE, overrides={"bootstrap_servers": bootstrap, "storage": str(tables)})

    def judged(truth):
        return all(check.holds for check in check_all(tables, bootstrap, truth))

    create_topics(bootstrap, per_behavior=True)
    produce(bootstrap, PROFILES, profiles, QUIET)
    produce(bootstrap, EVENTS, before, QUIET, per_behavior=True)
    recorder = Recorder()
    run(project, spark=spark, progress=recorder)
    assert judged(recount(before))
    assert not judged(whole)

    produce(bootstrap, EVENTS, after, QUIET, per_behavior=True)
    assert not judged(recount(before)), "what waits in the topic is lag"
    report = run(project, spark=spark)
    assert report.flow("bronze").rows == len(after)
    assert judged(whole)
    assert not any(map(judged, wrong(whole)))

    gold = _gold(tables)
    assert gold["per_minute"]["events"].sum() == whole.good.total()
    assert gold["sessions"]["bought"].sum() == whole.good["buy"]
    assert round(gold["by_level"]["revenue"].sum() * 100) == whole.cents
    assert gold["funnel"].sort_values("step")["users"].tolist() == funnel(before + after)

    batches = recorder.batches()
    assert batches[batches["flow"] == "bronze"]["rows"].sum() == len(before)
    assert batches[batches["lag"].notna()]["lag"].iloc[-1] == 0


def funnel(arrivals):
    """People who took each step after all the steps before it, counted from the records alone."""
    did = defaultdict(set)
    for arrival in arrivals:
        if recount([arrival]).good:
            event = json.loads(arrival.value)
            did[event["user_id"]].add(event["behavior"])
    steps = ({"browse"}, {"like", "favourite", "comment"}, {"cart"}, {"buy"})
    return [
        sum(all(step & done for step in steps[:number]) for done in did.values())
        for number in range(1, len(steps) + 1)
    ]


def test_make_run_says_that_nothing_is_lost_and_leaves_a_report_and_no_process(tmp_path):
    out = tmp_path / "out"
    options = ["--events", "2000", "--master", "local[2]", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "examples.behavior", *options],
        cwd=ROOT,
        env={**os.environ, MARK: str(out)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout
    assert "WRONG" not in done.stdout
    until(lambda: running(str(out)) == [], "the end of all that it started")
    sent, dead = re.search(r"events +([\d,]+) sent .* ([\d,]+) are broken", done.stdout).groups()
    page = out / "charts" / "report.html"
    assert str(page) in done.stdout
    text = page.read_text()
    assert f"{sent} records in, every one accounted for" in text
    assert f"{dead} records" in text, "the graph has the dead letter topic's count"
    assert text.count("<figure>") == len(CHARTS) == len(list(page.parent.glob("*.png")))


def running(mark):
    """The processes whose environment has a mark, which everything inherits."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in environment.read_bytes().split(b"\0"):
                found.append(environment.parent.name)
    return found

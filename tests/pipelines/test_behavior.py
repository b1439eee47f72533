"""The reference pipeline, run in the middle of an evening and again at its end."""

from collections import Counter
from dataclasses import replace

import pytest
from examples.behavior.__main__ import HERE, _gold, _judge, _numbers
from examples.behavior.charts import CHARTS, draw_all
from examples.behavior.events import Shop, Truth
from examples.behavior.produce import EVENTS, PROFILES, create_topics, produce
from rich.console import Console

from headwater.pipelines import load_project, run
from tests.unit.examples.recount import recount

START_MS = 1_700_000_000_000 // 60_000 * 60_000
QUIET = Console(quiet=True)


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


@pytest.mark.timeout(300)
def test_all_that_was_sent_is_where_it_belongs_and_a_second_run_adds_only_what_is_new(
    spark, bootstrap, evening, tmp_path
):
    before, after, whole, profiles = evening
    tables = tmp_path / "tables"
    project = load_project(HERE, overrides={"bootstrap_servers": bootstrap, "storage": str(tables)})

    def judged(truth):
        return _judge(tables, bootstrap, truth, QUIET)

    create_topics(bootstrap)
    produce(bootstrap, PROFILES, profiles, QUIET)
    produce(bootstrap, EVENTS, before, QUIET)
    run(project, spark=spark)
    assert judged(recount(before))
    assert not judged(whole)

    produce(bootstrap, EVENTS, after, QUIET)
    assert not judged(recount(before)), "what waits in the topic is lag"
    report = run(project, spark=spark)
    assert report.flow("bronze").rows == len(after)
    assert judged(whole)
    assert not any(map(judged, wrong(whole)))

    gold = _gold(tables)
    assert gold["per_minute"]["events"].sum() == whole.good.total()
    assert gold["sessions"]["bought"].sum() == whole.good["buy"]
    assert round(gold["by_level"]["revenue"].sum() * 100) == whole.cents
    page = draw_all(gold, _numbers(whole, gold), tmp_path / "charts")
    assert page.name == "report.html"
    drawn = list(page.parent.glob("*.png"))
    assert len(drawn) == len(CHARTS) == 5
    assert all(chart.stat().st_size > 10_000 for chart in drawn)

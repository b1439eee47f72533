"""What runs after what, and what a refresh drags along."""

from pathlib import Path

import pytest

from headwater.pipelines.declaring.project import load_project
from headwater.pipelines.running.run_plan import refresh_needs, run_steps, tables_read

PIPELINE = """
from headwater import pipelines as hw


@hw.materialized_view
def gold():
    return hw.read("silver")


@hw.table
def silver():
    return hw.read_stream("clean")


@hw.temporary_view
def clean():
    return hw.read_stream("bronze").join(hw.read("users"), "id")


@hw.table
@hw.expect_or_drop("has an id", "id IS NOT NULL")
@hw.quarantine(table="refused")
def bronze():
    return hw.topic("events")


@hw.materialized_view
def users():
    return hw.topic_snapshot("users")


@hw.table
def watched():
    return hw.read_stream("refused")


@hw.append_flow(target="bronze", once=True)
def old_events():
    return hw.topic_snapshot("archive")
"""


@pytest.fixture(scope="module")
def declarations(tmp_path_factory):
    file: Path = tmp_path_factory.mktemp("plan") / "shop.py"
    file.write_text(PIPELINE)
    return load_project(file).declarations


def test_each_flow_stands_after_those_that_write_what_it_reads(declarations):
    found = [
        ({flow.name for flow in step.streams}, {flow.name for flow in step.batches})
        for step in run_steps(declarations)
    ]
    assert found == [
        ({"bronze"}, {"users", "old_events"}),
        ({"silver", "watched"}, set()),
        (set(), {"gold"}),
    ]


def test_views_are_looked_through(declarations):
    by_name = {flow.name: flow for flow in declarations.flows}
    assert tables_read(declarations, by_name["silver"]) == ["bronze", "users"]


def test_a_refresh_takes_along_who_shares_the_table_and_who_streams_from_it(declarations):
    assert refresh_needs(declarations, ["bronze"]) == {
        "silver": "bronze",
        "old_events": "bronze",
        "watched": "bronze",
    }
    assert refresh_needs(declarations, ["silver"]) == {}
    assert refresh_needs(declarations, ["gold"]) == {}

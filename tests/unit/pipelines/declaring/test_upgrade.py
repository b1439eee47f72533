"""What a change of code means for the checkpoints that exist."""

import json
from pathlib import Path

import pytest

from headwater import pipelines as hw
from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.declaring.declare import Project
from headwater.pipelines.declaring.registry import Registry, collecting
from headwater.pipelines.declaring.sql_files import parse_sql
from headwater.pipelines.declaring.upgrade import describe_change, fingerprint


def printed(registry: Registry) -> dict:
    project = Project(
        "p", Path(__file__).parent, Path("s"), ConnectionSettings("b:1"), registry.declarations()
    )
    return json.loads(json.dumps(fingerprint(project)))


def of_sql(text: str) -> dict:
    registry = Registry()
    for draft in parse_sql(text, "p.sql"):
        registry.add(draft)
    return printed(registry)


TABLE = "CREATE STREAMING TABLE t {options} AS SELECT a, b FROM STREAM(x) {rest};"
BASE = "CREATE STREAMING TABLE x AS SELECT * FROM STREAM topic.e;"


def changed(old: str, new: str) -> list[tuple[str, str]]:
    return [
        (change.flow, change.verdict)
        for change in describe_change(of_sql(BASE + old), of_sql(BASE + new))
    ]


def table(options: str = "", rest: str = "") -> str:
    return TABLE.format(options=options, rest=rest)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (table(), table(rest="WHERE a > 1"), "safe"),
        (table(), table(options="(CONSTRAINT c EXPECT (a > 1))"), "safe"),
        (table("(a INT)"), table("(a INT, b INT)"), "safe"),
        (table(), table("(a INT)"), "safe"),
        (table("(a INT)"), table("(a STRING)"), "unsafe"),
        (table(), table("PARTITIONED BY (a)"), "unsafe"),
        (table(), table("USING parquet"), "unsafe"),
        (table(), table(rest="GROUP BY a, b"), "needs new checkpoint"),
        (table(rest="GROUP BY a"), table(rest="GROUP BY b"), "needs new checkpoint"),
        (table(), table().replace("STREAM(x)", "STREAM topic.z"), "needs new checkpoint"),
        (table(), table().replace("STREAMING TABLE", "MATERIALIZED VIEW"), "unsafe"),
    ],
)
def test_each_kind_of_change_has_its_verdict(old, new, verdict):
    found = changed(old, new)
    assert ("t", verdict) in found
    order = ["safe", "needs new checkpoint", "unsafe"]
    assert max(order.index(each) for _, each in found) == order.index(verdict)


def test_layout_and_comments_are_no_change():
    assert changed(table(), table().replace("SELECT", "-- a comment\n  SELECT")) == []


def test_a_new_flow_a_gone_one_and_a_renamed_one():
    renamed = table().replace("TABLE t", "TABLE u")
    assert changed("", table()) == [("t", "safe")]
    assert changed(table(), "") == [("t", "safe")]
    assert changed(table(), renamed) == [("u", "unsafe")]
    [change] = describe_change(of_sql(BASE + table()), of_sql(BASE + renamed))
    assert str(change).startswith("u: unsafe: it looks like a renamed t")


def test_a_materialized_view_is_computed_whole_so_its_query_may_change():
    view = "CREATE MATERIALIZED VIEW m AS SELECT {} FROM x GROUP BY {};"
    assert changed(view.format("a", "a"), view.format("b", "b")) == [("m", "safe")]
    assert changed(view.format("a", "a"), view.format("a", "a").replace("VIEW m", "VIEW n")) == [
        ("n", "safe")
    ]


def test_a_flow_that_moves_to_another_table_needs_a_new_checkpoint():
    flow = "CREATE STREAMING TABLE p; CREATE STREAMING TABLE q;" + (
        "CREATE FLOW f AS INSERT INTO {} BY NAME SELECT * FROM STREAM x;"
    )
    assert changed(flow.format("p"), flow.format("q")) == [("f", "needs new checkpoint")]


def test_a_temporary_view_is_part_of_the_queries_that_read_it():
    text = "CREATE TEMPORARY VIEW v AS SELECT * FROM STREAM x {}; " + table().replace("(x)", " v")
    assert changed(text.format(""), text.format("WHERE a > 1")) == [("t", "safe")]
    assert changed(text.format(""), text.format("GROUP BY a")) == [("t", "needs new checkpoint")]
    direct = table()
    assert changed(direct, text.format("")) == [("t", "safe")]


def verdicts(old, new):
    prints = []
    for file in (old, new):
        with collecting() as registry:
            file()
        prints.append(printed(registry))
    return [change.verdict for change in describe_change(*prints)]


def windowed(length, least=1):
    def file():
        @hw.table
        def t():
            rows = hw.topic("e")
            return rows.where(f"a > {least}").groupBy(length).count()

    return file


def test_values_behind_names_are_part_of_a_query():
    assert verdicts(windowed("10 minutes"), windowed("10 minutes")) == []
    assert verdicts(windowed("10 minutes"), windowed("15 minutes")) == ["needs new checkpoint"]
    assert verdicts(windowed("10 minutes"), windowed("10 minutes", 2)) == ["safe"]


def test_python_queries_are_compared_by_their_code():
    def first():
        @hw.table
        def t():
            """One docstring."""
            rows = hw.topic("e")  # a comment
            return rows.where("a > 1").groupBy("a").count()

    def reworded():
        @hw.table
        def t():
            """Another docstring."""
            rows = hw.topic("e")
            return rows.where("a > 1").groupBy("a").count()

    def filtered():
        @hw.table
        def t():
            rows = hw.topic("e")
            return rows.where("a > 2").groupBy("a").count()

    def regrouped():
        @hw.table
        def t():
            rows = hw.topic("e")
            return rows.where("a > 1").groupBy("b").count()

    assert verdicts(first, reworded) == []
    assert verdicts(first, filtered) == ["safe"]
    assert verdicts(first, regrouped) == ["needs new checkpoint"]


def test_a_fingerprint_of_an_older_version_knows_no_constants():
    def file():
        @hw.table
        def t():
            return hw.topic("e").groupBy(WINDOW).count()

    with collecting() as registry:
        file()
    new = printed(registry)
    assert list(new["t"]["state constants"].values()) == [repr(WINDOW)]
    old = {"t": {key: told for key, told in new["t"].items() if "constants" not in key}}
    assert describe_change(old, new) == []


WINDOW = "10 minutes"

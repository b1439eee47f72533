"""What is wrong with a pipeline is known before Spark starts, and so is its order."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.declaring.columns import condition_columns, ddl_columns, output_columns
from headwater.pipelines.declaring.declare import (
    DatasetRead,
    Declarations,
    Expectation,
    Flow,
    Project,
    ProjectSettings,
    Quarantine,
    Sink,
    SourceLocation,
    SqlQuery,
)
from headwater.pipelines.declaring.graph import check, order
from headwater.pipelines.declaring.registry import Draft, Registry
from headwater.pipelines.declaring.sql_files import parse_sql


def project(text: str, *sinks: Sink) -> Project:
    registry = Registry()
    for draft in parse_sql(text, "p.sql"):
        registry.add(draft)
    for sink in sinks:
        registry.add_sink(sink)
    return of(registry.declarations())


def of(declarations: Declarations) -> Project:
    return Project(
        "p",
        Path(),
        Path("s"),
        ConnectionSettings("localhost:9092"),
        declarations,
        {},
        ProjectSettings(),
    )


def said(text: str, *sinks: Sink, **live) -> list[str]:
    return [str(problem) for problem in check(project(text, *sinks), **live)]


GOOD = """
CREATE STREAMING TABLE bronze AS SELECT * FROM STREAM topic.events;
CREATE TEMPORARY VIEW typed AS SELECT * FROM STREAM bronze;
CREATE STREAMING TABLE silver AS SELECT * FROM STREAM typed JOIN totals;
CREATE MATERIALIZED VIEW totals AS SELECT count(*) FROM bronze;
"""


def test_a_good_pipeline_has_no_problem_and_an_order():
    good = project(GOOD)
    assert check(good, topics=["events"]) == []
    assert [flow.name for flow in order(good.declarations)] == ["bronze", "totals", "silver"]


def test_an_unknown_table_is_told_with_the_nearest_name():
    assert said(GOOD + "CREATE STREAMING TABLE x AS SELECT * FROM STREAM bronce") == [
        "p.sql:6: x reads bronce, which nothing declares; did you mean bronze?"
    ]
    assert said("CREATE TEMPORARY VIEW x AS SELECT * FROM zzz") == [
        "p.sql:1: x reads zzz, which nothing declares. Declare it"
    ]


def test_a_flow_needs_a_table_or_a_sink_to_write_to():
    flow = "CREATE FLOW f AS INSERT INTO {} BY NAME SELECT * FROM STREAM bronze"
    assert said(GOOD + flow.format("silvr")) == [
        "p.sql:6: f appends to silvr, which nothing declares; did you mean silver?"
    ]
    assert said(GOOD + flow.format("totals")) == [
        "p.sql:6: f appends to totals, a materialized view. Append to a table or a sink"
    ]
    sink = Sink("out", "topic:out", {}, SourceLocation("s.py", 1))
    assert said(GOOD + flow.format("out"), sink) == []
    assert said(GOOD, sink) == [
        's.py:1: nothing is written to the sink out. Add @append_flow(target="out")'
    ]
    assert said("CREATE STREAMING TABLE t") == [
        'p.sql:1: nothing is written to the table t. Add @append_flow(target="t")'
    ]


def test_a_sink_cannot_be_read():
    sink = Sink("out", "topic:out", {}, SourceLocation("s.py", 1))
    text = GOOD + "CREATE FLOW f AS INSERT INTO out BY NAME SELECT * FROM STREAM out"
    assert "p.sql:6: f reads out, which is a sink. Read the table it is fed from" in said(
        text, sink
    )


def test_a_circle_is_told_once_with_all_places():
    text = """
CREATE STREAMING TABLE a AS SELECT * FROM STREAM b;
CREATE TEMPORARY VIEW b AS SELECT * FROM STREAM c;
CREATE STREAMING TABLE c AS SELECT * FROM STREAM a;
CREATE STREAMING TABLE d AS SELECT * FROM STREAM d;
"""
    assert said(text) == [
        "p.sql:2: these read each other in a circle: a -> b -> c -> a (a at p.sql:2, b at p.sql:3,"
        " c at p.sql:4). Read something else in one of them",
        "p.sql:5: these read each other in a circle: d -> d (d at p.sql:5)."
        " Read something else in one of them",
    ]
    assert [flow.name for flow in order(project(text).declarations)] == ["a", "c", "d"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "CREATE STREAMING TABLE x AS SELECT * FROM STREAM totals",
            "x reads totals as a stream, but a materialized view is replaced whole",
        ),
        (
            "CREATE STREAMING TABLE x AS SELECT * FROM bronze",
            "x reads nothing as a stream, so it would never see new rows",
        ),
        (
            "CREATE MATERIALIZED VIEW x AS SELECT * FROM STREAM bronze",
            "x is computed whole each time and cannot read a stream",
        ),
        (
            "CREATE MATERIALIZED VIEW x AS SELECT * FROM typed",
            "x reads typed whole, but that view is a stream. Use hw.read_stream",
        ),
        (
            "CREATE TEMPORARY VIEW whole AS SELECT * FROM bronze;"
            "CREATE STREAMING TABLE x AS SELECT * FROM STREAM whole",
            "x reads whole as a stream, but that view is a batch. Use hw.read",
        ),
        (
            "CREATE FLOW x AS INSERT INTO ONCE silver BY NAME SELECT * FROM STREAM bronze",
            "x runs once and cannot read a stream",
        ),
        (
            "CREATE TEMPORARY VIEW Bronze AS SELECT * FROM silver",
            "Bronze and bronze (p.sql:2) would share one checkpoint",
        ),
        (
            "CREATE STREAMING TABLE x (CONSTRAINT c EXPECT (y), CONSTRAINT c EXPECT (z))"
            " AS SELECT * FROM STREAM bronze",
            "x has two expectations called 'c'. Rename one",
        ),
        (
            "CREATE STREAMING TABLE x TBLPROPERTIES ('quarantine.table' = 'bad')"
            " AS SELECT * FROM STREAM bronze",
            "x has a quarantine but refuses no row. Add @expect_or_drop",
        ),
        (
            "CREATE STREAMING TABLE x (CONSTRAINT c EXPECT (y) ON VIOLATION DROP ROW)"
            " TBLPROPERTIES ('quarantine.table' = 'silver') AS SELECT * FROM STREAM bronze",
            "the quarantine of x is silver, declared at p.sql:4",
        ),
        (
            "CREATE STREAMING TABLE x (CONSTRAINT c EXPECT (y) ON VIOLATION DROP ROW)"
            " TBLPROPERTIES ('quarantine.topic' = 'logins') AS SELECT * FROM STREAM topic.logins",
            "the records of logins reach x, whose refused rows go there. They would be refused again",
        ),
        (
            "CREATE STREAMING TABLE x (CONSTRAINT c EXPECT (y) ON VIOLATION DROP ROW)"
            " TBLPROPERTIES ('quarantine.topic' = 'logins') AS SELECT * FROM STREAM seen;"
            "CREATE TEMPORARY VIEW seen AS SELECT * FROM STREAM raw;"
            "CREATE STREAMING TABLE raw AS SELECT * FROM STREAM topic.logins",
            "the records of logins reach x, whose refused rows go there. They would be refused again",
        ),
    ],
)
def test_reading_in_the_wrong_way_is_told(text, problem):
    [line] = said(GOOD + text)
    assert line.startswith(f"p.sql:6: {problem}")


def test_a_quarantine_table_can_be_read_and_comes_after_its_table():
    text = """
CREATE STREAMING TABLE watch AS SELECT * FROM STREAM bad;
CREATE STREAMING TABLE x (CONSTRAINT c EXPECT (y) ON VIOLATION DROP ROW)
TBLPROPERTIES ('quarantine.table' = 'bad') AS SELECT * FROM STREAM topic.t;
"""
    assert said(text) == []
    assert [flow.name for flow in order(project(text).declarations)] == ["x", "watch"]


def test_a_missing_topic_is_told_when_the_topics_are_known():
    assert said(GOOD, topics=["evnts"]) == [
        "p.sql:2: bronze reads the topic events, which does not exist; did you mean evnts?"
    ]
    dead = " TBLPROPERTIES ('quarantine.topic' = 'events') "
    refusing = " (CONSTRAINT c EXPECT (y) ON VIOLATION DROP ROW)" + dead
    text = f"CREATE STREAMING TABLE z {refusing} AS SELECT * FROM STREAM topic.logins"
    assert said(GOOD + text, topics=["logins"]) == []
    assert said(GOOD, topics=[])[0].endswith("Create it: headwater topics create events")
    assert said(GOOD) == []


def test_a_declared_schema_is_held_against_the_rest():
    text = """
CREATE STREAMING TABLE t (id BIGINT, `the day` DATE,
  CONSTRAINT a EXPECT (idd IS NOT NULL), CONSTRAINT b EXPECT (`the day` > DATE '2026-01-01'))
PARTITIONED BY (day)
AS SELECT id, x.day AS `the day`, 1 AS extra FROM STREAM topic.t x;
"""
    assert said(text) == [
        "p.sql:2: t is partitioned by day, which its schema lacks; did you mean the day?",
        "p.sql:2: 'a' of t asks for idd, which its schema lacks; did you mean id?",
        "p.sql:2: t gives a column extra, which the schema of t lacks. Add the column",
    ]


def test_a_schema_that_is_no_ddl_is_told():
    found = project(GOOD).declarations
    bad = replace(found.datasets["silver"], schema="just_a_name")
    [problem] = check(of(replace(found, datasets={**found.datasets, "silver": bad})))
    assert str(problem).startswith("p.sql:4: the schema of silver: a schema is DDL such as")


def test_a_type_that_differs_from_the_table_on_disk_is_told():
    text = """
CREATE STREAMING TABLE t (id BIGINT, at TIMESTAMP, price DECIMAL(10, 2), tags ARRAY<STRING>,
  added STRING) AS SELECT * FROM STREAM topic.t;
"""
    good = pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("price", pa.decimal128(10, 2)),
            ("tags", pa.list_(pa.string())),
            ("gone", pa.string()),
        ]
    )
    assert said(text, schemas={"t": good}) == []
    bad = pa.schema([("ID", pa.string()), ("at", pa.timestamp("us")), ("tags", pa.string())])
    assert said(text, schemas={"t": bad}) == [
        f"p.sql:2: {what}. Fill the table again with --refresh t, or name a new column"
        for what in (
            "t.ID is declared BIGINT, but the table has STRING",
            "t.at is declared TIMESTAMP, but the table has TIMESTAMP_NTZ",
            "t.tags is declared ARRAY, but the table has STRING",
        )
    ]


@pytest.mark.parametrize(
    ("declared", "there", "formats"),
    [
        ("BIGINT", pa.int32(), {"iceberg", "parquet"}),
        ("DOUBLE", pa.float32(), {"iceberg", "parquet"}),
        ("INT", pa.int64(), {"delta", "iceberg", "parquet"}),
        ("DOUBLE", pa.int32(), set()),
    ],
)
def test_numbers_may_be_declared_narrower_or_where_columns_widen_wider(declared, there, formats):
    text = f"CREATE STREAMING TABLE t (id {declared}) AS SELECT id FROM STREAM topic.t;"
    found = project(text).declarations
    fitting = {
        kind
        for kind in ("delta", "iceberg", "parquet")
        if not check(
            of(replace(found, datasets={"t": replace(found.datasets["t"], format=kind)})),
            schemas={"t": pa.schema([("id", there)])},
        )
    }
    assert fitting == formats


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("user_id IS NOT NULL AND price >= 0", ("user_id", "price")),
        ("length(name) > 3 OR `odd name` LIKE 'x%'", ("name", "odd name")),
        ("item.price > 1 AND day > DATE '2026-01-01'", ("item", "day")),
        ("ts < current_timestamp() AND ok = true", ("ts", "ok")),
        ("CAST(x AS INT) > 1", None),
        ("exists(tags, t -> t > 1)", None),
        ("ts > now() - INTERVAL 1 DAY", None),
        ("x::int > 1", None),
    ],
)
def test_the_columns_of_a_condition_are_known_or_not_claimed(condition, columns):
    assert condition_columns(condition) == columns


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT a, b.C, f(x, y) AS d FROM t", ("a", "c", "d")),
        ("WITH q AS (SELECT z FROM t) SELECT a FROM q", ("a",)),
        ("SELECT * FROM t", None),
        ("SELECT a, b.* FROM t", None),
        ("SELECT a + 1 FROM t", None),
        ("SELECT DISTINCT a FROM t", None),
        ("SELECT a < 1 AS b, c > 2 AS d FROM t", ("b", "d")),
        ("FROM t |> SELECT a", None),
    ],
)
def test_the_columns_of_a_select_are_known_or_not_claimed(query, columns):
    assert output_columns(query) == columns


def test_ddl_is_read_by_column():
    ddl = "a: INT, `odd, name` STRUCT<x: INT, y: MAP<STRING, INT>> NOT NULL COMMENT 'a, b', c LONG"
    assert ddl_columns(ddl) == {"a": "INT", "odd, name": "STRUCT", "c": "BIGINT"}


NAMES = [f"t{i}" for i in range(8)]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20))
def test_order_puts_every_flow_after_what_it_reads_unless_they_form_a_circle(edges):
    origin, query = SourceLocation("p.py", 1), SqlQuery("SELECT 1", (), ())
    registry = Registry()
    for name in NAMES:
        reads = tuple(DatasetRead(source, True) for target, source in edges if target == name)
        found = SqlQuery("SELECT 1", reads, ())
        registry.add(Draft(name, origin, "table", found if reads else query, name))
    graph = registry.declarations()
    circles = [problem for problem in check(of(graph)) if "circle" in problem.text]
    ordered = [flow.name for flow in order(graph)]
    assert sorted(ordered) == sorted(NAMES)
    late = [(t, s) for t, s in edges if ordered.index(s) >= ordered.index(t)]
    assert bool(late) == bool(circles)


def test_a_flow_and_an_expectation_are_values():
    origin = SourceLocation("p.py", 1)
    flow = Flow("a", "a", SqlQuery("SELECT 1", (), ()), (), (), False, origin)
    assert flow == replace(flow)
    assert len({Expectation("a", "b", "warn"), Expectation("a", "b", "warn")}) == 1
    assert Quarantine() == Quarantine(None, None)

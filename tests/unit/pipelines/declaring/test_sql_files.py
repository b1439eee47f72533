"""SQL files: statements, expectations, and what a query reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipelines.declaring.declare import (
    DatasetRead,
    DeclarationError,
    Expectation,
    Quarantine,
    SqlQuery,
    TopicRead,
)
from headwater.pipelines.declaring.registry import Draft
from headwater.pipelines.declaring.sql_files import parse_sql
from headwater.pipelines.declaring.sql_reads import sql_query
from headwater.pipelines.declaring.sql_tokens import SqlError, statements, tokens


def one(text: str) -> Draft:
    [draft] = parse_sql(text, "p.sql")
    return draft


def query_of(draft: Draft) -> SqlQuery:
    assert isinstance(draft.query, SqlQuery)
    return draft.query


def test_a_streaming_table_with_everything():
    draft = one(
        """
        CREATE OR REFRESH STREAMING TABLE silver (
          id BIGINT NOT NULL,
          price DECIMAL(10, 2) COMMENT 'in, euro',
          tags MAP<STRING, ARRAY<INT>>,
          CONSTRAINT `has an id` EXPECT (id IS NOT NULL AND (id > 0)) ON VIOLATION DROP ROW,
          CONSTRAINT cheap EXPECT (price < 100),
          CONSTRAINT sane EXPECT (price >= 0) ON VIOLATION FAIL UPDATE
        )
        USING iceberg
        PARTITIONED BY (day, `the hour`)
        COMMENT 'it''s clean'
        TBLPROPERTIES ('quarantine.table' = 'bad', 'quarantine.topic' = 'dead', target_file_bytes = 1000)
        AS SELECT * FROM STREAM(bronze);
        """
    )
    assert (draft.name, draft.kind, draft.origin.line) == ("silver", "table", 2)
    assert draft.schema == (
        "id BIGINT NOT NULL, price DECIMAL(10, 2) COMMENT 'in, euro', tags MAP<STRING, ARRAY<INT>>"
    )
    assert draft.expectations == (
        Expectation("has an id", "id IS NOT NULL AND (id > 0)", "drop"),
        Expectation("cheap", "price < 100", "warn"),
        Expectation("sane", "price >= 0", "fail"),
    )
    assert (draft.format, draft.partition_by) == ("iceberg", ("day", "the hour"))
    assert draft.comment == "it's clean"
    assert draft.quarantine == Quarantine("bad", "dead")
    assert draft.options == {"target_file_bytes": "1000"}
    assert query_of(draft).reads == (DatasetRead("bronze", True),)


def test_views_flows_and_tables_that_flows_fill():
    text = """
        CREATE STREAMING TABLE IF NOT EXISTS t;
        CREATE TEMPORARY VIEW v AS SELECT * FROM STREAM topic.`user-events`;
        CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t;
        CREATE FLOW f AS INSERT INTO t BY NAME SELECT * FROM STREAM v;
        CREATE FLOW b AS INSERT INTO ONCE t BY NAME SELECT * FROM topic.orders.v1
    """
    t, v, m, f, b = parse_sql(text, "p.sql")
    assert (t.kind, t.query) == ("table", None)
    assert (v.kind, query_of(v).topics) == ("temporary_view", (TopicRead("user-events", True),))
    assert (m.kind, query_of(m).reads) == ("materialized_view", (DatasetRead("t", False),))
    assert (f.kind, f.target, f.once) == (None, "t", False)
    assert (b.once, query_of(b).topics) == (True, (TopicRead("orders.v1", False),))
    assert [draft.origin.line for draft in (t, v, m, f, b)] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("query", "reads"),
    [
        ("SELECT * FROM a, b JOIN c ON a.x = c.x, d", "a b c d"),
        ("SELECT * FROM a LEFT JOIN (SELECT * FROM b) x USING (id)", "a b"),
        ("FROM a SELECT x", "a"),
        ("SELECT x FROM (a JOIN b)", "a b"),
        ("SELECT x FROM ((SELECT 1 FROM a) UNION ALL (SELECT 2 FROM b))", "a b"),
        ("SELECT * FROM a WHERE x IN (SELECT y FROM b) AND EXISTS (SELECT 1 FROM c)", "a b c"),
        ("SELECT (SELECT max(x) FROM b) FROM a", "b a"),
        ("SELECT EXTRACT(YEAR FROM ts), trim(BOTH 'x' FROM y) FROM a", "a"),
        ("SELECT * FROM a WHERE x IS DISTINCT FROM y", "a"),
        ("SELECT * FROM a WHERE x IS NOT DISTINCT FROM (SELECT 1 FROM b)", "a b"),
        ("SELECT * FROM range(10), a", "a"),
        ("SELECT * FROM explode(array((SELECT max(x) FROM b))), a", "b a"),
        ("SELECT k, v FROM a LATERAL VIEW explode(m) t AS k, v", "a"),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x)", "a b"),
        ("SELECT * FROM VALUES (1), (2) AS t(x), a", "a"),
        ("SELECT * FROM (VALUES (1), (2)) t JOIN a", "a"),
        ("SELECT * FROM a GROUP BY x, y ORDER BY x, y", "a"),
        ("SELECT x FROM a UNION SELECT y FROM b", "a b"),
        ("WITH x AS (SELECT * FROM a), y (c) AS (SELECT * FROM x) SELECT * FROM x JOIN y", "a"),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", "a"),
        ("WITH RECURSIVE r AS (SELECT 1 FROM a UNION SELECT * FROM r) SELECT * FROM r", "a"),
        ("SELECT * FROM (WITH x AS (SELECT 1) SELECT * FROM x), x", "x"),
        ("SELECT * FROM catalog.db.t JOIN parquet.`/x` JOIN a", "a"),
        ("SELECT 'FROM b', \"FROM c\", `FROM d` FROM a -- FROM e\n /* FROM f /* g */ */", "a"),
        ("SELECT $$ FROM b; $$, r'\\', x.from FROM a x", "a"),
        ("SELECT * FROM stream", "stream"),
        ("SELECT * FROM stream WHERE x", "stream"),
        ("FROM a |> WHERE x > 1 |> JOIN b ON a.x = b.x |> SELECT p, q", "a b"),
        ("SELECT * FROM a GROUP BY x WITH ROLLUP", "a"),
        ("SELECT 1", ""),
    ],
)
def test_what_a_query_reads(query, reads):
    assert [read.name for read in sql_query(query).reads] == reads.split()


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT * FROM", "ends before a table's name"),
        ("SELECT * FROM 'x'", "expected a table's name"),
        ("SELECT * FROM a,, b", "expected a name"),
        ("SELECT * FROM IDENTIFIER('a')", "computes a name"),
        ("TABLE a", "write SELECT"),
        ("SELECT * FROM f(TABLE(a))", "write SELECT"),
        ("SELECT * FROM (SELECT 1", "never closed"),
        ("SELECT 1)", "unexpected closing bracket"),
        ("SELECT * FROM STREAM(a, b)", "one table's name"),
        ("SELECT * FROM STREAM range(3)", "not a function"),
        ("SELECT 'x", "string that begins here never ends"),
        ("SELECT `x", "quoted name that begins here never ends"),
        ("SELECT 1 /* x", "comment that begins here never ends"),
    ],
)
def test_what_is_not_understood_is_an_error(query, text):
    with pytest.raises(SqlError, match=text):
        sql_query(query)


def test_each_read_is_rendered_by_the_name_given_for_it():
    query = sql_query(
        "SELECT bronze.x FROM STREAM(bronze) JOIN users u ON u.id = bronze.id"
        " JOIN bronze AS old JOIN STREAM topic.`a.b` WHERE x = 'bronze'"
    )
    names: dict[DatasetRead | TopicRead, str] = {
        DatasetRead("bronze", True): "v1",
        DatasetRead("users", False): "v2",
        DatasetRead("bronze", False): "v3",
        TopicRead("a.b", True): "v4",
    }
    assert query.rendered(names) == (
        "SELECT bronze.x FROM v1 AS `bronze` JOIN v2 u ON u.id = bronze.id"
        " JOIN v3 AS old JOIN v4 AS `a.b` WHERE x = 'bronze'"
    )


def test_a_table_and_a_topic_of_one_name_are_two_things():
    query = sql_query("SELECT * FROM STREAM(x) JOIN STREAM(topic.x)")
    names: dict[DatasetRead | TopicRead, str] = {
        DatasetRead("x", True): "v1",
        TopicRead("x", True): "v2",
    }
    assert query.rendered(names) == "SELECT * FROM v1 AS `x` JOIN v2 AS `x`"


def test_a_watermark_between_a_table_and_its_alias_is_left_alone():
    query = sql_query("SELECT * FROM STREAM e WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS w")
    assert query.rendered({DatasetRead("e", True): "v"}) == (
        "SELECT * FROM v WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS w"
    )


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("\nSET a = b", 2, "SET is not supported here: put settings of Spark under spark:"),
        ("INSERT INTO x SELECT 1", 1, "give the flow a name"),
        ("CREATE TABLE x AS SELECT 1", 1, "expected CREATE STREAMING TABLE"),
        ("CREATE STREAMING TABLE a.b AS SELECT 1", 1, "without dots"),
        ("CREATE STREAMING TABLE `a b`", 1, "cannot be a name"),
        (
            "CREATE STREAMING TABLE _checkpoints",
            1,
            "a run keeps checkpoints under it in the storage",
        ),
        ("CREATE STREAMING TABLE _LOGS", 1, "a run keeps Spark's log under it in the storage"),
        ("CREATE STREAMING TABLE lock", 1, "a run keeps its lock under it in the storage"),
        ("CREATE MATERIALIZED VIEW m", 1, "m has no query"),
        ("CREATE MATERIALIZED VIEW m AS", 1, "expected a query"),
        ("CREATE STREAMING TABLE x\nCLUSTER BY (a) AS SELECT 1", 2, "use PARTITIONED BY"),
        ("CREATE STREAMING TABLE x USING detla", 1, "did you mean delta?"),
        ("CREATE STREAMING TABLE x (a)", 1, "the column a needs a type"),
        ("CREATE STREAMING TABLE x\n(a INT", 2, "the statement ends"),
        (
            "CREATE STREAMING TABLE x (CONSTRAINT c EXPECT (y) ON VIOLATION IGNORE)",
            1,
            "DROP ROW or FAIL UPDATE, not 'IGNORE'",
        ),
        ("CREATE TEMPORARY VIEW v USING delta AS SELECT 1", 1, "a temporary view takes only"),
        ("CREATE FLOW f AS INSERT INTO t SELECT 1", 1, "expected BY, not 'SELECT'"),
        ("CREATE MATERIALIZED VIEW m AS\nSELECT *\nFROM 3", 3, "expected a table's name"),
        ("CREATE STREAMING TABLE x TBLPROPERTIES ('a' = 'b')", 1, "no option a"),
        ("CREATE MATERIALIZED VIEW m AS SELECT 1;\n\nSELECT 'x", 3, "never ends"),
    ],
)
def test_statements_that_are_not_understood_are_errors_with_their_line(text, line, said):
    with pytest.raises(DeclarationError, match=said) as problem:
        parse_sql(text, "p.sql")
    assert str(problem.value).startswith(f"p.sql:{line}: ")


PIECES = st.lists(
    st.sampled_from(
        [
            "'a;b'", "'it''s'", "'\\';'", '"x;y"', "`p;q`", "`a``;`", "-- c;\n", "/* ; /* ; */ */",
            "$$ ; $$", "$t$ $$ ; $t$", "r'\\'", "word", "1.5", "->", "\n", "(",
        ]
    ),
    max_size=8,
)  # fmt: skip


@given(st.lists(PIECES, min_size=1, max_size=5))
def test_only_semicolons_outside_of_quotes_and_comments_part_statements(parts):
    texts = [" ".join(["s", *part]) + "\n" for part in parts]
    together = statements(";".join(texts))
    assert [[(t.kind, t.text) for t in found] for found in together] == [
        [(t.kind, t.text) for t in tokens(text)] for text in texts
    ]


@given(st.text(alphabet="ab'\"`-/*;$\\\n (,.", max_size=30))
def test_any_text_is_tokens_or_a_clear_error(text):
    try:
        found = tokens(text)
    except SqlError:
        return
    ends = [0, *(token.end for token in found)]
    assert all(token.start >= end for token, end in zip(found, ends, strict=False))
    assert all(token.line == text.count("\n", 0, token.start) + 1 for token in found)

"""Values that look like rows and are none: each is a dead letter with its reason."""

import json

from pyspark.sql.types import StructType

from headwater.pipelines.ingest.ddl_types import columns
from headwater.pipelines.ingest.json_rows import JsonRows
from headwater.pipelines.running.quality import REASONS

SCHEMA = (
    "a BIGINT, d DOUBLE, f FLOAT, t TIMESTAMP, n STRUCT<t: TIMESTAMP, deep: ARRAY<DOUBLE>, days: ARRAY<DATE>>, "
    "many ARRAY<TIMESTAMP>, named MAP<STRING, TIMESTAMP>, day DATE"
)
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
NO_OBJECT = "the value is not a JSON object"
REGISTRY = (
    "the value is not JSON: it begins like Avro or Protobuf of a schema registry (a zero byte)"
)
RECORD = (
    "CAST(NULL AS BINARY) AS key, value, 't' AS topic, 0 AS partition, offset, "
    "timestamp_millis(written) AS timestamp, 0 AS timestampType"
)


def time_of(field):
    return f"field {field} has a time outside of the years 1 to 9999"


def date_of(field):
    return f"field {field} has a date outside of the years 1 to 9999"


def number_of(field):
    return f"field {field} has a number that is too large"


GOOD = [
    b'{"a":1700000000000000000,"t":"2024-01-01T00:00:00Z","d":-1e308}',
    b'{"t":253402300799,"n":{"t":-62135596800,"deep":[1.5,null]},"many":[0,null]}',
    b'{"day":"0001-01-01","n":{"days":["9999-12-31",null]}}',
    b'{"__mark":"mine","a":1}',
]
BAD = [
    (b'{"a":1}]} and more', NO_OBJECT),
    (b"\x00\x00\x00\x00\x07\x02x", REGISTRY),
    (b'{"a":1}],"v":[{"a":2}', NO_OBJECT),
    (b'{"a":1}],"other":[{"a":2}', NO_OBJECT),
    (b'{"a":1},{"__mark":"mine"}', NO_OBJECT),
    (b'{"t":1700000000000}', time_of("t")),
    (b'{"t":18446744073710}', time_of("t")),  # as microseconds, some moment in 1970
    (b'{"n":{"t":18446744073710}}', time_of("n")),
    (b'{"many":[1,18446744073710]}', time_of("many")),
    (b'{"named":{"x":18446744073710}}', time_of("named")),
    (b'{"t":-62135596801}', time_of("t")),
    (b'{"day":"+10000-01-01"}', date_of("day")),
    (b'{"n":{"days":["2024-01-01","-0001-12-31"]}}', date_of("n")),
    (b'{"d":1e999}', number_of("d")),
    (b'{"f":-1e300}', number_of("f")),
    (b'{"n":{"deep":[0,1e999]}}', number_of("n")),
]


def test_ddl_means_to_us_what_it_means_to_spark(spark):
    named = SCHEMA + ", `odd name` STRING NOT NULL COMMENT 'it\\'s', p DEC(7,2), q NUMERIC, z LONG"
    assert columns(named) == StructType.fromDDL(named)


def test_what_is_taken_for_something_else_is_refused_and_the_rest_are_rows(spark):
    values = [*GOOD, *(value for value, _ in BAD)]
    numbered = [(bytearray(value), number, 1000) for number, value in enumerate(values)]
    numbered.append((bytearray(GOOD[0]), len(values), 1_700_000_000_000_000))
    records = spark.createDataFrame(numbered, "value BINARY, offset BIGINT, written BIGINT")
    rows = JsonRows(columns(SCHEMA))
    judged = rows.judged(records.selectExpr(*RECORD.split(", ")))
    kept = {row["_offset"] for row in rows.good(judged).select("_offset").collect()}
    told = {
        row["offset"]: row[REASONS] for row in rows.bad(judged).select("offset", REASONS).collect()
    }
    assert kept == set(range(len(GOOD)))
    assert [told[len(GOOD) + number] for number in range(len(BAD))] == [[why] for _, why in BAD]
    (why,) = told[len(values)]
    assert "the record's timestamp is outside of the years 1 to 9999" in why


def test_fields_that_the_schema_lacks_are_kept_by_their_paths_at_any_depth(spark):
    schema = columns("a BIGINT, s STRUCT<x: INT, t: STRUCT<y: INT>>, l ARRAY<STRUCT<x: INT>>")
    values = [
        {"a": 1, "s": {"x": 1, "t": {"y": 2}}, "l": [{"x": 1}]},
        {
            "b": [1, "z"],
            "s": {"q": {"r": 1}, "t": {"y": 1, "w": None}},
            "l": [{}, None, {"k": "v"}],
        },
        {"s.q": 1, "s": {"q": 2}},
    ]
    told = [(bytearray(json.dumps(value).encode()), n, 1000) for n, value in enumerate(values)]
    records = spark.createDataFrame(told, "value BINARY, offset BIGINT, written BIGINT")
    records = records.selectExpr(*RECORD.split(", "))
    rows = JsonRows(schema, rename={"a": "the_a"})
    good = rows.good(rows.judged(records)).orderBy("_offset")
    assert [row["the_a"] for row in good.collect()] == [1, None, None]
    assert [row["_unknown"] for row in good.collect()] == [
        None,
        {"b": '[1,"z"]', "s.q": '{"r":1}', "s.t.w": None, "l[2].k": "v"},
        {"s.q": "1"},
    ]
    refused = JsonRows(schema, unknown="refuse")
    bad = refused.bad(refused.judged(records)).orderBy("offset")
    assert [row[REASONS] for row in bad.collect()] == [
        ["not in the schema: b, s.q, s.t.w, l[2].k"],
        ["not in the schema: s.q"],
    ]


def test_the_day_of_a_record_is_that_of_utc_whatever_the_session_says(spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        times = [1_767_308_399_999, 1_767_225_600_000, -1]  # in ms: before midnight, at it, 1969
        values = [(bytearray(GOOD[0]), number, time) for number, time in enumerate(times)]
        records = spark.createDataFrame(values, "value BINARY, offset BIGINT, written BIGINT")
        rows = JsonRows(columns(SCHEMA), partition_by=["_date"])
        good = rows.good(rows.judged(records.selectExpr(*RECORD.split(", "))))
        days = {
            row["_offset"]: str(row["_date"]) for row in good.select("_offset", "_date").collect()
        }
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert days == {0: "2026-01-01", 1: "2026-01-01", 2: "1969-12-31"}


def test_a_text_that_cannot_name_a_folder_is_refused_where_folders_are_named_after_it(spark):
    values = ["ok", "/" * 83, "/" * 84, "x" * 251, "x" * 252, "\u00fc" * 126, HIVE_NULL, None]
    told = [(bytearray(json.dumps({"key": value}).encode()), 0, 1000) for value in values]
    records = spark.createDataFrame(told, "value BINARY, offset BIGINT, written BIGINT")
    judged = JsonRows(columns("key STRING"), partition_by=["key"]).judged(
        records.selectExpr(*RECORD.split(", "))
    )
    found = [row[REASONS] for row in judged.select(REASONS).collect()]
    long = ["field key is too long to name a folder"]
    null = [f"field key is {HIVE_NULL}, the folder of NULL"]
    assert found == [[], [], long, [], long, long, null, []]

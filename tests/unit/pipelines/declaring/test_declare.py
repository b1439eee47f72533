"""Decorators, their order and arguments, and reads found in the source of a query."""

import subprocess
import sys
from typing import Any

import pytest

from headwater import pipelines as hw
from headwater.pipelines import read_stream
from headwater.pipelines.declaring.declare import (
    DatasetRead,
    DeclarationError,
    Declarations,
    Expectation,
    ProjectSettings,
    Quarantine,
    bind,
)
from headwater.pipelines.declaring.registry import collecting

EVENTS = "events"
spark: Any = None  # as a notebook has it; queries are never called here


def declared(declare, settings=None) -> Declarations:
    with collecting() as registry:
        declare()
    return registry.declarations(settings)


def test_a_table_is_frozen_with_its_place_and_is_a_flow_of_its_name():
    def file():
        @hw.table(name="silver", comment="clean", partition_by=["day"], format="iceberg")
        def any_name():
            return hw.read_stream("bronze")

    found = declared(file)
    table = found.datasets["silver"]
    assert (table.kind, table.comment, table.partition_by) == ("table", "clean", ("day",))
    assert (table.format, table.reads, table.topics) == (
        "iceberg",
        (DatasetRead("bronze", True),),
        (),
    )
    assert table.origin.file == __file__
    assert table.origin.line == file.__code__.co_firstlineno + 1
    [flow] = found.flows
    assert (flow.name, flow.target, flow.once, flow.streams) == ("silver", "silver", False, True)
    with pytest.raises(AttributeError):
        table.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        found.datasets["x"] = table  # type: ignore[index]


def test_decorators_go_in_any_order_and_expectations_keep_the_order_of_the_text():
    def file():
        @hw.expect("first", "a > 0")
        @hw.quarantine(table="bad", topic="dead")
        @hw.table
        @hw.expect_or_drop("second", "b > 0")
        @hw.expect_all_or_fail({"third": "c > 0", "fourth": "d > 0"})
        def one():
            return hw.topic("events")

        @hw.table
        @hw.expect("first", "a > 0")
        @hw.expect_or_drop("second", "b > 0")
        @hw.expect_all_or_fail({"third": "c > 0", "fourth": "d > 0"})
        @hw.quarantine(table="bad", topic="dead")
        def two():
            return hw.topic("events")

    one, two = declared(file).datasets.values()
    assert one.expectations == two.expectations
    assert one.expectations == (
        Expectation("first", "a > 0", "warn"),
        Expectation("second", "b > 0", "drop"),
        Expectation("third", "c > 0", "fail"),
        Expectation("fourth", "d > 0", "fail"),
    )
    assert one.quarantine == two.quarantine == Quarantine("bad", "dead")


def test_the_other_words_declare_what_they_say():
    def file():
        hw.create_streaming_table(
            "clicks",
            schema="id BIGINT",
            expect_all_or_drop={"id": "id IS NOT NULL"},
            quarantine=hw.Quarantine(topic="dead"),
        )
        hw.create_sink("out", "topic:clicks-out", {"kafka.acks": "all"})
        hw.sink("kept", "delta", {"path": "/lake/kept"})

        @hw.temporary_view
        def typed():
            return hw.topic("events")

        @hw.append_flow(target="clicks", once=True)
        def backfill():
            return hw.topic_snapshot("old")

        @hw.materialized_view(partition_cols=["day"])
        def totals():
            return hw.read("clicks")

    found = declared(file)
    assert [flow.name for flow in found.flows] == ["backfill", "totals"]
    assert (found.flows[0].target, found.flows[0].once, found.flows[0].topics) == (
        "clicks",
        True,
        ("old",),
    )
    assert not found.flows[0].streams
    assert found.datasets["typed"].streams
    assert found.datasets["typed"].kind == "temporary_view"
    assert found.datasets["totals"].partition_by == ("day",)
    assert found.datasets["clicks"].query is None
    assert found.datasets["clicks"].quarantine == Quarantine(topic="dead")
    assert found.sinks["out"].target == "topic:clicks-out"
    assert found.sinks["out"].options == {"kafka.acks": "all"}
    assert found.sinks["kept"].target == "delta:/lake/kept"


def test_outside_of_a_load_a_decorated_function_is_just_a_function():
    @hw.table(partition_by=["day"])
    @hw.expect("x", "y")
    def silver():
        return hw.read_stream("bronze")

    class Rows:
        def read_stream(self, name: str) -> Any:
            return f"rows of {name}"

    with pytest.raises(RuntimeError, match="nothing runs yet"):
        silver()
    with bind(Rows()):  # type: ignore[arg-type]
        assert silver() == "rows of bronze"
    with pytest.raises(RuntimeError):
        silver()


def helper():
    return hw.read("users").join(second_helper(), "id")


def second_helper():
    return hw.topic_snapshot(EVENTS)


def test_reads_are_found_through_aliases_constants_and_helpers():
    def file():
        @hw.table
        def t():
            from headwater.pipelines import read as whole

            left = read_stream("a").join(whole("b"), "id")
            return left.transform(helper).union(hw.topic(name=EVENTS, startingOffsets="earliest"))

    [flow] = declared(file).flows
    assert flow.reads == (
        DatasetRead("a", True),
        DatasetRead("b", False),
        DatasetRead("users", False),
    )
    assert flow.topics == ("events",)
    assert flow.session_reads == ()


def test_reads_through_the_session_are_found_as_sdp_users_write_them():
    def file():
        @hw.table
        def t():
            session = hw.spark()
            fresh = spark.readStream.option("x", "y").table("a")
            old = session.read.table("b").join(session.table("c"), "id")
            outside = spark.table("catalog.db.t").join(spark.read.format("csv").load("f"), "id")
            text = hw.spark().sql("WITH e AS (SELECT 1) SELECT * FROM STREAM(d) JOIN e")
            return fresh.join(old, "id").join(outside, "id").join(text, "id")

    [flow] = declared(file).flows
    assert set(flow.reads) == {
        DatasetRead("a", True),
        DatasetRead("b", False),
        DatasetRead("c", False),
        DatasetRead("d", True),
    }
    assert set(flow.session_reads) == set(flow.reads)


def test_a_stream_from_outside_of_the_pipeline_counts_as_a_stream():
    def file():
        @hw.table
        def t():
            return spark.readStream.format("rate").load()

    [flow] = declared(file).flows
    assert (flow.reads, flow.streams) == ((), True)


def computed_read(name):
    return hw.read_stream(name)


@pytest.mark.parametrize("arguments", [{}, {"topics": ["x"]}])
def test_a_computed_name_asks_for_reads(arguments):
    def file():
        @hw.table(**arguments)
        def t():
            return computed_read("bronze" + "_1")

    with pytest.raises(DeclarationError, match=r'known only at run time.*reads=\["..."\]') as said:
        declared(file)
    assert said.value.origin.line == computed_read.__code__.co_firstlineno + 1


def test_names_on_the_decorator_stand_for_computed_ones():
    def file():
        @hw.table(reads=["bronze_1", "STREAM bronze_2"], topics=["events"])
        def t():
            frames = [hw.read_stream(f"bronze_{i}") for i in (1, 2)]
            return frames[0].union(hw.topic("".join(["events"])))

        @hw.table(reads=["x", "STREAM y"])
        def mixed():
            return hw.read("x".lower()).join(hw.read_stream("y".lower()), "id")

    found = declared(file).flows
    assert found[0].reads == (DatasetRead("bronze_1", True), DatasetRead("bronze_2", True))
    assert found[0].topics == ("events",)
    assert found[1].reads == (DatasetRead("x", False), DatasetRead("y", True))


def test_a_query_without_source_needs_its_names_listed():
    def unlisted():
        exec("hw.table(name='t')(lambda: hw.topic('events'))", {"hw": hw})

    def listed():
        exec("hw.table(name='t', topics=['events'])(lambda: hw.topic('events'))", {"hw": hw})

    with pytest.raises(DeclarationError, match="the inputs of t are unknown"):
        declared(unlisted)
    [flow] = declared(listed).flows
    assert (flow.topics, flow.streams) == (("events",), True)


def test_session_reads_of_a_view_are_those_of_the_flows_that_it_is_composed_into():
    def file():
        @hw.temporary_view
        def inner():
            return spark.readStream.table("a")

        @hw.temporary_view
        def outer():
            return hw.read_stream("inner")

        @hw.table
        def t():
            return hw.read_stream("outer").join(spark.table("b"), "id")

    [flow] = declared(file).flows
    assert flow.session_reads == (DatasetRead("b", False), DatasetRead("a", True))


def test_a_reader_that_is_handed_on_is_a_computed_name():
    def file():
        @hw.table
        def t():
            return list(map(hw.read_stream, ["a", "b"]))

    with pytest.raises(DeclarationError, match="known only at run time"):
        declared(file)


def wrong_name():
    hw.create_streaming_table("my-table")


def wrong_format():
    hw.table(name="t", format="detla")(lambda: None)  # type: ignore[arg-type]


def wrong_sink():
    hw.create_sink("s", "topics:x")


def sink_without_place():
    hw.create_sink("s", "kafka")


def conf_per_table():
    hw.table(spark_conf={"a": "b"})  # type: ignore[call-overload]


def clustered():
    hw.create_streaming_table("t", cluster_by=["a"])


def misspelt():
    hw.materialized_view(partion_by=["a"])  # type: ignore[call-overload]


def unknown_property():
    hw.create_streaming_table("t", table_properties={"target_file_byte": "1"})


def property_that_is_no_number():
    hw.create_streaming_table("t", table_properties={"target_file_bytes": "128 MB"})


def text_for_a_list():
    hw.create_streaming_table("t", partition_by="day")


def condition_that_is_none():
    hw.expect("x", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (wrong_name, "'my-table' cannot be a name"),
        (wrong_format, "not 'detla'; did you mean delta?"),
        (wrong_sink, "'topics:x' is not a target"),
        (sink_without_place, "needs the option topic"),
        (conf_per_table, "spark_conf has no effect here: .* pipeline.yml"),
        (clustered, "cluster_by has no effect here: .* use partition_by"),
        (misspelt, "unknown argument partion_by; did you mean partition_by?"),
        (unknown_property, "no option target_file_byte; did you mean target_file_bytes?"),
        (property_that_is_no_number, "target_file_bytes is a whole number, not '128 MB'"),
        (text_for_a_list, r'partition_by is a list of names, like partition_by=\["a"\]'),
        (condition_that_is_none, "a name and a condition in SQL"),
    ],
)
def test_what_would_have_no_effect_is_refused_with_its_place(declare, text):
    with pytest.raises(DeclarationError, match=text) as said:
        declared(declare)
    assert str(said.value).startswith(f"{__file__}:{declare.__code__.co_firstlineno + 1}: ")


def test_a_name_declared_twice_names_both_places():
    def file():
        hw.create_streaming_table("x")
        hw.create_sink("x", "topic:t")

    line = file.__code__.co_firstlineno
    with pytest.raises(DeclarationError, match="declared twice") as said:
        declared(file)
    assert str(said.value).startswith(f"{__file__}:{line + 2}: x is declared twice")
    assert f"first at {__file__}:{line + 1}." in str(said.value)


def test_expectations_need_a_place_where_rows_are_stored():
    def on_nothing():
        @hw.expect("x", "y > 0")
        def lonely():
            return None

    def on_a_view():
        @hw.expect("x", "y > 0")
        @hw.temporary_view
        def view():
            return hw.topic("t")

    def on_a_flow():
        @hw.append_flow(target="x")
        @hw.quarantine(topic="dead")
        def flow():
            return hw.topic("t")

    for file, text in (
        (on_nothing, "lonely has expectations or a quarantine but is not a dataset"),
        (on_a_view, "view is a temporary view and stores nothing"),
        (on_a_flow, "flow is a flow and stores nothing"),
    ):
        with pytest.raises(DeclarationError, match=text):
            declared(file)


def test_the_dead_letter_topic_of_the_project_is_the_quarantine_of_those_without_one():
    def file():
        @hw.table
        @hw.expect_or_drop("x", "y > 0")
        def plain():
            return hw.topic("t")

        @hw.table
        @hw.expect_or_drop("x", "y > 0")
        @hw.quarantine(table="bad")
        def own():
            return hw.topic("t")

        @hw.table
        @hw.expect("x", "y > 0")
        def counted():
            return hw.topic("t")

    found = declared(file, ProjectSettings(dead_letter_topic="dead")).datasets
    assert found["plain"].quarantine == Quarantine(topic="dead")
    assert found["own"].quarantine == Quarantine(table="bad")
    assert found["counted"].quarantine is None
    assert declared(file).datasets["plain"].quarantine is None


def test_a_quarantine_without_any_place_is_refused():
    def file():
        @hw.table
        @hw.quarantine()
        def t():
            return hw.topic("t")

    with pytest.raises(DeclarationError, match="has neither a table nor a topic"):
        declared(file)
    assert declared(file, ProjectSettings(dead_letter_topic="d")).datasets[
        "t"
    ].quarantine == Quarantine(topic="d")


def test_a_schema_may_be_a_struct_type():
    types = pytest.importorskip("pyspark.sql.types")
    schema = types.StructType(
        [
            types.StructField("id", types.LongType(), False),
            types.StructField("tags", types.ArrayType(types.StringType())),
        ]
    )

    def file():
        hw.create_streaming_table("t", schema=schema)

    assert declared(file).datasets["t"].schema == "`id` bigint NOT NULL, `tags` array<string>"


def test_declaring_loads_no_spark():
    code = (
        "import sys; from headwater import pipelines as hw;"
        "hw.table, hw.read, hw.load_project;"
        "from headwater.pipelines.declaring import graph, upgrade;"
        "from headwater.pipelines.schemas import schema;"
        "print(sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_every_name_for_users_has_a_home_and_others_have_none():
    for name in ("table", "sink", "expect_all", "topic_snapshot", "load_project", "Quarantine"):
        assert name in dir(hw)
        assert getattr(hw, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'tabel'"):
        _ = hw.tabel


NAMES = ("orders.eu", "orders.us")


def test_several_topics_are_one_stream_and_each_is_in_the_graph():
    def file():
        @hw.table
        def named():
            return hw.topics("a", "b")

        @hw.table
        def unpacked():
            return hw.topics(*NAMES, startingOffsets="latest")

        @hw.table
        def matching():
            return hw.topics(pattern=r"orders\..*")

    named, unpacked, matching = declared(file).datasets.values()
    assert named.topics == ("a", "b")
    assert unpacked.topics == NAMES
    assert matching.topics == ()
    assert named.streams
    assert unpacked.streams
    assert matching.streams


def test_topics_that_are_only_known_later_are_asked_for():
    def file():
        @hw.table
        def some():
            return hw.topics(*sorted(NAMES))

    with pytest.raises(DeclarationError, match="known only at run time"):
        declared(file)


def test_a_topic_beside_a_pattern_is_refused_with_the_right_word():
    def file():
        @hw.table
        def some():
            return hw.topic("orders", subscribePattern="orders.*")

    with pytest.raises(DeclarationError, match=r'twice. Use hw.topics\(pattern="..."\)'):
        declared(file)

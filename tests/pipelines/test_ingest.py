"""A topic as a table: typed columns, dead letters with reasons, resumed and evolved."""

import json
import shutil

import pyarrow as pa
import pytest

from headwater.client.admin import BlockingAdmin
from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.ingest.frozen_schema import IngestError
from headwater.pipelines.ingest.ingest import note, plan_ingest, run_ingest
from headwater.pipelines.tables.table import open_table
from headwater.pipelines.targets import TargetError
from tests.pipelines.lake import committed, headers_of, records_of, rows_of
from tests.unit.pipelines.lake import append

SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "price": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
    },
}


@pytest.fixture
def schema_file(tmp_path):
    def write(schema):
        path = tmp_path / "schema.json"
        path.write_text(json.dumps(schema))
        return str(path)

    return write


def test_records_become_typed_rows_and_misfits_dead_letters_exactly_once_over_runs(
    spark, bootstrap, topic, producer, produce, tmp_path, schema_file
):
    orders, place = topic("orders", partitions=2), tmp_path / "lake" / "orders"
    given = {"schema": schema_file(SCHEMA), "connection": ConnectionSettings(bootstrap)}

    def ingest(**more):
        plan = plan_ingest(orders, f"delta:{place}", **{**given, **more})
        return plan, run_ingest(plan, once=True, spark=spark)

    produce(orders, ['{"id": 1, "name": "pear", "price": 2, "at": "2026-01-31T12:00:00Z"}'])
    produce(orders, ['{"id": 2, "color": "red"}'], partition=0)
    producer.send(orders, b'{"id": "3"}', key=b"k", headers=[("own", b"header")]).result()
    produce(orders, ["not json", '{"name": "no id"}', '{"id": 4} {"id": 5}', b"\xff\xfe"])
    plan, report = ingest()

    assert rows_of(place, "id", "name", "price", "_topic") == [
        (1, "pear", 2.0, orders),
        (2, None, None, orders),
    ]
    assert [dict(found or ()) for _, found in rows_of(place, "id", "_unknown")] == [
        {},
        {"color": "red"},
    ]
    assert (report.rows, report.failed, report.lag) == (7, {"dead letters": 5}, 0)
    letters = records_of(bootstrap, f"{orders}.dead")
    reasons = {record.value: headers_of(record)["dead-letter.error-message"] for record in letters}
    assert reasons == {
        b'{"id": "3"}': "field id is not BIGINT: 3",
        b"not json": "the value is not a JSON object",
        b'{"name": "no id"}': "field id is required and missing",
        b'{"id": 4} {"id": 5}': "the value is not a JSON object",
        b"\xff\xfe": "the value is not UTF-8 text",
    }
    (third,) = (record for record in letters if record.value == b'{"id": "3"}')
    told = headers_of(third)
    assert (third.key, told["own"], told["dead-letter.topic"]) == (b"k", "header", orders)
    assert told["dead-letter.flow"] == plan.name
    assert int(told["dead-letter.offset"]) >= 0
    assert int(told["dead-letter.timestamp"]) > 0
    assert sum(committed(bootstrap, plan.name).values()) == 7

    produce(orders, ['{"id": 6, "color": "blue"}', "bad again"])
    grown = {**SCHEMA, "properties": {**SCHEMA["properties"], "color": {"type": "string"}}}
    _, report = ingest(schema=schema_file(grown))
    assert report.rows == 2
    assert rows_of(place, "id", "color") == [(1, None), (2, None), (6, "blue")]
    assert len(records_of(bootstrap, f"{orders}.dead")) == 6

    changed = {**SCHEMA, "properties": {**SCHEMA["properties"], "price": {"type": "string"}}}
    with pytest.raises(IngestError, match="field price is STRING and was DOUBLE"):
        ingest(schema=schema_file(changed))


def test_an_inferred_schema_is_frozen_for_later_runs(spark, bootstrap, topic, produce, tmp_path):
    events, place = topic("events"), tmp_path / "lake" / "events"

    def plan(**types):
        return plan_ingest(
            events,
            f"parquet:{place}",
            schema="infer",
            connection=ConnectionSettings(bootstrap),
            partition_by=["_date"],
            dead_letter_topic=f"{events}.refused",
            types=types,
            rename={"a word": "word"},
        )

    with pytest.raises(IngestError, match="has no records to infer a schema from"):
        plan()
    produce(events, ['{"n": 1}', '{"n": 2, "a word": "x"}'])
    with pytest.raises(IngestError, match="'NUMER' is not a type"):
        plan(n="NUMER")
    first = plan(n="DOUBLE")
    assert first.ddl == "n DOUBLE, `a word` STRING"
    assert not place.parent.exists(), "a plan writes nothing; a run does once its session is up"
    assert run_ingest(first, once=True, spark=spark).failed == {"dead letters": 0}
    assert open_table(f"parquet:{place}").schema().names[:2] == ["n", "word"]
    produce(events, ['{"n": "three", "late": true}', '{"n": 1.5, "a word": "y"}'])
    with pytest.raises(IngestError, match=r"--type n=BIGINT: .* a column keeps its type"):
        plan(n="BIGINT")
    second = plan()
    assert second.schema == first.schema
    assert run_ingest(second, once=True, spark=spark).failed == {"dead letters": 1}
    assert [path.name[:6] for path in place.iterdir() if path.is_dir() and "=" in path.name] == [
        "_date="
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"topic": "ordres"}, "the topic ordres does not exist"),
        ({"topic": "nosuch"}, "nosuch does not exist; create with: headwater topics create nosuch"),
        ({"partition_by": ["day"]}, "--partition-by day: no such column; there are id, name"),
        ({"start": "yesterday"}, "--from yesterday: write earliest, latest, committed or a time"),
        ({"options": {"failOnDatLoss": "false"}}, "failOnDatLoss.*did you mean failOnDataLoss"),
        (
            {"options": {"Subscribe": "other"}},
            "--option Subscribe: an ingest reads its TOPIC alone",
        ),
        ({"options": {"assign": '{"x": [0]}'}}, "--option assign: an ingest reads its TOPIC alone"),
        ({"options": {"includeHeaders": "false"}}, "--option includeHeaders: dead letters keep"),
        ({"options": {"kafka.bootstrap.servers": "b:1"}}, "with --bootstrap-server"),
        ({"dead_letter_topic": "a/b"}, "--dead-letter: the topic name 'a/b' has characters"),
        ({"target": "topic:x"}, "write delta:PATH, iceberg:PATH or parquet:PATH"),
        ({"schema": {"type": "object", "properties": {"_offset": {"type": "integer"}}}}, "_offset"),
        ({"rename": {"nam": "x"}}, "--rename nam: no such field; did you mean name"),
        ({"rename": {"id": "name"}}, "--rename: two fields have the column name"),
        ({"rename": {"id": "an id"}}, "'id' cannot be a column of a Delta table: .*--rename"),
        ({"types": {"id": "INT"}}, "--type is for --schema infer"),
        ({"name": "a/b"}, "--name 'a/b': write a name without a slash"),
    ],
)
def test_what_cannot_be_is_refused_before_spark_starts(
    bootstrap, topic, tmp_path, schema_file, words, said
):
    asked = {
        "topic": topic("orders"),
        "target": f"delta:{tmp_path / 'orders'}",
        "schema": SCHEMA,
        "connection": ConnectionSettings(bootstrap),
        **words,
    }
    asked["schema"] = schema_file(asked["schema"])
    with pytest.raises((IngestError, TargetError), match=said.replace("|", r"\|")):
        plan_ingest(asked.pop("topic"), asked.pop("target"), **asked)


def test_dead_letters_never_go_to_the_topic_that_is_read(bootstrap, topic, tmp_path, schema_file):
    orders, target = topic("orders"), f"delta:{tmp_path / 'orders'}"
    asked = {"schema": schema_file(SCHEMA), "connection": ConnectionSettings(bootstrap)}
    with pytest.raises(IngestError, match=f"--dead-letter {orders}: the ingest reads this topic"):
        plan_ingest(orders, target, dead_letter_topic=orders, **asked)


def test_a_checkpoint_folder_serves_one_table_and_one_topic_under_a_name(
    bootstrap, topic, tmp_path, schema_file
):
    orders, given = (
        topic("orders"),
        {"schema": schema_file(SCHEMA), "connection": ConnectionSettings(bootstrap)},
    )
    folder = str(tmp_path / "checkpoints")

    def plan(place, **more):
        target = f"delta:{tmp_path}/{place}/orders"
        return plan_ingest(orders, target, **given, checkpoint=folder, **more)

    first = plan("prod", start="2026-01-31T12:00Z", options={"failOnDataLoss": "false"})
    assert first.options == {
        "startingTimestamp": "1769860800000",
        "startingOffsetsByTimestampStrategy": "latest",
        "failOnDataLoss": "false",
    }
    note(first, {"topic": first.topic, "target": str(first.target)})
    assert plan("prod").name == first.name
    with pytest.raises(IngestError, match=r"is the checkpoint of .* into .*prod/orders: give this"):
        plan("test")
    assert plan("test", name="ingest.test").name == "ingest.test"


def test_a_topic_that_was_created_again_is_refused_by_an_ingest_that_has_begun(
    bootstrap, topic, tmp_path, schema_file
):
    orders, given = (
        topic("orders"),
        {"schema": schema_file(SCHEMA), "connection": ConnectionSettings(bootstrap)},
    )
    plan = plan_ingest(orders, f"delta:{tmp_path}/orders", **given)
    note(plan, {"topic ids": {orders: "0123" * 8}})
    assert plan_ingest(orders, f"delta:{tmp_path}/orders", **given).topic_id == plan.topic_id
    place = plan.checkpoint_store.location(plan.name)
    place.mkdir(parents=True)
    (place / "metadata").write_text('{"id": "q"}')
    (tmp_path / "orders").mkdir()
    with pytest.raises(IngestError, match=r"the table .* is gone but its checkpoint exists"):
        plan_ingest(orders, f"delta:{tmp_path}/orders", **given)
    append(f"delta:{tmp_path}/orders", pa.table({"id": [1]}), 0)
    with pytest.raises(IngestError, match=r"was deleted and recreated.*--from committed"):
        plan_ingest(orders, f"delta:{tmp_path}/orders", **given)
    shutil.rmtree(place)
    again = plan_ingest(orders, f"delta:{tmp_path}/orders", **given, start="committed")
    assert again.topic_id == plan.topic_id


@pytest.mark.parametrize(
    ("kind", "folders"), [("delta", ["_topic"]), ("parquet", []), ("iceberg", [])]
)
def test_rows_of_the_topic_are_not_written_again_without_their_checkpoint(
    bootstrap, topic, tmp_path, schema_file, kind, folders
):
    orders, given = (
        topic("orders"),
        {"schema": schema_file(SCHEMA), "connection": ConnectionSettings(bootstrap)},
    )
    target = f"{kind}:{tmp_path}/lake/orders"

    def plan(source=orders, **more):
        return plan_ingest(source, target, **given, **more)

    append(target, pa.table({"id": [1], "_topic": ["another"]}), 0, partition_by=folders)
    first = plan()
    append(target, pa.table({"id": [1], "_topic": [orders]}), 1, partition_by=folders)
    for lost in ({}, {"checkpoint": str(tmp_path / "typo")}, {"name": "second"}):
        with pytest.raises(IngestError, match=r"has rows of .* all records would be written again"):
            plan(**lost)
    for start in ("latest", "2026-01-31T12:00Z"):
        assert plan(start=start).topic == orders
    with pytest.raises(IngestError, match=r"group second has no offsets of it: all .* --name of"):
        plan(start="committed", name="second")
    with BlockingAdmin(bootstrap_servers=bootstrap) as admin:
        admin.set_group_offsets("second", {(orders, 0): 1})
    assert plan(start="committed", name="second").topic == orders
    assert plan(topic("others")).topic != orders
    note(first, {"schema": "id BIGINT"})
    assert plan().name == first.name


def test_a_table_that_was_deleted_with_its_checkpoint_begins_with_new_columns(
    bootstrap, topic, produce, tmp_path
):
    orders, target = topic("orders"), f"delta:{tmp_path}/orders"
    given = {"schema": "infer", "connection": ConnectionSettings(bootstrap)}
    produce(orders, ['{"id": 1, "price": 2}'])
    note(plan_ingest(orders, target, **given), {"schema": "id BIGINT, price BIGINT", "rename": {}})
    changed = plan_ingest(
        orders, target, **given, types={"price": "DOUBLE"}, rename={"id": "number"}
    )
    assert changed.ddl == "id BIGINT, price DOUBLE"
    assert changed.rename == {"id": "number"}
    append(target, pa.table({"id": [1]}), 0)
    with pytest.raises(IngestError, match="a column keeps its type"):
        plan_ingest(orders, target, **given, types={"price": "DOUBLE"})

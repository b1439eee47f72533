"""Schemas of records as DDL: JSON Schema, Avro-style records, samples."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipelines.declaring.columns import column_name, ddl_columns
from headwater.pipelines.schemas.schema import SchemaError, infer, load_schema, to_ddl


def test_a_json_schema_becomes_typed_columns():
    schema = {
        "type": "object",
        "required": ["id", "at", "maybe"],
        "properties": {
            "id": {"type": "integer", "description": "the user's id"},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "maybe": {"type": ["number", "null"]},
            "ok": {"type": "boolean"},
            "small": {"type": "integer", "format": "int32"},
            "raw": {"type": "string", "contentEncoding": "base64"},
            "kind": {"enum": ["a", "b", None]},
            "any": True,
            "number": {"type": ["integer", "number"]},
            "either": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/place"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "open": {"type": "object"},
            "odd name": {"type": "string", "nullable": True},
        },
        "$defs": {
            "place": {
                "properties": {"x": {"type": "number"}, "and": {"type": "string"}},
                "required": ["x"],
            }
        },
    }
    assert to_ddl(schema).split(", ") == [
        "id BIGINT NOT NULL COMMENT 'the user\\'s id'",
        "at TIMESTAMP NOT NULL",
        "day DATE",
        "maybe DOUBLE",
        "ok BOOLEAN",
        "small INT",
        "raw BINARY",
        "kind STRING",
        "any STRING",
        "number DOUBLE",
        "either STRUCT<x: DOUBLE NOT NULL",
        "and: STRING>",
        "tags ARRAY<STRING>",
        "counts MAP<STRING",
        "BIGINT>",
        "open MAP<STRING",
        "STRING>",
        "`odd name` STRING",
    ]


def field(kind):
    return {"properties": {"a": {"type": "object", "properties": {"b": kind}}}}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string"}, r"at \$: a table needs an object with properties"),
        (field({"type": "strnig"}), r"at \$.properties.a.properties.b: unknown type 'strnig'"),
        (field({"type": ["string", "integer"]}), r"b: a column has one type, not string or inte"),
        (field({"type": "null"}), r"b: nothing but null"),
        (field({"allOf": [{}]}), r"b.allOf: allOf has no column type"),
        (
            field({"$ref": "other.json#/x"}),
            r"b: \$ref 'other.json#/x' points outside of the document",
        ),
        (field({"$ref": "#/$defs/x"}), r"b: \$ref #/\$defs/x does not exist in the document"),
        (field({"$ref": "#/properties/a"}), r"contains itself"),
        (field({"type": "array", "items": [{}]}), r"b.items: a tuple has no column type"),
        (field({"description": "?"}), r"b: it has no type"),
        (field(3), r"b: expected a schema, not 3"),
        ({"properties": {"a": {}, "A": {}}}, r"at \$: a and A are one column to Spark"),
        ({"properties": {"a": {}}, "required": "a"}, r"\$.required: it should be a list"),
        ({"properties": []}, "a table needs an object with properties"),
    ],
)
def test_a_bad_json_schema_is_one_line_with_its_path(schema, said):
    with pytest.raises(SchemaError, match=said) as problem:
        to_ddl(schema)
    assert "\n" not in str(problem.value)


def test_a_shared_definition_may_be_used_twice():
    place = {"$ref": "#/$defs/x"}
    schema = {"properties": {"a": place, "b": place}, "$defs": {"x": {"type": "integer"}}}
    assert to_ddl(schema) == "a BIGINT, b BIGINT"


def test_an_avro_record_becomes_typed_columns():
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    schema = {
        "type": "record",
        "name": "Event",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long", "doc": "who"},
            {"name": "at", "type": millis},
            {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
            {"name": "again", "type": ["null", "Kind"]},
            {"name": "hash", "type": {"type": "fixed", "name": "H", "size": 16}},
            {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {
                "name": "place",
                "type": {
                    "type": "record",
                    "name": "Place",
                    "fields": [{"name": "x", "type": "float"}],
                },
            },
            {"name": "from", "type": "Place"},
            {"name": "wide", "type": ["int", "double"]},
            {"name": "odd", "type": {"type": "string", "logicalType": "of-our-own"}},
        ],
    }
    assert to_ddl(schema) == (
        "id BIGINT NOT NULL COMMENT 'who', at TIMESTAMP NOT NULL, seen TIMESTAMP,"
        " local TIMESTAMP_NTZ NOT NULL, day DATE NOT NULL, price DECIMAL(9, 2) NOT NULL,"
        " kind STRING NOT NULL, again STRING, hash BINARY NOT NULL, tags ARRAY<STRING> NOT NULL,"
        " counts MAP<STRING, INT> NOT NULL, place STRUCT<x: FLOAT NOT NULL> NOT NULL,"
        " from STRUCT<x: FLOAT NOT NULL> NOT NULL, wide DOUBLE NOT NULL, odd STRING NOT NULL"
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("lnog", r"at \$.fields\[0\].a: unknown type 'lnog'"),
        ("R", "R contains itself"),
        (["string", "long"], "a column has one type, not string or long"),
        (["null"], "nothing but null"),
        ({"items": "int"}, "expected a type"),
        ({"type": "array"}, r"a.items: expected a type, not None"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "precision of 1 to 38"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 4},
            "scale of a decimal",
        ),
        ({"type": "record", "name": "E", "fields": []}, "without fields"),
    ],
)
def test_a_bad_avro_schema_is_one_line_with_its_path(kind, said):
    with pytest.raises(SchemaError, match=said):
        to_ddl({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"type": "record"}, "a record needs a list of fields"),
        ({"type": "record", "fields": [{"type": "int"}]}, r"fields\[0\]: a field needs a name"),
        ({"type": "record", "fields": [{"name": "a"}]}, "the field a has no type"),
        ({"type": "record", "fields": [{"name": "a", "type": "int"}] * 2}, "are one column"),
    ],
)
def test_a_bad_record_is_told(record, said):
    with pytest.raises(SchemaError, match=said):
        to_ddl(record)


def test_a_schema_file_must_be_an_object():
    assert load_schema('{"a": 1}') == load_schema(b'{"a": 1}') == {"a": 1}
    for text in ("{", "[]"):
        with pytest.raises(SchemaError):
            load_schema(text)


def sample(**values):
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "BIGINT"),
        ([1, 2.5], "DOUBLE"),
        ([1, "x"], "STRING"),
        ([1, None], "BIGINT"),
        ([None], "STRING"),
        ([1 << 70], "STRING"),
        ([True], "BOOLEAN"),
        ([True, 1], "STRING"),
        (["2026-01-02"], "DATE"),
        (["2026-01-02", "2026-01-02T03:04:05Z"], "TIMESTAMP"),
        (["2026-01-02 03:04:05.123456+02:00"], "TIMESTAMP"),
        (["2026-02-31"], "STRING"),
        (["2026-01-02T03:04:05Z", "soon"], "STRING"),
        (["20260102"], "STRING"),
        ([[1], [2.5], []], "ARRAY<DOUBLE>"),
        ([[]], "ARRAY<STRING>"),
        ([{"x": 1}, {"y": [{"z": "a"}]}], "STRUCT<x: BIGINT, y: ARRAY<STRUCT<z: STRING>>>"),
        ([{}], "MAP<STRING, STRING>"),
        ([{"x": 1}, 3], "STRING"),
        ([[1], {"x": 1}], "STRING"),
    ],
)
def test_a_column_gets_the_least_type_that_holds_all_samples(values, kind):
    assert infer([sample(a=value) for value in values]) == f"a {kind}"


def test_samples_that_are_no_objects_are_passed_over():
    deep = b"[" * 100_000
    assert infer([b"nothing", b"[1]", b"\xff", deep, sample(a=1)]) == "a BIGINT"
    with pytest.raises(SchemaError, match="no sample is a JSON object"):
        infer([b"nothing", b"{}"])
    with pytest.raises(SchemaError, match="no sample is a JSON object with named fields"):
        infer([b'{"": 1}'])
    with pytest.raises(SchemaError, match="are one column to Spark"):
        infer([sample(id=1), sample(ID=1)])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
    | st.sampled_from(["2026-01-02", "2026-01-02T03:04:05Z"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["p", "q", "odd name"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
SAMPLES = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d e"]), VALUES, min_size=1),
    min_size=1,
    max_size=5,
)


@given(SAMPLES, st.randoms())
def test_the_order_of_samples_does_not_change_a_type(samples, random):
    encoded = [json.dumps(each).encode() for each in samples]
    mixed = list(encoded)
    random.shuffle(mixed)
    assert ddl_columns(infer(encoded)) == ddl_columns(infer(mixed))
    assert sorted(infer(encoded)) == sorted(infer(mixed))


@given(SAMPLES)
def test_every_name_of_the_samples_is_a_column(samples):
    found = ddl_columns(infer([json.dumps(each).encode() for each in samples]))
    assert set(found) == {name for each in samples for name in each}


@given(st.text(min_size=1))
def test_any_name_can_be_a_column(name):
    assert list(ddl_columns(f"{column_name(name)} INT")) == [name.lower()]

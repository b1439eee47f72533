"""Columns that change while a table grows: structs get fields, numbers get wider, or a refusal."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, GreaterThan
from pyspark.sql.pandas.types import from_arrow_schema

from headwater.pipelines.tables.source import read_file
from headwater.pipelines.tables.table import TableError, open_table
from tests.unit.pipelines.lake import KINDS, append

NARROW = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("r", pa.float32())])
WIDE = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("r", pa.float64())])
BIG = 1 << 40
FLAT = pa.struct([("x", pa.int32())])
GROWN = pa.struct([("x", pa.int32()), ("y", pa.string())])


def schema_of(struct):
    return pa.schema([("id", pa.int64()), ("s", struct), ("many", pa.list_(struct))])


def grow(target):
    """A struct without a field, with it, and without it again."""
    for number, (struct, value) in enumerate(
        [(FLAT, {"x": 1}), (GROWN, {"x": 2, "y": "b"}), (FLAT, {"x": 3})]
    ):
        row = {"id": number, "s": value, "many": [value]}
        append(target, pa.Table.from_pylist([row], schema_of(struct)), number)


def widen(target):
    """A narrow number, a wide one, and a narrow one again."""
    for number, (schema, value) in enumerate([(NARROW, 7), (WIDE, BIG), (NARROW, 8)]):
        row = {"id": number, "n": value, "r": value}
        append(target, pa.Table.from_pylist([row], schema), number)


def rows_of(target):
    """All rows as a stream reads them."""
    table = open_table(target)
    schema = from_arrow_schema(table.schema())
    found = [batch for file in table.files() for batch in read_file(file, schema)]
    return sorted(pa.Table.from_batches(found).to_pylist(), key=lambda row: row["id"])


def iceberg(target):
    folder = target.partition(":")[2]
    where = {"uri": f"sqlite:///{folder}/metadata/catalog.db", "warehouse": f"file://{folder}"}
    return SqlCatalog("headwater", **where).load_table("headwater.rows")


@pytest.mark.parametrize("kind", KINDS)
def test_structs_get_new_fields_and_older_rows_have_null_there(tmp_path, kind):
    target = f"{kind}:{tmp_path}/table"
    grow(target)
    table = open_table(target)
    assert [field.name for field in table.schema().field("s").type] == ["x", "y"]
    read = rows_of(target)
    assert [row["s"] for row in read] == [
        {"x": 1, "y": None}, {"x": 2, "y": "b"}, {"x": 3, "y": None},
    ]  # fmt: skip
    assert [row["many"] for row in read] == [[row["s"]] for row in read]
    if kind == "delta":
        dataset = DeltaTable(f"{tmp_path}/table").to_pyarrow_dataset()
        found = dataset.to_table(filter=pc.field("s", "x") == 1).to_pylist()
        assert [row["s"] for row in found] == [{"x": 1, "y": None}]
    if kind == "iceberg":
        found = iceberg(target).scan(EqualTo("s.y", "b")).to_arrow().to_pylist()
        assert [row["id"] for row in found] == [1]


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_numbers_get_wider_and_older_rows_keep_their_values(tmp_path, kind):
    target = f"{kind}:{tmp_path}/table"
    widen(target)
    assert open_table(target).schema().field("n").type == pa.int64()
    assert open_table(target).schema().field("r").type == pa.float64()
    assert [row["n"] for row in rows_of(target)] == [7, BIG, 8]
    if kind == "iceberg":
        scan = iceberg(target).scan
        assert scan(EqualTo("n", 7)).to_arrow().column("id").to_pylist() == [0]
        assert scan(GreaterThan("n", 100)).to_arrow().column("id").to_pylist() == [1]
    open_table(target).compact(1 << 20)
    assert [row["n"] for row in rows_of(target)] == [7, BIG, 8]


def test_a_delta_table_refuses_wider_numbers_and_says_what_to_do(tmp_path):
    target = f"delta:{tmp_path}/table"
    with pytest.raises(TableError, match=r"'n' of delta:.* cannot be widened.*--refresh"):
        widen(target)
    assert [row["n"] for row in rows_of(target)] == [7]
    append(target, pa.table({"id": [9], "n": pa.array([9], pa.int16())}), 2)
    assert [row["n"] for row in rows_of(target)] == [7, 9]


@pytest.mark.parametrize(
    "struct", [pa.struct([("X", pa.int32())]), pa.struct([("x", pa.string())])]
)
def test_a_field_of_a_struct_with_another_type_or_case_is_refused(tmp_path, struct):
    target = f"parquet:{tmp_path}/table"
    append(target, pa.Table.from_pylist([{"id": 1, "s": {"x": 1}}], schema_of(FLAT)), 0)
    with pytest.raises(TableError, match=r"s\.(x|X)"):
        append(target, pa.Table.from_pylist([{"id": 2}], schema_of(struct)), 1)

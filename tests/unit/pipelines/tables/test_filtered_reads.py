"""Every reader that the docs name finds each row by its value, at the edges of every type."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable

from headwater.pipelines.tables.table import open_table
from tests.unit.pipelines.edges import EDGES, ROWS, SCHEMA, batches
from tests.unit.pipelines.lake import append


@pytest.fixture(scope="module", params=["delta", "iceberg", "parquet"])
def edges(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("edges") / "table"
    for number, batch in enumerate(batches(3 if request.param == "delta" else 12)):
        append(f"{request.param}:{folder}", batch, number)
    return request.param, folder


def delta_dataset(folder, name, value):
    dataset = DeltaTable(str(folder)).to_pyarrow_dataset()
    return dataset.to_table(filter=pc.field(name) == value).column("id").to_pylist()


def delta_pandas(folder, name, value):
    wanted = [(name, "=", value.as_py())]
    return list(DeltaTable(str(folder)).to_pandas(columns=["id"], filters=wanted)["id"])


def delta_arrow(folder, name, value):
    found = DeltaTable(str(folder)).to_pyarrow_table(filters=pc.field(name) == value)
    return found.column("id").to_pylist()


def delta_polars(folder, name, value):
    found = pl.scan_delta(str(folder)).filter(pl.col(name) == value.as_py())
    return found.select("id").collect()["id"].to_list()


def iceberg(folder, name, value):
    catalog = SqlCatalog("headwater", uri=f"sqlite:///{folder}/metadata/catalog.db")
    return iceberg_ids(catalog.load_table("headwater.rows"), name, value)


def iceberg_by_its_folder(folder, name, value):
    return iceberg_ids(StaticTable.from_metadata(str(folder)), name, value)


def iceberg_ids(table, name, value):
    scan = table.scan(row_filter=EqualTo(name, value.as_py()), selected_fields=("id",))
    return scan.to_arrow().column("id").to_pylist()


def listed(folder, name, value):
    dataset = ds.dataset(folder, schema=SCHEMA, format="parquet")
    return dataset.to_table(filter=pc.field(name) == value).column("id").to_pylist()


def listed_by_pandas(folder, name, value):
    return list(pd.read_parquet(folder, filters=[(name, "=", value.as_py())])["id"])


def listed_by_polars(folder, name, value):
    found = pl.scan_parquet(f"{folder}/*.parquet").filter(pl.col(name) == value.as_py())
    return found.select("id").collect()["id"].to_list()


READERS = {
    "delta": [delta_dataset, delta_pandas, delta_arrow, delta_polars],
    "iceberg": [iceberg, iceberg_by_its_folder],
    "parquet": [listed, listed_by_pandas, listed_by_polars],
}


def check(kind, folder):
    for number, (name, value) in enumerate(ROWS):
        if value is not None:
            for read in READERS[kind]:
                found = read(folder, name, pa.scalar(value, EDGES[name][0]))
                assert found == [number], (read.__name__, name, value)


def test_each_row_is_found_by_its_value_before_and_after_compaction(edges):
    kind, folder = edges
    check(kind, folder)
    assert open_table(f"{kind}:{folder}").compact(1 << 20).written == 1
    check(kind, folder)


@pytest.mark.parametrize("compacted", [False, True])
def test_rows_from_before_a_column_and_rows_without_one_are_found_as_null(tmp_path, compacted):
    target, folder = f"delta:{tmp_path}/table", tmp_path / "table"
    append(target, pa.table({"id": [1], "old": ["a"]}), 0)
    append(target, pa.table({"id": [2], "old": ["b"], "new": [5.0]}), 1)
    append(target, pa.table({"id": [3], "new": [float("inf")]}), 2)
    if compacted:
        open_table(target).compact(1 << 20)
    dataset = DeltaTable(str(folder)).to_pyarrow_dataset()

    def ids(wanted):
        return sorted(dataset.to_table(filter=wanted).column("id").to_pylist())

    assert ids(pc.field("new").is_null()) == [1]
    assert ids(pc.field("old").is_null()) == [3]
    assert ids(pc.field("new") > 1) == [2, 3]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
@pytest.mark.parametrize("number", [1 << 60, -(1 << 60)])
def test_a_time_beyond_the_years_of_python_is_kept_and_harms_no_other_row(tmp_path, kind, number):
    target = f"{kind}:{tmp_path}/table"
    kinds = {"at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "day": pa.date32()}
    far = {"at": number, "local": number, "day": number >> 38}
    odd = {
        name: pa.array([far[name], 0]).cast(EDGES["whole"][0] if name == "day" else pa.int64())
        for name in kinds
    }
    batch = pa.table({"id": [1, 2], **{name: odd[name].cast(kinds[name]) for name in kinds}})
    append(target, batch, 0)
    append(target, batch.set_column(0, "id", [pa.array([3, 4])]), 1)
    table = open_table(target)
    assert table.compact(1 << 20).written == 1
    (merged,) = table.files()
    found = ds.dataset(merged.path).to_table()
    assert sorted(found.column("id").to_pylist()) == [1, 2, 3, 4]
    assert found.column("at").cast(pa.int64()).to_pylist() == [number, 0, number, 0]
    if kind != "parquet":
        assert READERS[kind][0](tmp_path / "table", "id", pa.scalar(4)) == [4]

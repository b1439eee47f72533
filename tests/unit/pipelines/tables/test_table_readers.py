"""Other people's readers find in the tables what was written."""

from datetime import date

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from headwater.pipelines.tables.table import open_table
from tests.unit.pipelines.lake import append, replace, rows

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("name", pa.string())])
DAY = {"day": pl.Date}
POLARS_SCHEMA = {"id": pl.Int64, **DAY, "name": pl.String}


def delta(folder):
    return DeltaTable(str(folder)).to_pyarrow_table()


def delta_by_polars(folder):
    return pl.read_delta(str(folder)).to_arrow()


def iceberg(folder):
    uri = f"sqlite:///{folder}/metadata/catalog.db"
    return SqlCatalog("headwater", uri=uri).load_table("headwater.rows").scan().to_arrow()


def iceberg_by_its_folder(folder):
    return StaticTable.from_metadata(str(folder)).scan().to_arrow()


def listed(folder):
    return ds.dataset(folder, schema=SCHEMA, format="parquet", partitioning="hive").to_table()


def listed_by_pandas(folder):
    return pa.Table.from_pandas(pd.read_parquet(folder, schema=SCHEMA), SCHEMA)


def listed_by_polars(folder):
    """As the page about tables says, with and without partitions."""
    of_files, of_folders, pattern = POLARS_SCHEMA, {}, "*.parquet"
    if any(folder.glob("day=*")):
        of_files = {name: kind for name, kind in POLARS_SCHEMA.items() if name not in DAY}
        of_folders, pattern = DAY, "day=*/*.parquet"
    return pl.read_parquet(
        f"{folder}/{pattern}", schema=of_files, hive_schema=of_folders, missing_columns="insert"
    ).to_arrow()


READERS = [
    ("delta", delta),
    ("delta", delta_by_polars),
    ("iceberg", iceberg),
    ("iceberg", iceberg_by_its_folder),
    ("parquet", listed),
    ("parquet", listed_by_pandas),
    ("parquet", listed_by_polars),
]


def by_id(table):
    return sorted(table.select(["id", "day", "name"]).to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize(("kind", "read"), READERS)
def test_partitions_added_columns_and_merged_files_read_right(tmp_path, kind, read):
    target = f"{kind}:{tmp_path}/table"
    day = date(2024, 1, 1)
    append(target, rows(1, 2, day=[day, None]), 0, partition_by=["day"])
    append(target, rows(3, day=[day], name=["c"]), 1, partition_by=["day"])
    wanted = [
        {"id": 1, "day": day, "name": None},
        {"id": 2, "day": None, "name": None},
        {"id": 3, "day": day, "name": "c"},
    ]
    assert by_id(read(tmp_path / "table")) == wanted
    assert open_table(target).compact(1 << 20) == (2, 1)
    assert by_id(read(tmp_path / "table")) == wanted


@pytest.mark.parametrize(("kind", "read"), READERS)
def test_a_replaced_table_reads_as_its_new_self(tmp_path, kind, read):
    target = f"{kind}:{tmp_path}/table"
    day = date(2024, 1, 1)
    append(target, pa.table({"id": pa.array([1], pa.int64()), "name": [1.5]}), 0)
    replace(target, rows(7, day=[day], name=["g"]), 0)
    append(target, rows(8, day=[day], name=["h"]), 1)
    assert by_id(read(tmp_path / "table")) == [
        {"id": 7, "day": day, "name": "g"},
        {"id": 8, "day": day, "name": "h"},
    ]


def test_a_partition_that_listing_readers_skip_comes_with_a_warning(tmp_path, caplog):
    folder = tmp_path / "table"
    append(f"parquet:{folder}", rows(1, _date=[date(2024, 1, 1)]), 0, partition_by=["_date"])
    append(f"parquet:{folder}", rows(2, _date=[date(2024, 1, 2)]), 1, partition_by=["_date"])
    (warning,) = caplog.messages
    assert "skip the folders of _date" in warning
    assert "ignore_prefixes=['_headwater']" in warning
    assert ds.dataset(folder, partitioning="hive").count_rows() == 0
    seen = ds.dataset(folder, partitioning="hive", ignore_prefixes=["_headwater"])
    assert seen.count_rows() == 2
    append(f"parquet:{tmp_path}/plain", rows(1, day=[1]), 0, partition_by=["day"])
    assert len(caplog.messages) == 1

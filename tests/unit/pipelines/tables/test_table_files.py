"""Statistics for readers, sizes of files and what is worth merging."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headwater.pipelines.tables.compaction import merge_plan
from headwater.pipelines.tables.sizing import FileSizing
from headwater.pipelines.tables.statistics import delta_statistics
from headwater.pipelines.tables.table import DataFile, StagedFile
from tests.unit.pipelines.lake import append, rows


def statistics(tmp_path, table, **options):
    pq.write_table(table, tmp_path / "file.parquet", **options)
    return json.loads(delta_statistics(pq.read_metadata(tmp_path / "file.parquet"), table.schema))


def test_bounds_and_nulls_are_taken_over_all_row_groups(tmp_path):
    table = pa.table({"a": [3, None, 1, 7], "s": [{"b": "x"}, {"b": None}, None, {"b": "a"}]})
    assert statistics(tmp_path, table, row_group_size=2) == {
        "numRecords": 4,
        "minValues": {"a": 1, "s": {"b": "a"}},
        "maxValues": {"a": 7, "s": {"b": "x"}},
        "nullCount": {"a": 1, "s": {"b": 2}},
    }


def test_long_texts_are_cut_and_the_last_letter_of_an_upper_bound_is_raised(tmp_path):
    table = pa.table(
        {
            "long": ["z" * 40],
            "edge": ["\ud7ff" * 33],
            "last": ["a" + "\U0010ffff" * 40],
            "odd": [Decimal("0.1")],
            "flag": [True],
            "raw": [b"x"],
            "list": [[1]],
            "none": pa.array([None], pa.int64()),
        }
    )
    found = statistics(tmp_path, table)
    same = {"odd": 0.1, "flag": True}
    least = {"long": "z" * 32, "edge": "\ud7ff" * 32, "last": "a" + "\U0010ffff" * 31}
    assert found["minValues"] == {**least, **same}
    greatest = {"long": "z" * 31 + "{", "edge": "\ud7ff" * 31 + "\ue000", "last": "b"}
    assert found["maxValues"] == {**greatest, **same}
    assert found["nullCount"]["none"] == 1


@pytest.mark.parametrize(
    "value",
    [
        pa.scalar(float("inf")),
        pa.scalar("\U0010ffff" * 40),
        pa.scalar(Decimal("12345678901234567.1"), pa.decimal128(20, 1)),
        pa.scalar(1 << 60, pa.timestamp("us", "UTC")),
        pa.scalar(-(1 << 60), pa.timestamp("us")),
        pa.scalar(1 << 30, pa.date32()),
    ],
)
def test_where_one_bound_cannot_be_written_the_file_has_none(tmp_path, value):
    found = statistics(tmp_path, pa.table({"id": [1], "odd": pa.array([value])}))
    assert found == {"numRecords": 1, "nullCount": {"id": 0, "odd": 0}}


def test_a_column_that_the_file_lacks_is_all_null(tmp_path):
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "file.parquet")
    grown = pa.schema([("id", pa.int64()), ("new", pa.string())])
    found = json.loads(delta_statistics(pq.read_metadata(tmp_path / "file.parquet"), grown))
    assert found["nullCount"] == {"id": 0, "new": 2}
    assert found["maxValues"] == {"id": 2}


def test_times_keep_their_microseconds_and_days_are_days(tmp_path):
    at = datetime(2024, 1, 2, 3, 4, 5, 678901)
    table = pa.table(
        {
            "utc": pa.array([at.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "local": pa.array([at], pa.timestamp("us")),
            "day": [date(2024, 1, 2)],
        }
    )
    assert statistics(tmp_path, table)["minValues"] == {
        "utc": "2024-01-02T03:04:05.678901Z",
        "local": "2024-01-02T03:04:05.678901",
        "day": "2024-01-02",
    }


def test_a_reader_of_delta_skips_files_by_their_statistics(tmp_path):
    target = f"delta:{tmp_path}/table"
    for number in range(3):
        append(target, rows(number * 10, number * 10 + 5), number)
    table = DeltaTable(f"{tmp_path}/table")
    found = table.to_pyarrow_dataset().to_table(filter=pa.compute.field("id") > 12)
    assert sorted(found.column("id").to_pylist()) == [15, 20, 25]
    fragments = table.to_pyarrow_dataset().get_fragments(filter=pa.compute.field("id") > 19)
    assert len(list(fragments)) == 1


class Footer:
    def __init__(self, rows):
        self.num_rows = rows


def test_the_last_batch_tells_how_many_tasks_and_rows_make_files_of_the_size():
    sizing = FileSizing(800)
    assert (sizing.tasks(4), sizing.rows_per_file()) == (None, 0)
    sizing.observe([StagedFile("a", 250, (), Footer(10)), StagedFile("b", 250, (), Footer(10))], 5)
    assert (sizing.tasks(4), sizing.rows_per_file()) == (5, 32)
    sizing.observe([], 5)
    assert sizing.tasks(4) == 5
    sizing.observe([StagedFile("a", 10, (), Footer(1))], 5)
    assert sizing.tasks(4) == 1


def test_a_batch_that_is_slow_gets_all_cores_until_batches_are_much_smaller():
    sizing = FileSizing(800)

    def written(rows, took_ms):
        sizing.observe([StagedFile("a", 10, (), Footer(rows))], took_ms)
        return sizing.tasks(16)

    assert written(4000, 900) == 1
    assert written(4000, 8000) == 16
    assert written(4000, 600) == 16, "it is quick because of the cores"
    assert written(1500, 200) == 16
    assert written(900, 200) == 1


def test_only_small_files_of_one_partition_are_merged_and_not_past_the_target():
    here, there = (("day", "1"),), (("day", "2"),)
    files = [
        DataFile("a", 1, 40, here),
        DataFile("b", 1, 40, here),
        DataFile("c", 1, 40, here),
        DataFile("large", 1, 60, here),
        DataFile("alone", 1, 10, there),
    ]
    plan = merge_plan(files, 100)
    assert [[file.path for file in group] for group in plan] == [["a", "b"]]

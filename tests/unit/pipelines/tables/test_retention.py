"""Files that only old versions name are removed in time, and no others."""

import os

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.pipelines.tables.retention import expire_when_due
from headwater.pipelines.tables.source import TableStreamReader, spark_schema
from headwater.pipelines.tables.table import open_table
from headwater.seams.clock import SystemClock
from tests.unit.pipelines.lake import KINDS, append, ids, replace, rows


def files_below(folder):
    return {
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(".parquet") and "/_delta_log" not in where
    }


@pytest.fixture(params=KINDS)
def table(request, tmp_path):
    """A table that was replaced twice, compacted, and appended to."""
    target = f"{request.param}:{tmp_path}/table"
    for number in range(3):
        replace(target, rows(number, number + 10), number)
    append(target, rows(7), 0)
    append(target, rows(8), 1)
    open_table(target).compact(1 << 20)
    append(target, rows(9), 2)
    return open_table(target)


def test_versions_within_the_retention_are_all_kept(table):
    before = files_below(table.target.place)
    assert table.expire(1) == 0
    assert files_below(table.target.place) == before


def test_files_of_older_versions_go_and_rows_stay(table):
    before = files_below(table.target.place)
    kept = {file.path for file in table.files()}
    assert table.expire(0) >= len(before) - len(kept) > 0
    assert files_below(table.target.place) == kept
    found = open_table(table.target)
    assert ids(found.files()) == [2, 7, 8, 9, 12]
    assert found.last_batch("app") == 2
    assert append(str(table.target), rows(11), 3)
    assert ids(open_table(table.target).files()) == [2, 7, 8, 9, 11, 12]


def test_it_is_done_once_in_a_while_and_never_with_0(table, monkeypatch):
    asked = []
    monkeypatch.setattr(type(table), "expire", lambda self, hours: asked.append(hours) or 0)
    for hours in (0, 5, 5, 5):
        expire_when_due(table, hours)
    assert asked == [5]


def test_an_expired_iceberg_table_has_few_snapshots(tmp_path):
    target = f"iceberg:{tmp_path}/table"
    for number in range(5):
        append(target, rows(number), number)
    table = open_table(target)
    tagged = table._present().snapshots()[1].snapshot_id
    table._present().manage_snapshots().create_tag(tagged, "audit").commit()
    table.expire(0)
    newest = table._present().current_snapshot().snapshot_id
    assert {one.snapshot_id for one in table._present().snapshots()} == {tagged, newest}
    assert ids(open_table(target).files()) == [0, 1, 2, 3, 4]


def test_a_fresh_stream_reads_all_rows_of_a_table_whose_old_files_are_gone(table):
    table.expire(0)
    assert append(str(table.target), rows(13), 3)
    assert streamed(table.target) == [2, 7, 8, 9, 12, 13]


def test_a_first_batch_that_is_repeated_after_old_files_went_has_its_rows(table):
    upto = {"version": table.version()}
    target = str(table.target)
    append(target, rows(13), 3)
    open_table(target).compact(1 << 20)
    table.expire(1)
    start = {"version": table.version() - 1, "whole": True}
    assert streamed(target, start, upto) == [2, 7, 8, 9, 12]


def test_a_table_opens_after_the_files_that_its_newest_version_replaced_are_gone(table):
    replace(str(table.target), rows(5), 3)
    table.expire(0)
    assert ids(open_table(table.target).files()) == [5]


def test_a_snapshot_that_was_the_newest_one_within_the_retention_is_kept(tmp_path, monkeypatch):
    target = f"iceberg:{tmp_path}/table"
    replace(target, rows(1), 0)
    (old,) = open_table(target).files()
    within = open_table(target)._present().current_snapshot().timestamp_ms + 1
    replace(target, rows(2), 1)
    monkeypatch.setattr(SystemClock, "wall_ms", lambda self: within)
    assert open_table(target).expire(0) == 0
    assert ids([old]) == [1]


def streamed(target, start=None, end=None):
    """The ids that a stream over a table reads in one batch."""
    schema = spark_schema(open_table(target).schema())
    reader = TableStreamReader({"path": str(target)}, schema)
    start = start or reader.initialOffset()
    end = end or reader.latestOffset(start, ReadAllAvailable())
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return sorted(row["id"] for batch in batches for row in batch.to_pylist())

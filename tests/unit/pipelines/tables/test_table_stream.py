"""The driver's part of a stream from a table: which tasks a batch has. Without Spark."""

import os

import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.pipelines.tables.source import TableStreamReader, spark_schema
from headwater.pipelines.tables.table import TableError, open_table
from tests.unit.pipelines.lake import KINDS, append, ids, rows


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_planned_again_after_its_log_was_tidied_has_the_same_tasks(tmp_path, kind):
    target = f"{kind}:{tmp_path}/table"
    for number in range(4):
        batch = rows(*range(number, 40, 4), day=[str(day % 7) for day in range(10)])
        append(target, batch, number, partition_by=("day",))
    upto = open_table(target).version()

    def planned(start):
        reader = TableStreamReader({"path": target}, spark_schema(open_table(target).schema()))
        found = [part.value for part in reader.partitions(start, {"version": upto})]
        return [os.path.basename(file.path) for file in found], ids(found)

    whole = {"version": upto - 1, "whole": True}
    first = planned(whole)
    assert first[1] == list(range(40))
    if kind == "delta":
        DeltaTable(f"{tmp_path}/table").create_checkpoint()
    open_table(target).compact(1 << 20)
    assert planned(whole) == first


def test_a_stream_refuses_the_place_of_another_table(tmp_path):
    readers = []
    for name in ("left", "right"):
        target = f"delta:{tmp_path}/{name}"
        append(target, rows(1), 0)
        schema = spark_schema(open_table(target).schema())
        readers.append(TableStreamReader({"path": target}, schema))
    left, right = readers
    place = left.latestOffset(left.initialOffset(), ReadAllAvailable())
    with pytest.raises(TableError, match="of a stream from left, and this one reads right"):
        right.latestOffset(place, ReadAllAvailable())


def test_a_place_without_the_name_of_its_table_is_taken(tmp_path):
    target = f"delta:{tmp_path}/table"
    for number in range(2):
        append(target, rows(number), number)
    reader = TableStreamReader({"path": target}, spark_schema(open_table(target).schema()))
    assert reader.latestOffset({"version": 1}, ReadAllAvailable()) == {"version": 1}
    onward = reader.latestOffset({"version": 0}, ReadAllAvailable())
    assert onward == {"version": 1, "table": "table"}


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_a_compaction_merges_after_a_batch_was_planned_are_read(tmp_path, kind):
    target = f"{kind}:{tmp_path}/table"
    for number in range(3):
        append(target, rows(number, day=["x"]), number, partition_by=("day",))
    reader = TableStreamReader({"path": target}, spark_schema(open_table(target).schema()))
    start = reader.initialOffset()
    planned = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert open_table(target).compact(1 << 20).merged == 3
    batches = [batch for part in planned for batch in reader.read(part)]
    assert sorted(row["id"] for batch in batches for row in batch.to_pylist()) == [0, 1, 2]

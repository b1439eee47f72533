"""The three kinds of tables behind one face, with files that pyarrow wrote."""

import os
from datetime import date

import pyarrow as pa
import pytest

from headwater.pipelines.tables.table import TableChange, TableError, TableReplaced, open_table
from tests.unit.pipelines.lake import (
    KINDS,
    append,
    data_files_on_disk,
    ids,
    replace,
    rows,
    stage,
)


@pytest.fixture(params=KINDS)
def target(request, tmp_path):
    return f"{request.param}:{tmp_path}/table"


def test_a_batch_is_in_the_table_once_however_often_it_is_offered(target):
    assert append(target, rows(1, 2), 0)
    assert not append(target, rows(1, 2), 0)
    assert append(target, rows(3), 1)
    table = open_table(target)
    assert ids(table.files()) == [1, 2, 3]
    assert table.last_batch("app") == 1
    assert table.last_batch("other") == -1
    assert {file.path for file in table.files()} == data_files_on_disk(target)


def test_a_batch_of_no_files_counts_as_well(target):
    append(target, rows(1), 0)
    table = open_table(target)
    assert table.commit(TableChange([], table.schema(), "once", 0))
    assert open_table(target).last_batch("once") == 0
    assert ids(open_table(target).files()) == [1]


def test_applications_count_their_batches_apart(target):
    append(target, rows(1), 7, app="one")
    append(target, rows(2), 0, app="the other, with / and spaces")
    table = open_table(target)
    assert ids(table.files()) == [1, 2]
    assert table.last_batch("one") == 7
    assert table.last_batch("the other, with / and spaces") == 0


def test_what_a_dead_attempt_left_is_removed_with_the_batch_and_never_seen(target):
    table = open_table(target)
    append(target, rows(0), 0)
    stage(table, rows(1), "app", 1)
    assert ids(open_table(target).files()) == [0]
    append(target, rows(1), 1)
    assert ids(open_table(target).files()) == [0, 1]
    assert not os.path.exists(table.staging("app", 1))
    assert {file.path for file in table.files()} == data_files_on_disk(target)


def test_files_of_others_are_left_alone(target):
    table = open_table(target)
    append(target, rows(0), 0)
    _, elsewhere = stage(table, rows(1), "another", 1)
    append(target, rows(1), 1)
    assert os.path.exists(elsewhere)


def test_an_older_handle_finds_what_others_committed(target):
    table = open_table(target)
    assert not table.exists()
    append(target, rows(1), 0)
    assert table.exists()
    assert ids(table.files()) == [1]
    append(target, rows(2), 1)
    assert ids(table.files()) == [1, 2]


def test_a_handle_that_lost_the_race_looks_again_and_does_not_add_twice(target):
    append(target, rows(0), 0)
    zombie = open_table(target)
    late, _ = stage(zombie, rows(1), "app", 1)
    assert zombie.last_batch("app") == 0
    append(target, rows(1), 1)
    assert not zombie.commit(TableChange(late, zombie.stored(rows(1).schema), "app", 1))
    assert ids(zombie.files()) == [0, 1]


def test_columns_are_added_and_older_rows_have_none(target):
    append(target, rows(1), 0)
    append(target, rows(2, name=["b"]), 1)
    append(target, rows(3), 2)
    table = open_table(target)
    assert table.schema() == pa.schema([("id", pa.int64()), ("name", pa.string())])
    assert ids(table.files()) == [1, 2, 3]


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (
            pa.table({"id": ["text"]}),
            "Cast the column to int64 in the query, or fill the table again",
        ),
        (pa.table({"ID": pa.array([1], pa.int64())}), "same case"),
    ],
)
def test_a_changed_column_is_refused_and_nothing_changes(target, batch, says):
    append(target, rows(1), 0)
    with pytest.raises(TableError, match=says):
        append(target, batch, 1)
    assert open_table(target).last_batch("app") == 0


def test_partitions_are_folders_and_their_values_are_known(target):
    batch = rows(1, 2, 3, day=[date(2024, 1, 1), None, date(2024, 1, 2)], at=["a b/%=", "x", "x"])
    append(target, batch, 0, partition_by=["day", "at"])
    table = open_table(target)
    assert table.partition_by() == ("day", "at")
    assert {file.partition for file in table.files()} == {
        (("day", "2024-01-01"), ("at", "a b/%=")),
        (("day", None), ("at", "x")),
        (("day", "2024-01-02"), ("at", "x")),
    }
    assert all(os.path.exists(file.path) for file in table.files())
    with pytest.raises(TableError, match="is partitioned by day, at"):
        append(target, batch, 1, partition_by=["at"])
    with pytest.raises(TableError, match="was not written for the partitions"):
        append(target, batch, 1)


def test_a_replaced_table_has_the_new_rows_and_columns_only(target):
    append(target, rows(1, name=["a"]), 0)
    replace(target, pa.table({"id": pa.array([7], pa.int64()), "name": [1.5]}), 0)
    table = open_table(target)
    assert ids(table.files()) == [7]
    assert table.schema().field("name").type == pa.float64()
    replace(target, rows(), 1)
    assert table.files() == []
    assert table.schema().names == ["id"]


def test_new_rows_by_version_without_compactions(target):
    for number in range(4):
        append(target, rows(number), number)
    table = open_table(target)
    first = table.first_version()
    before = table.version()
    assert table.compact(1 << 20).merged == 4
    assert len(table.files()) == 1
    append(target, rows(9), 4)
    steps = table.added(first, table.version())
    assert ids(table.files(first)) + ids([file for _, files in steps for file in files]) == [
        0,
        1,
        2,
        3,
        9,
    ]
    assert [version for version, _ in steps] == list(range(first + 1, table.version() + 1))
    assert ids(table.files(before)) == [0, 1, 2, 3]
    assert ids(table.files()) == [0, 1, 2, 3, 9]


def test_a_stream_over_a_replaced_table_starts_at_the_replacement_and_cannot_pass_one(target):
    append(target, rows(1), 0)
    replace(target, rows(2), 0)
    append(target, rows(3), 1)
    table = open_table(target)
    first = table.first_version()
    assert ids(table.files(first)) == [2]
    assert [ids(files) for _, files in table.added(first, table.version())][-1] == [3]
    with pytest.raises(TableReplaced, match="new checkpoint"):
        table.added(0 if target.startswith("parquet") else first - 1, table.version())


def test_compaction_keeps_partitions_and_added_columns(target):
    for number in range(3):
        day = [date(2024, 1, 1), date(2024, 1, 2)]
        more = {"extra": [1, 2]} if number == 2 else {}
        append(target, rows(number, number + 10, day=day, **more), number, partition_by=["day"])
    table = open_table(target)
    assert table.compact(1 << 20) == (6, 2)
    assert {file.partition for file in table.files()} == {
        (("day", "2024-01-01"),),
        (("day", "2024-01-02"),),
    }
    assert ids(table.files()) == [0, 1, 2, 10, 11, 12]
    assert table.compact(1 << 20) == (0, 0)


def test_what_no_table_keeps_is_refused_by_name(target):
    table = open_table(target)
    for kind in (pa.timestamp("ns"), pa.null(), pa.duration("us"), pa.time64("us")):
        with pytest.raises(TableError, match=r"'a\.element'"):
            table.stored(pa.schema([("a", pa.list_(kind))]))


def test_a_folder_without_a_table_says_so(target):
    table = open_table(target)
    assert table.version() == -1
    with pytest.raises(TableError, match="there is no table at"):
        table.files()


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [("delta", "per%20cent", "%20"), ("delta", "back\\slash", "\\"), ("iceberg", "wh?t", "?")],
)
def test_a_folder_whose_name_a_library_misreads_is_refused_before_anything_is_written(
    tmp_path, kind, name, found
):
    with pytest.raises(TableError, match="use another folder") as refused:
        open_table(f"{kind}:{tmp_path}/{name}/t")
    assert repr(found) in str(refused.value)
    assert list(tmp_path.iterdir()) == []

"""Committers in processes of their own: killed between any two steps, or racing each other."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing

import pyarrow.dataset as ds
import pytest
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable
from sqlalchemy import event
from sqlalchemy.schema import CreateTable

from headwater.pipelines.tables import iceberg, parquet
from headwater.pipelines.tables.table import TableChange, TableConflict, open_table
from tests.unit.pipelines.lake import KINDS, append, data_files_on_disk, ids, replace, rows, stage

PRELUDE = """
import os, signal, sys
from headwater.pipelines.tables import parquet, staging, table
from headwater.pipelines.tables.manifests import ManifestLog
from tests.unit.pipelines.lake import append, rows

target, count = sys.argv[1], [0]

def dying(function, after):
    def call(*args, **named):
        count[0] += 1
        if count[0] > after:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **named)
    return call
"""


def child(code, *words):
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *map(str, words)]
    return subprocess.Popen(command)


@pytest.mark.parametrize("after", range(6))
def test_a_compaction_of_a_parquet_table_killed_at_any_move_is_finished_by_the_next(
    tmp_path, after
):
    target = f"parquet:{tmp_path}/table"
    for number in range(4):
        append(target, rows(number), number)
    compacts = """
    os.rename = dying(os.rename, int(sys.argv[2]))
    table.open_table(target).compact(1 << 20)
    """
    assert child(compacts, target, after).wait() == (-signal.SIGKILL if after < 5 else 0)
    listed = ds.dataset(f"{tmp_path}/table", format="parquet", exclude_invalid_files=False)
    seen = sorted(listed.to_table().column("id").to_pylist()) if listed.files else []
    assert len(seen) == len(set(seen))
    assert ids(open_table(target).files()) == [0, 1, 2, 3]
    assert {file.path for file in open_table(target).files()} == data_files_on_disk(target)


@pytest.mark.parametrize("step", ["link", "rename"])
def test_an_append_to_a_parquet_table_killed_around_its_manifest_is_there_once(tmp_path, step):
    target = f"parquet:{tmp_path}/table"
    append(target, rows(0), 0)
    appends = """
    setattr(os, sys.argv[2], dying(getattr(os, sys.argv[2]), 0))
    append(target, rows(1), 1)
    """
    assert child(appends, target, step).wait() == -signal.SIGKILL
    assert ids(open_table(target).files()) == ([0] if step == "link" else [0, 1])
    append(target, rows(1), 1)
    assert ids(open_table(target).files()) == [0, 1]
    assert {file.path for file in open_table(target).files()} == data_files_on_disk(target)
    assert not os.path.exists(open_table(target).staging("app", 1))


@pytest.mark.parametrize("kind", KINDS)
def test_two_committers_to_one_table_both_succeed(tmp_path, kind):
    target = f"{kind}:{tmp_path}/table"
    commits = """
    for number in range(4):
        assert append(target, rows(int(sys.argv[3]) + number), number, app=sys.argv[2])
    """
    both = [child(commits, target, "one", 0), child(commits, target, "two", 100)]
    assert [process.wait() for process in both] == [0, 0]
    wanted = [*range(4), *range(100, 104)]
    assert ids(open_table(target).files()) == wanted
    assert {file.path for file in open_table(target).files()} == data_files_on_disk(target)


def test_an_iceberg_table_that_another_makes_between_the_look_and_the_write_takes_both(
    tmp_path, monkeypatch
):
    target = f"iceberg:{tmp_path}/table"
    exists, asked = SqlCatalog.namespace_exists, []

    def overtaken(catalog, name):
        found = exists(catalog, name)
        if not asked:
            asked.append(name)
            assert append(target, rows(100), 0, app="quick")
        return found

    monkeypatch.setattr(SqlCatalog, "namespace_exists", overtaken)
    assert append(target, rows(0), 0, app="slow")
    assert asked
    assert ids(open_table(target).files()) == [0, 100]


def test_an_iceberg_catalog_whose_tables_another_makes_first_one_after_the_other_is_opened(
    tmp_path,
):
    made = []

    def make_first(table, connection, **_):
        with closing(sqlite3.connect(tmp_path / "table/metadata/catalog.db")) as other:
            other.execute(str(CreateTable(table)))
        made.append(table.name)

    tables = SqlCatalogBaseTable.metadata.sorted_tables
    for table in tables:
        event.listen(table, "before_create", make_first)
    try:
        assert append(f"iceberg:{tmp_path}/table", rows(0), 0)
    finally:
        for table in tables:
            event.remove(table, "before_create", make_first)
    assert sorted(made) == ["iceberg_namespace_properties", "iceberg_tables"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_thought_dead_that_commits_between_the_question_and_the_commit_is_noticed(
    tmp_path, kind, monkeypatch
):
    target = f"{kind}:{tmp_path}/table"
    append(target, rows(0), 0)
    slow, quick = open_table(target), open_table(target)
    schema = slow.stored(rows(1).schema)
    newest, asked = slow._newest, []

    def overtaken():
        found = newest()
        if not asked:
            asked.append(found)
            files, _ = stage(quick, rows(1), "app", 1)
            assert quick.commit(TableChange(files, schema, "app", 1))
        return found

    files, _ = stage(slow, rows(1), "app", 1)
    monkeypatch.setattr(slow, "_newest", overtaken)
    assert not slow.commit(TableChange(files, schema, "app", 1))
    assert ids(open_table(target).files()) == [0, 1]


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_a_compaction_that_lost_leaves_the_files_of_the_one_that_won(tmp_path, kind, monkeypatch):
    target = f"{kind}:{tmp_path}/table"
    for number in range(4):
        append(target, rows(number), number)
    module = {"iceberg": iceberg, "parquet": parquet}[kind]
    merge, kept = module.merge, []

    def overtaken(*merged):
        if not kept:  # the other one has committed, and did not get to tidy up
            kept.append("the other one")
            with monkeypatch.context() as dying:
                dying.setattr(module, "drop_attempt", lambda *_: None)
                open_table(target).compact(1 << 20)
        return merge(*merged)

    monkeypatch.setattr(module, "merge", overtaken)
    with pytest.raises(TableConflict):
        open_table(target).compact(1 << 20)
    assert ids(open_table(target).files()) == [0, 1, 2, 3]


def test_a_compaction_of_a_parquet_table_that_fails_after_its_manifest_loses_no_rows(
    tmp_path, monkeypatch
):
    target = f"parquet:{tmp_path}/table"
    for number in range(4):
        append(target, rows(number), number)
    table = open_table(target)
    assert table.exists()

    def disk_is_full(manifest):
        raise OSError("no space left")

    with monkeypatch.context() as full:
        full.setattr(table, "_finish_moves", disk_is_full)
        with pytest.raises(OSError, match="no space"):
            table.compact(1 << 20)
    assert ids(open_table(target).files()) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_a_replacement_whose_commit_fails_leaves_the_old_rows_and_columns(
    tmp_path, kind, monkeypatch
):
    target = f"{kind}:{tmp_path}/table"
    append(target, rows(1, 2), 0)
    before = open_table(target)

    def disk_is_full(*_, **__):
        raise OSError("no space left")

    with monkeypatch.context() as full:
        full.setattr(type(before), "_commit", disk_is_full)
        with pytest.raises(OSError, match="no space"):
            replace(target, rows(7, name=["new"]), 0)
    after = open_table(target)
    assert after.version() == before.version()
    assert after.schema().names == ["id"]
    assert ids(after.files()) == [1, 2]
    assert replace(target, rows(7, name=["new"]), 0)
    assert ids(open_table(target).files()) == [7]

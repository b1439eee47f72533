"""Checkpoints, tables and topics that do not belong together are refused before Spark starts."""

import json
import shutil
import subprocess
import sys

import pytest

from headwater.pipelines.running.checkpoints import Checkpoints
from headwater.pipelines.running.consistency import (
    QUERY,
    TOPIC_IDS,
    table_mismatch,
    topic_mismatch,
    unknown_rows,
)
from headwater.pipelines.running.run_lock import InUseError, run_lock
from headwater.pipelines.tables.table import TableChange, open_table
from tests.unit.pipelines.lake import KINDS, append, rows


@pytest.fixture(params=KINDS)
def table(request, tmp_path):
    """A table with batches 0 to 3 of the query `q`."""
    target = f"{request.param}:{tmp_path}/lake/table"
    for number in range(4):
        append(target, rows(number), number, app="q")
    return open_table(target)


def checkpoint(tmp_path, planned, query="q", **facts):
    """A checkpoint as Spark leaves it, with batches up to `planned`."""
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    offsets = checkpoints.location("flow") / "offsets"
    offsets.mkdir(parents=True)
    (checkpoints.location("flow") / "metadata").write_text(json.dumps({"id": query}))
    for number in range(planned + 1):
        (offsets / str(number)).write_text("v1\n{}\n{}")
        (offsets / f".{number}.crc").write_text("")
    checkpoints.write_note("flow", {QUERY: query, **facts})
    return checkpoints


@pytest.mark.parametrize("planned", [3, 4, 12])
def test_a_checkpoint_that_has_planned_what_the_table_has_belongs_to_it(tmp_path, table, planned):
    assert table_mismatch("flow", checkpoint(tmp_path, planned), table) is None


def test_an_older_copy_of_a_checkpoint_is_refused(tmp_path, table):
    told = table_mismatch("flow", checkpoint(tmp_path, 2), table)
    assert told is not None
    assert "its checkpoint is an older copy that ends with batch 2, and batch 3 is in" in told


def test_a_checkpoint_that_is_gone_or_another_is_refused_where_the_table_has_its_rows(
    tmp_path, table
):
    checkpoints = checkpoint(tmp_path, 3)
    shutil.rmtree(checkpoints.location("flow"))
    assert "all rows would be written again" in table_mismatch("flow", checkpoints, table)
    shutil.rmtree(checkpoints.folder)
    checkpoints = checkpoint(tmp_path, 9, query="other")
    assert table_mismatch("flow", checkpoints, table) is None
    checkpoints.write_note("flow", {QUERY: "q"})
    assert "all rows would be written again" in table_mismatch("flow", checkpoints, table)


def test_a_table_that_is_gone_is_refused_where_its_checkpoint_is_not(tmp_path, table):
    checkpoints = checkpoint(tmp_path, 3)
    shutil.rmtree(table.target.place)
    told = table_mismatch("flow", checkpoints, open_table(table.target))
    assert "is gone but its checkpoint exists" in told


def test_a_new_flow_may_fill_an_empty_table_and_no_other(tmp_path, table):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert "has 4 rows and there is no checkpoint" in unknown_rows("flow", checkpoints, table)
    checkpoints.write_note("flow", {})
    assert unknown_rows("flow", checkpoints, table) is None
    fresh = open_table(f"delta:{tmp_path}/fresh")
    assert unknown_rows("other", checkpoints, fresh) is None
    fresh.commit(TableChange([], fresh.stored(rows(1).schema), "made", 0))
    assert unknown_rows("other", checkpoints, fresh) is None


def test_a_topic_that_was_created_again_is_known_by_its_id(tmp_path):
    checkpoints = checkpoint(tmp_path, 0, **{TOPIC_IDS: {"orders": "a" * 32, "old": "0" * 32}})
    assert topic_mismatch("flow", checkpoints, {"orders": "a" * 32, "old": "c" * 32}) is None
    assert topic_mismatch("flow", checkpoints, {}) is None
    told = topic_mismatch("flow", checkpoints, {"orders": "b" * 32})
    assert "topic orders was deleted and recreated" in told
    checkpoints.drop_checkpoint("flow")
    assert topic_mismatch("flow", checkpoints, {"orders": "b" * 32}) is None


HOLD = """
import sys
from pathlib import Path
from headwater.pipelines.running.run_lock import run_lock
with run_lock(Path(sys.argv[1]), "the pipeline shop"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_is_refused_by_name_until_the_first_ends_or_dies(tmp_path):
    lock = tmp_path / "checkpoints" / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(InUseError, match=f"process {holder.pid} on .* holds .*lock; stop"),
            run_lock(lock, "the pipeline shop"),
        ):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with run_lock(lock, "the pipeline shop"):
        with pytest.raises(InUseError), run_lock(lock, "the pipeline shop"):
            pass
        assert json.loads(lock.read_text())["pid"] > 0

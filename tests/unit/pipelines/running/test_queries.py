"""Queries of a run: which failures end it, and when one may be stopped for another."""

import json
import threading
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from headwater.pipelines.running.flow_errors import FlowError
from headwater.pipelines.running.guarded_writers import GuardedWriters, WriterStoppedError
from headwater.pipelines.running.progress import RunProgress
from headwater.pipelines.running.queries import Queries

LATE = "Python worker failed to connect back."


class Query:
    """A query that has ended, well or not."""

    def __init__(self, failed=None, batch=None):
        self._failed = failed
        self.isActive = False
        self.name = "shop.silver"
        self.recentProgress = [] if batch is None else [completed(batch)]

    def exception(self):
        return self._failed


def completed(batch, sources=()):
    """Spark's report of a batch."""
    return SimpleNamespace(
        json=json.dumps(
            {
                "name": "shop.silver",
                "batchId": batch,
                "timestamp": "2026-01-01T00:00:00Z",
                "numInputRows": 7,
                "durationMs": {"addBatch": 1, "triggerExecution": 2},
                "sources": list(sources),
            }
        )
    )


def queries_of(*runs):
    """Queries in which each start of `silver` gives the next one."""
    waiting = list(runs)
    queries = Queries(
        RunProgress(), GuardedWriters(), lambda name: queries.add(name, waiting.pop(0))
    )
    queries.add("silver", waiting.pop(0))
    return queries, waiting


def test_a_query_whose_python_worker_was_late_is_started_again():
    queries, waiting = queries_of(Query(RuntimeError(LATE)), Query(RuntimeError(LATE)), Query())
    queries.wait(["silver"], threading.Event())
    assert not waiting


def test_it_is_not_started_again_for_ever():
    queries, waiting = queries_of(*(Query(RuntimeError(LATE)) for _ in range(100)))
    with pytest.raises(FlowError, match="failed to connect back"):
        queries.wait(["silver"], threading.Event())
    assert waiting


def test_a_query_that_completes_batches_in_between_is_started_again_each_time():
    late = [Query(RuntimeError(LATE), batch=number) for number in range(50)]
    queries, waiting = queries_of(*late, Query())
    queries.wait(["silver"], threading.Event())
    assert not waiting


def test_any_other_failure_ends_the_run_at_once():
    queries, waiting = queries_of(Query(RuntimeError("the disk is full")), Query())
    with pytest.raises(FlowError, match="silver: RuntimeError: the disk is full"):
        queries.wait(["silver"], threading.Event())
    assert len(waiting) == 1


def test_a_query_writes_no_batch_after_it_was_stopped_and_the_next_one_does():
    writers, written = GuardedWriters(), []
    first = writers.guard("silver", lambda batch, number: written.append(number))
    first(None, 0)
    assert writers.stop_writing("silver", 0)
    with pytest.raises(WriterStoppedError):
        first(None, 1)
    writers.guard("silver", lambda batch, number: written.append(number))(None, 1)
    assert written == [0, 1]
    assert writers.failure("silver") is None


def test_writing_does_not_stop_while_a_batch_is_written():
    writers, ended = GuardedWriters(), []
    writers.guard("silver", lambda batch, number: ended.append(writers.stop_writing("silver", 0)))(
        None, 0
    )
    assert ended == [False]


def test_a_flow_that_streams_a_table_reports_how_many_versions_it_is_behind():
    query = Query()
    versions = {"endOffset": {"version": 3}, "latestOffset": json.dumps({"version": 5})}
    query.recentProgress = [completed(0, [versions])]
    progress = RunProgress()
    progress.announce("shop.silver")
    queries = Queries(progress, GuardedWriters())
    queries.add("silver", query)
    (report,) = map(asdict, queries.reports())
    assert report["versions_behind"] == 2
    assert report["rows"] == 7
    assert report["lag"] is None

"""Queries of a run: which failures end it, and when one may be stopped for another."""

import threading

import pytest

from headwater.pipelines.running.progress import RunProgress
from headwater.pipelines.running.queries import FlowError, Problems, Queries, StoppedError

LATE = "Python worker failed to connect back."


class Query:
    """A query that has ended, well or not."""

    def __init__(self, failed=None):
        self._failed = failed
        self.isActive = False
        self.name = "shop.silver"
        self.recentProgress = []

    def exception(self):
        return self._failed


def queries_of(*runs):
    """Queries in which each start of `silver` gives the next one."""
    waiting = list(runs)
    queries = Queries(RunProgress(), Problems(), lambda name: queries.add(name, waiting.pop(0)))
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


def test_any_other_failure_ends_the_run_at_once():
    queries, waiting = queries_of(Query(RuntimeError("the disk is full")), Query())
    with pytest.raises(FlowError, match="silver: RuntimeError: the disk is full"):
        queries.wait(["silver"], threading.Event())
    assert len(waiting) == 1


def test_a_query_writes_no_batch_after_its_turn_and_the_next_one_does():
    problems, written = Problems(), []
    first = problems.watched("silver", lambda batch, number: written.append(number))
    first(None, 0)
    assert problems.end_turn("silver", 0)
    with pytest.raises(StoppedError):
        first(None, 1)
    problems.watched("silver", lambda batch, number: written.append(number))(None, 1)
    assert written == [0, 1]
    assert problems.of("silver") is None


def test_a_turn_does_not_end_while_a_batch_is_written():
    problems, ended = Problems(), []
    problems.watched("silver", lambda batch, number: ended.append(problems.end_turn("silver", 0)))(
        None, 0
    )
    assert ended == [False]

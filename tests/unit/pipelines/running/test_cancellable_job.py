"""Work on a thread of its own: it ends, it raises, or it is cancelled."""

import threading

import pytest

from headwater.pipelines.running import cancellable_job
from headwater.pipelines.running.cancellable_job import CancellableJob


class Context:
    """A Spark context whose jobs end when their group is cancelled."""

    def __init__(self):
        self.groups = []
        self.cancelled = threading.Event()

    def setJobGroup(self, group, description, interruptOnCancel):  # noqa: N802, N803
        self.groups.append(group)

    def cancelJobGroup(self, group):  # noqa: N802
        assert group in self.groups
        self.cancelled.set()


class Session:
    def __init__(self):
        self.sparkContext = Context()


@pytest.fixture
def spark(monkeypatch):
    monkeypatch.setattr(cancellable_job, "InheritableThread", threading.Thread)
    return Session()


def test_a_job_that_was_cancelled_ends_and_its_problem_is_kept(spark):
    begun = threading.Event()

    def work():
        begun.set()
        spark.sparkContext.cancelled.wait()
        raise RuntimeError("cancelled")

    job = CancellableJob(spark, "shop.totals", work)
    assert begun.wait(60)
    assert job.is_running
    job.cancel()
    assert not job.is_running
    assert spark.sparkContext.groups == ["shop.totals"]
    with pytest.raises(RuntimeError, match="cancelled"):
        job.raise_problem()


def test_a_job_that_has_ended_is_not_cancelled(spark):
    done = []
    job = CancellableJob(spark, "shop.totals", lambda: done.append(1))
    job._ended.wait(60)
    job.cancel()
    job.raise_problem()
    assert done == [1]
    assert not spark.sparkContext.cancelled.is_set()

"""Runs a project on Spark: plain Structured Streaming, one query per flow.

`once` reads what is available, step by step in the order of the graph, and ends. Otherwise all
streaming flows run at the same time, materialized views are refreshed when their inputs change, and
the run ends when it is asked to. A flow that fails ends the run: the others are stopped, and the
cause is reported in one line. The next run continues from the checkpoints and tables, however the
last one ended.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.pipelines.declaring.declare import Flow, Project
from headwater.pipelines.running.cancellable_job import CancellableJob
from headwater.pipelines.running.checkpoints import Checkpoints
from headwater.pipelines.running.flow_errors import as_flow_error
from headwater.pipelines.running.flows import Flows
from headwater.pipelines.running.guarded_writers import GuardedWriters
from headwater.pipelines.running.preflight import NotReadyError, prepare_run
from headwater.pipelines.running.progress import RunProgress
from headwater.pipelines.running.queries import POLL_S, Queries
from headwater.pipelines.running.reports import FlowReport, RunReport
from headwater.pipelines.running.run_lock import run_lock
from headwater.pipelines.running.run_plan import (
    RunStep,
    is_view,
    run_steps,
    tables_read,
    tables_whole,
)
from headwater.pipelines.running.session_scope import session_scope
from headwater.pipelines.session import connect_refusal
from headwater.pipelines.tables.table import open_table
from headwater.seams.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_TRIGGER: Final = "1 second"
VIEWS_EVERY_S: Final = 10.0
REREAD_EVERY_S: Final = 300.0
"""How stale the tables that a stream reads whole may become; old files are kept for longer."""


def run(
    project: Project,
    *,
    once: bool = True,
    master: str | None = None,
    progress: RunProgress | None = None,
    settings: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    spark: "SparkSession | None" = None,
    refresh: Sequence[str] = (),
    say: Callable[[str], object] = log.info,
    views_every_s: float = VIEWS_EVERY_S,
) -> RunReport:
    """Run a pipeline.

    Raises NotReadyError before Spark starts if the pipeline cannot run, InUseError if another run
    of it is active, FlowError if a flow fails.

    Args:
        project: What to run.
        once: Read what is available and end; otherwise run until `stop` is set.
        master: Any Spark master, such as `local[2]` or `spark://host:7077`; see `spark_session`.
        progress: A model to keep up to date, for a display.
        settings: Spark settings; they override the project's.
        stop: Ends the run cleanly when it is set.
        spark: A session to run in; by default a session is started and stopped again.
        refresh: Flows to start over; see `preflight.refresh`.
        say: Called with each line about preparations and changes since the last run.
        views_every_s: How often materialized views may be refreshed in a continuous run.
    """
    refusal = connect_refusal(spark)
    if refusal is not None:
        raise NotReadyError([refusal])
    lock = Checkpoints.of(project.storage).lock()
    with run_lock(lock, f"the pipeline {project.name}"):
        for line in prepare_run(project, refresh):
            say(line)
        model = progress or RunProgress()
        opened = session_scope(
            project.name,
            connection=project.connection,
            progress=model,
            logs=project.storage,
            master=master,
            settings={**project.spark, **(settings or {})},
            spark=spark,
        )
        with opened as session:
            trigger = {"availableNow": True} if once else _continuous(project)
            running = Run(project, session, trigger, model, stop or threading.Event())
            try:
                return running.run_available() if once else running.run_until_stopped(views_every_s)
            finally:
                running.queries.stop()


def _continuous(project: Project) -> dict[str, Any]:
    return {"processingTime": project.settings.trigger or _TRIGGER}


class Run:
    """One run of one project in one session."""

    def __init__(
        self,
        project: Project,
        spark: "SparkSession",
        trigger: dict[str, Any],
        progress: RunProgress,
        stop: threading.Event,
    ) -> None:
        writers = GuardedWriters()
        self.queries = Queries(progress, writers, self._restart)
        self._project = project
        self._declarations = project.declarations
        self._progress = progress
        self._stop = stop
        self._spark = spark
        self._clock = SystemClock()
        self._flows = Flows(project, spark, trigger, writers)
        self._batches: dict[str, FlowReport] = {}
        self._seen: dict[str, dict[str, int]] = {}
        self._reread_due: dict[str, float] = {}
        """When a stream that reads tables whole may be restarted, by flow."""

    def run_available(self) -> RunReport:
        """Read what is available, step by step."""
        for step in run_steps(self._declarations):
            self.queries.wait(self._start(step.streams), self._stop)
            self._run_batch_flows(step)
            if self._stop.is_set():
                break
        return self._report()

    def run_until_stopped(self, views_every_s: float) -> RunReport:
        """Run all flows at once until the run is asked to stop."""
        for step in run_steps(self._declarations):
            self._start(step.streams)
            self._run_batch_flows(step)
        due = self._clock.monotonic_ms() + views_every_s * 1000
        while not self._stop.wait(POLL_S):
            self.queries.check()
            if self._clock.monotonic_ms() >= due:
                self._refresh_moved()
                due = self._clock.monotonic_ms() + views_every_s * 1000
                self._reread_moved()
        self.queries.stop()
        return self._report()

    def _start(self, flows: Iterable[Flow]) -> list[str]:
        started = []
        for flow in flows:
            self._progress.announce(self._flows.query_name(flow), self._flows.expectations(flow))
            self._start_one(flow)
            started.append(flow.name)
        return started

    def _start_one(self, flow: Flow) -> None:
        with as_flow_error(flow.name, str(flow.origin)):
            self._seen[flow.name] = self._versions(tables_whole(self._declarations, flow))
            self.queries.add(flow.name, self._flows.start(flow))
        self._reread_due[flow.name] = self._clock.monotonic_ms() + REREAD_EVERY_S * 1000

    def _restart(self, name: str) -> None:
        self._start_one(next(flow for flow in self._declarations.flows if flow.name == name))

    def _reread_moved(self) -> None:
        """Restart streams that read a table whole if the table has changed since.

        Spark plans such a read once per query: it would stay as it was, and its files expire.
        """
        for flow in (flow for step in run_steps(self._declarations) for flow in step.streams):
            if self._stop.is_set() or self._clock.monotonic_ms() < self._reread_due[flow.name]:
                continue
            whole = tables_whole(self._declarations, flow)
            if self._seen[flow.name] == self._versions(whole):
                continue
            if self.queries.stop_between_batches(flow.name):
                self._start_one(flow)

    def _run_batch_flows(self, step: RunStep) -> None:
        for flow in step.batches:
            if self._stop.is_set():
                return
            if not flow.once:
                self._refresh(flow)
            elif self._run_cancellable(flow, partial(self._flows.append_once, flow)):
                self._batches[flow.name] = FlowReport(flow.name, "once", 1)

    def _refresh(self, flow: Flow) -> None:
        with as_flow_error(flow.name, str(flow.origin)):
            seen = self._versions(tables_read(self._declarations, flow))
        result: list[tuple[dict[str, int], int]] = []
        if not self._run_cancellable(flow, lambda: result.append(self._flows.refresh(flow))):
            return
        self._seen[flow.name] = seen
        failed, rows = result[0]
        before = self._batches.get(flow.name)
        times = before.batches + 1 if before else 1
        self._batches[flow.name] = FlowReport(flow.name, "view", times, rows, failed)
        self._progress.note(f"{self._flows.query_name(flow)} refreshed: {rows:,} rows")

    def _refresh_moved(self) -> None:
        for step in run_steps(self._declarations):
            for flow in step.batches:
                reads = tables_read(self._declarations, flow)
                moved = flow.topics or self._seen.get(flow.name) != self._versions(reads)
                if is_view(self._declarations, flow) and moved and not self._stop.is_set():
                    self._refresh(flow)

    def _run_cancellable(self, flow: Flow, work: Callable[[], object]) -> bool:
        """Run a flow's work on its own thread, so that it does not delay the end of the run.

        Return False if the run was asked to stop and the jobs were cancelled. A query that fails
        meanwhile cancels them too, and its error is raised.
        """
        job = CancellableJob(self._spark, self._flows.query_name(flow), work)
        try:
            while job.is_running:
                self.queries.check()
                if self._stop.wait(POLL_S) and job.is_running:
                    return False
        finally:
            job.cancel()
        with as_flow_error(flow.name, str(flow.origin)):
            job.raise_problem()
        return True

    def _versions(self, names: Iterable[str]) -> dict[str, int]:
        return {name: open_table(self._flows.target(name)).version() for name in names}

    def _report(self) -> RunReport:
        flows = (*self.queries.reports(), *self._batches.values())
        return RunReport(self._project.name, flows, self._stop.is_set())

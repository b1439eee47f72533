"""Queries that run: waiting for them, telling why one failed, ending them, adding them up.

It also opens what every run needs around its queries: a session, the listener that commits lag,
and an end for both.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headwater.errors import KafkaError
from headwater.pipelines.running.lag import track_lag
from headwater.pipelines.running.progress import RunProgress
from headwater.pipelines.running.quality import ExpectationError
from headwater.pipelines.running.signals import keep_sigint_handler
from headwater.pipelines.running.spark_errors import one_line, root_cause
from headwater.pipelines.running.spark_log import log_settings
from headwater.pipelines.session import spark_session
from headwater.pipelines.tables.table import TableError
from headwater.seams.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headwater.pipelines.running.quality import BatchWriter

log = logging.getLogger(__name__)

POLL_S: Final = 0.1
_LET_FINISH_S: Final = 20.0
_DRAIN_MS: Final = 10_000
_WORKER_LATE: Final = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, a time that cannot be set."""
_AGAIN_AT_MOST: Final = 5
SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""What Spark raises in Python."""
_PLAIN: Final = (KafkaError, ExpectationError, TableError)
"""Errors whose text is a whole sentence: their class name would only be noise."""


class FlowError(Exception):
    """A flow that cannot run, or stopped running, and the one line that says why."""

    def __init__(self, flow: str, text: str) -> None:
        super().__init__(f"{flow}: {text}")
        self.flow = flow
        self.text = text


class StoppedError(Exception):
    """A query was offered a batch after its end was decided."""


@dataclass(frozen=True)
class FlowReport:
    """What one flow did in a run."""

    flow: str
    kind: str
    """stream, view or once"""
    batches: int = 0
    rows: int = 0
    """Rows read by a stream; rows kept by a view."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """Rows that did not meet an expectation, by its name."""
    lag: int | None = None
    late: int = 0
    """Rows that a watermark dropped."""


class _Turn:
    """The time in which one query of a flow may write."""

    def __init__(self) -> None:
        self.writing = threading.Lock()
        self.is_over = False


class Problems:
    """What went wrong inside of a batch, in its own words: Spark only passes on a trace."""

    def __init__(self) -> None:
        self._by_flow: dict[str, Exception] = {}
        self._turns: dict[str, _Turn] = {}

    def watched(self, flow: str, write: "BatchWriter") -> "BatchWriter":
        """The writer; what it raises is remembered, and after `end_turn` it writes no more."""
        turn = self._turns[flow] = _Turn()

        def watched(batch: "DataFrame", batch_id: int) -> None:
            with turn.writing:
                if turn.is_over:
                    raise StoppedError(f"{flow} is started again; batch {batch_id} follows then")
                try:
                    write(batch, batch_id)
                except Exception as problem:
                    self._by_flow[flow] = problem
                    raise

        return watched

    def forget(self, flow: str) -> None:
        """The query of the flow is started again."""
        self._by_flow.pop(flow, None)

    def end_turn(self, flow: str, timeout_s: float) -> bool:
        """Let the query of a flow write no other batch; False: it is still writing one."""
        turn = self._turns[flow]
        if not turn.writing.acquire(timeout=timeout_s):
            return False
        turn.is_over = True
        turn.writing.release()
        return True

    def of(self, flow: str) -> Exception | None:
        """What a batch of the flow raised."""
        return self._by_flow.get(flow)


class Queries:
    """The streaming queries of a run, by the names of their flows."""

    def __init__(
        self,
        progress: RunProgress,
        problems: Problems,
        start_again: Callable[[str], object] | None = None,
    ) -> None:
        self._progress = progress
        self._problems = problems
        self._start_again = start_again
        self._started_again: dict[str, int] = {}
        self._clock = SystemClock()
        self._running: dict[str, StreamingQuery] = {}

    def add(self, flow: str, query: "StreamingQuery") -> None:
        """A query that was started."""
        self._running[flow] = query

    def wait(self, flows: Iterable[str], stop: threading.Event) -> None:
        """Until all of these have ended, or one failed, or it is time to stop."""
        names = list(flows)
        while not stop.is_set():
            ended = not any(self._running[name].isActive for name in names)
            if not self.check() and ended:
                return
            stop.wait(POLL_S)
        self.check()

    def check(self) -> bool:
        """Raise a FlowError where a query has failed; True: one was started again instead."""
        restarted = False
        for name, query in list(self._running.items()):
            failed = query.exception()
            if failed is not None:
                text = error_text(self._problems.of(name) or failed)
                if self._start_again is None or not self._is_passing(name, text):
                    raise FlowError(name, text)
                log.warning("%s is started again: %s", name, text)
                self._observe(query)
                self._problems.forget(name)
                self._start_again(name)
                restarted = True
        return restarted

    def _is_passing(self, flow: str, text: str) -> bool:
        """Whether a flow failed of a busy machine, and not too often; a batch is safe to repeat."""
        times = self._started_again.get(flow, 0)
        self._started_again[flow] = times + 1
        return _WORKER_LATE in text and times < _AGAIN_AT_MOST

    def stop(self) -> None:
        """Let batches that are being written finish, within reason, and end the queries."""
        deadline = self._clock.monotonic_ms() + _LET_FINISH_S * 1000
        pause = threading.Event()
        for query in self._running.values():
            while _is_writing(query) and self._clock.monotonic_ms() < deadline:
                pause.wait(POLL_S)
            query.stop()

    def stop_between_batches(self, flow: str) -> bool:
        """End the query of one flow, which will be started again; False: it is writing a batch."""
        if not self._problems.end_turn(flow, POLL_S):
            return False
        query = self._running.pop(flow)
        query.stop()
        self._observe(query)
        return True

    def reports(self) -> list[FlowReport]:
        """What each has done; reports that are still on their way are fetched."""
        return [self._report(name, query) for name, query in self._running.items()]

    def _report(self, flow: str, query: "StreamingQuery") -> FlowReport:
        self._observe(query)
        told = self._progress.announce(query.name or flow)
        return FlowReport(
            flow, "stream", told.batches, told.rows, dict(told.failed), told.lag, told.late
        )

    def _observe(self, query: "StreamingQuery") -> None:
        for progress in query.recentProgress:
            self._progress.observe(json.loads(progress.json))


def _is_writing(query: "StreamingQuery") -> bool:
    return query.isActive and bool(query.status["isTriggerActive"])


def error_text(problem: BaseException) -> str:
    """An error in its own words; those of Spark are cut out of their traces."""
    text = str(problem)
    if isinstance(problem, SPARK_ERRORS):
        return root_cause(text)
    return one_line(text if isinstance(problem, _PLAIN) else f"{type(problem).__name__}: {text}")


@contextmanager
def as_flow_error(flow: str, place: str = "") -> Iterator[None]:
    """Turn what a query raises before it runs into a FlowError of one line, with its place."""
    try:
        yield
    except FlowError:
        raise
    except Exception as problem:
        where = f"{place}: " if place else ""
        raise FlowError(flow, f"{where}{error_text(problem)}") from problem


@contextmanager
def session_scope(
    name: str,
    *,
    bootstrap_servers: str,
    progress: RunProgress,
    logs: Path,
    master: str | None,
    settings: Mapping[str, str],
    spark: "SparkSession | None" = None,
) -> "Iterator[SparkSession]":
    """A session whose queries commit their lag; one that was not given is stopped in the end."""
    with keep_sigint_handler():
        running = spark or spark_session(
            name, master=master, settings={**log_settings(logs), **settings}
        )
    listener = track_lag(
        running, bootstrap_servers, on_progress=lambda told: progress.observe(json.loads(told.json))
    )
    try:
        with _quiet_py4j():
            yield running
    finally:
        _drain_listeners(running)
        listener.stop()
        if spark is None:
            running.stop()


@contextmanager
def _quiet_py4j() -> Iterator[None]:
    """Py4J logs the trace of a batch that failed; what it raised is told in one line instead."""
    logger = logging.getLogger("py4j.clientserver")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _drain_listeners(spark: "SparkSession") -> None:
    """Listeners hear late, and a stopped session tells them nothing more: wait for the last word.

    Spark has no public name for this; where it is gone, the lag may be shown a batch too high.
    """
    with suppress(Py4JError, AttributeError):
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_DRAIN_MS)

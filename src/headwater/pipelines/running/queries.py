"""The streaming queries of a run: waits for them, restarts or fails them, stops them, adds them up."""

import json
import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from headwater.pipelines.jvm_stderr import run_ends
from headwater.pipelines.running.flow_errors import FlowError, error_text
from headwater.pipelines.running.guarded_writers import GuardedWriters
from headwater.pipelines.running.progress import RunProgress
from headwater.pipelines.running.reports import FlowReport
from headwater.seams.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

POLL_S: Final = 0.1
_STOP_TIMEOUT_S: Final = 20.0
# Spark gives a Python process ten seconds to start, a limit that cannot be configured.
_WORKER_LATE: Final = "Python worker failed to connect back"
_MAX_RESTARTS: Final = 10
"""In a row: a batch that was completed clears the count."""


class Queries:
    """The streaming queries of a run, by the names of their flows."""

    def __init__(
        self,
        progress: RunProgress,
        writers: GuardedWriters,
        restart: Callable[[str], object] | None = None,
    ) -> None:
        self._progress = progress
        self._writers = writers
        self._restart = restart
        self._restarts: dict[str, tuple[int, int]] = {}  # and the batches completed before
        self._clock = SystemClock()
        self._running: dict[str, StreamingQuery] = {}

    def add(self, flow: str, query: "StreamingQuery") -> None:
        """Supervise a query that was started."""
        self._running[flow] = query

    def wait(self, flows: Iterable[str], stop: threading.Event) -> None:
        """Return when all of these have ended or `stop` is set; raise FlowError if one failed."""
        names = list(flows)
        while not stop.is_set():
            ended = not any(self._running[name].isActive for name in names)
            if not self.check() and ended:
                return
            stop.wait(POLL_S)
        self.check()

    def check(self) -> bool:
        """Raise FlowError if a query has failed; return whether one was restarted instead."""
        restarted = False
        for name, query in list(self._running.items()):
            failed = query.exception()
            if failed is not None:
                text = error_text(self._writers.failure(name) or failed)
                self._observe(query)
                if self._restart is None or not self._may_restart(name, query, text):
                    raise FlowError(name, text)
                log.warning("flow %s is restarted: %s", name, text)
                self._writers.clear_failure(name)
                self._restart(name)
                restarted = True
        return restarted

    def _may_restart(self, flow: str, query: "StreamingQuery", text: str) -> bool:
        """Whether a busy machine made the flow fail, and not too often; batches are repeatable."""
        batches = self._progress.announce(query.name or flow).batches
        restarts, batches_before = self._restarts.get(flow, (0, 0))
        if batches > batches_before:
            restarts = 0
        self._restarts[flow] = restarts + 1, batches
        return _WORKER_LATE in text and restarts < _MAX_RESTARTS

    def stop(self) -> None:
        """Stop all queries; batches being written get a limited time to finish."""
        deadline = self._clock.monotonic_ms() + _STOP_TIMEOUT_S * 1000
        pause = threading.Event()
        run_ends()
        for query in self._running.values():
            while _is_writing(query) and self._clock.monotonic_ms() < deadline:
                pause.wait(POLL_S)
            query.stop()

    def stop_between_batches(self, flow: str) -> bool:
        """Stop one query so that it can be restarted; False if it is writing a batch."""
        if not self._writers.stop_writing(flow, POLL_S):
            return False
        query = self._running.pop(flow)
        query.stop()
        self._observe(query)
        return True

    def reports(self) -> list[FlowReport]:
        """Return what each query did, including progress that listeners have not received yet."""
        return [self._report(name, query) for name, query in self._running.items()]

    def _report(self, flow: str, query: "StreamingQuery") -> FlowReport:
        self._observe(query)
        seen = self._progress.announce(query.name or flow)
        return FlowReport(
            flow,
            "stream",
            seen.batches,
            seen.rows,
            dict(seen.failed),
            seen.lag,
            seen.late,
            seen.versions_behind,
        )

    def _observe(self, query: "StreamingQuery") -> None:
        for progress in query.recentProgress:
            self._progress.observe(json.loads(progress.json))


def _is_writing(query: "StreamingQuery") -> bool:
    return query.isActive and bool(query.status["isTriggerActive"])

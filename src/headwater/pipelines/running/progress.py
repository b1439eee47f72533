"""The progress of a pipeline: rows per second, lag, batch times, quality counts, time to catch up.

A pure model of what Spark reports of each micro-batch (`StreamingQueryProgress` as JSON). It reads
no clock: all times come from the reports. Rates are differences of offsets over a window of recent
batches, so an idle trigger or one slow batch does not make them jump.
"""

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

QUALITY: Final = "headwater_quality"
"""The observation with the counts: `rows`, and one count per expectation by its number."""

_WINDOW_S: Final = 60.0

Offsets = dict[tuple[str, str], int]


class Sample(NamedTuple):
    """The offsets of a query at one moment."""

    at_s: float
    read: Offsets
    written: Offsets
    """`read`: the next offsets of the query; `written`: the ends of the partitions."""


@dataclass
class FlowProgress:
    """The progress that one query has reported."""

    name: str
    expectations: tuple[str, ...] = ()
    batches: int = 0
    rows: int = 0
    batch_ms: int = 0
    """How long the last batch with rows took."""
    failed: dict[str, int] = field(default_factory=dict)
    """Rows that did not meet an expectation, by its name."""
    late: int = 0
    """Rows that a watermark dropped."""
    versions_behind: int | None = None
    """Versions of streamed tables not read yet; None if the query streams no table."""
    _last_batch: int = -1
    _samples: deque[Sample] = field(default_factory=deque)

    def observe(self, progress: Mapping[str, Any]) -> None:
        """Add one report of the query; ignore reports older than the last one."""
        if int(progress["batchId"]) < self._last_batch:
            return
        if int(progress["batchId"]) > self._last_batch and "addBatch" in progress["durationMs"]:
            self._count(progress)
        self._sample(progress)
        self.versions_behind = _versions_behind(progress)

    def _count(self, progress: Mapping[str, Any]) -> None:
        self._last_batch = int(progress["batchId"])
        rows = int(progress.get("numInputRows") or 0)
        self.batches += 1
        self.rows += rows
        if rows:
            self.batch_ms = int(progress["durationMs"].get("triggerExecution", 0))
        for operator in progress.get("stateOperators") or ():
            self.late += int(operator.get("numRowsDroppedByWatermark") or 0)
        counts = (progress.get("observedMetrics") or {}).get(QUALITY) or {}
        for number, name in enumerate(self.expectations):
            self.failed[name] = self.failed.get(name, 0) + int(counts.get(f"e{number}") or 0)

    def _sample(self, progress: Mapping[str, Any]) -> None:
        begun = datetime.fromisoformat(progress["timestamp"]).timestamp()
        took_s = progress["durationMs"].get("triggerExecution", 0) / 1000
        start, end, latest = (
            topic_offsets(progress, name) for name in ("startOffset", "endOffset", "latestOffset")
        )
        if not end or (self._samples and begun + took_s <= self._samples[-1].at_s):
            return
        if not self._samples:
            rows = int(progress.get("numInputRows") or 0)
            self._samples.append(Sample(begun, start or _before(end, rows), latest or end))
        self._samples.append(Sample(begun + took_s, end, latest or end))
        while len(self._samples) > 2 and self._samples[-1].at_s - self._samples[1].at_s > _WINDOW_S:
            self._samples.popleft()

    @property
    def lag(self) -> int | None:
        """Records written and not yet read; None before the first report."""
        if not self._samples:
            return None
        now = self._samples[-1]
        return sum(max(0, end - now.read.get(place, end)) for place, end in now.written.items())

    @property
    def rows_per_second(self) -> float:
        """Records read per second, over the recent window."""
        return self._rate([sample.read for sample in self._samples])

    @property
    def arriving_per_second(self) -> float:
        """Records that producers write per second, over the recent window."""
        return self._rate([sample.written for sample in self._samples])

    @property
    def eta_s(self) -> float | None:
        """Seconds until the query catches up at the current rates; None if it never does."""
        if not self.lag:
            return 0.0 if self.lag == 0 else None
        drain = self.rows_per_second - self.arriving_per_second
        return self.lag / drain if drain > 0 else None

    def _rate(self, offsets: list[Offsets]) -> float:
        if len(offsets) < 2:
            return 0.0
        seconds = self._samples[-1].at_s - self._samples[0].at_s
        moved = sum(end - offsets[0].get(place, end) for place, end in offsets[-1].items())
        return max(0, moved) / seconds if seconds > 0 else 0.0


class RunProgress:
    """The progress of all queries of a run, by name, in the order of their announcement."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.flows: dict[str, FlowProgress] = {}
        self.notes: deque[str] = deque(maxlen=5)
        """Recent events beside the queries, for the display."""
        self.under_way = ""
        """What takes long at the moment, before any query runs."""

    def announce(self, name: str, expectations: tuple[str, ...] = ()) -> FlowProgress:
        """Add a query that will report; return its progress."""
        return self.flows.setdefault(name, FlowProgress(name, expectations))

    @property
    def awaits_first_batch(self) -> bool:
        """Whether queries were announced and none has read anything."""
        flows = list(self.flows.values())
        return bool(flows) and not any(flow.batches for flow in flows)

    def observe(self, progress: Mapping[str, Any]) -> None:
        """Add a report of a query; ignore queries that were not announced."""
        flow = self.flows.get(progress.get("name") or "")
        if flow is not None:
            with self._lock:  # called by Spark's listener and, at the end, by the runner
                flow.observe(progress)

    def note(self, text: str) -> None:
        """Add an event for the display."""
        self.notes.append(text)

    @contextmanager
    def noted(self, text: str) -> Iterator[None]:
        """Show a note as long as something takes."""
        self.note(text)
        self.under_way = text
        try:
            yield
        finally:
            self.under_way = ""
            if text in self.notes:
                self.notes.remove(text)


def topic_offsets(progress: Mapping[str, Any], which: str) -> Offsets:
    """Return the offsets of all topics that a query reads; other sources are ignored."""
    found: Offsets = {}
    for source in progress.get("sources") or ():
        offset = source.get(which)
        if isinstance(offset, str):
            offset = _parsed(offset)
        if not isinstance(offset, Mapping):
            continue
        for topic, partitions in offset.items():
            if isinstance(partitions, Mapping):
                found.update({(topic, number): int(end) for number, end in partitions.items()})
    return found


def _versions_behind(progress: Mapping[str, Any]) -> int | None:
    """Return how many table versions a query has not read; None if it streams no table."""
    behind = None
    for source in progress.get("sources") or ():
        read, newest = (_version(source.get(name)) for name in ("endOffset", "latestOffset"))
        if read is not None and newest is not None:
            behind = (behind or 0) + max(0, newest - read)
    return behind


def _version(offset: Any) -> int | None:
    parsed = _parsed(offset) if isinstance(offset, str) else offset
    version = parsed.get("version") if isinstance(parsed, Mapping) else None
    return version if isinstance(version, int) else None


def _before(end: Offsets, rows: int) -> Offsets:
    """Return where a new query began, which Spark does not report: `rows` before its first end."""
    first = min(end)
    return {**end, first: end[first] - rows}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None

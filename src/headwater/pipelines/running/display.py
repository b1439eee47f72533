"""Shows the progress of a run: a live table on a terminal, plain lines elsewhere.

It reads the model in `progress.py` from its own thread and changes nothing.
"""

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, TextIO

from headwater.pipelines.running.progress import FlowProgress, RunProgress
from headwater.seams.clock import SystemClock

_LIVE_S: Final = 0.5
_LINES_S: Final = 5.0
_SOON_S: Final = 0.5
"""When the first lines are written: what a run waits for is often known by then."""
_FIRST_BATCH: Final = 12
"""How often a wait for the first batch is written; the topic may be empty."""


class Display:
    """A context manager that shows progress until it ends."""

    def __init__(self, progress: RunProgress, out: TextIO | None = None) -> None:
        self._progress = progress
        self._out = out or sys.stderr
        self._done = threading.Event()
        self._shown: list[str] = []
        self._clock = SystemClock()
        self._begun_ms = self._clock.monotonic_ms()
        self._told = 0
        work = self._live if self._out.isatty() else self._lines
        self._thread = threading.Thread(target=work, name="headwater-progress", daemon=True)

    def __enter__(self) -> "Display":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def show(self) -> bool:
        """Write lines that changed, and return whether there were any; an idle pipeline prints nothing."""
        fresh = lines(self._progress)
        changed = [line for line in fresh if line not in self._shown]
        self._out.writelines(f"{line}\n" for line in changed)
        self._out.flush()
        self._shown = fresh
        return bool(changed)

    def _lines(self) -> None:
        wait_s = _SOON_S
        while not self._done.wait(wait_s):
            wait_s = _LINES_S
            if not self.show():
                self._show_wait()
        self.show()

    def _show_wait(self) -> None:
        """Write what a run that has read nothing so far waits for."""
        waiting = self._progress.under_way
        if not waiting and self._told < _FIRST_BATCH and self._progress.awaits_first_batch:
            waiting = "waiting for the first batch"
            self._told += 1
        if waiting:
            seconds = (self._clock.monotonic_ms() - self._begun_ms) // 1000
            self._out.write(f"{waiting} ({seconds} s)\n")
            self._out.flush()

    def _live(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.table import Table

        def table() -> Table:
            shown = Table(box=None, pad_edge=False)
            for number, name in enumerate(_COLUMNS):
                shown.add_column(name, justify="right" if number else "left")
            for flow in list(self._progress.flows.values()):
                shown.add_row(*(column(flow) for column in _COLUMNS.values()))
            for note in list(self._progress.notes):
                shown.caption = note
            return shown

        with Live(table(), console=Console(file=self._out), refresh_per_second=4) as live:
            while not self._done.wait(_LIVE_S):
                live.update(table())
            live.update(table())


def lines(progress: RunProgress) -> list[str]:
    """Return one line per query that has read something, followed by recent notes."""
    flows = [line(flow) for flow in list(progress.flows.values()) if flow.batches]
    return flows + list(progress.notes)


def line(flow: FlowProgress) -> str:
    """Return the progress of one query as a line."""
    parts = [f"{name} {column(flow)}" for name, column in _COLUMNS.items() if name != "flow"]
    return f"{flow.name}: {', '.join(parts)}"


def _lag(flow: FlowProgress) -> str:
    found = [] if flow.lag is None else [f"{flow.lag:,}"]
    if flow.versions_behind is not None:
        found.append(f"{flow.versions_behind:,} versions")
    return " and ".join(found) or "-"


def _catch_up(flow: FlowProgress) -> str:
    """Return when the query will have caught up at its current rate."""
    if flow.lag is None:
        return "-"
    if not flow.lag:
        return "done"
    return "never at this rate" if flow.eta_s is None else f"in {duration(flow.eta_s)}"


def duration(seconds: float) -> str:
    """Format a duration: 45s, 12m30s, 3h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    return f"{minutes // 60}h{minutes % 60:02}m"


def _refused(flow: FlowProgress) -> str:
    found = [f"{count:,} {name}" for name, count in flow.failed.items() if count]
    if flow.late:
        found.append(f"{flow.late:,} late")
    return "; ".join(found) or "-"


_COLUMNS: Final[dict[str, Callable[[FlowProgress], str]]] = {
    "flow": lambda flow: flow.name,
    "rows": lambda flow: f"{flow.rows:,}",
    "rows/s": lambda flow: f"{flow.rows_per_second:,.0f}",
    "arriving/s": lambda flow: f"{flow.arriving_per_second:,.0f}",
    "lag": _lag,
    "catch-up": _catch_up,
    "batch": lambda flow: f"{flow.batch_ms / 1000:.1f}s",
    "failed": _refused,
}

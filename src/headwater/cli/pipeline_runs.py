"""The shared parts of commands that run queries: options, progress, signals, exit codes."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import json_option, parse_assignments
from headwater.cli.output import show, show_json

if TYPE_CHECKING:
    from headwater.pipelines.running.progress import RunProgress
    from headwater.pipelines.running.reports import FlowReport
    from headwater.pipelines.running.signals import StopEvent

_JVM_ENDED = (
    "its Java process has ended: it was killed, or had too little memory (--spark "
    "spark.driver.memory=4g); run the command again to continue"
)
"""What a connection means that Py4J cannot open."""

_MASTERS = ("local", "spark://", "yarn", "k8s://")

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def _known_master(ctx: click.Context, option: click.Parameter, url: str | None) -> str | None:
    """Return a master that spark-submit accepts; else it is a usage error, before Java starts."""
    if url is not None and not url.startswith(_MASTERS):
        raise click.UsageError(
            f"--master {url}: write local[2], spark://host:7077, yarn or k8s://host:443"
        )
    return url


def running_options(with_mode: Callable[..., None]) -> Callable[..., None]:
    """Add the options of commands that run queries."""
    options: list[Decorator] = [
        click.option(
            "--once/--continuous",
            default=True,
            help="Read the available data and stop (the default), or run until stopped.",
        ),
        click.option(
            "--master",
            metavar="URL",
            callback=_known_master,
            help="A Spark master: local[2], spark://host:7077, yarn, ...; by default that of "
            "spark-submit, or local[*].",
        ),
        click.option(
            "--progress/--no-progress", default=True, help="Show rows/s, lag and batch times."
        ),
        click.option(
            "--spark",
            "spark_settings",
            multiple=True,
            metavar="KEY=VALUE",
            callback=lambda ctx, option, texts: parse_assignments(texts),
            help="Set one config key of Spark; may be repeated.",
        ),
        json_option,
    ]
    for option in reversed(options):
        with_mode = option(with_mode)
    return with_mode


@contextmanager
def spark_errors_as_one_line(log_file: Path) -> Iterator[None]:
    """Turn Spark's exceptions into one line and exit code 1; Ctrl-C prints no traceback of Py4J."""
    from headwater.pipelines.running.flow_errors import SPARK_ERRORS, error_text

    root = logging.getLogger()  # Py4J logs there
    root.addFilter(_is_no_interrupt)
    try:
        yield
    except SPARK_ERRORS as problem:
        raise click.ClickException(f"{error_text(problem)}  (more in {log_file})") from problem
    finally:
        root.removeFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not (record.exc_info and record.exc_info[0] is KeyboardInterrupt)


@contextmanager
def progress_display(wanted: bool) -> "Iterator[RunProgress]":
    """Yield a progress model; display it if `wanted`."""
    from headwater.pipelines.running.display import Display
    from headwater.pipelines.running.progress import RunProgress

    model = RunProgress()
    with Display(model) if wanted else nullcontext():
        yield model


@contextmanager
def stop_on_signals() -> "Iterator[StopEvent]":
    """Yield an event that SIGINT and SIGTERM set."""
    from headwater.pipelines.running.signals import StopEvent, stop_on_signals

    stop = StopEvent()
    with stop_on_signals(stop, (signal.SIGINT, signal.SIGTERM)):
        yield stop


@contextmanager
def report_failures(storage: Path, once: bool, stop: "StopEvent") -> Iterator[None]:
    """Report a failed flow in one line with exit code 1, and a run that cannot start with 2.

    A Spark that cannot start is one line too, unless a signal ended its JVM.
    """
    from headwater.pipelines.running.flow_errors import SPARK_ERRORS, FlowError, error_text
    from headwater.pipelines.running.preflight import NotReadyError
    from headwater.pipelines.running.run_lock import InUseError
    from headwater.pipelines.running.spark_log import log_file

    try:
        yield
    except NotReadyError as unready:
        for line in unready.lines:
            click.echo(line, err=True)
        sys.exit(2)
    except InUseError as used:
        click.echo(str(used), err=True)
        sys.exit(2)
    except FlowError as failed:
        raise click.ClickException(f"{failed}  (more in {log_file(storage)})") from None
    except (*SPARK_ERRORS, ConnectionError) as problem:
        if stop.is_set():
            sys.exit(_interrupted(stop) if once else 0)
        said = _JVM_ENDED if isinstance(problem, ConnectionError) else error_text(problem)
        raise click.ClickException(f"Spark: {said}  (more in {log_file(storage)})") from None


@contextmanager
def run_scope(
    progress: bool, storage: Path, once: bool
) -> "Iterator[tuple[RunProgress, StopEvent]]":
    """Set up a run: its progress, the event that stops it, its failures as one line."""
    with (
        progress_display(progress) as model,
        stop_on_signals() as stop,
        report_failures(storage, once, stop),
    ):
        yield model, stop


def exit_if_stopped(once: bool, stop: "StopEvent") -> None:
    """Exit with an error if a signal stopped a run that should read everything."""
    if once and stop.is_set():
        sys.exit(_interrupted(stop))


def _interrupted(stop: "StopEvent") -> int:
    """Return the exit code that shells use: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + stop.cause


def print_flows(flows: "Sequence[FlowReport]", as_json: bool) -> None:
    """Print the report of each flow."""
    if as_json:
        show_json([asdict(flow) for flow in flows])
        return
    show([_row(flow) for flow in flows], as_json=False, nothing="nothing to run")


def _row(flow: "FlowReport") -> dict[str, Any]:
    failed = [f"{count} {name}" for name, count in flow.failed.items() if count]
    return {
        "flow": flow.flow,
        "kind": flow.kind,
        "batches": flow.batches,
        "rows": flow.rows,
        "failed": "; ".join(failed),
        "late": flow.late,
        "lag": _lag(flow),
    }


def _lag(flow: "FlowReport") -> str | None:
    """Return the number of records and table versions that are not read yet."""
    found = [] if flow.lag is None else [f"{flow.lag}"]
    if flow.versions_behind is not None:
        found.append(f"{flow.versions_behind} versions")
    return " and ".join(found) or None

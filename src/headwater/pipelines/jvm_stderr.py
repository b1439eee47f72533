"""Starts Spark's JVM: it ignores the signals of its group, and its standard error is filtered.

Two things are dropped, because they need no action: Java's note about an incubator module that Spark
requests, and the traceback of a Python worker whose socket Spark closed before the worker finished
(a `LIMIT`, or the end of a session). Every other line passes through unchanged, until a run with a log
stops its queries: the Python processes that Spark starts at that moment find no socket and print a
traceback. From then on all lines go to the log.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

_INCUBATOR: Final = "WARNING: Using incubator modules"
_TRACEBACK: Final = "Traceback (most recent call last):"
_WORKER: Final = ("pyspark/daemon.py", "PySpark daemon failed to flush")
_CLOSED: Final = ("BrokenPipeError", "ConnectionResetError")
_LONGEST: Final = 500  # lines; a traceback whose end was lost does not hold the lines after it


class _Destination:
    """Where the lines go; one per process, as the JVM."""

    def __init__(self) -> None:
        self._log: Path | None = None
        self._ending = False

    def begin(self, log: Path | None) -> None:
        """Write to the terminal, and to `log` from `end` on."""
        self._ending, self._log = False, log

    def end(self) -> None:
        """Write to the log, if there is one."""
        self._ending = True

    def write(self, line: str) -> None:
        log = self._log
        if self._ending and log is not None:
            with suppress(OSError), log.open("a") as file:
                file.write(line)
            return
        sys.stderr.write(line)
        sys.stderr.flush()


_destination: Final = _Destination()


def log_after_run(log: Path | None) -> None:
    """Write to the terminal until the run that begins now stops its queries, then to `log`."""
    _destination.begin(log)


def run_ends() -> None:
    """Write to the log of the run from now on: the run stops its queries."""
    _destination.end()


def start_jvm(settings: Mapping[str, str]) -> None:
    """Launch the JVM that the next SparkContext of this process will use.

    Starts none if a JVM runs already, or if `spark-submit` started it.
    """
    _destination.begin(None)
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    with _sigterm_ignored_by_jvm():
        gateway = launch_gateway(conf, {"stderr": subprocess.PIPE})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)
    threading.Thread(
        target=_relay, args=(gateway.proc.stderr,), name="headwater-jvm-stderr", daemon=True
    ).start()


@contextmanager
def _sigterm_ignored_by_jvm() -> Iterator[None]:
    """Let a JVM that starts here ignore SIGTERM, as PySpark lets it ignore SIGINT.

    `timeout` and service managers signal the whole process group: a JVM that ended at once would
    break off the batches that this process lets finish. It ends with this process in any case.
    """
    gateway: Any = import_module("pyspark.java_gateway")

    def ignore(number: int, handler: signal.Handlers) -> None:
        for each in (number, signal.SIGTERM):
            signal.signal(each, handler)

    gateway.signal = SimpleNamespace(SIGINT=signal.SIGINT, SIG_IGN=signal.SIG_IGN, signal=ignore)
    try:
        yield
    finally:
        gateway.signal = signal


def _relay(lines: Iterable[bytes]) -> None:
    for line in without_noise(line.decode(errors="replace") for line in lines):
        _destination.write(line)


def without_noise(lines: Iterable[str]) -> Iterator[str]:
    """Yield all lines except those that need no action.

    A traceback is held until its last line. Workers that end together mix the lines of their tracebacks,
    so these are held until each has ended.
    """
    held: list[str] = []
    for line in lines:
        if held or line.startswith((_TRACEBACK, _WORKER[1])):
            held.append(line)
            if _is_whole(held):
                yield from () if _is_noise(held) else held
                held = []
        elif not line.startswith(_INCUBATOR):
            yield line
    yield from held


def _is_whole(held: list[str]) -> bool:
    """Whether every traceback has its last line, the exception itself."""
    begun = sum(line.startswith(_TRACEBACK) for line in held)
    return 0 < begun <= len(_exceptions(held)) or len(held) > _LONGEST


def _is_noise(held: list[str]) -> bool:
    from_worker = any(mark in line for line in held for mark in _WORKER)
    return from_worker and all(line.startswith(_CLOSED) for line in _exceptions(held))


def _exceptions(held: list[str]) -> list[str]:
    return [line for line in held if not line.startswith((" ", _TRACEBACK, _WORKER[1]))]

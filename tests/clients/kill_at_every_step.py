"""Runs an example again and again, killed one line later each time, and counts what became of it.

    python -m tests.clients.kill_at_every_step EXAMPLE FUNCTION BOOTSTRAP

A step is a line of the example's function. Each time a child process runs it up to some line, ends
there as by `kill -9`, and another one runs it to its end; groups and databases are new each time. Prints
a JSON list of (line, lost, repeated), the last one for the run that nobody killed.
"""

import importlib
import json
import os
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples" / "deliveries"
ORDERS = 4
"""Two polls of two."""

Run = Callable[[str, str, str], None]


def main(example: str, function: str, bootstrap: str) -> None:
    """Kill at the first step, the second, and so on, until there is no such step."""
    sys.path.insert(0, str(EXAMPLES))
    run: Run = getattr(importlib.import_module(example), function)
    found: list[tuple[int, int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        line = -1
        while line:
            step = len(found) + 1
            where = (bootstrap, f"{folder}/{step}.db", f"{example}-{function}-{step}")
            line = _child(partial(_killed_at, step, run, where))
            _child(lambda _, where=where: run(*where))
            found.append((line, *_count(where[1])))
    json.dump(found, sys.stdout)


def _child(work: Callable[[int], Any]) -> int:
    """Run in a child process, which gets a pipe; what it wrote there before its end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(writer)
        except BaseException as problem:  # noqa: BLE001 - the parent shall hear of it
            sys.stderr.write(f"{problem!r}\n")
            os._exit(1)
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    told = os.read(reader, 20)
    os.close(reader)
    if os.waitstatus_to_exitcode(status) not in (0, -signal.SIGKILL):
        raise SystemExit("the example failed")
    return int(told or 0)


def _killed_at(step: int, run: Run, where: tuple[str, str, str], pipe: int) -> None:
    """Run up to a step, tell its line, and end there; to the end if there is no such step."""
    left = step

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code is not run.__code__:
            return None
        left -= event == "line"
        if left == 0:
            os.write(pipe, b"%d" % frame.f_lineno)
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    run(*where)
    sys.settrace(None)


def _count(ledger: str) -> tuple[int, int]:
    rows = sqlite3.connect(ledger).execute("SELECT place FROM ledger").fetchall()
    copies = Counter(place for (place,) in rows)
    return ORDERS - len(copies), sum(copies.values()) - len(copies)


if __name__ == "__main__":
    main(*sys.argv[1:])

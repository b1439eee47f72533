"""The command line of a set of cases, each of which measures some figures."""

import argparse
import sys
from collections.abc import Callable, Mapping
from fnmatch import fnmatch

from benchmarks.load import report, rounds
from benchmarks.load.rounds import Scale
from benchmarks.load.targets import Figure


def run_cases(kind: str, cases: Mapping[str, Callable[[Scale], list[Figure]]]) -> None:
    """Measure the cases that the command line asks for, print a table and save the samples."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{kind}")
    parser.add_argument("--quick", action="store_true", help="two short rounds instead of five")
    parser.add_argument("--cases", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--list", action="store_true", help="name all cases and stop")
    chosen = parser.parse_args()
    if chosen.list:
        _say("\n".join(cases))
        return
    scale = rounds.QUICK if chosen.quick else rounds.FULL
    figures: list[Figure] = []
    for name, measure in cases.items():
        if any(fnmatch(name, pattern) for pattern in chosen.cases or ["*"]):
            _say(f"measuring {name}")
            figures += measure(scale)
    path = report.save(figures, {}, scale, kind)
    _say(f"\n{report.table(figures)}\n\n{report.verdicts(figures, {})}\nsamples: {path}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()

"""`python -m benchmarks.cluster`: every case, or some of them, in one table.

--quick            two short rounds instead of three
--cases PATTERN    only cases whose name matches, e.g. 'produce-*' or 'failover'; repeatable
--servers LIST     of kafka and headwater, for produce and latency; the last one is the subject
--list             the names of all cases
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from fnmatch import fnmatch

from benchmarks.cluster import catch_up, partitions, replicated_load, small_cluster
from benchmarks.cluster.clusters import CLUSTERS
from benchmarks.load import clients, report
from benchmarks.load.rounds import FULL, QUICK, Samples, Scale
from benchmarks.load.targets import Figure

_FULL = replace(FULL, rounds=3, seconds=4.0, warmup=1.0, first_run=40.0, log_bytes=2 << 30)
_QUICK = replace(QUICK, seconds=2.0, warmup=0.5, first_run=30.0, log_bytes=2 << 30)
_LATENCY = "end-to-end"
_ALONE: dict[str, Callable[[Scale], list[Figure]]] = {
    "catch-up": catch_up.catch_up,
    "failover": partitions.controller_failover,
    "start": partitions.start,
    "testing-cluster": small_cluster.testing_cluster,
}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--quick", action="store_true", help="two short rounds instead of three")
    parser.add_argument("--cases", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--servers", default="kafka,headwater", metavar="LIST")
    parser.add_argument("--list", action="store_true", help="name all cases and stop")
    return parser.parse_args()


def _side_by_side(
    names: Sequence[str], wanted: Callable[[str], bool], scale: Scale
) -> tuple[list[Figure], Samples]:
    """Produce loads and latency, on all clusters."""
    loads = {name: load for name, load in replicated_load.LOADS.items() if wanted(name)}
    if not loads and not wanted(_LATENCY):
        return [], {}
    with ExitStack() as stack:
        servers = [stack.enter_context(CLUSTERS[name]()) for name in names]
        samples = replicated_load.run_rounds(loads, servers, scale, _say)
        figures = replicated_load.figures(samples, names[-1])
        if wanted(_LATENCY):
            _say(f"measuring {_LATENCY}")
            figures += clients.end_to_end(scale, servers, names[-1])
    return figures, samples


def main() -> int:
    """Runs what the command line asks for."""
    arguments = _arguments()
    if arguments.list:
        _say("\n".join([*replicated_load.LOADS, _LATENCY, *_ALONE]))
        return 0
    names = arguments.servers.split(",")
    unknown = [name for name in names if name not in CLUSTERS]
    if unknown:
        raise SystemExit(f"unknown cluster {unknown[0]!r}; there are {', '.join(CLUSTERS)}")
    patterns = arguments.cases or ["*"]

    def wanted(name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in patterns)

    scale = _QUICK if arguments.quick else _FULL
    figures, samples = _side_by_side(names, wanted, scale)
    for name, measure in _ALONE.items():
        if wanted(name):
            _say(f"measuring {name}")
            figures += measure(scale)
    path = report.save(figures, samples, scale, "cluster")
    _say(f"\n{report.table(figures)}\n\n{report.verdicts(figures, {})}\nsamples: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m benchmarks.load`: everything, or a part of it.

--quick            two short rounds instead of five
--cases PATTERN    only cases whose name matches, e.g. 'produce-16*' or 'recovery'; repeatable
--servers LIST     of c, kafka, before and headwater; the last one is measured against the others
--list             the names of all cases
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from fnmatch import fnmatch

from benchmarks.load import clients, cold_read, lifecycle, metrics, recovery, report, rounds
from benchmarks.load.cases import CASES
from benchmarks.load.rounds import Samples, Scale
from benchmarks.load.servers import SERVERS, Broker, Server
from benchmarks.load.targets import Figure

# Measured on all brokers side by side, and on a broker of ours alone.
_SHARED: dict[str, Callable[[Scale, Sequence[Broker], str], list[Figure]]] = {
    "end-to-end": clients.end_to_end,
    "librdkafka": clients.client_rates,
}
_ALONE: dict[str, Callable[[Scale], list[Figure]]] = {
    "start": lifecycle.start_and_idle,
    "partitions": lifecycle.many_partitions,
    "cold-read": cold_read.cold_read,
    "recovery": recovery.recovery,
    "metrics": metrics.metrics,
}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load")
    parser.add_argument("--quick", action="store_true", help="two short rounds instead of five")
    parser.add_argument("--cases", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--servers", default="c,kafka,headwater", metavar="LIST")
    parser.add_argument("--list", action="store_true", help="name all cases and stop")
    return parser.parse_args()


class _Run:
    """One call of the program: what was asked for, and what came out."""

    def __init__(self, scale: Scale, patterns: Sequence[str], server_names: Sequence[str]) -> None:
        self._scale = scale
        self._patterns = patterns or ["*"]
        self._server_names = server_names
        self._subject = server_names[-1]
        self._cases = [case for name, case in CASES.items() if self._wanted(name)]
        self.figures: list[Figure] = []
        self.samples: Samples = {}
        self.failures: dict[str, str] = {}

    def _wanted(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self._patterns)

    def side_by_side(self) -> None:
        """All loads and the real clients, on all servers."""
        shared = [measure for name, measure in _SHARED.items() if self._wanted(name)]
        if not self._cases and not shared:
            return
        with ExitStack() as stack:
            servers: list[Server] = [
                stack.enter_context(SERVERS[name]()) for name in self._server_names
            ]
            outcome = rounds.run_rounds(self._cases, servers, self._scale, _say)
            self.samples, self.failures = outcome.samples, outcome.failures
            rivals = self._server_names[:-1]
            self.figures += rounds.figures(self._cases, self.samples, self._subject, rivals)
            brokers = [server for server in servers if isinstance(server, Broker)]
            for measure in shared:
                self.figures += measure(self._scale, brokers, self._subject)

    def alone(self) -> None:
        """What is measured on our broker without company."""
        if self._subject != "headwater":
            return
        for name, measure in _ALONE.items():
            if self._wanted(name):
                _say(f"measuring {name}")
                self.figures += measure(self._scale)

    def print(self) -> None:
        """The tables, and the file."""
        path = report.save(self.figures, self.samples, self._scale)
        _say(f"\n{report.table(self.figures)}")
        if self._cases:
            _say(f"\n{report.samples_table(self._cases, self.samples)}")
        _say(f"\n{report.verdicts(self.figures, self.failures)}\nsamples: {path}")


def main() -> int:
    """Runs what the command line asks for."""
    arguments = _arguments()
    if arguments.list:
        _say("\n".join([*CASES, *_SHARED, *_ALONE]))
        return 0
    names = arguments.servers.split(",")
    unknown = [name for name in names if name not in SERVERS]
    if unknown:
        raise SystemExit(f"unknown server {unknown[0]!r}; there are {', '.join(SERVERS)}")
    run = _Run(rounds.QUICK if arguments.quick else rounds.FULL, arguments.cases, names)
    run.side_by_side()
    run.alone()
    run.print()
    return 1 if run.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m benchmarks.transactions`: every case, or some of them, in one table.

--quick            two short rounds instead of three
--cases PATTERN    only cases whose name matches, e.g. '*broker*' or 'read-committed'; repeatable
--list             the names of all cases
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatch

from benchmarks.clients.contest import Figures
from benchmarks.cluster.clusters import BROKERS, HeadwaterCluster, KafkaCluster
from benchmarks.load import report
from benchmarks.load.rounds import Scale
from benchmarks.load.servers import Broker, Headwater, Kafka
from benchmarks.load.targets import Figure, Limit, at_least, at_most

CLIENTS = ("librdkafka", "headwater")


@dataclass(frozen=True)
class TransactionScale:
    """How much of everything."""

    rounds: int = 3
    commits: int = 2000
    seconds: float = 4.0
    filled: int = 5000


FULL = TransactionScale()
QUICK = TransactionScale(rounds=2, commits=400, seconds=2.0, filled=2000)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _run(run: str, client: str, server: Broker, topic: str, *options: object) -> Figures:
    """One run of a client in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.transactions.workers", run, client]
    command += [f"127.0.0.1:{server.port}", topic, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{run} {client}: {done.stderr[-2000:]}")
    told: Figures = json.loads(done.stdout.splitlines()[-1])
    _say(f"{server.name} {run} {client} {' '.join(map(str, options))}: {_short(told)}")
    return told


def _short(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())


# -- brokers beside Apache Kafka


def one_broker(scale: TransactionScale) -> list[Figure]:
    """Transactions of librdkafka on one broker."""
    limits = {"rate": at_least(1.2), "p99_ms": at_most(1.0)}
    return _beside_kafka("one-broker", [Kafka(), Headwater()], 1, scale, limits)


def three_brokers(scale: TransactionScale) -> list[Figure]:
    """The same on three brokers with three replicas."""
    limits = {"rate": at_least(1.0), "p99_ms": at_most(1.2)}
    servers = [KafkaCluster(), HeadwaterCluster()]
    return _beside_kafka("three-brokers", servers, BROKERS, scale, limits)


def _beside_kafka(
    case: str,
    servers: Sequence[Broker],
    partitions: int,
    scale: TransactionScale,
    limits: Mapping[str, Limit],
) -> list[Figure]:
    """Both are up at the same time and take turns; a JIT sees one run before."""
    rounds: dict[str, list[Figures]] = {server.name: [] for server in servers}
    with ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
            if server.warms_up:
                _commits(server, partitions, scale)
        for _ in range(scale.rounds):
            for server in servers:
                rounds[server.name].append(_commits(server, partitions, scale))
    kafka, ours = rounds["kafka"], rounds["headwater"]
    return [
        *_ratios(case, "kafka", ours, kafka, limits),
        *(
            Figure(case, f"{name}: {measure}", [run[measure] for run in runs])
            for name, runs in rounds.items()
            for measure in runs[0]
        ),
    ]


def _commits(server: Broker, partitions: int, scale: TransactionScale) -> Figures:
    topic = server.fresh_topic(partitions)
    try:
        return _run("commits", "librdkafka", server, topic.name, scale.commits)
    finally:
        server.drop(topic)


def _ratios(
    case: str,
    against: str,
    ours: Sequence[Figures],
    theirs: Sequence[Figures],
    limits: Mapping[str, Limit],
) -> Iterable[Figure]:
    words = {"rate": "transactions/s", "p99_ms": "commit p99", "p50_ms": "commit p50"}
    for measure in ours[0]:
        values = [a[measure] / b[measure] for a, b in zip(ours, theirs, strict=True)]
        yield Figure(case, f"{words[measure]} ÷ {against}", values, limits.get(measure))


# -- clients and isolation levels on our broker


def clients(scale: TransactionScale) -> list[Figure]:
    """The same transactions, written by our client."""
    rounds: dict[str, list[Figures]] = {client: [] for client in CLIENTS}
    with Headwater() as server:
        for _ in range(scale.rounds):
            for client in CLIENTS:
                topic = server.fresh_topic(1)
                rounds[client].append(_run("commits", client, server, topic.name, scale.commits))
                server.drop(topic)
    limits = {"rate": at_least(1.5)}
    return list(_ratios("clients", "librdkafka", rounds["headwater"], rounds["librdkafka"], limits))


def commit_interval(scale: TransactionScale) -> list[Figure]:
    """A stream with commits every 100 ms against one without."""
    return _modes(
        "commit-every-100ms",
        ("transactional", "idempotent"),
        "MB/s ÷ idempotent",
        at_least(0.9),
        lambda server, topic, client, how: _run(
            "stream", client, server, topic, scale.seconds, how
        ),
        scale,
    )


def read_committed(scale: TransactionScale) -> list[Figure]:
    """Fetches of a log with 1 % aborted transactions."""
    offsets: dict[str, int] = {}

    def run(server: Broker, topic: str, client: str, how: str) -> Figures:
        if topic not in offsets:
            told = _run("fill", "headwater", server, topic, scale.filled)
            offsets[topic] = int(told["offsets"])
        return _run("read", client, server, topic, offsets[topic], how)

    return _modes(
        "read-committed",
        ("read_committed", "read_uncommitted"),
        "offsets/s ÷ read_uncommitted",
        at_least(0.95),
        run,
        scale,
    )


def _modes(
    case: str,
    modes: tuple[str, str],
    measure: str,
    limit: Limit,
    run: Callable[[Broker, str, str, str], Figures],
    scale: TransactionScale,
) -> list[Figure]:
    """Each client in both modes, which take turns; the first run of each is not counted."""
    ratios: dict[str, list[float]] = {client: [] for client in CLIENTS}
    with Headwater() as server:
        for number in range(scale.rounds + 1):
            topic = server.fresh_topic(1).name
            for client in CLIENTS:
                order = modes if number % 2 else modes[::-1]
                rates = {how: run(server, topic, client, how)["rate"] for how in order}
                if number:
                    ratios[client].append(rates[modes[0]] / rates[modes[1]])
    return [
        Figure(case, f"{measure}, {client}", values, limit) for client, values in ratios.items()
    ]


CASES: dict[str, Callable[[TransactionScale], list[Figure]]] = {
    "one-broker": one_broker,
    "three-brokers": three_brokers,
    "clients": clients,
    "commit-every-100ms": commit_interval,
    "read-committed": read_committed,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions")
    parser.add_argument("--quick", action="store_true", help="two short rounds instead of three")
    parser.add_argument("--cases", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--list", action="store_true", help="name all cases and stop")
    return parser.parse_args()


def main() -> int:
    """Runs what the command line asks for."""
    arguments = _arguments()
    if arguments.list:
        _say("\n".join(CASES))
        return 0
    patterns = arguments.cases or ["*"]
    scale = QUICK if arguments.quick else FULL
    figures: list[Figure] = []
    for name, measure in CASES.items():
        if any(fnmatch(name, pattern) for pattern in patterns):
            figures += measure(scale)
    path = report.save(figures, {}, Scale(rounds=scale.rounds), "transactions")
    _say(f"\n{report.table(figures)}\n\n{report.verdicts(figures, {})}\nsamples: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

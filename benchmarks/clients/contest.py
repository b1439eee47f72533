"""What the benchmarks of clients share: the command line, the broker, turns and medians.

A contest starts one broker in a process of its own, ours or Apache Kafka, and lets each client work
in another process, one at a time. Clients take turns, so that a slow minute of the machine hits all
of them alike. The first round is not counted: by then a JVM has compiled what the clients ask of it.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.clients.place import Place

TOPIC = "bench"
BROKERS = ("headwater", "apache")
Figures = dict[str, float]
"""What one run tells of a client."""


def arguments(about: str | None, clients: Iterable[str]) -> argparse.ArgumentParser:
    """The command line that all benchmarks have; `parsed` reads it."""
    parser = argparse.ArgumentParser(
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--broker", choices=BROKERS, default="headwater")
    parser.add_argument("--secure", action="store_true", help="over SASL_SSL, with PLAIN")
    parser.add_argument("--rounds", type=_at_least_one, default=3, help="counted ones")
    parser.add_argument("--client", action="append", choices=list(clients), help="repeatable")
    parser.add_argument("--json", metavar="FILE", help="where to write the medians")
    # How a benchmark calls itself for one run of one client.
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--authority", default="", help=argparse.SUPPRESS)
    return parser


def parsed(
    parser: argparse.ArgumentParser, words: Sequence[str] | None = None
) -> argparse.Namespace:
    """What was asked for."""
    asked = parser.parse_args(words)
    if (asked.worker is None) != (asked.bootstrap is None):
        parser.error("--worker and --bootstrap are for a benchmark's own processes; see --broker")
    return asked


def _at_least_one(word: str) -> int:
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{word} is less than one")
    return number


def place_of(asked: argparse.Namespace) -> Place:
    """Where a worker is to connect."""
    return Place(asked.bootstrap, asked.authority)


def broker_of(asked: argparse.Namespace) -> str:
    """Return the broker as the title of a table has it."""
    return f"broker {asked.broker}{', SASL_SSL' if asked.secure else ''}"


@contextmanager
def running(
    broker: str,
    *,
    partitions: int = 1,
    settings: Mapping[str, str] | None = None,
    secure: bool = False,
) -> Iterator[Place]:
    """Where clients find a fresh broker that holds the topic, empty."""
    with (_secured if secure else _plain)(broker, settings) as (bootstrap, place):
        _create_topic(bootstrap, partitions)
        yield place


# What is imported in these two is not for workers, which shall load nothing but the client that they measure.


@contextmanager
def _plain(broker: str, settings: Mapping[str, str] | None) -> Iterator[tuple[str, Place]]:
    from tools.apache_kafka import ApacheKafka

    from headwater.testing import Broker

    with ApacheKafka(settings) if broker == "apache" else Broker(settings, subprocess=True) as up:
        yield up.bootstrap, Place(up.bootstrap)


@contextmanager
def _secured(broker: str, settings: Mapping[str, str] | None) -> Iterator[tuple[str, Place]]:
    """The address of the plain listener, and where the secured one is."""
    from benchmarks.security.servers import SecureHeadwater, SecureKafka, Stores
    from headwater.testing.broker import DEFAULTS

    with Stores() as stores:
        server: SecureKafka | SecureHeadwater
        if broker == "apache":
            server = SecureKafka(stores, "SASL_SSL", settings)
        else:
            more = {**DEFAULTS, **(settings or {})}
            server = SecureHeadwater(stores, "SASL_SSL", more=more)
        with server:
            place = Place(f"127.0.0.1:{server.secure_port}", str(stores.authority))
            yield f"127.0.0.1:{server.port}", place


def _create_topic(bootstrap: str, partitions: int) -> None:
    from headwater import Admin, NewTopic

    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, partitions)])
        # Answered once all partitions are led: Apache Kafka says a topic is made before it is there.
        admin.end_offsets([(TOPIC, number) for number in range(partitions)])


def run_worker(benchmark: str, client: str, codec: str, place: Place, **options: Any) -> Figures:
    """One run of a client in a process of its own; `codec` is for clients of ours."""
    command = [sys.executable, "-m", f"benchmarks.clients.{benchmark}"]
    command += ["--worker", client, "--bootstrap", place.bootstrap]
    command += ["--authority", place.authority]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=_environment(codec), check=False
    )
    if done.returncode:
        raise RuntimeError(f"{client}: {done.stderr[-2000:]}")
    told: Figures = json.loads(done.stdout.splitlines()[-1])
    return told


def _environment(codec: str) -> dict[str, str]:
    return {
        **os.environ,
        "HEADWATER_CODEC": codec,
        # pyarrow imports numpy, whose OpenBLAS starts a thread for each core; these spin for about
        # a tenth of a second after the import, on cores that the measurement needs.
        "OPENBLAS_NUM_THREADS": "1",
    }


def tell(figures: Figures) -> None:
    """A worker's last word, for `run_worker`."""
    print(json.dumps(figures), flush=True)


class Stopwatch:
    """A worker's clock: a count of records, the time and the CPU time of the process they took."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._began = (0.0, 0.0)

    def start(self) -> None:
        """The client is connected; what it does from now on counts."""
        self._began = (time.perf_counter(), _cpu_s())

    def stop(self) -> None:
        """All records are through: tell the parent."""
        elapsed, spent = time.perf_counter() - self._began[0], _cpu_s() - self._began[1]
        tell({"rate": self.count / elapsed, "cpu_us": spent / self.count * 1e6})


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def take_turns(
    clients: Sequence[str], rounds: int, measure: Callable[[str], Figures]
) -> dict[str, Figures]:
    """Medians by client, after a round that is not counted."""
    for client in clients:
        measure(client)
    return medians([{client: measure(client) for client in clients} for _ in range(rounds)])


def medians(rounds: Sequence[Mapping[str, Figures]]) -> dict[str, Figures]:
    """By client, each figure's median over the rounds."""
    return {
        client: {name: statistics.median(told[client][name] for told in rounds) for name in figures}
        for client, figures in rounds[0].items()
    }


def rate_table(rows: Mapping[str, Figures]) -> str:
    """Rates and CPU times, each beside its ratio to the better of the confluent-kafka rows."""
    peers = [row for client, row in rows.items() if client.startswith("confluent-kafka")]
    best = max((row["rate"] for row in peers), default=float("nan"))
    least = min((row["cpu_us"] for row in peers), default=float("nan"))
    return "\n".join(
        f"{row['rate'] / best:6.2f} x {row['rate']:12,.0f} /s "
        f"{row['cpu_us'] / least:6.2f} x {row['cpu_us']:7.2f} us CPU  {client}"
        for client, row in rows.items()
    )


def save(results: Mapping[str, Any], path: str | None) -> None:
    """The medians as JSON, if a file was named."""
    if path:
        Path(path).write_text(json.dumps(results, indent=1))

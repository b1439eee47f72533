"""Kills drivers, executors and brokers under a running pipeline, then checks the results.

A producer sends numbers, one in twenty of them broken; the pipeline of `tools/chaos_pipeline` puts the
whole ones into a Delta table and on to a topic, the broken ones into a table and a dead letter topic.
After every kill the pipeline must make progress again before the next one. At the end each number that
was acknowledged must be in each of its targets exactly once. With `--brokers 3` the topics have
three replicas, and a kill hits one of the brokers, or all of them.

    python -m tools.pipeline_chaos --kills 300
"""

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

import headwater
from headwater.client.producer.futures import RecordMetadata
from headwater.errors import KafkaError
from headwater.testing import Broker, Cluster

PROJECT = Path(__file__).parent / "chaos_pipeline"
MASTER = "local-cluster[2,1,1024]"
"""Two executors, each a process that can be killed, besides the driver."""
TOPICS = ("chaos.in", "chaos.out", "chaos.dead")
PARTITIONS = 3
PATIENCE_S = 600.0
PAUSE_S = 0.02
BURST = 5
BROKEN_EVERY = 20
VICTIMS = ("driver", *("executor", "broker") * 4)
"""The share of each kind of victim; a driver takes by far the longest to restart."""
SETTINGS = {"auto.create.topics.enable": "false", "log.segment.bytes": str(1 << 20)}


SHARE_OF_ALL = 0.2
"""How often a kill hits all brokers of a cluster at once."""


@dataclass(slots=True)
class Report:
    """The result of a run."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    whole: int = 0
    broken: int = 0
    problems: list[str] = field(default_factory=list)


class Writer:
    """Sends numbers until it is stopped, and records those that were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[str] = []
        self.problems: list[str] = []
        self._producer = headwater.Producer(
            bootstrap_servers=bootstrap, linger_ms=2, retry_backoff_ms=20, reconnect_backoff_ms=20
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(PAUSE_S):
            for _ in range(BURST):
                text = f"{number}" if number % BROKEN_EVERY else f"broken-{number}"
                self._producer.send("chaos.in", text.encode(), on_delivery=self._noted(text))
                number += 1

    def _noted(self, text: str) -> Callable[[RecordMetadata | None, Exception | None], None]:
        def note(stored: RecordMetadata | None, error: Exception | None) -> None:
            if error is None:
                self.acknowledged.append(text)
            else:
                self.problems.append(f"{text} was not acknowledged: {error}")

        return note

    def finish(self) -> None:
        """Stop sending and wait for records in flight."""
        self._stop.set()
        self._thread.join()
        self._producer.close(PATIENCE_S)


class Driver:
    """The pipeline's command in a session of its own, with the Spark that it starts."""

    def __init__(self, bootstrap: str, storage: Path, log: Path, master: str) -> None:
        self._log = log
        self._master = master
        self._environment = {
            **os.environ,
            "BOOTSTRAP_SERVERS": bootstrap,
            "CHAOS_STORAGE": str(storage),
        }
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [
            *(sys.executable, "-m", "headwater", "pipeline", "run", str(PROJECT)),
            *("--continuous", "--master", self._master, "--no-progress"),
        ]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, chance: random.Random) -> None:
        """Kill the driver, alone or with its child processes, and restart it."""
        if chance.random() < 0.5:
            for pid in [self._process.pid, *self._pids("SparkSubmit")]:
                _kill(pid)
        else:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = self._start()

    def kill_executor(self, chance: random.Random) -> None:
        """SIGKILL to one of its executors."""
        _until(
            lambda: self.alive() and bool(self._pids("CoarseGrainedExecutorBackend")),
            "an executor",
        )
        _kill(chance.choice(self._pids("CoarseGrainedExecutorBackend")))

    def alive(self) -> bool:
        """Return True while it runs; a driver must not end by itself."""
        if (code := self._process.poll()) is not None:
            raise AssertionError(f"the driver ended by itself with {code}: see {self._log}")
        return True

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _pids(self, word: str) -> list[int]:
        """The processes of its session that have this word in their command lines."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                pid = int(entry.name)
                if os.getsid(pid) == self._process.pid and word in _command(pid):
                    found.append(pid)
        return found


class OneBroker:
    """A single broker, which is killed and restarted."""

    def __init__(self, folder: Path) -> None:
        self._broker = Broker(SETTINGS, data_dir=folder, subprocess=True).start()
        self.bootstrap = self._broker.bootstrap
        self.create_topic = self._broker.create_topic
        self.close = self._broker.close

    def kill(self, chance: random.Random) -> None:
        """Kill the broker and restart it."""
        self._broker.kill()
        self._broker.start()


class ManyBrokers:
    """A cluster, in which one or all brokers are killed and restarted."""

    def __init__(self, folder: Path, brokers: int) -> None:
        self._cluster = Cluster(brokers, SETTINGS, data_dir=folder).start()
        self.bootstrap = self._cluster.bootstrap
        self.create_topic = self._cluster.create_topic
        self.close = self._cluster.close

    def kill(self, chance: random.Random) -> None:
        """Kill the leader of a partition of the input, any broker, or all."""
        cluster = self._cluster
        victims = [chance.choice((cluster.leader(TOPICS[0]), chance.choice(cluster.broker_ids)))]
        if chance.random() < SHARE_OF_ALL:
            victims = cluster.broker_ids
        cluster.kill(*victims)
        cluster.start_broker(*victims)


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def run(
    kills: int,
    seed: int,
    folder: Path,
    tell: Callable[[str], None],
    master: str = MASTER,
    minutes: float = math.inf,
    victims: Sequence[str] = VICTIMS,
    brokers: int = 1,
) -> Report:
    """Kill `kills` times or for `minutes`, let the pipeline finish, and compare."""
    chance = random.Random(seed)
    report = Report(seed)
    started = time.monotonic()
    storage = folder / "tables"
    data = folder / "broker"
    started_brokers = OneBroker(data) if brokers == 1 else ManyBrokers(data, brokers)
    with closing(started_brokers) as broker:
        for topic in TOPICS:
            broker.create_topic(topic, PARTITIONS)
        writer = Writer(broker.bootstrap)
        driver = Driver(broker.bootstrap, storage, folder / "driver.log", master)
        try:
            _progress(storage, driver, after=-1)
            for number, victim in enumerate(_victims(kills, victims, chance), 1):
                if time.monotonic() - started > minutes * 60:
                    break
                before = _version(storage / "numbers")
                _strike(victim, driver, broker, chance)
                report.kills[victim] += 1
                _progress(storage, driver, after=before)
                tell(f"{number:4} of {kills}: {victim:9} version {_version(storage / 'numbers')}")
            writer.finish()
            _until(lambda: driver.alive() and _caught_up(broker.bootstrap), "lag 0")
            report.problems += writer.problems
            _judge(report, writer.acknowledged, storage, broker.bootstrap)
        finally:
            driver.stop()
    report.seconds = time.monotonic() - started
    return report


def _victims(kills: int, victims: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Return victims in fixed shares, in random order."""
    names = [victims[number % len(victims)] for number in range(kills)]
    chance.shuffle(names)
    return iter(names)


def _strike(
    victim: str, driver: Driver, broker: OneBroker | ManyBrokers, chance: random.Random
) -> None:
    time.sleep(chance.random())  # any moment of a batch, not the one after a commit
    if victim == "driver":
        driver.kill(chance)
    elif victim == "executor":
        driver.kill_executor(chance)
    else:
        broker.kill(chance)


def _progress(storage: Path, driver: Driver, after: int) -> None:
    _until(lambda: driver.alive() and _version(storage / "numbers") > after, "progress")


def _version(table: Path) -> int:
    """Return the newest commit, from file names alone: this runs many times a second."""
    commits = (table / "_delta_log").glob("*.json")
    return max((int(commit.stem) for commit in commits if commit.stem.isdigit()), default=-1)


def _caught_up(bootstrap: str) -> bool:
    """Return whether both flows have read everything: the lag is 0 and the echo is complete."""
    with headwater.Admin(bootstrap_servers=bootstrap) as admin:
        try:
            committed = admin.group_offsets("chaos.numbers")
        except KafkaError:
            return False
        inputs = admin.end_offsets([("chaos.in", number) for number in range(PARTITIONS)])
        if sum(offset.offset for offset in committed.values()) < sum(inputs.values()):
            return False
        out = sum(
            admin.end_offsets([(t, n) for t in TOPICS[1:] for n in range(PARTITIONS)]).values()
        )
    return out >= sum(inputs.values())


def _judge(report: Report, acknowledged: list[str], storage: Path, bootstrap: str) -> None:
    broken = {text for text in acknowledged if text.startswith("broken")}
    whole = set(acknowledged) - broken
    report.whole, report.broken = len(whole), len(broken)
    for place, found, sent in (
        ("the table", _column(storage / "numbers"), whole),
        ("the echo topic", _values(bootstrap, "chaos.out"), whole),
        ("the table of refused rows", _column(storage / "refused"), broken),
        ("the dead letter topic", _bodies(bootstrap, "chaos.dead"), broken),
    ):
        report.problems += _differences(place, Counter(found), sent)


def _differences(place: str, found: Counter[str], sent: set[str]) -> Iterator[str]:
    for what, texts in (
        ("lost", sent - found.keys()),
        ("never acknowledged", found.keys() - sent),
        ("doubled", {text for text, times in found.items() if times > 1}),
    ):
        if texts:
            yield f"{place}: {len(texts)} {what}, such as {sorted(texts)[:5]}"


def _column(table: Path) -> Iterable[str]:
    return [str(value) for value in DeltaTable(table).to_pyarrow_table(columns=["body"])["body"]]


def _values(bootstrap: str, topic: str) -> Iterable[str]:
    with headwater.Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign([(topic, number) for number in range(PARTITIONS)])
        return [(record.value or b"").decode() for record in consumer.read_to_end()]


def _bodies(bootstrap: str, topic: str) -> Iterable[str]:
    """The column `body` of rows that were written as JSON."""
    return [json.loads(value)["body"] for value in _values(bootstrap, topic)]


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_S:.0f} s for {what}")
        time.sleep(0.05)


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="headwater-chaos-") as folder:
        yield Path(folder)


def main() -> int:
    """Run and print the report; return 0 if every number is where it belongs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--minutes", type=float, default=math.inf, help="no new kill after these")
    parser.add_argument("--folder", type=Path, help="keep everything here")
    parser.add_argument("--brokers", type=int, default=1, help="a cluster of this many brokers")
    options = parser.parse_args()
    with _folder(options.folder) as folder:
        report = run(
            options.kills,
            options.seed,
            folder,
            lambda line: print(line, flush=True),
            minutes=options.minutes,
            brokers=options.brokers,
        )
    print(
        json.dumps(
            {
                "seed": report.seed,
                "kills": dict(report.kills),
                "seconds": round(report.seconds),
                "whole": report.whole,
                "broken": report.broken,
                "problems": report.problems,
            },
            indent=2,
        )
    )
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())

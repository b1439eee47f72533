"""Kills and restarts the broker every second under our own clients, then compares two sets.

Ten idempotent producers write while a group of four, whose members change, reads and commits. At
the end the records that the group consumed must be those that were acknowledged: none is lost or
invented, each is stored once, and the records of a producer are in order. A record may be read
again after a crash, since commits follow the work, but its offset must hold the same record.

    python -m tools.client_chaos --seconds 60
"""

import argparse
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import headwater
from headwater.client.producer.futures import RecordMetadata, SendFuture
from headwater.errors import KafkaError
from headwater.testing import Broker

TOPIC = "chaos"
PARTITIONS = 8
PRODUCERS = 10
MEMBERS = 4
BETWEEN_KILLS_S = 1.0
KILLS_PER_CHANGE = 4
PATIENCE_S = 60.0
PAUSE_S = 0.02
BURST = 20
UNDER_WAY = 200
SETTINGS = {"auto.create.topics.enable": "false", "log.segment.bytes": str(1 << 20)}
QUICK: dict[str, Any] = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
}
"""Short backoffs: the broker is back after a moment."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(slots=True)
class Report:
    """The result of a run."""

    kills: int = 0
    acknowledged: dict[bytes, Place] = field(default_factory=dict)
    consumed: dict[Place, bytes] = field(default_factory=dict)
    repeated: int = 0
    rebalances: int = 0
    problems: list[str] = field(default_factory=list)


class Writer:
    """One producer on its own thread, with a window of records in flight."""

    def __init__(self, bootstrap: str, name: int) -> None:
        self.acknowledged: dict[bytes, Place] = {}
        self.problems: list[str] = []
        self._name = name
        self._producer = headwater.Producer(
            bootstrap_servers=bootstrap, client_id=f"writer-{name}", linger_ms=2, **QUICK
        )
        self._under_way: deque[tuple[bytes, SendFuture]] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.wait(PAUSE_S):
                for _ in range(BURST):
                    value = b"%d-%d" % (self._name, number)
                    self._under_way.append(
                        (value, self._producer.send(TOPIC, value, key=b"%d" % (number % 64)))
                    )
                    number += 1
                self._settle(UNDER_WAY)
        except KafkaError as problem:
            self.problems.append(f"writer {self._name}: send failed: {problem!r}")

    def _settle(self, left: int) -> None:
        """Wait for the oldest records until at most `left` are in flight."""
        while len(self._under_way) > left or (self._under_way and self._under_way[0][1].done()):
            value, future = self._under_way.popleft()
            try:
                stored: RecordMetadata = future.result(PATIENCE_S)
            except KafkaError as problem:
                self.problems.append(f"writer {self._name}: {value!r}: {problem!r}")
            else:
                self.acknowledged[value] = (stored.partition, stored.offset)

    def finish(self) -> None:
        """Stop sending and wait for records in flight."""
        self._stop.set()
        self._thread.join()
        self._settle(0)
        self._producer.close(PATIENCE_S)


class Reader:
    """One member on its own thread, which commits what it has recorded."""

    def __init__(self, bootstrap: str, write_down: Callable[[Place, bytes], None]) -> None:
        self.problems: list[str] = []
        self._write_down = write_down
        self._consumer = headwater.Consumer(
            bootstrap_servers=bootstrap,
            group_id="chaos",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
            **QUICK,
        )
        self._consumer.subscribe([TOPIC])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                records = self._consumer.poll(0.1)
            except KafkaError as problem:
                self.problems.append(f"poll failed: {problem!r}")
                continue
            for record in records:
                self._write_down((record.partition, record.offset), record.value or b"")
            if records:
                self._consumer.commit_async(on_commit=lambda offsets, error: None)

    @property
    def joins(self) -> int:
        """How often it has joined the group."""
        return int(self._consumer.metrics().get("join-total", 0))

    def finish(self) -> None:
        """Leave the group."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()


class Ledger:
    """The records that the whole group has read."""

    def __init__(self) -> None:
        self.consumed: dict[Place, bytes] = {}
        self.repeated = 0
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._grown = threading.Condition(self._lock)

    def write_down(self, place: Place, value: bytes) -> None:
        """Record that a member has read `value` at `place`."""
        with self._grown:
            known = self.consumed.setdefault(place, value)
            self.repeated += known is not value
            if known != value:
                self.problems.append(f"{place} was {known!r} first and {value!r} later")
            self._grown.notify_all()

    def wait_for(self, count: int) -> None:
        """Return when `count` offsets were read or PATIENCE_S has passed."""
        with self._grown:
            self._grown.wait_for(lambda: len(self.consumed) >= count, PATIENCE_S)


def compare(acknowledged: dict[bytes, Place], consumed: dict[Place, bytes]) -> list[str]:
    """Return the differences between the two sets."""
    values = set(consumed.values())
    problems = [
        f"{value!r} at {place} was lost"
        for value, place in acknowledged.items()
        if value not in values
    ]
    problems += [
        f"{value!r} at {place} was never acknowledged"
        for place, value in consumed.items()
        if value not in acknowledged
    ]
    problems += [
        f"{value!r} is at {place} and was acknowledged at {acknowledged[value]}"
        for place, value in consumed.items()
        if value in acknowledged and acknowledged[value] != place
    ]  # fmt: skip
    return problems


def misplaced(consumed: dict[Place, bytes]) -> list[str]:
    """Return records that follow a later one of their producer in the same partition."""
    problems: list[str] = []
    last: dict[tuple[int, bytes], int] = {}
    for place in sorted(consumed):
        name, _, number = consumed[place].partition(b"-")
        before = last.get((place[0], name), -1)
        if int(number) <= before:
            problems.append(f"{consumed[place]!r} at {place} comes after number {before}")
        last[place[0], name] = int(number)
    return problems


def run(seconds: float, *, kills: int = 0, talkative: bool = False) -> Report:
    """Kill for `seconds`, and at least `kills` times, then compare."""
    report, ledger = Report(), Ledger()
    with Broker(SETTINGS, subprocess=True) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        writers = [Writer(broker.bootstrap, name) for name in range(PRODUCERS)]
        readers = [Reader(broker.bootstrap, ledger.write_down) for _ in range(MEMBERS)]
        until = time.monotonic() + seconds
        while time.monotonic() < until or report.kills < kills:
            time.sleep(BETWEEN_KILLS_S)
            broker.kill()
            broker.start()
            report.kills += 1
            if report.kills % KILLS_PER_CHANGE == 0:  # one leaves, another comes
                leaver = readers.pop(0)
                readers.append(Reader(broker.bootstrap, ledger.write_down))
                leaver.finish()
                report.problems += leaver.problems
            if talkative:
                print(f"{report.kills} kills, {len(ledger.consumed):,} consumed", flush=True)
        for writer in writers:
            writer.finish()
            report.acknowledged |= writer.acknowledged
            report.problems += writer.problems
        ledger.wait_for(len(report.acknowledged))
        report.rebalances = max(reader.joins for reader in readers)
        for reader in readers:
            reader.finish()
            report.problems += reader.problems
    report.consumed, report.repeated = ledger.consumed, ledger.repeated
    report.problems += ledger.problems + compare(report.acknowledged, report.consumed)
    report.problems += misplaced(report.consumed)
    return report


def main() -> int:
    """Run, print the result, and fail if the sets differ."""
    parser = argparse.ArgumentParser(prog="python -m tools.client_chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to kill and restart")
    report = run(parser.parse_args().seconds, talkative=True)
    print(
        f"{report.kills} kills: {len(report.acknowledged):,} records acknowledged, "
        f"{len(report.consumed):,} consumed, {report.repeated:,} of them more than once, "
        f"{report.rebalances} rebalances"
    )
    for problem in report.problems[:20]:
        print(problem)
    print("FAILED" if report.problems else "consumed is what was acknowledged")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())

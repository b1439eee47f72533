"""`make chaos`: repeated kill -9 under load, then a check of every acknowledged record.

Real producers write without a pause while the broker is killed at random points and restarted. At
the end everything is read back and the files are checked: no acknowledged record may be lost, none
of an idempotent producer may be duplicated or out of order, and no committed offset of a group may
have gone back. A third topic is deleted, truncated and recreated while producers write to it,
before some of the kills: the broker must not stop, and only the records of the last topic may be
there. The seed decides when to kill, not what the machine does in between.
"""

import argparse
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from headwater.cli.log import partitions_in
from headwater.log.verify import verify_log
from headwater.testing import Broker
from tools.chaos_clients import CONFLUENT_QUICK, PATIENCE_S, contents, partition_reader
from tools.recreated_topic import PARTITIONS, RecreatedTopic

LONGEST_LOAD_S = 0.6
SETTINGS = {
    "log.segment.bytes": str(512 * 1024),  # kills must hit rolls too
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.flush.interval.ms": "200",
    # Otherwise a producer would recreate the deleted topic before its owner does.
    "auto.create.topics.enable": "false",
}


@dataclass(slots=True)
class Report:
    """The result of a run."""

    seed: int
    kills: int = 0
    acknowledged: int = 0
    read_back: int = 0
    commits: int = 0
    deletions: int = 0
    problems: list[str] = field(default_factory=list)


class Load:
    """A producer on its own thread, which numbers its records by partition."""

    def __init__(self, bootstrap: str, topic: str, randomness: random.Random, **config: object):
        self.topic = topic
        self.idempotent = bool(config.get("enable.idempotence"))
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        """The number of the acknowledged record by partition and offset."""
        self.count = 0
        self.failed: list[str] = []
        self._random = randomness
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "batch.size": 100_000,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "queue.buffering.max.messages": 2000,
                **CONFLUENT_QUICK,
                **config,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load {topic}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Send bursts of random sizes with pauses."""
        numbers = [0] * PARTITIONS
        while not self._stop.is_set():
            try:
                for _ in range(self._random.choice((1, 1, 5, 20, 60))):
                    self._send(numbers, self._random.randrange(PARTITIONS))
                self._producer.poll(self._random.choice((0.001, 0.005, 0.01)))
            except BufferError:
                self._producer.poll(0.05)  # the queue is full while the broker is away

    def _send(self, numbers: list[int], partition: int) -> None:
        value = b"%d:" % numbers[partition] + b"." * self._random.randrange(1500)
        self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
        numbers[partition] += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        number = int((message.value() or b"").partition(b":")[0])
        self.acknowledged[message.partition() or 0][message.offset() or 0] = number
        self.count += 1

    def finish(self) -> None:
        """Stop sending and wait for records in flight."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(PATIENCE_S)
        if left:
            self.failed.append(f"{left} records had no answer after {PATIENCE_S:.0f} s")


class Commits:
    """Commits growing offsets of a group, and checks them after each crash."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.problems: list[str] = []
        self.count = 0
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "committers",
                "enable.auto.commit": False,
                **CONFLUENT_QUICK,
            }
        )
        self._asked = self._known = 0

    def again(self) -> None:
        """Check the last offset, then commit the next one."""
        deadline = time.monotonic() + PATIENCE_S
        try:
            self._check(deadline)
            self._asked += 1
            self._try(deadline, self._commit)
            self._known = self._asked
            self.count += 1
        except KafkaException as failure:
            self.problems.append(f"group commits stopped: {failure}")

    def _check(self, deadline: float) -> None:
        found = self._try(deadline, self._committed)
        if not self._known <= found <= self._asked:
            self.problems.append(
                f"the group has offset {found}; {self._known} was acknowledged, {self._asked} sent"
            )

    def _committed(self) -> int:
        (at,) = self._consumer.committed([TopicPartition(self._topic, 0)], timeout=2)
        if at.error is not None:
            raise KafkaException(at.error)
        return max(0, at.offset)

    def _commit(self) -> int:
        place = TopicPartition(self._topic, 0, self._asked)
        for at in self._consumer.commit(offsets=[place], asynchronous=False) or ():
            if at.error is not None:
                raise KafkaException(at.error)
        return self._asked

    def _try(self, deadline: float, call: Callable[[], int]) -> int:
        while True:
            try:
                return call()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def run(rounds: int, seed: int, *, talkative: bool = False) -> Report:
    """Kill the broker `rounds` times under load, then check everything."""
    report = Report(seed)
    randomness = random.Random(seed)
    with Broker(SETTINGS, subprocess=True) as broker:
        for topic in ("idempotent", "plain"):
            broker.create_topic(topic, PARTITIONS)
        loads = [
            Load(
                broker.bootstrap,
                "idempotent",
                random.Random(randomness.random()),
                **{"enable.idempotence": True, "compression.type": "lz4"},
            ),
            Load(
                broker.bootstrap,
                "plain",
                random.Random(randomness.random()),
                **{"enable.idempotence": False, "max.in.flight": 1},
            ),
        ]
        commits = Commits(broker.bootstrap, "plain")
        recreated = RecreatedTopic(broker.bootstrap, random.Random(randomness.random()))
        for number in range(rounds):
            _one_round(broker, loads, commits, randomness, recreated)
            report.kills += 1
            if talkative and number % 10 == 9:
                records = sum(load.count for load in loads)
                print(f"{report.kills} kills, {records:,} records", flush=True)
        recreated.finish()
        there = recreated.read(broker.bootstrap)
        report.deletions = recreated.deletions
        report.problems += recreated.problems + recreated.check(there)
        report.acknowledged += len(recreated.acknowledged)
        report.read_back += len(there)
        for load in loads:
            load.finish()
            report.problems += [f"{load.topic}: {failure}" for failure in load.failed[:20]]
            _read_back(broker.bootstrap, load, report)
        commits.again()
        commits.close()
        report.commits = commits.count
        report.problems += commits.problems
        broker.stop()
        _check_files(broker, report)
    return report


def _one_round(
    broker: Broker,
    loads: list[Load],
    commits: Commits,
    randomness: random.Random,
    recreated: RecreatedTopic,
) -> None:
    """Wait until every client makes progress, let them write for a moment, kill, restart."""
    before = [load.count for load in loads]
    commits.again()
    deadline = time.monotonic() + PATIENCE_S
    while any(load.count == count for load, count in zip(loads, before, strict=True)):
        if time.monotonic() > deadline:
            raise TimeoutError("nothing is acknowledged any more")
        time.sleep(0.005)
    time.sleep(randomness.uniform(0, LONGEST_LOAD_S))
    if randomness.random() < 0.4:
        recreated.again()
        _wait_for_records(recreated)
    broker.kill()
    broker.start()


def _wait_for_records(recreated: RecreatedTopic) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not recreated.acknowledged:
        if time.monotonic() > deadline:
            raise TimeoutError("nothing is acknowledged by the topic that was created again")
        time.sleep(0.005)


# -- the checks


def _read_back(bootstrap: str, load: Load, report: Report) -> None:
    with partition_reader(bootstrap) as reader:
        for partition in range(PARTITIONS):
            found = contents(reader, load.topic, partition)
            there = {offset: int(value.partition(b":")[0]) for offset, value in found.items()}
            report.read_back += len(there)
            report.acknowledged += len(load.acknowledged[partition])
            report.problems += [
                f"{load.topic}-{partition}: {problem}"
                for problem in compare(load.acknowledged[partition], there, load.idempotent)
            ]


def compare(acknowledged: dict[int, int], there: dict[int, int], idempotent: bool) -> list[str]:
    """Return what is wrong with the records of one partition, given what was acknowledged."""
    problems = [
        f"record {number} was acknowledged at {offset}; there is {there.get(offset)}"
        for offset, number in acknowledged.items()
        if there.get(offset) != number
    ]
    newest = -1
    for offset, number in sorted(there.items()):
        again = number <= newest
        if number > newest + 1 or (again and idempotent):
            problems.append(f"record {number} at {offset} comes after record {newest}")
        newest = max(newest, number)
    return problems[:20]


def _check_files(broker: Broker, report: Report) -> None:
    for folder in partitions_in(str(broker.data_dir)):
        report.problems += verify_log(folder).problems


def main() -> int:
    """Run, print the result, and fail if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how often to kill the broker")
    parser.add_argument("--seed", type=int, help="repeat the moments of an earlier run")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    print(f"seed {seed}, {options.rounds} rounds", flush=True)
    started = time.monotonic()
    report = run(options.rounds, seed, talkative=True)
    print(
        f"{report.kills} kills in {time.monotonic() - started:.0f} s: {report.acknowledged:,} records "
        f"acknowledged, {report.read_back:,} read back, {report.commits} group commits, "
        f"{report.deletions} deletions of a topic in use"
    )
    for problem in report.problems:
        print(problem)
    print("FAILED" if report.problems else "nothing lost, nothing twice, every log sound")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""`make chaos`: kill -9 under load, again and again; then ask for every acknowledged record.

Real producers write without a pause while the broker is killed at random points and started again.
At the end everything is read back and the files are checked: no acknowledged record may be lost,
none of an idempotent producer may be there twice or out of its order, and no committed offset of a
group may have gone back. A third topic is deleted, truncated and created again under its name while
producers write to it, before some of the kills: the broker must not stop, and the records of its last
life must be there, and only those. The randomness is seeded; the seed decides when to kill, not what
the machine does meanwhile.
"""

import argparse
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.cli.log import partitions_in
from headwater.log.verify import verify_log
from headwater.testing import Broker

PARTITIONS = 3
PATIENCE_S = 60.0
LONGEST_LOAD_S = 0.6
SETTINGS = {
    "log.segment.bytes": str(512 * 1024),  # rolls must be among the things that are interrupted
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.flush.interval.ms": "200",
    # A producer would create the topic that was deleted again before its owner does.
    "auto.create.topics.enable": "false",
}
_CLIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 0,  # a broker that goes away is what this is about
}


@dataclass(slots=True)
class Report:
    """What a run did and what it found."""

    seed: int
    kills: int = 0
    acknowledged: int = 0
    read_back: int = 0
    commits: int = 0
    deletions: int = 0
    problems: list[str] = field(default_factory=list)


class Load:
    """A producer on a thread of its own, which numbers its records by partition."""

    def __init__(self, bootstrap: str, topic: str, randomness: random.Random, **config: object):
        self.topic = topic
        self.idempotent = bool(config.get("enable.idempotence"))
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        """Partition, then offset, then the number of the record that was said to be there."""
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
                **_CLIENT,
                **config,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load {topic}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Bursts of all sizes with moments of silence between them."""
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
        """Send nothing more and wait for what is under way."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(PATIENCE_S)
        if left:
            self.failed.append(f"{left} records had no answer after {PATIENCE_S:.0f} s")


class Recreated:
    """A topic that is deleted and created again while two producers write to it.

    A record says in which life of the topic it was sent. One that was acknowledged, and sent and
    acknowledged in the same life, must be read back as long as that life lasts.
    """

    TOPIC = "recreated"

    def __init__(self, bootstrap: str, randomness: random.Random) -> None:
        self.count = 0
        self.problems: list[str] = []
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """By partition and offset: the records of the present life."""
        self.life = 0
        self.deletions = 0
        self._steady = threading.Event()
        """Set while the topic exists and nobody is deleting it."""
        self._lock = threading.Lock()
        self._random = randomness
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **_CLIENT})
        self._stop = threading.Event()
        # The life that each writer writes for: at most one behind, so that no older record comes late.
        self._written_lives = [0, 0]
        self._create()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(2)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        while not self._stop.is_set():
            # A producer of its own for each life: a client remembers a topic that was deleted.
            life = self._written_lives[number] = self.life
            producer = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "acks": "all",
                    "enable.idempotence": number == 0,
                    "linger.ms": 1,
                    "message.timeout.ms": 5000,
                    **_CLIENT,
                }
            )
            sent = 0
            while life == self.life and not self._stop.is_set():
                for _ in range(5):
                    value = b"%d:%d:%d:" % (life, number, sent) + b"." * 200
                    producer.produce(self.TOPIC, value, on_delivery=self._delivered)
                    sent += 1
                producer.poll(0.02)
                while len(producer) > 200:
                    producer.poll(0.05)
            producer.flush(PATIENCE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            return  # the topic was gone, or the broker was away for too long
        value = message.value() or b""
        with self._lock:
            self.count += 1
            if self._steady.is_set() and int(value.partition(b":")[0]) == self.life:
                at = (message.partition() or 0, message.offset() or 0)
                self.acknowledged[at] = value

    def again(self) -> None:
        """Truncate it, delete it and create it, with writers at work; then wait for records."""
        deadline = time.monotonic() + PATIENCE_S
        while any(life != self.life for life in self._written_lives):
            if time.monotonic() > deadline:
                raise TimeoutError("a writer of the topic's former life does not end")
            time.sleep(0.005)
        if self._random.random() < 0.5:
            self._truncate()
        with self._lock:
            self._steady.clear()
        self._insist("delete", lambda: self._admin.delete_topics([self.TOPIC]), gone=True)
        self.deletions += 1
        self._create()

    def _create(self) -> None:
        configs = {"flush.messages": "1"} if self._random.random() < 0.5 else {}
        topic = NewTopic(self.TOPIC, PARTITIONS, 1, config=configs)
        self._insist("create", lambda: self._admin.create_topics([topic]), gone=False)
        with self._lock:
            self.acknowledged = {}
            self.life += 1
            self._steady.set()

    def _truncate(self) -> None:
        """DeleteRecords moves the start of every partition to its end."""
        places = [TopicPartition(self.TOPIC, number, -1) for number in range(PARTITIONS)]
        deadline = time.monotonic() + PATIENCE_S
        while places:
            left = []
            for place, future in self._admin.delete_records(places).items():
                try:
                    future.result(PATIENCE_S)
                except KafkaException as failure:
                    # The client may still believe in the broker before the kill.
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"cannot delete records of {place}") from failure
                    left.append(TopicPartition(place.topic, place.partition, -1))
            places = left
        time.sleep(self._random.choice((0.0, 0.4)))  # with and without a checkpoint in between

    def _insist(self, what: str, call: Callable[[], dict[str, Any]], *, gone: bool) -> None:
        deadline = time.monotonic() + PATIENCE_S
        done = KafkaError.UNKNOWN_TOPIC_OR_PART if gone else KafkaError.TOPIC_ALREADY_EXISTS
        while True:
            try:
                call()[self.TOPIC].result(PATIENCE_S)
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() == done:
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError(f"cannot {what} {self.TOPIC}: {error}") from failure
            else:
                return

    def finish(self) -> None:
        """Send nothing more and wait for what is under way."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def check(self, there: dict[tuple[int, int], bytes]) -> list[str]:
        """What is wrong with the records of the last life."""
        lost = [at for at, value in self.acknowledged.items() if there.get(at) != value]
        old = [at for at, value in there.items() if int(value.partition(b":")[0]) < self.life - 1]
        problems = [f"{self.TOPIC}: {len(lost)} acknowledged records are lost: {lost[:3]}"] * bool(
            lost
        )
        return problems + [f"{self.TOPIC}: records of former topics at {old[:3]}"] * bool(old)


class Commits:
    """Commits growing offsets of a group, and asks after each crash whether they are still there."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.problems: list[str] = []
        self.count = 0
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "committers",
                "enable.auto.commit": False,
                **_CLIENT,
            }
        )
        self._asked = self._known = 0

    def again(self) -> None:
        """Ask for the last offset, then commit the next one."""
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
        """Leave."""
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
        recreated = Recreated(broker.bootstrap, random.Random(randomness.random()))
        for number in range(rounds):
            _one_round(broker, loads, commits, randomness, recreated)
            report.kills += 1
            if talkative and number % 10 == 9:
                records = sum(load.count for load in loads)
                print(f"{report.kills} kills, {records:,} records", flush=True)
        recreated.finish()
        there = _values(_reader(broker.bootstrap), Recreated.TOPIC)
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
    recreated: Recreated,
) -> None:
    """Wait until everybody gets through, let them write for a moment, kill, start."""
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


def _wait_for_records(recreated: Recreated) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not recreated.acknowledged:
        if time.monotonic() > deadline:
            raise TimeoutError("nothing is acknowledged by the topic that was created again")
        time.sleep(0.005)


# -- the checks


def _reader(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checkers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
            **_CLIENT,
        }
    )


def _read_back(bootstrap: str, load: Load, report: Report) -> None:
    consumer = _reader(bootstrap)
    for partition in range(PARTITIONS):
        there = _records(consumer, TopicPartition(load.topic, partition, 0))
        report.read_back += len(there)
        report.acknowledged += len(load.acknowledged[partition])
        report.problems += [
            f"{load.topic}-{partition}: {problem}"
            for problem in compare(load.acknowledged[partition], there, load.idempotent)
        ]
    consumer.close()


def _values(consumer: Consumer, topic: str) -> dict[tuple[int, int], bytes]:
    """Every record of a topic by partition and offset."""
    there = {
        (partition, offset): value
        for partition in range(PARTITIONS)
        for offset, value in _contents(consumer, TopicPartition(topic, partition, 0)).items()
    }
    consumer.close()
    return there


def _records(consumer: Consumer, start: TopicPartition) -> dict[int, int]:
    """The number of each record of a partition, by its offset."""
    contents = _contents(consumer, start)
    return {offset: int(value.partition(b":")[0]) for offset, value in contents.items()}


def _contents(consumer: Consumer, start: TopicPartition) -> dict[int, bytes]:
    """Each record of a partition, by its offset."""
    there: dict[int, bytes] = {}
    consumer.assign([start])
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for message in consumer.consume(5000, 0.2):
            error = message.error()
            if error is None:
                there[message.offset() or 0] = message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                return there
    raise TimeoutError(f"{start.topic}-{start.partition} could not be read to its end")


def compare(acknowledged: dict[int, int], there: dict[int, int], idempotent: bool) -> list[str]:
    """What is wrong with the records of one partition, given what was said to be there."""
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
    """Run, tell, and fail if anything was lost."""
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

"""Kafka Streams, exactly once, killed midway several times."""

import subprocess
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.compat.broker_under_test import BrokerUnderTest, eventually
from tests.compat.client import Message
from tests.compat.tool_server import program_command

KILLS = 3
PATIENCE_S = 180
PACE_S = 0.02
FrameworkCheck = Callable[[BrokerUnderTest], None]


class Committed:
    """What is committed to a topic, read along in the order of each partition."""

    def __init__(self, broker: BrokerUnderTest, topic: str, partitions: int):
        self.records: list[tuple[str, str]] = []
        """Key and value of each."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def read_until(self, count: int) -> None:
        """Reads on until there are this many records."""

        def found() -> bool:
            for message in self._consumer.consume(500, 0.2):
                if message.error():
                    raise KafkaException(message.error())
                key, value = message.key() or b"", message.value() or b""
                self.records.append((key.decode(), value.decode()))
            return len(self.records) >= count

        eventually(found, PATIENCE_S)

    def close(self) -> None:
        self._consumer.close()


class Feeder:
    """Adds numbered lines at a pace, until told to stop."""

    def __init__(self, add: Callable[[str], None]):
        self._add = add
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.lines: list[str] = []

    def _run(self) -> None:
        while not self._stopping.wait(PACE_S):
            number = len(self.lines)
            line = f"line {number} of {number % 7} and {number % 11}"
            self._add(line)
            self.lines.append(line)

    def __enter__(self) -> "Feeder":
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextmanager
def _running(command: list[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program and kills it at the end, unless it has ended by then."""
    with output.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            yield process
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{output.read_text()[-4000:]}") from failure
        finally:
            process.kill()
            process.wait()


def count_words(broker: BrokerUnderTest) -> None:
    """Kafka Streams with exactly_once_v2: the counts of each word are 1, 2, 3 and so on, each once."""
    source, target = broker.topic(2), broker.topic(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})

    def add(line: str) -> None:
        producer.produce(source, line, partition=len(line) % 2)
        assert producer.flush(PATIENCE_S) == 0

    with tempfile.TemporaryDirectory() as folder, Feeder(add) as feeder:
        command = [
            *program_command("WordCount", "kafka-streams-4.3.1"),
            *(broker.bootstrap, broker.fresh("word-count"), folder, source, target),
        ]
        output = Path(folder) / "output.txt"
        counted = Committed(broker, target, 2)
        for _ in range(KILLS):
            with _running(command, output):
                counted.read_until(len(counted.records) + 50)
        feeder.stop()
        words = Counter(word for line in feeder.lines for word in line.split())
        with _running(command, output) as last:
            counted.read_until(words.total())
            last.terminate()
            last.wait(PATIENCE_S)
        _write_last(broker, target, 2)
        counted.read_until(words.total() + 2)
        counted.close()
    counts = defaultdict(list)
    for word, count in counted.records:
        counts[word].append(int(count or 0))
    assert counts.pop("") == [0, 0]
    assert counts == {word: list(range(1, total + 1)) for word, total in words.items()}


def _write_last(broker: BrokerUnderTest, topic: str, partitions: int) -> None:
    """Writes an empty record to each partition: a reader that has it has read all before it."""
    broker.hand.produce(topic, [Message(b"", partition=p) for p in range(partitions)])


FRAMEWORK_CHECKS: dict[str, FrameworkCheck] = {"Kafka Streams: word count": count_words}

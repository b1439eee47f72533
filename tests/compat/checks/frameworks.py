"""Kafka Streams and Kafka Connect, exactly once, killed midway several times."""

import json
import subprocess
import tempfile
import threading
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.error import URLError

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tools.free_ports import free_port
from tools.jars import JarsUnavailable
from tools.java import SHORT_LIVED, java

from tests.compat.broker_under_test import BrokerUnderTest, eventually
from tests.compat.client import Message, Unavailable
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
            begun = _words(feeder.lines).total()
            with _running(command, output):
                counted.read_until(begun + 50)  # this instance has counted, and goes on
        feeder.stop()
        words = _words(feeder.lines)
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


def _words(lines: list[str]) -> Counter[str]:
    return Counter(word for line in list(lines) for word in line.split())


def _write_last(broker: BrokerUnderTest, topic: str, partitions: int) -> None:
    """An empty record in each partition: a reader that has it has read all."""
    broker.hand.produce(topic, [Message(b"", partition=p) for p in range(partitions)])


def source_lines(broker: BrokerUnderTest) -> None:
    """Kafka Connect with exactly.once.source.support: each line of a file is in the topic once."""
    target = broker.topic()
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder) / "lines.txt", Path(folder) / "output.txt"
        connect = _Connect(broker, Path(folder))
        with file.open("w", buffering=1) as lines, Feeder(lambda s: _line(lines, s)) as feeder:
            sourced = Committed(broker, target, 1)
            for turn in range(KILLS):
                begun = len(feeder.lines)
                with _running(connect.command, output):
                    if turn == 0:
                        create = partial(
                            start_connector,
                            connect.address,
                            "FileStreamSource",
                            file=str(file),
                            topic=target,
                        )
                        eventually(create, PATIENCE_S)
                    sourced.read_until(begun + 20)  # this worker has written, and goes on
            feeder.stop()
            with _running(connect.command, output):
                sourced.read_until(len(feeder.lines))
        _write_last(broker, target, 1)
        sourced.read_until(len(feeder.lines) + 1)
        sourced.close()
    assert [value for _, value in sourced.records] == [*feeder.lines, ""]


def _line(file, line: str) -> None:
    file.write(line + "\n")


def worker_settings(name: str, address: str) -> dict[str, str]:
    """Settings of a worker in distributed mode, but for how its clients connect."""
    settings = {
        "group.id": name,
        "listeners": address,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "plugin.discovery": "service_load",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
    }
    for kind in ("config", "offset", "status"):
        settings[f"{kind}.storage.topic"] = f"{name}-{kind}"
        settings[f"{kind}.storage.replication.factor"] = "1"
    return settings | {"offset.storage.partitions": "1", "status.storage.partitions": "1"}


def start_connector(address: str, kind: str, **config: str) -> bool:
    """Starts a connector on the worker whose REST interface is there; False while it does not answer.

    `kind` is FileStreamSource or FileStreamSink.
    """
    chosen = {"connector.class": f"org.apache.kafka.connect.file.{kind}Connector", **config}
    request = urllib.request.Request(
        f"{address}/connectors/{kind}/config",
        json.dumps({**chosen, "tasks.max": "1"}).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bool(answer.status < 300)
    except (URLError, TimeoutError):
        return False


class _Connect:
    """A worker in a process of its own."""

    def __init__(self, broker: BrokerUnderTest, folder: Path):
        self.address = f"http://127.0.0.1:{free_port()}"
        settings = {
            **worker_settings(broker.fresh("connect"), self.address),
            "bootstrap.servers": broker.bootstrap,
            "exactly.once.source.support": "enabled",
        }
        file = folder / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        try:
            self.command = java(*SHORT_LIVED, main, str(file), jars="kafka-connect-4.3.1")
        except JarsUnavailable as missing:
            raise Unavailable(str(missing)) from missing


FRAMEWORK_CHECKS: dict[str, FrameworkCheck] = {
    "Kafka Streams: word count": count_words,
    "Kafka Connect: file source": source_lines,
}

"""The servers under load, behind one face: the C reference, Apache Kafka, Headwater.

A server is up for the length of a `with` block. Each run gets a fresh topic, so that no run
appends to files that another one filled.
"""

import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Self

from tools.apache_kafka import ApacheKafka
from tools.free_ports import free_port

from benchmarks.load import encode, generator
from benchmarks.load.asking import ask
from benchmarks.load.build import program
from benchmarks.load.encode import Producer, Topic
from benchmarks.load.generator import Load, LoadFailed, Sample
from benchmarks.load.topics import Topics
from headwater.log.verify import verify_log

# Room for a batch of 1 MiB; files of a dropped topic go at once, not after Kafka's minute.
TOPIC_SETTINGS = {"max.message.bytes": "2097152", "file.delete.delay.ms": "100"}
_COORDINATOR_BUSY = {14, 15}  # loading, not available yet


class Server(ABC):
    """What a load needs to know of a server."""

    name: str
    port: int
    pid: int

    warms_up: ClassVar[bool] = False  # whether a JIT must have seen a load before it is measured

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    @abstractmethod
    def fresh_topic(self, partitions: int) -> Topic:
        """A new, empty topic."""

    @abstractmethod
    def filled_topic(self, partitions: int, batch: bytes, copies: int) -> Topic:
        """A new topic whose partitions each hold the batch `copies` times."""

    @abstractmethod
    def drop(self, topic: Topic) -> None:
        """Gives the topic's disk space back."""

    @abstractmethod
    def producer(self) -> Producer:
        """An idempotent producer that the server will accept."""

    def measure(self, load: Load) -> Sample:
        """Puts a load on the server."""
        return generator.run(load, self.port, self.pid)

    def check(self, topic: Topic) -> None:  # noqa: B027 - most servers' files are not ours to judge
        """Raises LoadFailed if the files of the topic are not what was acknowledged."""

    def last_words(self) -> str:
        """The end of what it logged, for the report of a failure."""
        return ""


class Reference(Server):
    """The C server. It has no topics: a fresh one is a fresh process with a fresh file."""

    name = "c"

    def __init__(self) -> None:
        self.home = Path()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.home = Path(tempfile.mkdtemp(prefix="bench-c-"))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def _start(self, *fetch: str) -> None:
        self._stop()
        self.port = free_port()
        command = [str(program("server")), str(self.port), str(self.home / "log"), *fetch]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the C server did not start")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def fresh_topic(self, partitions: int) -> Topic:
        """Starts again with an empty file."""
        self._start()
        return Topic("bench", bytes(16), partitions)

    def filled_topic(self, partitions: int, batch: bytes, copies: int) -> Topic:
        """Starts again over prepared files."""
        log = encode.log_of(batch, copies)
        for partition in range(partitions):
            (self.home / f"fetch-{partition}").write_bytes(log)
        records = encode.record_count(batch)
        self._start(str(self.home / "fetch"), str(len(batch)), str(records))
        return Topic("bench", bytes(16), partitions)

    def drop(self, topic: Topic) -> None:
        """Stops and removes the files."""
        self._stop()
        for file in self.home.iterdir():
            file.unlink()

    def producer(self) -> Producer:
        """Anyone: it keeps no producer state."""
        return Producer(producer_id=1000, epoch=0)


class Broker(Server):
    """Any server that has real topics."""

    topics: Topics

    @property
    @abstractmethod
    def data(self) -> Path:
        """The broker's log directory."""

    def fresh_topic(self, partitions: int) -> Topic:
        """Creates a topic and waits for its leaders."""
        return self.topics.create(partitions, TOPIC_SETTINGS)

    def filled_topic(self, partitions: int, batch: bytes, copies: int) -> Topic:
        """Creates a topic and produces into each partition."""
        topic = self.fresh_topic(partitions)
        for partition in range(partitions):
            self.fill(topic, partition, batch, copies)
        return topic

    def fill(
        self, topic: Topic, partition: int, batch: bytes, copies: int, *, connections: int = 2
    ) -> None:
        """Appends the batch `copies` times to one partition."""
        frame = encode.produce_request(7, 1, topic, [partition], batch)
        load = Load((frame,), connections=connections, depth=5, requests=copies)
        generator.run(load, self.port, self.pid)

    def drop(self, topic: Topic) -> None:
        """Deletes the topic."""
        self.topics.delete(topic)

    def producer(self) -> Producer:
        """Asks for a producer id, again while the broker is still allocating its first ones."""
        deadline = time.perf_counter() + 30
        while True:
            answer = ask(self.port, encode.init_producer_id_request())
            error, producer_id, epoch = struct.unpack_from(">hqh", answer, 8)
            if not error:
                return Producer(producer_id, epoch)
            if error not in _COORDINATOR_BUSY or time.perf_counter() > deadline:
                raise RuntimeError(f"InitProducerId answered error {error}")
            time.sleep(0.05)


class Kafka(Broker):
    """Apache Kafka in KRaft mode, one node, its defaults."""

    name = "kafka"
    warms_up = True

    def __init__(
        self, settings: Mapping[str, str] | None = None, ports: Sequence[int] = ()
    ) -> None:
        self._kafka = ApacheKafka(settings, ports=ports)

    @property
    def data(self) -> Path:
        """The broker's log directory."""
        return self._kafka.log_dir

    def __enter__(self) -> Self:
        self._kafka.__enter__()
        self.port = int(self._kafka.bootstrap.rpartition(":")[2])
        self.pid = self._kafka.pid
        self.topics = Topics(self.port)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kafka.__exit__(kind, error, trace)


class Headwater(Broker):
    """Our broker as a user starts it, in a folder of its own that outlives a restart."""

    name = "headwater"

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = dict(settings or {})
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def __enter__(self) -> Self:
        self.home = Path(tempfile.mkdtemp(prefix="bench-headwater-"))
        self.port = free_port()
        self.start()
        self.wait_until_ready()
        self.topics = Topics(self.port)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.last_words())
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def data(self) -> Path:
        """The broker's log directory."""
        return self.home / "data"

    @property
    def messages(self) -> Path:
        """What the latest process wrote to its standard error."""
        return self.home / "errors.txt"

    def check(self, topic: Topic) -> None:
        """Reads every batch again: checksums, offsets, sequences, indexes."""
        for partition in range(topic.partitions):
            verdict = verify_log(str(self.data / f"{topic.name}-{partition}"))
            if verdict.problems:
                raise LoadFailed(f"the log is damaged: {verdict.problems[0]}")

    def last_words(self) -> str:
        """The end of its standard error."""
        return self.messages.read_text()[-4000:]

    def start(self) -> None:
        """Starts the process and returns at once."""
        command = [self._python(), "-m", "headwater", "up", f"--port={self.port}"]
        command += [f"--data-dir={self.data}"]
        for key, value in self._settings.items():
            command += ["-o", f"{key}={value}"]
        self._errors = self.messages.open("w")
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=self._environment,
        )
        self.pid = self._process.pid

    def _python(self) -> str:
        return sys.executable

    def wait_until_ready(self) -> None:
        """Returns when the broker has printed its address."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"headwater did not start:\n{self.last_words()}")

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Ends the process: cleanly, or with SIGKILL."""
        if self._process is not None and self._errors is not None:
            self._process.send_signal(signal_number)
            self._process.communicate(timeout=180)
            self._errors.close()
            self._process = self._errors = None


class Before(Headwater):
    """Our broker of another checkout, which $BEFORE names, from that checkout's own environment."""

    name = "before"

    def _python(self) -> str:
        return str(Path(os.environ["BEFORE"]) / ".venv" / "bin" / "python")


SERVERS: dict[str, type[Reference | Kafka | Headwater]] = {
    server.name: server for server in (Reference, Kafka, Headwater, Before)
}

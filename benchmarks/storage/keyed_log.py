"""A log with 100-byte values and ten records for each key, the same bytes for every broker."""

import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.load import encode
from benchmarks.load.encode import Topic
from benchmarks.load.recovery import recovery_point
from benchmarks.load.rounds import Scale
from benchmarks.load.servers import Broker, Headwater

VALUE_BYTES = 100
RECORDS_A_BATCH = 130
RECORDS_A_KEY = 10
BATCH_BYTES = RECORDS_A_BATCH * 120
IN_FLIGHT = 5
ONE_WORKER = {"log.cleaner.threads": "1", "log.cleaner.backoff.ms": "100"}
_NEVER, _NOW = {"min.cleanable.dirty.ratio": "1.0"}, {"min.cleanable.dirty.ratio": "0.0"}
_TIMEOUT_S = 600.0
_LEFTOVERS = (".cleaned", ".swap")


class Shape(NamedTuple):
    """How large the log is."""

    batches: int
    segment_bytes: int

    @classmethod
    def of(cls, scale: Scale) -> "Shape":
        """An eighth of the scale's log, in eight segments and a bit."""
        size = scale.log_bytes // 8
        return cls(size // BATCH_BYTES, size // 8)


def frames(shape: Shape, topic: Topic) -> Iterator[bytes]:
    """Produce requests with random keys; the same ones at each call."""
    draw = random.Random(7)
    keys = shape.batches * RECORDS_A_BATCH // RECORDS_A_KEY
    for _ in range(shape.batches):
        names = [b"key-%08d" % draw.randrange(keys) for _ in range(RECORDS_A_BATCH)]
        batch = encode.keyed_batch(names, VALUE_BYTES)
        yield encode.produce_request(7, 1, topic, [0], batch)[0]


class KeyedLog:
    """One partition that is compacted when `start` says so."""

    def __init__(self, server: Broker, shape: Shape) -> None:
        self._server = server
        settings = {
            "cleanup.policy": "compact",
            "segment.bytes": str(shape.segment_bytes),
            "file.delete.delay.ms": "100",
            **_NEVER,
        }
        self._topic = server.topics.create(1, settings)
        _send(server.port, frames(shape, self._topic))
        self._folder = server.data / f"{self._topic.name}-0"
        self._sealed = {path.name: path.stat().st_size for path in self._segments()[:-1]}
        self.sealed_bytes = sum(self._sealed.values())
        self._wait_flushed()

    def _segments(self) -> list[Path]:
        return sorted(self._folder.glob("*.log"))

    def _wait_flushed(self) -> None:
        """Our cleaner takes flushed segments only, and flushing is not what is measured."""
        if isinstance(self._server, Headwater):
            end = int(self._segments()[-1].stem)
            self._wait(lambda: recovery_point(self._server, self._topic) >= end, "a flush")

    def start(self) -> None:
        """Let the cleaner begin."""
        self._server.topics.configure(self._topic, _NOW)

    def wait(self) -> None:
        """Wait until every sealed segment is replaced."""
        self._wait(self._is_clean, "the log to be clean")

    def drop(self) -> None:
        """Delete the topic."""
        self._server.topics.delete(self._topic)

    def _is_clean(self) -> bool:
        try:
            names = list(self._folder.iterdir())
            sizes = {path.name: path.stat().st_size for path in names if path.suffix == ".log"}
        except FileNotFoundError:
            return False  # it was renamed between two calls
        untouched = sizes.items() & self._sealed.items()
        return not untouched and not any(path.suffix in _LEFTOVERS for path in names)

    def _wait(self, condition, what: str) -> None:
        deadline = time.perf_counter() + _TIMEOUT_S
        while not condition():
            if time.perf_counter() > deadline:
                raise TimeoutError(f"waited in vain for {what}")
            time.sleep(0.01)


def _send(port: int, requests: Iterator[bytes]) -> None:
    """Send all requests over one connection; RuntimeError for an error in an answer."""
    with socket.create_connection(("127.0.0.1", port)) as stream, stream.makefile("rb") as answers:
        waiting = 0
        for request in requests:
            stream.sendall(request)
            waiting += 1
            if waiting >= IN_FLIGHT:
                _check_answer(answers)
                waiting -= 1
        for _ in range(waiting):
            _check_answer(answers)


def _check_answer(answers) -> None:
    (size,) = struct.unpack(">i", answers.read(4))
    answer = answers.read(size)
    # After the correlation id: one topic with its name, one partition, its index, its error.
    (name_size,) = struct.unpack_from(">h", answer, 8)
    (error,) = struct.unpack_from(">h", answer, 10 + name_size + 8)
    if error:
        raise RuntimeError(f"a produce request was answered with error {error}")

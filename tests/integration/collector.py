"""`headwater collect` as a process, and clients that behave as well or as badly as a test wants."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from headwater.testing import Broker
from tests.integration.reading import read_all

PATIENCE_S = 60.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> dict:
        return json.loads(self.body)


class Collector:
    """A collector over HTTP."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def ask(self, method: str, path: str, body=None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, named, encode_chunked=hasattr(body, "__next__"))
            answer = connection.getresponse()
            return Answer(
                answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
            )
        finally:
            connection.close()

    def post(self, body, **headers: str) -> Answer:
        text = json.dumps(body) if isinstance(body, dict | list) else body
        return self.ask("POST", "/events", text, **headers)

    def raw(self, *parts: bytes) -> socket.socket:
        """A connection on which these bytes were sent."""
        client = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        for part in parts:
            client.sendall(part)
        return client

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@contextlib.contextmanager
def http_collector(
    broker: Broker, topic: str, *options: str, port: int = 0, stderr: int | None = None
) -> Iterator[Collector]:
    words = ["http", "--topic", topic, "--port", str(port), "--bootstrap-server", broker.bootstrap]
    with _collect(*words, *options, stderr=stderr) as process:
        line = process.stdout.readline()
        yield Collector(process, int(line.split("/events")[0].rpartition(":")[2]))


@contextlib.contextmanager
def tail_collector(broker: Broker, topic: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    with _collect("tail", *words, "--topic", topic, "--bootstrap-server", broker.bootstrap) as tail:
        assert "follows" in tail.stdout.readline()
        yield tail


@contextlib.contextmanager
def _collect(*words: str, stderr: int | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "headwater", "collect", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()


def stored(broker: Broker, topic: str) -> list[tuple]:
    """Key, value and headers of all records of a topic."""
    rows = [row for partition in read_all(broker, topic).values() for row in partition]
    return [(row[3], row[4], dict(row[5])) for row in rows]


def numbers(broker: Broker, topic: str) -> list[int]:
    """The field n of all events in a topic, sorted."""
    return sorted(json.loads(value)["n"] for _, value, _ in stored(broker, topic))

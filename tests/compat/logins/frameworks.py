"""Kafka Streams and Kafka Connect log in: each way in is a word count and a worker, all in one JVM."""

import itertools
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tools.free_ports import free_port

from tests.compat.broker_under_test import eventually
from tests.compat.checks.frameworks import start_connector, worker_settings
from tests.compat.line_server import LineServer
from tests.compat.logins.java_properties import java_properties
from tests.compat.logins.python_clients import ConfluentSession
from tests.compat.logins.secured_broker import ADMIN, SecuredBroker
from tests.compat.logins.ways import WALKS, application
from tests.compat.tool_server import program_command

JARS = ("kafka-connect-4.3.1", "kafka-streams-4.3.1")
PATIENCE_S = 180
LINES = [f"line {number} of {number % 3}" for number in range(20)]
_numbers = itertools.count(1)


class FrameworkProgram:
    """The JVM; started when first asked for."""

    def __init__(self) -> None:
        self._server: LineServer | None = None
        self._starting = threading.Lock()

    def start(self, verb: str, settings: dict[str, str], **request: str) -> str:
        """Starts a word count or a worker; returns its name."""
        with self._starting:
            if self._server is None:
                self._server = LineServer(program_command("Frameworks", *JARS), "Frameworks")
        name = f"{verb}-{next(_numbers)}"
        self._ask(verb, name, settings=settings, **request)
        return name

    def stop(self, name: str) -> None:
        """Stops it, with all its clients."""
        self._ask("stop", name)

    def _ask(self, verb: str, name: str, **request: Any) -> None:
        assert self._server is not None
        answer = self._server.ask(verb=verb, session=name, **request)
        assert not answer.get("error"), answer["error"]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


def count_words(way: str, program: FrameworkProgram, broker: SecuredBroker) -> None:
    """Kafka Streams with exactly_once_v2: its topics, its transactions and its group are those of one user."""
    name = application(way, "streams")
    source, target, _ = topics(way)
    settings = {**java_properties(WALKS[way].credentials(broker)), "application.id": name}
    session = ConfluentSession(broker.tls_credentials("MUTUAL", ADMIN))
    found: list[str] = []
    try:
        for line in LINES:
            session.produce(source, line)
        with tempfile.TemporaryDirectory() as folder:
            settings["state.dir"] = folder
            running = program.start("count", settings, source=source, target=target)
            try:
                words = Counter(word for line in LINES for word in line.split())
                deadline = time.monotonic() + PATIENCE_S
                while len(found) < words.total():
                    assert time.monotonic() < deadline, f"counted {found}"
                    found += session.poll(target, f"reader-of-{name}")
            finally:
                program.stop(running)
    finally:
        session.close()
    counted = [number for total in words.values() for number in range(1, total + 1)]
    assert sorted(map(int, found)) == sorted(counted)


def copy_lines(way: str, program: FrameworkProgram, broker: SecuredBroker) -> None:
    """A worker of Kafka Connect in distributed mode: a file to a topic, and the topic to another file."""
    name, address = application(way, "connect"), f"http://127.0.0.1:{free_port()}"
    login = java_properties(WALKS[way].credentials(broker))
    settings = {**worker_settings(name, address), **login, "offset.flush.interval.ms": "500"}
    for kind in ("producer", "consumer", "admin"):
        settings |= {f"{kind}.{key}": value for key, value in login.items()}
    text = "".join(f"{line}\n" for line in LINES)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.txt", Path(folder) / "target.txt"
        source.write_text(text)
        target.touch()
        running = program.start("connect", settings)
        try:
            _, _, topic = topics(way)
            reading = {"topics": topic, "consumer.override.group.id": application(way, "sink")}
            for kind, config in (
                ("FileStreamSource", {"topic": topic, "file": str(source)}),
                ("FileStreamSink", {**reading, "file": str(target)}),
            ):
                eventually(partial(start_connector, address, kind, **config), PATIENCE_S)
            eventually(lambda: len(target.read_text()) >= len(text), PATIENCE_S)
        finally:
            program.stop(running)
        assert target.read_text() == text


def topics(way: str) -> tuple[str, str, str]:
    """What the word count of a way reads, where it writes, and what its worker writes and reads."""
    lines, counts, copied = (application(way, name) for name in ("lines", "counts", "copied"))
    return lines, counts, copied


FRAMEWORK_LOGINS: dict[str, Callable[[str, FrameworkProgram, SecuredBroker], None]] = {
    "Kafka Streams": count_words,
    "Kafka Connect": copy_lines,
}

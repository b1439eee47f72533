"""The sessions of the clients that are programs: kcat, and those in Go and Java."""

import itertools
import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.compat.client import Unavailable
from tests.compat.line_server import LineServer
from tests.compat.logins.python_clients import POLL_S, WAIT_S, of_librdkafka
from tests.compat.logins.session import Credentials, Session

_numbers = itertools.count(1)


class KcatSession(Session):
    """One run per record, since kcat sends what it reads only at the end of its input; one kcat that reads."""

    def __init__(self, credentials: Credentials) -> None:
        if shutil.which("kcat") is None:
            raise Unavailable("kcat is not installed (apt-get install kcat)")
        settings = of_librdkafka(credentials)
        self._command = ["kcat", "-b", settings.pop("bootstrap.servers")]
        for key, value in settings.items():
            self._command += ["-X", f"{key}={value}"]
        self._consumer: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: queue.Queue[str] = queue.Queue()

    def _run(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*self._command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def produce(self, topic: str, value: str) -> None:
        sending = ["-X", "enable.idempotence=true", "-X", "linger.ms=0"]
        self._run("-P", "-t", topic, *sending, stdin=value)

    def poll(self, topic: str, group: str) -> list[str]:
        if self._consumer is None:
            reading = ["-u", "-f", "%s\n", "-X", "auto.offset.reset=earliest", "-G", group, topic]
            self._consumer = subprocess.Popen(
                [*self._command, *reading],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self._reader = threading.Thread(target=self._read, args=(self._consumer,))
            self._reader.start()
        found = []
        with suppress(queue.Empty):
            found.append(self._lines.get(timeout=POLL_S))
            while True:
                found.append(self._lines.get_nowait())
        return found

    def _read(self, consumer: "subprocess.Popen[str]") -> None:
        assert consumer.stdout is not None
        for line in consumer.stdout:
            self._lines.put(line.rstrip("\n"))

    def brokers(self) -> set[int]:
        return {broker["id"] for broker in json.loads(self._run("-L", "-J"))["brokers"]}

    def close(self) -> None:
        if self._consumer is None or self._reader is None:
            return
        self._consumer.terminate()
        self._consumer.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert self._consumer.stdout is not None
        self._consumer.stdout.close()


class LoginProgram:
    """A program whose requests are those of a session; started when first asked for."""

    def __init__(
        self,
        name: str,
        command: Callable[[], list[str]],
        request: Callable[[Credentials], dict[str, Any]] = Credentials.as_request,
    ) -> None:
        """`request` is what the program is told when it opens a session."""
        self.name = name
        self._command = command
        self._request = request
        self._server: LineServer | None = None
        self._starting = threading.Lock()

    def open(self, credentials: Credentials) -> "ProgramSession":
        with self._starting:
            if self._server is None:
                self._server = LineServer(self._command(), self.name)
        return ProgramSession(self._server, self._request(credentials))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


class ProgramSession(Session):
    """A session in such a program."""

    def __init__(self, server: LineServer, request: dict[str, Any]) -> None:
        self._server = server
        self._name = f"session-{next(_numbers)}"
        self._ask("open", **request)

    def _ask(self, verb: str, **request: Any) -> Any:
        answer = self._server.ask(verb=verb, session=self._name, **request)
        assert not answer.get("error"), f"{self._server.name}: {answer['error']}"
        return answer["result"]

    def produce(self, topic: str, value: str) -> None:
        self._ask("produce", topic=topic, value=value)

    def poll(self, topic: str, group: str) -> list[str]:
        return list(self._ask("poll", topic=topic, group=group))

    def brokers(self) -> set[int]:
        return set(self._ask("brokers"))

    def close(self) -> None:
        self._ask("close")

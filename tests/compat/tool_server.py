"""One JVM for all of Kafka's tools (`java/ToolServer.java`): a warm call takes a tenth of a second."""

import itertools
import json
import shutil
import subprocess
import threading
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tools.jars import JarsUnavailable, class_path
from tools.java import KAFKA, SHORT_LIVED, TOOLS, java

from tests.compat.client import Unavailable

SOURCE = Path(__file__).resolve().parent / "java" / "ToolServer.java"
CLASSES = SOURCE.parents[3] / ".cache" / "compat" / "java"
WAIT_S = 180


@dataclass(frozen=True)
class Ended:
    """A tool that ran to its end."""

    status: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """All it said."""
        return self.stdout + self.stderr


def compiled() -> Path:
    """The folder of the server's classes, compiled again only when the source is newer."""
    made = CLASSES / "ToolServer.class"
    if made.exists() and made.stat().st_mtime >= SOURCE.stat().st_mtime:
        return CLASSES
    javac = shutil.which("javac")
    if javac is None:
        raise Unavailable("no javac on the PATH: install a JDK 17 or later")
    command = [javac, "-nowarn", "-cp", class_path(KAFKA), "-d", str(CLASSES), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return CLASSES


class ToolServer:
    """Runs tools by the names of their scripts; safe for several threads at once."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._ids = itertools.count()
        self._waiting: dict[int, Future[Ended]] = {}
        self._sending = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None

    def start(self) -> None:
        """Starts the JVM unless it runs; `Unavailable` where this machine has none."""
        with self._sending:
            if self._process is not None:
                return
            try:
                command = java(*SHORT_LIVED, "ToolServer", before=(compiled(),))
            except JarsUnavailable as missing:
                raise Unavailable(str(missing)) from missing
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            listening = (self._process.stdout,)
            self._listener = threading.Thread(target=self._listen, args=listening, daemon=True)
            self._listener.start()

    def run(self, script: str, *arguments: str, stdin: str = "", timeout: float = WAIT_S) -> Ended:
        """Runs one tool to its end."""
        call = next(self._ids)
        self._waiting[call] = answer = Future[Ended]()
        request = {"id": call, "class": TOOLS[script], "arguments": arguments, "stdin": stdin}
        with self._sending:
            self.calls[script] += 1
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return answer.result(timeout)

    def _listen(self, answers: IO[str]) -> None:
        for line in answers:
            answer = json.loads(line)
            call = self._waiting.pop(answer.pop("id"))
            call.set_result(Ended(**answer))

    def close(self) -> None:
        """Ends the JVM, if it runs."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(timeout=WAIT_S)
            if self._listener is not None and self._process.stdout is not None:
                self._listener.join()
                self._process.stdout.close()

"""One JVM for all of Kafka's tools (`java/ToolServer.java`): a warm call takes a tenth of a second."""

import os
import shutil
import subprocess
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tools.jars import JarsUnavailable, class_path
from tools.jars import jars as folder
from tools.java import KAFKA, SHORT_LIVED, TOOLS, java

from tests.compat.client import Unavailable
from tests.compat.line_server import WAIT_S, LineServer

SOURCES = Path(__file__).resolve().parent / "java"
CLASSES = SOURCES.parents[2] / ".cache" / "compat" / "java"


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


_compiling = threading.Lock()


def compiled(program: str, *jars: str) -> Path:
    """The folder of the classes of our programs, compiled again only when a source is newer."""
    made = CLASSES / f"{program}.class"
    with _compiling:
        newest = max(source.stat().st_mtime for source in SOURCES.glob("*.java"))
        if made.exists() and made.stat().st_mtime >= newest:
            return CLASSES
        javac = shutil.which("javac")
        if javac is None:
            raise Unavailable("no javac on the PATH: install a JDK 17 or later")
        known = os.pathsep.join(map(class_path, jars))
        command = [javac, "-nowarn", "-cp", known, "-sourcepath", str(SOURCES), "-d", str(CLASSES)]
        subprocess.run(
            [*command, str(SOURCES / f"{program}.java")], check=True, capture_output=True
        )
    return CLASSES


def program_command(program: str, *jars: str, compile_with: str = "") -> list[str]:
    """The command line of one of our Java programs; `Unavailable` where this machine lacks Java."""
    try:
        classes = compiled(program, *([compile_with] if compile_with else jars))
        more = [folder(name) / "*" for name in jars[1:]]
        return java(*SHORT_LIVED, program, jars=jars[0], before=(classes, *more))
    except JarsUnavailable as missing:
        raise Unavailable(str(missing)) from missing


class ToolServer:
    """Runs tools by the names of their scripts; safe for several threads at once."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._starting = threading.Lock()
        self._server: LineServer | None = None

    def start(self) -> None:
        """Starts the JVM unless it runs; `Unavailable` where this machine has none."""
        with self._starting:
            if self._server is None:
                self._server = LineServer(program_command("ToolServer", KAFKA), "ToolServer")

    def run(self, script: str, *arguments: str, stdin: str = "", timeout: float = WAIT_S) -> Ended:
        """Runs one tool to its end."""
        assert self._server is not None
        with self._starting:
            self.calls[script] += 1
        request = {"class": TOOLS[script], "arguments": arguments, "stdin": stdin}
        return Ended(**self._server.ask(timeout, **request))

    def close(self) -> None:
        """Ends the JVM, if it runs."""
        if self._server is not None:
            self._server.close()

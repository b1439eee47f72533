"""Clients that run for a while, each in a process of its own, so that it can crash as well as end.

They print events; tests wait for these and never for time to pass.
"""

import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Self

_news = threading.Condition()


@dataclass(frozen=True)
class Assigned:
    """The member now owns exactly these partitions of its topic."""

    partitions: frozenset[int]


@dataclass(frozen=True)
class Delivered:
    """The member read these (partition, offset) pairs."""

    records: list[tuple[int, int]]


@dataclass(frozen=True)
class Acknowledged:
    """The broker has these numbers of the writer."""

    numbers: list[int]


@dataclass(frozen=True)
class Failed:
    """The client told its user of an error."""

    error: str


Event = Assigned | Delivered | Acknowledged | Failed | None


class Program:
    """A running client; `parse` turns a line of its output into an event."""

    def __init__(
        self, command: list[str], parse: Callable[[str], Event], stdin: str = "", name: str = ""
    ):
        self.name = name
        self._tail: list[str] = []
        self._parse = parse
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(stdin)
        self._process.stdin.close()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = self._parse(line)
            with _news:
                self._tail = [*self._tail[-20:], line]
                self._note(event)
                _news.notify_all()

    def _note(self, event: Event) -> None:
        """Keeps what an event says."""

    def leave(self) -> None:
        """Asks it to close, and waits until it has."""
        self._end(signal.SIGTERM)

    def crash(self) -> None:
        """Kills it without a word to the broker."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        try:
            self._process.wait(timeout=60)
        finally:
            self._process.kill()
            self._process.wait()
            self._close_output()

    def _close_output(self) -> None:
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.crash()
        else:
            self._close_output()

    def __str__(self) -> str:
        return f"{self.name}, exit {self._process.poll()}, said {''.join(self._tail)}"


class Member(Program):
    """A member of a group."""

    def __init__(
        self, command: list[str], parse: Callable[[str], Event], stdin: str = "", name: str = ""
    ):
        self.assignments: list[frozenset[int]] = []
        self.records: list[tuple[int, int]] = []
        super().__init__(command, parse, stdin, name)

    @property
    def partitions(self) -> frozenset[int]:
        """What it owns now."""
        return self.assignments[-1] if self.assignments else frozenset()

    def _note(self, event: Event) -> None:
        if isinstance(event, Assigned):
            self.assignments.append(event.partitions)
        elif isinstance(event, Delivered):
            self.records += event.records

    def __str__(self) -> str:
        return f"{super().__str__()} and owns {sorted(self.partitions)}"


class Writer(Program):
    """A producer of the numbers 0, 1, 2 and so on."""

    def __init__(
        self, command: list[str], parse: Callable[[str], Event], stdin: str = "", name: str = ""
    ):
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        super().__init__(command, parse, stdin, name)

    def _note(self, event: Event) -> None:
        if isinstance(event, Acknowledged):
            self.acknowledged += event.numbers
        elif isinstance(event, Failed):
            self.failures.append(event.error)

    def __str__(self) -> str:
        return f"{super().__str__()} and has written {len(self.acknowledged)}"


def wait_until(
    what: str, holds: Callable[[], bool], *programs: Program, timeout: float = 180
) -> None:
    """Waits for the programs' next words until `holds`; a timeout tells what they last said."""
    deadline = monotonic() + timeout
    with _news:
        while not holds():
            if not _news.wait(deadline - monotonic()) and not holds():
                said = "\n".join(map(str, programs))
                raise AssertionError(f"not so after {timeout} s: {what}\n{said}")

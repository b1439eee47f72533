"""A group member in a process of its own, so that it can crash as well as leave.

Members print events; tests wait for these and never for time to pass.
"""

import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

_news = threading.Condition()


@dataclass(frozen=True)
class Assigned:
    """The member now owns exactly these partitions of its topic."""

    partitions: frozenset[int]


@dataclass(frozen=True)
class Delivered:
    """The member read these (partition, offset) pairs."""

    records: list[tuple[int, int]]


Event = Assigned | Delivered | None


class Member:
    """A running member; `parse` turns a line of its output into an event."""

    def __init__(
        self, command: list[str], parse: Callable[[str], Event], stdin: str = "", name: str = ""
    ):
        self.name = name
        self.assignments: list[frozenset[int]] = []
        self.records: list[tuple[int, int]] = []
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

    @property
    def partitions(self) -> frozenset[int]:
        """What it owns now."""
        return self.assignments[-1] if self.assignments else frozenset()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = self._parse(line)
            with _news:
                self._tail = [*self._tail[-20:], line]
                if isinstance(event, Assigned):
                    self.assignments.append(event.partitions)
                elif isinstance(event, Delivered):
                    self.records += event.records
                _news.notify_all()

    def leave(self) -> None:
        """Asks it to close, which leaves the group, and waits until it has."""
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
            self._reader.join()

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.crash()

    def __str__(self) -> str:
        return f"{self.name} owns {sorted(self.partitions)}, exit {self._process.poll()}, said {''.join(self._tail)}"


def wait_until(
    what: str, holds: Callable[[], bool], *members: Member, timeout: float = 180
) -> None:
    """Waits for the members' next words until `holds`; a timeout tells what they last said."""
    deadline = monotonic() + timeout
    with _news:
        while not holds():
            if not _news.wait(deadline - monotonic()) and not holds():
                said = "\n".join(map(str, members))
                raise AssertionError(f"not so after {timeout} s: {what}\n{said}")

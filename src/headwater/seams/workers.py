"""Worker processes for work that would hold the broker's CPU: one request at a time, over pipes.

A worker gets a request as a line of bytes and answers with lines; an empty line ends the answers. It
runs with a low priority and never outlives its parent. All methods of a worker block, so they are
called on threads (`Lane.CLEANING`).
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Protocol

NICENESS = 10
AUTOGROUP = "/proc/self/autogroup"


class WorkerDied(Exception):
    """The process ended before it had answered."""


class Worker(Protocol):
    """A process that serves requests."""

    def begin(self, request: bytes, rate: float) -> None:
        """Send a request, one line; its reads and writes may have `rate` bytes per second."""

    def next_answer(self) -> bytes | None:
        """Wait for the next line; None after the last one. Raises WorkerDied."""

    def end(self) -> None:
        """Kill the process, if it runs."""


class Workers(Protocol):
    """Starts workers."""

    def start(self, module: str) -> Worker:
        """Start a process that runs the module."""


class ProcessWorkers:
    """Workers as processes of this interpreter."""

    def start(self, module: str) -> Worker:
        """Start a process; its errors go where those of this process go."""
        return _ProcessWorker(module)


class _ProcessWorker:
    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the broker, which ends its workers
        )
        self.pid = self._process.pid

    def begin(self, request: bytes, rate: float) -> None:
        """Write the request to the process."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"%f\n" % rate + request)
            self._process.stdin.flush()
        except OSError as broken:
            raise self._died() from broken

    def next_answer(self) -> bytes | None:
        """Read the next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._died()
        return line if line != b"\n" else None

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # a request was not sent whole

    def _died(self) -> WorkerDied:
        return WorkerDied(f"process {self.pid} ended with code {self._process.wait()}")


def serve_requests(answers: Callable[[bytes, float], Iterator[bytes]]) -> None:
    """Answer the requests of the parent process, in a worker; the process ends with its stdin."""
    _yield_to_others()
    requests: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def read() -> None:
        lines = _lines_of(0)
        for rate in lines:
            requests.put((float(rate), next(lines, b"")))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        rate, request = requests.get()
        for line in answers(request, rate):
            os.write(1, line)
        os.write(1, b"\n")


def _yield_to_others() -> None:
    """Lower the priority of this process, which has a session of its own.

    Linux may share the processor among sessions first (`autogroup` in sched(7)), and then a process's
    niceness counts only within its session.
    """
    os.nice(NICENESS)
    try:
        with open(AUTOGROUP, "w") as group:
            group.write(str(NICENESS))
    except OSError:
        return  # this kernel has no such groups


def _lines_of(fd: int) -> Iterator[bytes]:
    """Yield whole lines; without Python's buffer, whose lock the end of the process would need."""
    parts: list[bytes] = []
    while data := os.read(fd, 1 << 16):
        *ends, rest = data.split(b"\n")
        for end in ends:
            yield b"".join((*parts, end, b"\n"))
            parts.clear()
        parts.append(rest)


class IoThrottle:
    """Keeps reads and writes below a rate, on average over about a second."""

    BURST_S = 0.1

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        # When the bytes so far may have passed.
        self._until = clock()

    def passed(self, size: int) -> None:
        """Wait if these bytes and those before them were too fast."""
        now = self._clock()
        self._until = max(self._until, now - self.BURST_S) + size / self._rate
        if self._until - now > self.BURST_S:
            self._sleep(self._until - now)

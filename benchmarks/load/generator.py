"""Runs the C generator: writes its plan file, starts it, reads its result."""

import json
import signal
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.build import program

Frame = tuple[bytes, list[int]]
_LOGIN = ("user", "password")


@dataclass(frozen=True)
class Sample:
    """What one run of the generator saw, and the CPU time the server took for it."""

    requests: int
    bytes: int
    seconds: float
    cpu_seconds: float
    p50_us: float
    p99_us: float
    max_us: float

    @property
    def requests_per_second(self) -> float:
        """Answered requests a second."""
        return self.requests / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """Bytes of record batches a second, in units of 10^6."""
        return self.bytes / self.seconds / 1e6

    @property
    def cpu_us_per_request(self) -> float:
        """Microseconds of server CPU for one request."""
        return self.cpu_seconds / self.requests * 1e6

    @property
    def cpu_us_per_byte(self) -> float:
        """Microseconds of server CPU for one byte of record batches."""
        return self.cpu_seconds / self.bytes * 1e6


@dataclass(frozen=True)
class Load:
    """Requests to send and how: the generator's options, see `load.c`."""

    frames: tuple[Frame, ...]
    connections: int = 1
    depth: int = 1
    seconds: float = 1.0
    warmup: float = 0.0
    requests: int = 0
    rate: float = 0.0
    idempotent: bool = False
    once: bool = False
    fetch_end: int = 0
    batch_bytes: int = 0
    batch_records: int = 0
    tls: bool = False
    user: str = ""
    password: str = ""

    def options(self) -> list[str]:
        """The command line without the server and the plan."""
        numbers = ("connections", "depth", "seconds", "warmup", "requests", "rate")
        fetch = ("fetch_end", "batch_bytes", "batch_records")
        words = [f"--{n.replace('_', '-')}={getattr(self, n)}" for n in numbers + fetch]
        words += [f"--{name}={value}" for name in _LOGIN if (value := getattr(self, name))]
        return words + [
            f"--{flag}" for flag in ("idempotent", "once", "tls") if getattr(self, flag)
        ]


class LoadFailed(Exception):
    """The generator met an error code, a closed connection or an answer that is wrong."""


def _write_plan(path: Path, frames: Iterable[Frame]) -> None:
    """The format `read_plan` of load.c reads."""
    frames = list(frames)
    with path.open("wb") as plan:
        plan.write(struct.pack(">I", len(frames)))
        for frame, positions in frames:
            plan.write(struct.pack(f">I{len(positions)}II", len(positions), *positions, len(frame)))
            plan.write(frame)


class RunningLoad:
    """A load under way: connection i goes to port i modulo their number; all processes count."""

    def __init__(self, load: Load, port: int | Sequence[int], pid: int | Sequence[int]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="load-")
        plan = Path(self._folder.name) / "plan"
        _write_plan(plan, load.frames)
        server = [f"--port={_listed(port)}", f"--server-pid={_listed(pid)}", f"--plan={plan}"]
        self._process = subprocess.Popen(
            [str(program("load", tls=load.tls)), *server, *load.options()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def stop(self) -> None:
        """Ends the measured window now; `result` gives what it held."""
        self._process.send_signal(signal.SIGTERM)

    def result(self) -> Sample:
        """Waits for the end and reads the figures."""
        out, err = self._process.communicate()
        self._folder.cleanup()
        if self._process.returncode != 0:
            raise LoadFailed(err.strip() or f"load ended with {self._process.returncode}")
        return Sample(**json.loads(out))


def _listed(numbers: int | Sequence[int]) -> str:
    return ",".join(map(str, [numbers] if isinstance(numbers, int) else numbers))


def run(load: Load, port: int | Sequence[int], pid: int | Sequence[int]) -> Sample:
    """Runs a load to its end."""
    return RunningLoad(load, port, pid).result()

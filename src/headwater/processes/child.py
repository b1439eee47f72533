"""A `headwater` command in a process of its own, which never outlives the process that started it."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

STOP_TIMEOUT_S = 60


class NotStarted(RuntimeError):
    """The process ended before it was ready; the message has the end of its log."""


class Child:
    """`headwater up` or `headwater store` as a process; its log goes to a file."""

    def __init__(self, arguments: Sequence[str], log_file: Path) -> None:
        self.log_file = log_file
        # Called with each line of the log, from another thread.
        self.on_log_line: Callable[[str], None] | None = None
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        # Where the log of this launch begins.
        self._log_start = 0
        self._copying: threading.Thread | None = None
        self.metrics_url: str | None = None
        """Where a broker shows its metrics; known once it is ready."""

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def runs(self) -> bool:
        """Whether the process was launched and has not ended, even if paused."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process without waiting for it."""
        if self.runs:
            raise RuntimeError(
                f"headwater {self._arguments[0]} runs already, as process {self.pid}: stop it first"
            )
        self._close_pipes()
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("a") as log:
            self._log_start = log.tell()
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "headwater", *self._arguments, "--until-stdin-closes"],
                stdin=subprocess.PIPE,  # held open for as long as this process lives
                stdout=subprocess.PIPE,
                stderr=log if self.on_log_line is None else subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for this process, which stops its children
            )
        if self.on_log_line is not None:
            arguments = (process, self.on_log_line)
            self._copying = threading.Thread(target=self._copy_log, args=arguments, daemon=True)
            self._copying.start()

    def _copy_log(self, process: "subprocess.Popen[str]", on_line: Callable[[str], None]) -> None:
        assert process.stderr is not None
        with self.log_file.open("a", buffering=1) as log, process.stderr as lines:
            for line in lines:
                log.write(line)
                with contextlib.suppress(OSError):  # a terminal that is gone does not end the log
                    on_line(line.rstrip())

    def wait_ready(self) -> str:
        """Wait for the line that says where it listens, and return the address."""
        process = self._running()
        assert process.stdout is not None
        line = process.stdout.readline()
        if " ready at " not in line:
            process.wait(STOP_TIMEOUT_S)
            if self._copying is not None:
                self._copying.join(STOP_TIMEOUT_S)
            self._close_pipes()
            said = self.log_file.read_bytes()[self._log_start :].decode(errors="replace")
            raise NotStarted(f"headwater {self._arguments[0]} did not start: {_end_of(said)}")
        self.metrics_url = line.partition(" metrics at ")[2].rstrip(")\n") or None
        return line.partition(" ready at ")[2].split()[0]

    def stop(self) -> None:
        """Send SIGTERM and wait; do nothing if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL and wait; do nothing if it does not run."""
        self._end(signal.SIGKILL)

    def how_it_ended(self) -> str:
        """The exit code of a process that ended, or the signal that ended it."""
        code = self._running().poll() or 0
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def send(self, signum: signal.Signals) -> None:
        self._running().send_signal(signum)

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise RuntimeError(f"headwater {self._arguments[0]} is not running")
        return self._process

    def _end(self, signum: signal.Signals) -> None:
        if self._process is None:
            return
        process = self._process
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signum)
            process.send_signal(signal.SIGCONT)  # a paused process sees SIGTERM only then
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            self._close_pipes()

    def _close_pipes(self) -> None:
        if self._process is None:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None


def _end_of(log: str) -> str:
    """The error that a command ends with, or else the last lines of its log."""
    lines = log.strip().splitlines()
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return errors[-1] if errors else "\n".join(lines[-10:])


def broker_process(settings: Mapping[str, str], *options: str) -> Child:
    """A broker with these settings; its log is `broker.stderr` in its first log dir.

    Secrets belong into a file (`--config` among the options): others can see command lines.
    """
    texts = [text for key, value in settings.items() for text in ("-o", f"{key}={value}")]
    folder = Path(settings["log.dirs"].split(",")[0])
    return Child(["up", *options, *texts], folder / "broker.stderr")


def store_process(folder: Path, port: int) -> Child:
    """A store with its data and its log in `folder`."""
    return Child(["store", "--data-dir", str(folder), "--port", str(port)], folder / "store.stderr")

"""Where a test's broker lives: a thread with a loop of its own, or another process."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

import uvloop

from headwater.broker.lifecycle_loop import BrokerServer
from headwater.broker.process import system_seams
from headwater.config.broker import BrokerSettings

STOP_TIMEOUT_S = 60
START_TIMEOUT_S = 60


class Host(Protocol):
    """Runs one broker at a time."""

    @property
    def pid(self) -> int:
        """The process that serves."""

    def start(self, settings: Mapping[str, str]) -> str:
        """Start and return its address."""

    def stop(self) -> None:
        """Stop cleanly; nothing happens if none runs."""

    def kill(self) -> None:
        """End it as a crash would."""


class ThreadHost:
    """A broker on a thread of this process."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def pid(self) -> int:
        """This process."""
        return os.getpid()

    def start(self, settings: Mapping[str, str]) -> str:
        """Start the thread and wait for the broker in it."""
        address: Future[str] = Future()
        parsed = BrokerSettings.load(None, dict(settings))
        self._thread = threading.Thread(
            target=lambda: uvloop.run(self._serve(parsed, address)), name="headwater-broker"
        )
        self._thread.daemon = True
        self._thread.start()
        try:
            return address.result(START_TIMEOUT_S)
        except BaseException:
            self._thread.join(STOP_TIMEOUT_S)
            self._thread = None
            raise

    async def _serve(self, settings: BrokerSettings, address: "Future[str]") -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        broker = BrokerServer(settings, system_seams())
        try:
            await broker.start()
        except BaseException as failure:  # noqa: BLE001 - the test's thread must hear of it
            broker.abandon()
            address.set_exception(failure)
            return
        first = broker.listeners[0]
        address.set_result(f"{first.host}:{first.port}")
        await self._stop.wait()
        await broker.stop()

    def stop(self) -> None:
        """Ask the loop to stop and wait for the thread."""
        if self._thread is None or self._loop is None or self._stop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {STOP_TIMEOUT_S} s")
        self._thread = None

    def kill(self) -> None:
        """A thread cannot be killed."""
        raise RuntimeError("only Broker(subprocess=True) can be killed")


class ProcessHost:
    """A broker in a process of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The broker's process."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    def start(self, settings: Mapping[str, str]) -> str:
        """Start `headwater up` and wait for its line."""
        options = [text for key, value in settings.items() for text in ("-o", f"{key}={value}")]
        errors = Path(settings["log.dirs"]) / "broker.stderr"
        errors.parent.mkdir(parents=True, exist_ok=True)
        with errors.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headwater", "up", "--until-stdin-closes", *options],
                stdin=subprocess.PIPE,  # held open for as long as this process lives
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if " ready at " not in line:
            self._process.communicate(timeout=STOP_TIMEOUT_S)  # closes its pipes too
            self._process = None
            raise RuntimeError(f"the broker did not start: {errors.read_text()[-2000:].strip()}")
        return line.partition(" ready at ")[2].split()[0]

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._end(signal.SIGKILL)

    def _end(self, signum: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signum)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

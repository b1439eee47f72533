"""Runs a test's broker: on a thread with its own loop, or in another process."""

import asyncio
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Protocol

import uvloop

from headwater.broker.lifecycle_loop import BrokerServer
from headwater.broker.process import system_seams
from headwater.config.broker import BrokerSettings
from headwater.processes.child import Child, broker_process

STOP_TIMEOUT_S = 60
START_TIMEOUT_S = 60


class Host(Protocol):
    """Runs one broker at a time."""

    @property
    def runs(self) -> bool:
        """Whether a broker was started and has not ended."""

    @property
    def pid(self) -> int:
        """The process that serves."""

    def start(self, settings: Mapping[str, str]) -> tuple[str, str | None]:
        """Start and return its address, and that of its metrics."""

    def stop(self) -> None:
        """Stop cleanly; do nothing if none runs."""

    def kill(self) -> None:
        """End the broker like a crash."""


class ThreadHost:
    """A broker on a thread of this process."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def runs(self) -> bool:
        """Whether the thread lives."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def pid(self) -> int:
        """This process."""
        return os.getpid()

    def start(self, settings: Mapping[str, str]) -> tuple[str, str | None]:
        """Start the thread and wait for the broker in it."""
        address: Future[tuple[str, str | None]] = Future()
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

    async def _serve(
        self, settings: BrokerSettings, address: "Future[tuple[str, str | None]]"
    ) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        broker = BrokerServer(settings, system_seams())
        try:
            await broker.start()
        except BaseException as failure:  # noqa: BLE001 - the test's thread must hear of it
            broker.abandon()
            address.set_exception(failure)
            return
        first = broker.listeners[0]
        metrics = broker.metrics_address and f"http://{broker.metrics_address}/metrics"
        address.set_result((f"{first.host}:{first.port}", metrics))
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
    """A broker in its own process."""

    def __init__(self) -> None:
        self._child: Child | None = None

    @property
    def runs(self) -> bool:
        """Whether the process lives."""
        return self._child is not None and self._child.runs

    @property
    def pid(self) -> int:
        """The broker's process."""
        if self._child is None:
            raise RuntimeError("the broker is not running")
        return self._child.pid

    def start(self, settings: Mapping[str, str]) -> tuple[str, str | None]:
        """Start `headwater up` and wait for its line."""
        self._child = broker_process(settings)
        self._child.launch()
        return self._child.wait_ready(), self._child.metrics_url

    def stop(self) -> None:
        """SIGTERM, and wait."""
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self._child is not None:
            self._child.kill()

"""Watches the event loop and the process: delay, idle share, collections, memory, files, disks."""

import asyncio
import gc
import logging
from collections.abc import Callable, Mapping
from typing import Any

from headwater.observe.metrics import Histogram
from headwater.seams.clock import Clock
from headwater.seams.process_use import ProcessMeter, ProcessUse
from headwater.seams.tasks import Lane
from headwater.seams.timers import Timer

log = logging.getLogger("headwater.server")

CHECK_MS = 100
CHECKS_A_MEASURE = 50
"""The idle share, memory, files and disks are measured every five seconds."""
DELAY_MS = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)

Spaces = Mapping[str, tuple[int, int]]
"""The size and the free bytes of each log dir."""


class LoopWatch:
    """A timer on the event loop. Slow measures run on a thread; the last ones are kept."""

    def __init__(
        self,
        clock: Clock,
        meter: ProcessMeter,
        read_spaces: Callable[[], Spaces],
        off_loop: Callable[..., None],
    ) -> None:
        self.delay_ms = Histogram(DELAY_MS, per_unit=1000)
        self.gc_pause_ms = Histogram(DELAY_MS, per_unit=1000)
        self.idle_ratio = 1.0
        self.use = ProcessUse(0, 0, 0, 0.0)
        self.spaces: Spaces = {}
        self._clock = clock
        self._meter = meter
        self._read_spaces = read_spaces
        self._off_loop = off_loop
        self._timer: Timer | None = None
        self._due_us = 0
        self._checks = 0
        self._measured = (0, 0.0)
        self._measuring = False
        self._collection_us = 0

    def start(self) -> None:
        """Begin; call on the event loop."""
        gc.callbacks.append(self._collecting)
        self._measured = (self._clock.monotonic_us(), self._meter.thread_cpu_seconds())
        self._measure()
        self._set_timer()

    def stop(self) -> None:
        """End; the last measures stay."""
        if self._timer is not None:
            self._timer.cancel()
            gc.callbacks.remove(self._collecting)

    def _set_timer(self) -> None:
        self._due_us = self._clock.monotonic_us() + CHECK_MS * 1000
        self._timer = asyncio.get_running_loop().call_later(CHECK_MS / 1000, self._check)

    def _check(self) -> None:
        # A timer of the loop may be early by less than a millisecond.
        self.delay_ms.observe(max(0, self._clock.monotonic_us() - self._due_us) / 1000)
        self._checks += 1
        if self._checks % CHECKS_A_MEASURE == 0:
            self._measure_idle()
            self._measure()
        self._set_timer()

    def _measure_idle(self) -> None:
        now = (self._clock.monotonic_us(), self._meter.thread_cpu_seconds())
        (before_us, before_s), self._measured = self._measured, now
        busy_us = (now[1] - before_s) * 1_000_000
        self.idle_ratio = min(1.0, max(0.0, 1 - busy_us / max(1, now[0] - before_us)))

    def _measure(self) -> None:
        """Measure on a thread; a disk that does not answer delays only the next measure."""
        if not self._measuring:
            self._measuring = True
            self._off_loop(self._read, self._read_done, Lane.REMOVAL)

    def _read(self) -> tuple[ProcessUse, Spaces]:
        return self._meter.read(), self._read_spaces()

    def _read_done(self, result: Any, failure: Exception | None) -> None:
        self._measuring = False
        if failure is None:
            self.use, self.spaces = result
        else:
            log.debug("the use of the machine cannot be read: %s", failure)

    def _collecting(self, phase: str, _: object) -> None:
        now_us = self._clock.monotonic_us()
        if phase == "stop" and self._collection_us:
            self.gc_pause_ms.observe((now_us - self._collection_us) / 1000)
        self._collection_us = now_us

"""The clock of a simulated machine: virtual time, and a wall clock that may be wrong."""

from collections.abc import Callable

from simulator.loop import Scheduler

START_WALL_MS = 1_700_000_000_000
"""Virtual time zero, a day in 2023."""


class SimClock:
    """Time as one machine sees it."""

    def __init__(self, scheduler: Scheduler, skew_ms: Callable[[], int] = lambda: 0) -> None:
        self._scheduler = scheduler
        self._skew_ms = skew_ms
        """The current error of the wall clock."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, by this machine's wall clock."""
        return START_WALL_MS + self._skew_ms() + self._scheduler.now_us // 1000

    def monotonic_ms(self) -> int:
        """Virtual milliseconds."""
        return self._scheduler.now_us // 1000

    def monotonic_us(self) -> int:
        """Virtual microseconds."""
        return self._scheduler.now_us

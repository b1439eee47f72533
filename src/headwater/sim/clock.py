"""The clock of a simulated machine: virtual time, and a wall that may be set wrong."""

from headwater.sim.loop import Scheduler

START_WALL_MS = 1_700_000_000_000
"""Virtual time zero is some day in 2023."""


class SimClock:
    """Time as one machine sees it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.skew_ms = 0
        """How far the wall clock is off; a test may change it at any time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as far as this machine knows."""
        return START_WALL_MS + self.skew_ms + self._scheduler.now_us // 1000

    def monotonic_ms(self) -> int:
        """Virtual milliseconds."""
        return self._scheduler.now_us // 1000

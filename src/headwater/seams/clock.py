"""Time, in two kinds that must never be mixed."""

import time
from typing import Protocol


class Clock(Protocol):
    """What time it is."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for record timestamps. May jump either way."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some start, for deadlines. Never goes back."""


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since boot."""
        return time.monotonic_ns() // 1_000_000

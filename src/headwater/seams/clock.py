"""Time, in two kinds that must never be mixed."""

import time
from typing import Protocol


class Clock(Protocol):
    """Reads the time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for record timestamps. May jump either way."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some start, for deadlines. Never goes back."""

    def monotonic_us(self) -> int:
        """The same clock in microseconds, to measure how long something takes."""


class SystemClock:
    """The clocks of the operating system."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since boot."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        """Microseconds since boot."""
        return time.monotonic_ns() // 1_000

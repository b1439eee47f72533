"""The wall clock for deletion by age; it ignores a sudden jump ahead for a while.

A wall clock set years ahead by mistake would make every record and every producer look expired.
Real time advances with the monotonic clock. If the wall clock runs ahead of it by more than an hour,
deletions use real time until the clock is corrected or an hour has passed.
"""

import logging

from headwater.seams.clock import Clock

log = logging.getLogger("headwater.server")

JUMP_MS = 3_600_000
"""How far the wall clock may run ahead of real time between two checks."""
DEFER_MS = 3_600_000
"""How long a jump ahead is ignored."""


class WallClockWatch:
    """Compares the wall clock with the monotonic one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._monotonic_ms = clock.monotonic_ms()
        self._jumped_at_ms: int | None = None

    def believed_ms(self) -> int:
        """Return the time for expiring records and producers, in milliseconds since 1970."""
        wall_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        expected_ms = self._wall_ms + monotonic_ms - self._monotonic_ms
        ahead_ms = wall_ms - expected_ms
        if ahead_ms > JUMP_MS:
            if self._jumped_at_ms is None:
                self._jumped_at_ms = monotonic_ms
                log.warning(
                    "the wall clock jumped ahead by %d s: deletion by age is deferred for %d s; "
                    "check the clock of this machine",
                    ahead_ms // 1000,
                    DEFER_MS // 1000,
                )
            if monotonic_ms - self._jumped_at_ms < DEFER_MS:
                return expected_ms
            log.warning(
                "the wall clock is still %d s ahead: deletion by age uses it now", ahead_ms // 1000
            )
        elif self._jumped_at_ms is not None:
            log.warning("the wall clock is correct again: deletion by age continues")
        self._jumped_at_ms = None
        self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
        return wall_ms

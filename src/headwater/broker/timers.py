"""One timer for all parked requests: armed for the nearest deadline, never for each."""

import asyncio

from headwater.replication.parked import Parked
from headwater.seams.clock import Clock


class DeadlineTimer:
    """Calls `parked.expire` when the nearest deadline comes."""

    def __init__(self, parked: Parked, clock: Clock) -> None:
        self._parked = parked
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None
        self._armed_ms = 0

    def arm(self, deadline_ms: int) -> None:
        """Make sure that `expire` runs at `deadline_ms` at the latest."""
        if self._handle is not None:
            if self._armed_ms <= deadline_ms:
                return
            self._handle.cancel()
        delay_s = max(0, deadline_ms - self._clock.monotonic_ms()) / 1000
        self._armed_ms = deadline_ms
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._parked.expire(self._clock.monotonic_ms())
        following = self._parked.next_deadline()
        if following is not None and self._handle is None:
            self.arm(following)

    def close(self) -> None:
        """Forget the deadlines."""
        if self._handle is not None:
            self._handle.cancel()

"""When a connection has to authenticate, again or at all."""

import asyncio
import math
from collections.abc import Callable


class SessionEnd:
    """Calls back when the session of a connection ends; without a session, never."""

    __slots__ = ("_at_s", "_end", "_timer", "early")

    def __init__(self) -> None:
        self.early = 0
        """How many requests came without a session."""
        self._timer: asyncio.TimerHandle | None = None
        self._at_s = math.inf
        self._end: Callable[[], None] | None = None

    def set(self, after_s: float, end: Callable[[], None]) -> None:
        """Call `end` after a time, instead of what was to be called before."""
        self.clear()
        loop = asyncio.get_running_loop()
        self._at_s = loop.time() + after_s
        self._end = end
        self._timer = loop.call_later(after_s, end)

    def clear(self) -> None:
        """Cancel the timer: a session begins, or the time to authenticate."""
        self.early = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._at_s, self._end = None, math.inf, None

    def catch_up(self) -> None:
        """Call back now if the timer is late: after a pause, the loop reads before it runs timers."""
        if self._end is not None and asyncio.get_running_loop().time() >= self._at_s:
            end = self._end
            self.clear()
            end()

    def limit_ms(self, wait_ms: int) -> int:
        """Limit a wait to the session."""
        if self._timer is None:
            return wait_ms
        left_s = self._at_s - asyncio.get_running_loop().time()
        return min(wait_ms, max(0, int(left_s * 1000)))

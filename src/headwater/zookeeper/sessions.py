"""Decides when sessions expire. Pure: callers pass the time and end the sessions.

A session expires if its client sends nothing within the timeout, on any connection. Time in which this
process itself did not run (stopped, suspended, starved) does not count.
"""

MIN_TIMEOUT_MS = 500
MAX_TIMEOUT_MS = 60_000
TICK_MS = 100
"""How often to call `expired`."""

_LATE_MS = 4 * TICK_MS


def negotiated(timeout_ms: int) -> int:
    """Return the granted timeout for a requested `timeout_ms`."""
    return min(max(timeout_ms, MIN_TIMEOUT_MS), MAX_TIMEOUT_MS)


class SessionDeadlines:
    """The deadline of every open session, on the monotonic clock."""

    def __init__(self, now_ms: int) -> None:
        self._timeouts: dict[int, int] = {}
        self._deadlines: dict[int, int] = {}
        self._last_tick_ms = now_ms

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, session: int, timeout_ms: int, now_ms: int) -> None:
        self._timeouts[session] = timeout_ms
        self._deadlines[session] = now_ms + timeout_ms

    def remove(self, session: int) -> None:
        self._timeouts.pop(session, None)
        self._deadlines.pop(session, None)

    def heard(self, session: int, now_ms: int) -> None:
        """Extend the deadline: the client of `session` sent something."""
        timeout_ms = self._timeouts.get(session)
        if timeout_ms is not None:
            self._deadlines[session] = now_ms + timeout_ms

    def expired(self, now_ms: int) -> list[int]:
        """Return the expired sessions. They stay until `remove`."""
        late = now_ms - self._last_tick_ms
        self._last_tick_ms = now_ms
        if late > _LATE_MS:
            for session in self._deadlines:
                self._deadlines[session] += late
        return [session for session, at_ms in self._deadlines.items() if at_ms <= now_ms]

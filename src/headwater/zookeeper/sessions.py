"""When sessions expire. Pure: the time is an argument, and what to do is the caller's.

A session lives as long as its client is heard from within its timeout, on whatever connection. If
this process itself did not run for a while (stopped, suspended, starved), the silence was not the
clients': nobody expires for it.
"""

MIN_TIMEOUT_MS = 500
MAX_TIMEOUT_MS = 60_000
TICK_MS = 100
"""How often `expired` wants to be asked."""

_LATE_MS = 4 * TICK_MS


def negotiated(timeout_ms: int) -> int:
    """The timeout that a client gets when it asks for `timeout_ms`."""
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
        """The client of `session` sent something."""
        timeout_ms = self._timeouts.get(session)
        if timeout_ms is not None:
            self._deadlines[session] = now_ms + timeout_ms

    def expired(self, now_ms: int) -> list[int]:
        """The sessions whose time is over. They stay until `remove`."""
        late = now_ms - self._last_tick_ms
        self._last_tick_ms = now_ms
        if late > _LATE_MS:
            for session in self._deadlines:
                self._deadlines[session] += late
        return [session for session, at_ms in self._deadlines.items() if at_ms <= now_ms]

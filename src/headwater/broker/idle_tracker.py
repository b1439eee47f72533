"""How long a connection has been idle."""


class IdleTracker:
    """Detects idle connections by comparing frame counts between two checks."""

    __slots__ = ("_frames", "_since_ms")

    def __init__(self) -> None:
        self._frames = -1
        self._since_ms = 0

    def for_ms(self, now_ms: int, frames_read: int) -> int:
        """Return how long no request has arrived, by the resolution of the checks."""
        if frames_read != self._frames:
            self._frames, self._since_ms = frames_read, now_ms
        return now_ms - self._since_ms

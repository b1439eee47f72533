"""Delays between retries: they grow up to a limit and have jitter."""

from headwater.seams.randomness import Randomness

_SPREAD = 20
"""Jitter in percent of a delay, so that many clients do not retry at once."""


class Backoff:
    """A series of delays."""

    __slots__ = ("_limit_ms", "_randomness", "_rest_ms")

    def __init__(self, first_ms: int, limit_ms: int, randomness: Randomness) -> None:
        self._rest_ms = first_ms
        self._limit_ms = max(first_ms, limit_ms)
        self._randomness = randomness

    def next_ms(self) -> float:
        """Return the next delay."""
        rest = self._rest_ms
        self._rest_ms = min(2 * rest, self._limit_ms)
        return _spread(rest, self._randomness)


class OutageBackoff:
    """Delays during an outage: a twentieth of its duration so far.

    Callers notice the end of an outage after at most a twentieth of its length. A report after a
    quiet time begins another outage.
    """

    __slots__ = ("_calm_ms", "_first_ms", "_limit_ms", "_randomness", "_reported_ms", "_since_ms")

    def __init__(self, first_ms: int, limit_ms: int, randomness: Randomness) -> None:
        self._first_ms = first_ms
        self._limit_ms = max(first_ms, limit_ms)
        self._calm_ms = 3 * self._limit_ms
        self._randomness = randomness
        self._since_ms = self._reported_ms = -self._calm_ms

    def rest_ms(self, now_ms: int) -> float:
        """Report a failure, and return the delay between two attempts."""
        if now_ms - self._reported_ms >= self._calm_ms:
            self._since_ms = now_ms
        self._reported_ms = now_ms
        share = (now_ms - self._since_ms) // 20
        return _spread(min(max(share, self._first_ms), self._limit_ms), self._randomness)


def _spread(rest_ms: int, randomness: Randomness) -> float:
    return rest_ms * (100 - _SPREAD + randomness.below(2 * _SPREAD + 1)) / 100

"""Rests between repetitions: they grow up to a limit, and are spread by chance."""

from headwater.seams.randomness import Randomness

_SPREAD = 20
"""Percent by which a rest may be shorter or longer, so that many clients do not come at once."""


class Backoff:
    """A row of rests."""

    __slots__ = ("_limit_ms", "_randomness", "_rest_ms")

    def __init__(self, first_ms: int, limit_ms: int, randomness: Randomness) -> None:
        self._rest_ms = first_ms
        self._limit_ms = max(first_ms, limit_ms)
        self._randomness = randomness

    def next_ms(self) -> float:
        """The next rest."""
        rest = self._rest_ms
        self._rest_ms = min(2 * rest, self._limit_ms)
        return _spread(rest, self._randomness)


class OutageBackoff:
    """Rests while something is out of order: a twentieth of the time that it has been so far.

    Callers learn of the end of an outage after at most a twentieth more of its length. A report that
    comes after a calm time begins another outage.
    """

    __slots__ = ("_calm_ms", "_first_ms", "_limit_ms", "_randomness", "_reported_ms", "_since_ms")

    def __init__(self, first_ms: int, limit_ms: int, randomness: Randomness) -> None:
        self._first_ms = first_ms
        self._limit_ms = max(first_ms, limit_ms)
        self._calm_ms = 3 * self._limit_ms
        self._randomness = randomness
        self._since_ms = self._reported_ms = -self._calm_ms

    def rest_ms(self, now_ms: int) -> float:
        """Something is still out of order, or is again: the rest between two attempts."""
        if now_ms - self._reported_ms >= self._calm_ms:
            self._since_ms = now_ms
        self._reported_ms = now_ms
        share = (now_ms - self._since_ms) // 20
        return _spread(min(max(share, self._first_ms), self._limit_ms), self._randomness)


def _spread(rest_ms: int, randomness: Randomness) -> float:
    return rest_ms * (100 - _SPREAD + randomness.below(2 * _SPREAD + 1)) / 100

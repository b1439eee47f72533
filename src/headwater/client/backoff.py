"""Rests between repetitions: each twice the last, up to a limit, spread by chance."""

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
        return rest * (100 - _SPREAD + self._randomness.below(2 * _SPREAD + 1)) / 100

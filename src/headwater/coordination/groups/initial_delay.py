"""How long a new group waits for more members before its first generation."""

from typing import NamedTuple, Self


class InitialDelay(NamedTuple):
    """One wait; a member that joins during it leads to another one, up to a limit in all."""

    delay_ms: int
    remaining_ms: int
    joined_meanwhile: bool = False

    @classmethod
    def first(cls, delay_ms: int, limit_ms: int) -> Self:
        """The first wait; all of them together last at most `limit_ms`, or `delay_ms` if longer."""
        return cls(delay_ms, max(limit_ms - delay_ms, 0))

    def extended(self, delay_ms: int) -> "InitialDelay":
        """The next wait, within what is left."""
        remaining_ms = max(self.remaining_ms - self.delay_ms, 0)
        return InitialDelay(min(delay_ms, self.remaining_ms), remaining_ms)

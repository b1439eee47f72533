"""Version ranges as the message tables write them: "3", "0-12", "4+", "none"."""

from typing import NamedTuple

NEWEST = 0x7FFF


class Versions(NamedTuple):
    """A closed range of versions; empty when `lowest` is above `highest`."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Parse one range."""
        if text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), NEWEST)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))

    def holds(self, version: int) -> bool:
        """Return whether the range includes `version`."""
        return self.lowest <= version <= self.highest

    def all(self) -> range:
        """Return every version, oldest first."""
        return range(self.lowest, self.highest + 1)

"""What the broker must reach: limits on ratios and sizes, and whether a figure keeps to them."""

import statistics
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limit:
    """A bound on a figure: at least so much, or at most."""

    value: float
    at_least: bool

    def met(self, figure: float) -> bool:
        """Whether the figure keeps to the bound."""
        return figure >= self.value if self.at_least else figure <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.value:g}"


def at_least(value: float) -> Limit:
    """The figure may not be lower."""
    return Limit(value, at_least=True)


def at_most(value: float) -> Limit:
    """The figure may not be higher."""
    return Limit(value, at_least=False)


@dataclass
class Figure:
    """One line of the result: a measure of a case, its value in each round, its limit if any."""

    case: str
    measure: str
    values: list[float] = field(default_factory=list)
    limit: Limit | None = None

    @property
    def median(self) -> float:
        """What is compared with the limit."""
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """One word, `met` or `missed`; nothing where there is no limit."""
        if self.limit is None:
            return ""
        return "met" if self.limit.met(self.median) else "missed"

"""Numbers for Prometheus: the rows of a table, what reads them, and their text.

No locks: the loop thread counts, and a reader of an integer sees some whole value. On the hot path
keep the owner of a number and add to its attribute (`counters.requests += 1`); names and labels are
looked up when the numbers are read.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

Sample: TypeAlias = tuple[Sequence[str], float]
"""The values of the labels, in the order of the row, and the number."""


class MetricRow(NamedTuple):
    """One metric: its name, what it means, and which MBean of Kafka has the same number."""

    name: str
    kind: str
    """counter, gauge or histogram."""
    help: str
    labels: tuple[str, ...] = ()
    mbean: str = ""
    """Empty if Kafka's brokers do not have it."""


class Histogram:
    """How often a value fell into which range."""

    __slots__ = ("bounds", "counts", "per_unit", "total")

    def __init__(self, bounds: tuple[float, ...], per_unit: float = 1.0) -> None:
        """`bounds` are in the unit of `observe`; `per_unit` of them are one unit of the text form."""
        self.bounds = bounds
        self.per_unit = per_unit
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def samples(self) -> Iterator[tuple[str, str, float]]:
        """The lines of the text form: suffix, upper bound, value."""
        running = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            running += count
            yield "_bucket", _number(bound / self.per_unit), running
        yield "_sum", "", self.total / self.per_unit
        yield "_count", "", running


class Metrics:
    """The rows of a table and what reads them; a name outside of the table is an error."""

    def __init__(self, table: Iterable[MetricRow]) -> None:
        self._rows = {row.name: row for row in table}
        self._reads: dict[str, Callable[[], Iterable[Sample]]] = {}
        self._histograms: dict[str, Callable[[], Iterable[tuple[Sequence[str], Histogram]]]] = {}

    def show(self, name: str, read: Callable[[], Iterable[Sample]]) -> None:
        """Read a metric with labels from `read`."""
        self._reads[self._rows[name].name] = read

    def show_one(self, name: str, read: Callable[[], float]) -> None:
        """Read a metric without labels from `read`."""
        self.show(name, lambda: (((), read()),))

    def show_histograms(
        self, name: str, read: Callable[[], Iterable[tuple[Sequence[str], Histogram]]]
    ) -> None:
        """Read histograms, with the values of their labels, from `read`; empty ones are left out."""
        self._histograms[self._rows[name].name] = read

    @property
    def shown(self) -> list[str]:
        """The names that have something to read them."""
        return [*self._reads, *self._histograms]

    def lines(self) -> Iterator[str]:
        """Yield the lines of Prometheus' text format, version 0.0.4, each read when it is asked for."""
        for name, row in self._rows.items():
            if name in self._reads or name in self._histograms:
                yield f"# HELP {name} {_escaped_help(row.help)}\n# TYPE {name} {row.kind}\n"
            if name in self._reads:
                for values, number in self._reads[name]():
                    yield f"{name}{_labels(row.labels, values)} {_number(number)}\n"
            if name in self._histograms:
                for values, histogram in self._histograms[name]():
                    yield from _histogram_lines(row, values, histogram)

    def prometheus_text(self) -> str:
        """Everything at once, for readers that may wait."""
        return "".join(self.lines())


def _histogram_lines(row: MetricRow, values: Sequence[str], histogram: Histogram) -> Iterator[str]:
    if not any(histogram.counts):
        return
    plain = _labels(row.labels, values)
    for suffix, bound, number in histogram.samples():
        labels = _labels((*row.labels, "le"), (*values, bound)) if bound else plain
        yield f"{row.name}{suffix}{labels} {_number(number)}\n"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not values:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join([f'{name}="{_escaped_label(value)}"' for name, value in pairs]) + "}"


def _escaped_label(value: str) -> str:
    if value.isalnum():
        return value
    return _escaped_help(value).replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if value == float("inf"):
        return "+Inf"
    if value == float("-inf"):
        return "-Inf"
    if value != value:
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)

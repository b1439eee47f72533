"""Counters, gauges and histograms for one event loop thread, and their Prometheus text.

No locks: the loop thread writes, and a reader of an integer sees some whole value. On the hot path
keep the object and add to its attribute (`requests.value += 1`); names and labels are looked up
once, at start.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias, TypeVar

Labels = tuple[tuple[str, str], ...]

LATENCY_MS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


Sample: TypeAlias = tuple[Mapping[str, str], float]
"""Labels and a value."""


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)
    kind = "counter"

    def __init__(self) -> None:
        self.value = 0

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """The lines of the text form: suffix, further labels, value."""
        yield "", (), self.value


class Gauge:
    """A number that goes up and down, or is asked for when it is read."""

    __slots__ = ("read", "value")
    kind = "gauge"

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self.value: float = 0
        self.read = read

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """The lines of the text form."""
        yield "", (), self.value if self.read is None else self.read()


class Histogram:
    """How often a value fell into which range."""

    __slots__ = ("bounds", "counts", "total")
    kind = "histogram"

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count one value, or the same one several times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """The lines of the text form: cumulative buckets, sum and count."""
        running = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            running += count
            yield "_bucket", (("le", _number(bound)),), running
        yield "_sum", (), self.total
        yield "_count", (), running


Metric = Counter | Gauge | Histogram
M = TypeVar("M", Counter, Gauge, Histogram)


class _Family:
    """The metrics of one name: one kind, one explanation, many labels."""

    __slots__ = ("help", "kind", "members", "read")

    def __init__(self, kind: type[Metric], help: str) -> None:
        self.kind = kind
        self.help = help
        self.members: dict[Labels, Metric] = {}
        # Gives all members of a family that is only counted when it is read.
        self.read: Callable[[], Iterable[Sample]] | None = None

    def text(self, name: str) -> Iterator[str]:
        if self.help:
            yield f"# HELP {name} {_escaped_help(self.help)}"
        yield f"# TYPE {name} {self.kind.kind}"
        for labels, metric in self.members.items():
            for suffix, extra, value in metric.samples():
                yield f"{name}{suffix}{_labels_text((*labels, *extra))} {_number(value)}"
        for named, value in self.read() if self.read is not None else ():
            yield f"{name}{_labels_text(_key(named))} {_number(value)}"


class Metrics:
    """All the numbers of one broker. Asking again for the same name and labels gives the same one."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def counter(
        self, name: str, labels: Mapping[str, str] | None = None, help: str = ""
    ) -> Counter:
        """The counter of that name; by custom it ends in _total."""
        return self._metric(Counter, name, labels, help, Counter)

    def gauge(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        help: str = "",
        read: Callable[[], float] | None = None,
    ) -> Gauge:
        """The gauge of that name; with `read` it is asked for its value at each scrape."""
        return self._metric(Gauge, name, labels, help, lambda: Gauge(read))

    def histogram(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        help: str = "",
        bounds: tuple[float, ...] = LATENCY_MS,
    ) -> Histogram:
        """The histogram of that name over those upper bounds."""
        return self._metric(Histogram, name, labels, help, lambda: Histogram(bounds))

    def callback(
        self, name: str, kind: str, read: Callable[[], Iterable[Sample]], help: str = ""
    ) -> None:
        """A family, "counter" or "gauge", whose labels and values are known when it is read."""
        family = self._families[name] = _Family(Counter if kind == "counter" else Gauge, help)
        family.read = read

    def add(self, name: str, labels: Mapping[str, str], metric: Histogram, help: str = "") -> None:
        """Show a histogram that its owner keeps."""
        self._families.setdefault(name, _Family(Histogram, help)).members[_key(labels)] = metric

    def drop(self, labels: Mapping[str, str]) -> None:
        """Forget every metric that carries all of `labels`: a deleted topic leaves nothing."""
        gone = set(labels.items())
        for family in self._families.values():
            for key in [key for key in family.members if gone.issubset(key)]:
                del family.members[key]

    def prometheus_text(self) -> str:
        """Everything in Prometheus' text format, version 0.0.4."""
        lines: list[str] = []
        for name, family in sorted(self._families.items()):
            if family.members or family.read is not None:
                lines += family.text(name)
        return "".join(f"{line}\n" for line in lines)

    def _metric(
        self,
        kind: type[M],
        name: str,
        labels: Mapping[str, str] | None,
        help: str,
        make: Callable[[], M],
    ) -> M:
        family = self._families.setdefault(name, _Family(kind, help))
        key = _key(labels or {})
        found = family.members.get(key)
        if found is None and family.kind is kind:
            found = family.members[key] = make()
        if not isinstance(found, kind):
            raise TypeError(f"{name} is a {family.kind.kind}, not a {kind.kind}")
        return found


def _key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _labels_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped_label(value)}"' for name, value in labels) + "}"


def _escaped_label(value: str) -> str:
    return _escaped_help(value).replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    if value == float("-inf"):
        return "-Inf"
    if value != value:
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))

"""The metrics of a client, under Kafka's names.

Only the loop thread writes them, once per batch or request, never per record. Rates, averages and
maximums cover the last half minute.
"""

from collections import deque
from collections.abc import Callable

WINDOW_MS = 30_000
_SAMPLES = 10


class Meter:
    """Counts events and their sizes, over the window and since the start."""

    __slots__ = ("_samples", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._samples: deque[list[float]] = deque()

    def add(self, now_ms: int, amount: float = 1.0) -> None:
        """Count an event."""
        self.count += 1
        self.total += amount
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= WINDOW_MS / _SAMPLES:
            self._expire(now_ms)
            samples.append([now_ms, 0, 0.0, amount])
        last = samples[-1]
        last[1] += 1
        last[2] += amount
        last[3] = max(last[3], amount)

    def rate(self, now_ms: int) -> float:
        """Return the amount per second."""
        self._expire(now_ms)
        if not self._samples:
            return 0.0
        elapsed = max(now_ms - self._samples[0][0], WINDOW_MS / _SAMPLES)
        return 1000 * sum(sample[2] for sample in self._samples) / elapsed

    def average(self, now_ms: int) -> float:
        """Return the amount per event."""
        self._expire(now_ms)
        events = sum(sample[1] for sample in self._samples)
        return sum(sample[2] for sample in self._samples) / events if events else 0.0

    def largest(self, now_ms: int) -> float:
        """Return the largest amount of one event."""
        self._expire(now_ms)
        return max((sample[3] for sample in self._samples), default=0.0)

    def _expire(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] > WINDOW_MS:
            self._samples.popleft()


class ProducerMetrics:
    """The metrics of a producer."""

    def __init__(self) -> None:
        self.sent = Meter()
        self.errors = Meter()
        self.retries = Meter()
        self.bytes = Meter()
        self.batch_sizes = Meter()
        self.queue_times = Meter()
        self.latencies = Meter()
        self.per_request = Meter()
        self.throttles = Meter()
        self.splits = Meter()
        self.room_waits = Meter()
        self.gauges: dict[str, Callable[[], float]] = {}

    def read(self, now_ms: int) -> dict[str, float]:
        """Return all metrics, by Kafka's names."""
        rows = {
            "record-send": self.sent,
            "record-error": self.errors,
            "record-retry": self.retries,
            "outgoing-byte": self.bytes,
            "batch-split": self.splits,
        }
        told: dict[str, float] = {}
        for name, meter in rows.items():
            told[f"{name}-total"] = meter.total
            told[f"{name}-rate"] = meter.rate(now_ms)
        for name, meter in {
            "batch-size": self.batch_sizes,
            "record-queue-time": self.queue_times,
            "request-latency": self.latencies,
            "produce-throttle-time": self.throttles,
        }.items():
            told[f"{name}-avg"] = meter.average(now_ms)
            told[f"{name}-max"] = meter.largest(now_ms)
        told["records-per-request-avg"] = self.per_request.average(now_ms)
        told["request-total"] = self.latencies.count
        told["bufferpool-wait-time-total"] = self.room_waits.total
        told["bufferpool-wait-ratio"] = self.room_waits.rate(now_ms) / 1000
        told.update({name: read() for name, read in self.gauges.items()})
        return told

"""The metrics of a consumer, under Kafka's names."""

from collections.abc import Callable

from headwater.client.metrics import Meter


class ConsumerMetrics:
    """Counts once per response or poll, never per record."""

    def __init__(self) -> None:
        self.records = Meter()
        self.bytes = Meter()
        self.latencies = Meter()
        self.throttles = Meter()
        self.commits = Meter()
        self.joins = Meter()
        self.syncs = Meter()
        self.heartbeats = Meter()
        self.rebalances = Meter()
        self.gauges: dict[str, Callable[[], float]] = {}

    def fetched(self, now_ms: int, begun_ms: int, size: int, throttled_ms: int) -> None:
        """Count a fetch response."""
        self.bytes.add(now_ms, size)
        self.latencies.add(now_ms, now_ms - begun_ms)
        if throttled_ms:
            self.throttles.add(now_ms, throttled_ms)

    def read(self, now_ms: int) -> dict[str, float]:
        """Return all metrics, by Kafka's names."""
        told: dict[str, float] = {}
        for name, meter in {
            "records-consumed": self.records,
            "bytes-consumed": self.bytes,
            "join": self.joins,
            "sync": self.syncs,
            "heartbeat": self.heartbeats,
        }.items():
            told[f"{name}-total"] = meter.total
            told[f"{name}-rate"] = meter.rate(now_ms)
        told["rebalance-total"] = self.rebalances.count
        for name, meter in {
            "fetch-latency": self.latencies,
            "fetch-throttle-time": self.throttles,
            "commit-latency": self.commits,
            "rebalance-latency": self.rebalances,
        }.items():
            told[f"{name}-avg"] = meter.average(now_ms)
            told[f"{name}-max"] = meter.largest(now_ms)
        told["fetch-total"] = self.latencies.count
        told["commit-total"] = self.commits.count
        told.update({name: read() for name, read in self.gauges.items()})
        return told

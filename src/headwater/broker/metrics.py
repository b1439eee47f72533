"""The counters of a broker.

Counting is an addition to an integer in a slot; names, labels and sums are computed when metrics are
read (`broker/monitoring/`). Nothing here may run per record, or look anything up per request on the
fast path.
"""

from collections import Counter as Tally
from collections.abc import Collection, Iterable

from headwater.coordination.groups.rebalances import Rebalances
from headwater.observe.metrics import Histogram
from headwater.wire.apis import API, PRODUCE

REQUEST_MS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


class ApiCounters:
    """The decoded requests of one API; requests on the fast path are counted with their topic."""

    __slots__ = ("requests", "time_ms")

    def __init__(self) -> None:
        self.requests = 0
        self.time_ms = Histogram(REQUEST_MS, per_unit=1000)


class TopicCounters:
    """The bytes that clients wrote to a topic and read from it, and that followers read."""

    __slots__ = ("bytes_in", "bytes_out", "bytes_to_followers", "fast_requests")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_to_followers = 0
        # Produce requests on the fast path.
        self.fast_requests = 0

    def count_read(self, size: int, *, follower: bool) -> None:
        """Count bytes that a follower or a client has read."""
        if follower:
            self.bytes_to_followers += size
        else:
            self.bytes_out += size


class BrokerMetrics:
    """The counters of one broker."""

    def __init__(self) -> None:
        self.apis = {key: ApiCounters() for key in API}
        self.topics: dict[str, TopicCounters] = {}
        # Bytes of connections that are closed; open ones have their own counts.
        self.closed_bytes_in = 0
        self.closed_bytes_out = 0
        # Segments in which the scrubber found damage.
        self.damaged_segments = 0
        self.replication_bytes_in = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.recovery_ms = 0
        self.recovery_bytes = 0
        self.store_connected = True
        self.rebalances = Rebalances()
        self.errors: Tally[tuple[int, int]] = Tally()
        """By API key and error code."""
        self._fast_requests_of_deleted = 0

    def topic(self, name: str) -> TopicCounters:
        """Return the counters of a topic; callers on the fast path keep them."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicCounters()
        return found

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Drop the counters of deleted topics."""
        for name in names:
            deleted = self.topics.pop(name, None)
            if deleted is not None:
                self._fast_requests_of_deleted += deleted.fast_requests

    def error(self, api_key: int, code: int) -> None:
        """Count an error in a response, of the whole or of a partition."""
        self.errors[api_key, code] += 1

    def isr_changed(self, before: Collection[int], now: Collection[int]) -> None:
        """Count a stored change of an in-sync set."""
        self.isr_shrinks += len(now) < len(before)
        self.isr_expands += len(now) > len(before)

    def requests(self, api_key: int) -> int:
        """Return the number of served requests of an API."""
        served = self.apis[api_key].requests
        if api_key == PRODUCE:
            fast = sum(topic.fast_requests for topic in self.topics.values())
            served += fast + self._fast_requests_of_deleted
        return served

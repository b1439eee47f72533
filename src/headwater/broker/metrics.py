"""The metrics of a broker.

Counting is an addition to an integer in a slot; names, labels and sums are computed when metrics are
read. Nothing here may run per record, or look anything up per request on the fast path.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headwater.coordination.groups.rebalances import Rebalances
from headwater.errors import error_of
from headwater.observe.metrics import Histogram, Metrics, Sample
from headwater.wire.apis import API, PRODUCE

if TYPE_CHECKING:
    from headwater.broker.context import Context

REQUEST_MS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


class ApiCounters:
    """The decoded requests of one API; requests on the fast path are counted with their topic."""

    __slots__ = ("requests", "time_ms")

    def __init__(self) -> None:
        self.requests = 0
        self.time_ms = Histogram(REQUEST_MS)


class TopicCounters:
    """The bytes that clients wrote to a topic and read from it."""

    __slots__ = ("bytes_in", "bytes_out", "fast_requests")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        # Produce requests on the fast path.
        self.fast_requests = 0


class BrokerMetrics:
    """The counters of one broker, and the registry that shows them."""

    def __init__(self) -> None:
        self.registry = Metrics()
        self.apis = {key: ApiCounters() for key in API}
        self.topics: dict[str, TopicCounters] = {}
        # Bytes of connections that are closed; open ones have their own counts.
        self.closed_bytes_in = 0
        self.closed_bytes_out = 0
        self.rebalances = Rebalances()
        self._errors: Tally[tuple[int, int]] = Tally()
        self._fast_requests_of_deleted = 0

    # -- counting

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
        self._errors[api_key, code] += 1

    # -- reading

    def requests(self, api_key: int) -> int:
        """Return the number of served requests of an API."""
        served = self.apis[api_key].requests
        if api_key == PRODUCE:
            fast = sum(topic.fast_requests for topic in self.topics.values())
            served += fast + self._fast_requests_of_deleted
        return served

    def register(self, context: "Context") -> None:
        """Register all metrics of the broker in `registry`."""
        show = self.registry
        quotas, sessions = context.connection_quotas, context.sessions
        show.callback("headwater_requests_total", "counter", self._requests, "Requests served.")
        show.callback(
            "headwater_request_errors_total", "counter", self._error_samples,
            "Errors in responses, of a request as a whole or of one of its partitions.",
        )  # fmt: skip
        for key, counters in self.apis.items():
            show.add(
                "headwater_request_time_ms", {"api": API[key].name}, counters.time_ms,
                "From the request to its response; produce requests are sampled.",
            )  # fmt: skip
        show.gauge("headwater_connections", help="Open.", read=lambda: len(quotas.open))
        show.callback(
            "headwater_connections_rejected_total", "counter", lambda: [({}, quotas.rejected)],
            "Connections closed at once: too many were open.",
        )  # fmt: skip
        show.callback(
            "headwater_network_bytes_total", "counter", lambda: self._network(context),
            "Bytes of requests and responses.",
        )  # fmt: skip
        show.callback("headwater_topic_bytes_total", "counter", self._topics, "Bytes of records.")
        show.gauge(
            "headwater_memory_bytes", help="Held for connections.", read=lambda: context.memory.used
        )
        show.gauge(
            "headwater_waiting_requests", help="Parked.", read=lambda: len(context.purgatory)
        )
        show.gauge("headwater_fetch_sessions", help="Cached.", read=lambda: len(sessions))
        show.callback(
            "headwater_fetch_session_evictions_total", "counter",
            lambda: [({}, sessions.evictions)], "Sessions dropped to make room.",
        )  # fmt: skip
        show.callback(
            "headwater_group_rebalances_total", "counter",
            lambda: [
                ({"reason": reason.name.lower()}, count)
                for reason, count in self.rebalances.by_reason.items()
            ],
            "Rebalances of consumer groups.",
        )  # fmt: skip

    def _requests(self) -> Iterator[Sample]:
        for key, api in API.items():
            yield {"api": api.name}, self.requests(key)

    def _error_samples(self) -> Iterator[Sample]:
        for (key, code), count in self._errors.items():
            yield {"api": API[key].name, "error": error_of(code).name}, count

    def _topics(self) -> Iterator[Sample]:
        for name, topic in self.topics.items():
            yield {"topic": name, "direction": "in"}, topic.bytes_in
            yield {"topic": name, "direction": "out"}, topic.bytes_out

    def _network(self, context: "Context") -> Iterator[Sample]:
        connections: list[Any] = list(context.connection_quotas.open)
        bytes_in = sum(connection.bytes_in for connection in connections)
        bytes_out = sum(connection.bytes_out for connection in connections)
        yield {"direction": "in"}, self.closed_bytes_in + bytes_in
        yield {"direction": "out"}, self.closed_bytes_out + bytes_out

"""What keeps records from a reader: a replication throttle from a follower, a quota from a consumer."""

from typing import Protocol

from headwater.broker.client_quotas import ClientQuotas
from headwater.broker.context import Context
from headwater.broker.handlers.fetch_parts import Part
from headwater.broker.handlers.fetch_readers import FetchReader
from headwater.broker.request import Request
from headwater.replication.replica import Replica
from headwater.replication.throttles import ReplicationThrottle
from headwater.seams.clock import Clock
from headwater.security.quota_buckets import QuotaBucket

ANSWER_S = 0.5
"""The most of a quota, in seconds of its rate, that one answer takes."""


class FetchThrottle(Protocol):
    """Limits one fetch."""

    def most(self, max_bytes: int) -> int:
        """Return how many bytes the answer may have, if it may have `max_bytes` otherwise."""

    def holds_back(self, replica: Replica) -> bool:
        """Return whether the reader gets nothing of this replica now."""

    def withholds_all(self) -> bool:
        """Return whether the reader gets nothing now, not even what was found for it."""

    def sent(self, replica: Replica, size: int) -> None:
        """Count the bytes of an answer."""

    def answered(self, request: Request) -> None:
        """The answer is complete."""


def throttle_of(context: Context, request: Request, reader: FetchReader) -> FetchThrottle | None:
    """Return what limits a fetch; None if nothing can hold it back."""
    if reader.is_follower:
        throttle = context.throttles.leader
        if not throttle.active:
            return None
        return FollowerThrottle(throttle, context.clock, reader.replica_id)
    quotas, meter = context.quotas, request.connection.meter
    if quotas is None or meter is None or meter.fetch is None:
        return None
    return ConsumerThrottle(quotas, meter.fetch)


def most_bytes(throttle: FetchThrottle | None, wanted: int, allowed: int) -> int:
    """Return the limit of an answer: what the reader wants, and the broker and a throttle allow."""
    most = min(wanted, allowed)
    return most if throttle is None else throttle.most(most)


def withhold(throttle: FetchThrottle | None, parts: list[Part]) -> None:
    """Drop what was found and read, if the client has used up its quota in the meantime."""
    if throttle is not None and throttle.withholds_all():
        for part in parts:
            part.found = part.records = None


class FollowerThrottle:
    """Keeps records of throttled replicas from a follower that is not in sync."""

    __slots__ = ("_clock", "_follower", "_throttle")

    def __init__(self, throttle: ReplicationThrottle, clock: Clock, follower: int) -> None:
        self._throttle = throttle
        self._clock = clock
        self._follower = follower

    def most(self, max_bytes: int) -> int:
        return max_bytes

    def holds_back(self, replica: Replica) -> bool:
        return (
            self._throttle.covers(replica.topic_partition)
            and not replica.leading.is_in_sync(self._follower)
            and self._throttle.is_exceeded(self._clock.monotonic_ms())
        )

    def withholds_all(self) -> bool:
        return False

    def sent(self, replica: Replica, size: int) -> None:
        if self._throttle.covers(replica.topic_partition):
            self._throttle.record(self._clock.monotonic_ms(), size)

    def answered(self, request: Request) -> None: ...


class ConsumerThrottle:
    """Keeps records from a consumer whose quota others used up since its fetch came."""

    __slots__ = ("_bucket", "_quotas", "_sent")

    def __init__(self, quotas: ClientQuotas, bucket: QuotaBucket) -> None:
        self._quotas = quotas
        self._bucket = bucket
        self._sent = 0

    def most(self, max_bytes: int) -> int:
        return min(max_bytes, max(1, int(self._bucket.rate * ANSWER_S)))

    def holds_back(self, replica: Replica) -> bool:
        return self.withholds_all()

    def withholds_all(self) -> bool:
        return self._quotas.is_in_debt(self._bucket)

    def sent(self, replica: Replica, size: int) -> None:
        self._sent += size

    def answered(self, request: Request) -> None:
        """Spend the bytes; a debt throttles the client."""
        throttle_ms = self._quotas.spend(request.connection, self._bucket, self._sent)
        request.throttle_ms = max(request.throttle_ms, throttle_ms)

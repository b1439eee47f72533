"""Holds clients to their quotas.

A request that takes its client beyond a quota is served and answered with a throttle time, and nothing
more is read from its connection until the debt is paid. Requests of the same client on other
connections, new ones too, wait for that as well, in the order they came: they stay in their receive
buffers. Replication and control requests have no quota.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING

from headwater.broker.server_connection import ServerConnection
from headwater.broker.turns import Requester
from headwater.config.addresses import is_loopback
from headwater.config.keys import INT32_MAX
from headwater.errors import E, KafkaError
from headwater.seams.clock import Clock
from headwater.security.principals import BROKER, Principal
from headwater.security.quota_buckets import BucketOwner, QuotaBucket, QuotaBuckets
from headwater.security.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    QuotaKind,
    QuotaTable,
)
from headwater.transport.frame_protocol import RESTING_BUFFER

if TYPE_CHECKING:
    from headwater.broker.request import Request

HELD = -1
"""The verdict on a request that waits."""
MUTATION_BURST_S = 11.0
"""What an idle client may save up for changes of topics, as in Kafka: its rate times all windows."""
CONNECTION_BURST_S = 0.5
RELEASED_AT_ONCE = 4
"""The most connections released in one round of the event loop: each may handle a turn of requests."""
RELEASED_BYTES = 8 * 1024
"""A connection that waits with more bytes of requests ends the round: no other is released with it."""
MOST_MS = 2**31 - 1
LONGEST_NAME = 256
"""The characters of a client id that are remembered, with a hash of a longer one."""

_CLIENT_ID_AT = 8
_US_PER_PERCENT = 10_000
_PRODUCE, _FETCH, _EXEMPT = QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.EXEMPT


_ENDLESS = QuotaBucket(BucketOwner(PRODUCER_BYTE_RATE, None, None), math.inf, 0)


class QuotaMeter:
    """The buckets that the requests of one client on one connection count against."""

    __slots__ = (
        "epoch",
        "fetch",
        "of_route",
        "prefix",
        "principal",
        "produce",
        "request",
        "route",
    )

    def __init__(
        self,
        epoch: int,
        principal: Principal,
        prefix: bytes,
        produce: QuotaBucket | None = None,
        fetch: QuotaBucket | None = None,
        request: QuotaBucket | None = None,
    ) -> None:
        self.epoch = epoch
        self.principal = principal
        self.prefix = prefix
        """The client id with its length, as requests have it."""
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.route: object = None
        """The route whose requests come from this client, and count against `of_route` alone."""
        self.of_route = _ENDLESS

    def use_route(self, route: object) -> None:
        """Count later requests of this route without reading their client id.

        A route ends with every change of the quotas, and has the client id in its bytes.
        """
        self.route = route
        self.of_route = self.produce or _ENDLESS


class _Queue:
    """The connections that wait for the end of a debt, with the number of their holds."""

    __slots__ = ("bucket", "timer", "waiters")

    def __init__(self, bucket: QuotaBucket) -> None:
        self.bucket = bucket
        self.waiters: dict[ServerConnection, int] = {}
        self.timer: asyncio.Handle | None = None


class ClientQuotas:
    """The quotas of users and client ids on this broker."""

    def __init__(
        self,
        clock: Clock,
        kinds: Mapping[int, QuotaKind],
        use: Callable[["ClientQuotas | None"], None],
        exempt_listeners: Collection[str] = (),
        rate_per_address: float = INT32_MAX,
    ) -> None:
        self.table = QuotaTable()
        self._clock = clock
        self._kinds = kinds
        """By API key."""
        self._use = use
        """Called with this object if clients have quotas, with None if they do not."""
        self._exempt_listeners = exempt_listeners
        self._rate_per_address = rate_per_address
        """The new connections per second of an address without a quota."""
        self.rejected_connections = 0
        self._epoch = 0
        self._buckets = QuotaBuckets()
        self._addresses = QuotaBuckets()
        self._queues: dict[QuotaBucket, _Queue] = {}
        self._queues_of: dict[ServerConnection, dict[_Queue, None]] = {}
        self._releasing: dict[ServerConnection, int] = {}
        # The connection whose request is being handled, and since when.
        self._timed: ServerConnection | None = None
        self._since_us = 0

    def set(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        """Apply the quotas of an entity; none removes them."""
        before = self.table.entities.get(entity, {})
        if self.table.set(entity, quotas) and entity.ip is None:
            if before.keys() - quotas.keys():
                self._buckets = QuotaBuckets()  # a debt ends with its quota
            self._epoch += 1
            self._use(self if self.table.limits_clients else None)
            self._release_all()

    # -- connections

    def admits_connection(self, host: str, listener: str) -> bool:
        """Count a new connection of an address; return whether its quota allows it.

        A listener that only brokers use has no quota.
        """
        rate = self.table.connection_rate(host)
        if rate is None and self._rate_per_address < INT32_MAX and not is_loopback(host):
            rate = self._rate_per_address
        if rate is None or listener in self._exempt_listeners:
            return True
        owner = BucketOwner(CONNECTION_CREATION_RATE, None, host)
        now_us = self._clock.monotonic_us()
        bucket = self._addresses.get(owner, rate, now_us, CONNECTION_BURST_S)
        if self.is_in_debt(bucket):
            self.rejected_connections += 1
            return False
        bucket.spend(1, now_us)
        return True

    # -- requests

    def admit(self, connection: ServerConnection, start: int, end: int) -> int:
        """Count the request in `connection.buffer[start:end]`, unless it has to wait.

        Return 0, HELD if it waits, or for how many milliseconds to throttle its client.
        """
        buffer = connection.buffer
        meter = connection.meter
        at = start + _CLIENT_ID_AT
        if (
            meter is None
            or meter.epoch != self._epoch
            or meter.principal is not connection.principal
            or buffer.find(meter.prefix, at, at + len(meter.prefix)) != at
        ):
            meter = connection.meter = self._meter(connection, start, end)
        kind = self._kinds.get(buffer[start + 1], _EXEMPT)
        if kind is _EXEMPT:
            return 0
        bucket = meter.request
        if bucket is not None and self.is_in_debt(bucket):
            return self._hold(connection, bucket, start)
        bucket = meter.produce if kind is _PRODUCE else meter.fetch if kind is _FETCH else None
        if bucket is None:
            return 0
        if bucket.left < 0 and self.is_in_debt(bucket):
            return self._hold(connection, bucket, start)
        if kind is _PRODUCE:
            left = bucket.left - (end - start)
            if left < 0:
                return self.spend(connection, bucket, end - start)
            bucket.left = left
        return 0

    def _meter(self, connection: ServerConnection, start: int, end: int) -> QuotaMeter:
        at = start + _CLIENT_ID_AT
        size = int.from_bytes(connection.view[at : at + 2], "big", signed=True)
        prefix = bytes(connection.view[at : min(end, at + 2 + max(0, size))])
        principal = connection.principal
        if principal.kind == BROKER or not connection.authenticated:
            return QuotaMeter(self._epoch, principal, prefix)
        client_id = prefix[2:].decode(errors="replace")
        return QuotaMeter(
            self._epoch,
            principal,
            prefix,
            self._bucket(PRODUCER_BYTE_RATE, principal.name, client_id),
            self._bucket(CONSUMER_BYTE_RATE, principal.name, client_id),
            self._bucket(REQUEST_PERCENTAGE, principal.name, client_id, _US_PER_PERCENT),
        )

    def _bucket(
        self, key: str, user: str, client_id: str, units: int = 1, **burst: float
    ) -> QuotaBucket | None:
        limit = self.table.limit(key, user, client_id)
        if limit is None:
            return None
        owner = BucketOwner(key, limit.user, _short(limit.client_id))
        return self._buckets.get(owner, limit.rate * units, self._clock.monotonic_us(), **burst)

    def spend(self, connection: ServerConnection, bucket: QuotaBucket, amount: float) -> int:
        """Spend from a bucket; mute the connection while that leaves a debt. Return for how many ms."""
        wait_us = bucket.spend(amount, self._clock.monotonic_us())
        if not wait_us:
            return 0
        connection.hold()
        self._wait(connection, bucket, wait_us)
        return _milliseconds(wait_us)

    def is_in_debt(self, bucket: QuotaBucket) -> bool:
        """Return whether the clients of a bucket have to wait."""
        return bucket.left < 0 and bucket.wait_us(self._clock.monotonic_us()) > 0

    # -- the time that requests take

    def begin_request(self, connection: ServerConnection) -> None:
        """Time the handling of a request of a client with a quota of request time."""
        self._timed, self._since_us = connection, self._clock.monotonic_us()

    def end_request(self, connection: ServerConnection) -> None:
        """Count the rest of its time."""
        self.request_throttle_ms(connection)
        self._timed = None

    def request_throttle_ms(self, connection: ServerConnection) -> int:
        """Count the time so far, if this is the connection being handled; return how long to throttle."""
        meter = connection.meter
        if connection is not self._timed or meter is None or meter.request is None:
            return 0
        now_us = self._clock.monotonic_us()
        took_us, self._since_us = now_us - self._since_us, now_us
        return self.spend(connection, meter.request, took_us)

    def begin_step(self, peer: Requester) -> bool:
        """Time a step of a long request, unless it is part of a request that is timed already."""
        meter = peer.meter if isinstance(peer, ServerConnection) else None
        if self._timed is not None or meter is None or meter.request is None:
            return False
        assert isinstance(peer, ServerConnection)
        self.begin_request(peer)
        return True

    def end_step(self, peer: Requester) -> None:
        """Count its time."""
        if isinstance(peer, ServerConnection):
            self.end_request(peer)

    # -- changes of topics

    def change_topics(self, request: "Request", partitions: int, *, strict: bool) -> None:
        """Count the partitions that a request creates or deletes.

        While its client is in debt, a strict request is refused (KIP-599); others are throttled.
        """
        connection = request.connection
        bucket = None if connection.principal.kind == BROKER else self._bucket_of_changes(request)
        if bucket is None:
            return
        now_us = self._clock.monotonic_us()
        wait_us = bucket.wait_us(now_us)
        if wait_us and strict:
            request.throttle_ms = _milliseconds(wait_us)
            raise KafkaError(
                E.THROTTLING_QUOTA_EXCEEDED,
                f"the quota {CONTROLLER_MUTATION_RATE}={bucket.rate:g} is used up: try again after "
                f"{request.throttle_ms} ms",
            )
        wait_us = bucket.spend(partitions, now_us)
        if wait_us and not strict:
            request.throttle_ms = _milliseconds(wait_us)
            if isinstance(connection, ServerConnection):  # others are clients of another broker
                connection.hold()
                self._wait(connection, bucket, wait_us)

    def mute_for_changes(self, request: "Request", wait_ms: int) -> None:
        """Have a client wait for changes that the controller, another broker, has counted."""
        bucket = self._bucket_of_changes(request)
        if bucket is not None:
            bucket.wait_us(self._clock.monotonic_us())  # refills it
            owed = bucket.left + bucket.rate * wait_ms / 1000
            self.spend(request.connection, bucket, max(0.0, owed))

    def _bucket_of_changes(self, request: "Request") -> QuotaBucket | None:
        return self._bucket(
            CONTROLLER_MUTATION_RATE, request.connection.principal.name, request.client_id or "",
            burst_s=MUTATION_BURST_S,
        )  # fmt: skip

    # -- waiting

    def _hold(self, connection: ServerConnection, bucket: QuotaBucket, start: int) -> int:
        if connection.memory.tight and len(connection.buffer) > RESTING_BUFFER:
            connection.context.peer_log.warning(
                "quotas",
                connection.host,
                "closed a connection: its client is beyond its quota, and memory is short",
            )
            connection.abort()
            return HELD
        connection.put_back(start)
        self._wait(connection, bucket, bucket.wait_us(self._clock.monotonic_us()))
        return HELD

    def _wait(self, connection: ServerConnection, bucket: QuotaBucket, wait_us: int) -> None:
        """Release a hold of the connection after the debt is paid and earlier waiters had their turn."""
        if connection.gone:
            return  # it left before its answer: nothing would forget it
        queue = self._queues.get(bucket)
        if queue is None:
            queue = self._queues[bucket] = _Queue(bucket)
        queue.waiters[connection] = queue.waiters.get(connection, 0) + 1
        self._queues_of.setdefault(connection, {})[queue] = None
        if queue.timer is None:
            self._wake_later(queue, wait_us)

    def _wake_later(self, queue: _Queue, wait_us: int) -> None:
        loop = asyncio.get_running_loop()
        queue.timer = loop.call_later(wait_us / 1_000_000, self._wake, queue)

    def _wake(self, queue: _Queue) -> None:
        """Release the first connection; the next one after it had its turn, if that left no debt."""
        queue.timer = None
        wait_us = queue.bucket.wait_us(self._clock.monotonic_us())
        if wait_us and queue.waiters:
            self._wake_later(queue, wait_us)
            return
        if queue.waiters:
            connection = next(iter(queue.waiters))
            self._leave(queue, connection)
            _release(connection, queue.waiters.pop(connection))
        if queue.waiters:
            queue.timer = asyncio.get_running_loop().call_soon(self._wake, queue)
        else:
            self._queues.pop(queue.bucket, None)

    def _release_all(self) -> None:
        """Release all waiting connections, a few at a time: other quotas may apply to them."""
        idle = not self._releasing
        for queue in self._queues.values():
            if queue.timer is not None:
                queue.timer.cancel()
            for connection, holds in queue.waiters.items():
                self._releasing[connection] = self._releasing.get(connection, 0) + holds
        self._queues.clear()
        self._queues_of.clear()
        if idle and self._releasing:
            self._release_some()

    def _release_some(self) -> None:
        left = RELEASED_BYTES
        for connection in list(islice(self._releasing, RELEASED_AT_ONCE)):
            left -= connection.waiting_bytes
            _release(connection, self._releasing.pop(connection))
            if left < 0:
                break
        if self._releasing:
            asyncio.get_running_loop().call_soon(self._release_some)

    def connection_lost(self, connection: ServerConnection) -> None:
        """Forget a connection that waited."""
        self._releasing.pop(connection, None)
        for queue in self._queues_of.pop(connection, ()):
            queue.waiters.pop(connection, None)

    def _leave(self, queue: _Queue, connection: ServerConnection) -> None:
        others = self._queues_of[connection]
        del others[queue]
        if not others:
            del self._queues_of[connection]

    def throttled(self) -> list[QuotaBucket]:
        """Return the buckets that have made clients wait."""
        return self._buckets.throttled()


def _short(name: str | None) -> str | None:
    """Return what tells a client id from others: clients make up thousands of long ones."""
    if name is None or len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}...{sha256(name.encode()).hexdigest()}"


def _milliseconds(wait_us: int) -> int:
    return min(MOST_MS, -(-wait_us // 1000))


def _release(connection: ServerConnection, holds: int) -> None:
    for _ in range(holds):
        connection.release()

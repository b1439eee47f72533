"""Limits of rate and memory, for each client and for all. Pure: callers pass the time.

Clients are kept in a table of fixed size: a client that forges addresses costs no memory.
"""

import ipaddress
from collections import OrderedDict

MAX_CLIENTS = 65_536
_PROBE_MS = 1000


class TokenBucket:
    """A token bucket that holds one second of its rate.

    A holder of one token may spend any number and go into debt: a batch larger than the bucket is
    accepted and paid for by waiting. On average the rate holds.
    """

    __slots__ = ("_at_ms", "_rate", "_tokens")

    def __init__(self, rate: float, now_ms: int) -> None:
        self._rate = rate
        self._tokens = self._most
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Return how long to wait before spending; 0 if it is possible now."""
        self._tokens = min(self._most, self._tokens + (now_ms - self._at_ms) * self._rate / 1000)
        self._at_ms = now_ms
        return 0 if self._tokens >= 1 else int((1 - self._tokens) * 1000 / self._rate) + 1

    def spend(self, count: int) -> None:
        """Remove tokens, possibly more than there are."""
        self._tokens -= count

    @property
    def _most(self) -> float:
        return max(self._rate, 1.0)


class RateLimits:
    """One rate per client and one for all clients; None means unlimited."""

    def __init__(
        self, per_client: float | None, total: float | None, *, capacity: int = MAX_CLIENTS
    ) -> None:
        self._per_client = per_client
        self._total_rate = total
        self._total: TokenBucket | None = None
        self._capacity = capacity
        self._clients: OrderedDict[str, TokenBucket] = OrderedDict()

    def wait_ms(self, client: str, now_ms: int) -> int:
        """Return how long this client must wait before it may send; 0 if not at all."""
        return max((bucket.wait_ms(now_ms) for bucket in self._buckets(client, now_ms)), default=0)

    def try_spend(self, client: str, events: int, now_ms: int) -> int:
        """Spend and return 0, or return how long the client must wait."""
        wait = self.wait_ms(client, now_ms)
        if not wait:
            for bucket in self._buckets(client, now_ms):
                bucket.spend(events)
        return wait

    def _buckets(self, client: str, now_ms: int) -> list[TokenBucket]:
        found = []
        if self._per_client is not None:
            found.append(self._of(client, self._per_client, now_ms))
        if self._total_rate is not None:
            self._total = self._total or TokenBucket(self._total_rate, now_ms)
            found.append(self._total)
        return found

    def _of(self, client: str, rate: float, now_ms: int) -> TokenBucket:
        bucket = self._clients.get(client)
        if bucket is None:
            bucket = self._clients[client] = TokenBucket(rate, now_ms)
            if len(self._clients) > self._capacity:
                self._clients.popitem(last=False)
        self._clients.move_to_end(client)
        return bucket


class ByteBudget:
    """How many bytes all requests may hold together."""

    def __init__(self, limit: int) -> None:
        self._free = limit

    def try_reserve(self, size: int) -> bool:
        """Reserve `size` bytes; False if they exceed the budget."""
        if size > self._free:
            return False
        self._free -= size
        return True

    def release(self, size: int) -> None:
        self._free += size


class CircuitBreaker:
    """Sheds load while the broker is unavailable: one request per second is let through."""

    def __init__(self) -> None:
        self.away = False
        self._probe_at_ms = 0

    def wait_ms(self, now_ms: int) -> int:
        """Return how long to wait before trying; on 0 the caller must try."""
        if not self.away:
            return 0
        if now_ms < self._probe_at_ms:
            return self._probe_at_ms - now_ms
        self._probe_at_ms = now_ms + _PROBE_MS
        return 0

    def failed(self, now_ms: int) -> None:
        """Record that the broker did not acknowledge in time."""
        self.away = True
        self._probe_at_ms = now_ms + _PROBE_MS

    def succeeded(self) -> None:
        """Record that the broker acknowledged something."""
        self.away = False


def client_of(peer: str, forwarded: str | None) -> str:
    """Return the client's address: the last one that a trusted proxy added, else the peer's."""
    told = (forwarded or "").rpartition(",")[2].strip()
    for text in (told, peer):
        try:
            return str(ipaddress.ip_address(text))
        except ValueError:
            continue
    return peer


def account_of(client: str) -> str:
    """Return the key of a client's rate: all addresses of an IPv6 /64 network share one."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return client

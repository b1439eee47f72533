"""How much is taken, from whom and at once. Pure: the time is an argument.

Clients are remembered in a table of fixed size: one who invents addresses costs no memory.
"""

import ipaddress
from collections import OrderedDict

MAX_CLIENTS = 65_536
_PROBE_MS = 1000


class TokenBucket:
    """Tokens that come back at a steady rate, up to one second's worth.

    Whoever has a token may spend any number and go into debt: a batch larger than the bucket is
    taken, and paid for by waiting. On average the rate holds.
    """

    __slots__ = ("_at_ms", "_rate", "_tokens")

    def __init__(self, rate: float, now_ms: int) -> None:
        self._rate = rate
        self._tokens = self._most
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """How long until something may be spent; 0 for now."""
        self._tokens = min(self._most, self._tokens + (now_ms - self._at_ms) * self._rate / 1000)
        self._at_ms = now_ms
        return 0 if self._tokens >= 1 else int((1 - self._tokens) * 1000 / self._rate) + 1

    def spend(self, count: int) -> None:
        """Take tokens, also more than there are."""
        self._tokens -= count

    @property
    def _most(self) -> float:
        return max(self._rate, 1.0)


class RateLimits:
    """A rate for each client and one for all; None is no limit."""

    def __init__(
        self, per_client: float | None, total: float | None, *, capacity: int = MAX_CLIENTS
    ) -> None:
        self._per_client = per_client
        self._total_rate = total
        self._total: TokenBucket | None = None
        self._capacity = capacity
        self._clients: OrderedDict[str, TokenBucket] = OrderedDict()

    def wait_ms(self, client: str, now_ms: int) -> int:
        """How long this client has to wait before it may send; 0 for not at all."""
        return max((bucket.wait_ms(now_ms) for bucket in self._buckets(client, now_ms)), default=0)

    def try_spend(self, client: str, events: int, now_ms: int) -> int:
        """Spend if the client need not wait; the wait otherwise."""
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
    """Bytes that may be held at once, over all requests."""

    def __init__(self, limit: int) -> None:
        self._free = limit

    def try_reserve(self, size: int) -> bool:
        """Hold `size` bytes more, if there is room."""
        if size > self._free:
            return False
        self._free -= size
        return True

    def release(self, size: int) -> None:
        """Let go of them."""
        self._free += size


class CircuitBreaker:
    """Whether the broker is there: after a failure one request a second tries, the rest is sent away."""

    def __init__(self) -> None:
        self.away = False
        self._probe_at_ms = 0

    def wait_ms(self, now_ms: int) -> int:
        """How long until it is worth trying; with 0 the caller is the one who tries."""
        if not self.away:
            return 0
        if now_ms < self._probe_at_ms:
            return self._probe_at_ms - now_ms
        self._probe_at_ms = now_ms + _PROBE_MS
        return 0

    def failed(self, now_ms: int) -> None:
        """The broker did not take something in time."""
        self.away = True
        self._probe_at_ms = now_ms + _PROBE_MS

    def succeeded(self) -> None:
        """The broker took something."""
        self.away = False


def client_of(peer: str, forwarded: str | None) -> str:
    """Who sends: the last address that a trusted proxy added, else the peer."""
    told = (forwarded or "").rpartition(",")[2].strip()
    for text in (told, peer):
        try:
            return str(ipaddress.ip_address(text))
        except ValueError:
            continue
    return peer


def account_of(client: str) -> str:
    """Whose rate a client uses: an IPv6 network of 64 bits is one client, it has as many addresses as it likes."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return client

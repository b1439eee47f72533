"""Listeners, and how many connections they accept."""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from headwater.config.listeners import Listener
from headwater.seams.accepting import Acceptor
from headwater.seams.network import ListenerHandle, Network
from headwater.transport.frame_protocol import FrameProtocol

log = logging.getLogger("headwater.server")


UNLIMITED = float("inf")
MORE_FOR_BROKERS = 32
"""Connections of brokers beyond the descriptors for connections: the reserve has room for them."""


class CreationRate:
    """Limits new connections in a second; a burst may use up what one second allows."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._left = rate
        self._at_ms = 0

    def pause_s(self, now_ms: int) -> float:
        """Return the time until the next connection may come."""
        if self._rate == UNLIMITED:
            return 0.0
        passed_s = (now_ms - self._at_ms) / 1000
        self._at_ms = now_ms
        self._left = min(max(self._rate, 1.0), self._left + passed_s * self._rate)
        return 0.0 if self._left >= 1 else (1 - self._left) / max(self._rate, 0.1)

    def count(self) -> None:
        """Count a new connection."""
        self._left -= 1


class ConnectionLimits(NamedTuple):
    """How many connections the broker accepts: in total and per address, with exceptions."""

    total: int
    per_host: int
    per_host_overrides: dict[str, int]
    descriptors: int = 1 << 31
    """The most connections that the limit of open files allows."""
    per_listener: Mapping[str, int] = {}
    """By listener: its own limit."""
    rate: float = UNLIMITED
    """The most new connections in a second."""
    rate_per_listener: Mapping[str, float] = {}
    of_brokers: frozenset[str] = frozenset()
    """The listeners to which only their own limits apply: clients must not keep brokers out."""

    def allowed_from(self, host: str) -> int:
        """Return the most connections from one address."""
        return self.per_host_overrides.get(host, self.per_host)


class ConnectionQuotas:
    """Counts connections over all listeners and refuses those above the limits."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.use(limits)
        self.open: dict[FrameProtocol, None] = {}
        """In the order they were opened."""
        self.rejected = 0
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._warned = False

    def use(self, limits: ConnectionLimits) -> None:
        """Replace the limits; connections that are open stay."""
        self.limits = limits
        self._rate = CreationRate(limits.rate)
        self._rates = {name: CreationRate(rate) for name, rate in limits.rate_per_listener.items()}

    def pause_s(self, listener: str, now_ms: int) -> float:
        """Return how long a listener must not accept, to stay within the rates."""
        return max(rate.pause_s(now_ms) for rate in self._rates_of(listener))

    def _rates_of(self, listener: str) -> tuple[CreationRate, ...]:
        own = self._rates.get(listener)
        if own is None:
            return (self._rate,)
        return (own,) if listener in self.limits.of_brokers else (own, self._rate)

    def admit(self, peer: FrameProtocol, host: str, listener: str) -> bool:
        """Count the peer, or return False if there are too many."""
        limits, count = self.limits, len(self.open)
        at_listener = self._by_listener[listener]
        if count >= limits.descriptors:
            self._warn()
        if listener in limits.of_brokers:
            most = limits.descriptors + MORE_FOR_BROKERS
        else:
            most = min(limits.total, limits.descriptors)
        too_many = count >= most or at_listener >= limits.per_listener.get(listener, most)
        if too_many or self._by_host[host] >= self.limits.allowed_from(host):
            self.rejected += 1
            return False
        for rate in self._rates_of(listener):
            rate.count()
        self.open[peer] = None
        self._by_host[host] += 1
        self._by_listener[listener] = at_listener + 1
        return True

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "%d connections are open, as many as the limit of open files allows: further ones "
                "are closed, raise the limit (ulimit -n)",
                len(self.open),
            )

    def leave(self, peer: FrameProtocol, host: str, listener: str) -> None:
        """Stop counting the peer."""
        if peer in self.open:
            del self.open[peer]
            self._by_listener[listener] -= 1
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]


async def open_listener(
    network: Network, listener: Listener, acceptor: Acceptor, backlog: int
) -> ListenerHandle:
    """Bind one named address; OSError says which one failed and what to do."""
    try:
        return await network.serve(acceptor, listener.host or "0.0.0.0", listener.port, backlog)
    except OSError as failure:
        raise OSError(
            failure.errno,
            f"cannot listen on {listener}: {failure.strerror}; choose another with --port or "
            "`listeners`, or stop what holds it",
        ) from failure

"""Listeners, and how many connections they accept."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from headwater.config.listeners import Listener
from headwater.seams.network import ListenerHandle, Network
from headwater.transport.frame_protocol import FrameProtocol

log = logging.getLogger("headwater.server")


class ConnectionLimits(NamedTuple):
    """How many connections the broker accepts: in total and per address, with exceptions."""

    total: int
    per_host: int
    per_host_overrides: dict[str, int]
    descriptors: int = 1 << 31
    """The most connections that the limit of open files allows."""

    def allowed_from(self, host: str) -> int:
        """Return the most connections from one address."""
        return self.per_host_overrides.get(host, self.per_host)


class ConnectionQuotas:
    """Counts connections over all listeners and refuses those above the limits."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.open: dict[FrameProtocol, None] = {}
        """In the order they were opened."""
        self.rejected = 0
        self._by_host: Counter[str] = Counter()
        self._warned = False

    def admit(self, peer: FrameProtocol, host: str) -> bool:
        """Count the peer, or return False if there are too many."""
        count = len(self.open)
        if count >= self.limits.descriptors:
            self._warn()
        too_many = count >= min(self.limits.total, self.limits.descriptors)
        if too_many or self._by_host[host] >= self.limits.allowed_from(host):
            self.rejected += 1
            return False
        self.open[peer] = None
        self._by_host[host] += 1
        return True

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "%d connections are open, as many as the limit of open files allows: further ones "
                "are closed, raise the limit (ulimit -n)",
                len(self.open),
            )

    def leave(self, peer: FrameProtocol, host: str) -> None:
        """Stop counting the peer."""
        if peer in self.open:
            del self.open[peer]
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]


async def open_listener(
    network: Network, listener: Listener, factory: Callable[[], asyncio.BaseProtocol], backlog: int
) -> ListenerHandle:
    """Bind one named address; OSError says which one failed and what to do."""
    try:
        return await network.serve(factory, listener.host or "0.0.0.0", listener.port, backlog)
    except OSError as failure:
        raise OSError(
            failure.errno,
            f"cannot listen on {listener}: {failure.strerror}; choose another with --port or "
            "`listeners`, or stop what holds it",
        ) from failure

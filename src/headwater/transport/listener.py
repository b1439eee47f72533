"""Listening for peers: named endpoints, and how many peers may come."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from headwater.seams.network import Listening, Network
from headwater.transport.inbound import Inbound

log = logging.getLogger("headwater.server")


class Endpoint(NamedTuple):
    """A named address, as `listeners` writes it: `NAME://host:port`."""

    name: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Read `NAME://host:port`; ValueError says what is wrong."""
        name, separator, address = text.strip().partition("://")
        host, colon, port = address.rpartition(":")
        if not (name and separator and colon and port.isdigit() and int(port) < 65536):
            raise ValueError(f"{text!r} is not of the form NAME://host:port")
        return cls(name.upper(), host.strip("[]"), int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class ConnectionLimits(NamedTuple):
    """How many connections the broker holds: in all, per address, with exceptions by address."""

    total: int
    per_host: int
    per_host_overrides: dict[str, int]

    def allowed_from(self, host: str) -> int:
        """The most connections from one address."""
        return self.per_host_overrides.get(host, self.per_host)


class Doorkeeper:
    """Counts connections over all listeners and turns away what is too many."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.open: set[Inbound] = set()
        self.turned_away = 0
        self._by_host: Counter[str] = Counter()

    def admit(self, peer: Inbound, host: str) -> bool:
        """Count the peer in, or say no."""
        too_many = len(self.open) >= self.limits.total
        if too_many or self._by_host[host] >= self.limits.allowed_from(host):
            self.turned_away += 1
            return False
        self.open.add(peer)
        self._by_host[host] += 1
        return True

    def leave(self, peer: Inbound, host: str) -> None:
        """Count the peer out."""
        if peer in self.open:
            self.open.discard(peer)
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]


async def open_listener(
    network: Network, endpoint: Endpoint, factory: Callable[[], asyncio.BaseProtocol], backlog: int
) -> tuple[Listening, Endpoint]:
    """Bind one endpoint; the answer names the port really taken."""
    host = endpoint.host or "0.0.0.0"
    try:
        listening = await network.serve(factory, host, endpoint.port, backlog)
    except OSError as failure:
        raise OSError(
            failure.errno,
            f"cannot listen on {endpoint}: {failure.strerror}; choose another port or address in "
            "`listeners`, or stop what holds it",
        ) from failure
    return listening, endpoint._replace(port=listening.port)

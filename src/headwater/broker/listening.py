"""The limits of connections from the settings and the system, and warnings about them."""

import logging
from typing import TYPE_CHECKING, NamedTuple

from headwater.broker.open_files import OpenFiles
from headwater.config.addresses import is_loopback
from headwater.config.broker import BrokerSettings
from headwater.config.listeners import Listener
from headwater.config.producer_conflicts import number
from headwater.transport.listener import ConnectionLimits

if TYPE_CHECKING:
    from headwater.broker.listener_tls import ListenerTls

log = logging.getLogger("headwater.server")

SETUP_TIMEOUT_S = 10.0
"""How long a client has for the handshake of TLS and its authentication together."""

LEAST_MEMORY = 256 * 1024 * 1024
PART_FOR_STRANGERS = 16
"""Connections that have not authenticated may hold a budget of 1/16 of the size of the other one."""


class ListenerSecurity(NamedTuple):
    """The security settings of the listener that accepted a connection."""

    name: str
    protocol: str
    tls: "ListenerTls | None" = None

    @property
    def uses_sasl(self) -> bool:
        """Whether a client must authenticate with SASL before it is served."""
        return self.protocol.startswith("SASL_")


def connection_limits(settings: BrokerSettings, shares: OpenFiles) -> ConnectionLimits:
    """Return the limits of the settings, reduced to the available descriptors."""
    if settings.is_set("max.connections") and settings.max_connections > shares.connections:
        log.warning(
            "max.connections=%d is more than the limit of open files allows: %d connections are "
            "accepted, raise the limit (ulimit -n) for more",
            settings.max_connections,
            shares.connections,
        )
    return ConnectionLimits(
        settings.max_connections,
        settings.max_connections_per_ip,
        _overrides(settings),
        shares.connections,
        _of_listeners(settings, "max.connections"),
        settings.max_connection_creation_rate,
        _of_listeners(settings, "max.connection.creation.rate"),
        frozenset(settings.listeners_of_brokers if len(settings.listening) > 1 else ()),
    )


def _of_listeners(settings: BrokerSettings, name: str) -> dict[str, int]:
    return {one.name: number(settings.of_listener(one.name, name)) for one in settings.listening}


def memory_limit(settings: BrokerSettings) -> int:
    """Return the most bytes that all connections may hold together."""
    if settings.queued_max_request_bytes > 0:
        return settings.queued_max_request_bytes
    return max(LEAST_MEMORY, 2 * settings.socket_request_max_bytes)


def warn_of_plaintext(listener: Listener) -> None:
    """Warn about a listener through which anybody in the network can read and write everything."""
    if listener.protocol == "PLAINTEXT" and not is_loopback(listener.host):
        log.warning(
            "%s accepts connections from the network without encryption or authentication: bind it to "
            "127.0.0.1, or restrict access to the network",
            listener,
        )


def _overrides(settings: BrokerSettings) -> dict[str, int]:
    pairs = (pair.rpartition(":") for pair in settings.max_connections_per_ip_overrides.split(","))
    return {host.strip(): int(limit) for host, colon, limit in pairs if colon}

"""Accepts the connections of one listener for the broker."""

from collections.abc import Callable
from ssl import SSLContext

from headwater.broker.context import Context
from headwater.broker.listening import SETUP_TIMEOUT_S, ListenerSecurity
from headwater.broker.server_connection import OnFrame, SaslServerConnection, ServerConnection
from headwater.transport.wrong_protocol import tls_needed_answer

_MAPPED = "::ffff:"
"""Before an IPv4 address in a socket of both versions."""


class BrokerAcceptor:
    """Counts each connection before TLS, within the limits of the listener and the broker."""

    setup_timeout_s = SETUP_TIMEOUT_S

    def __init__(
        self, context: Context, security: ListenerSecurity, handler_of: Callable[[str], OnFrame]
    ) -> None:
        self._context = context
        self._security = security
        self._handler_of = handler_of

    @property
    def tls(self) -> SSLContext | None:
        """The context of the key store that is in use now."""
        tls = self._security.tls
        return None if tls is None else tls.context

    def plain_answer(self, received: bytes) -> bytes:
        """Return the answer to a client that does not use TLS."""
        return tls_needed_answer(received)

    def pause_s(self) -> float:
        """Return how long the listener must wait to stay within max.connection.creation.rate."""
        now_ms = self._context.clock.monotonic_ms()
        return self._context.connection_quotas.pause_s(self._security.name, now_ms)

    def accept(self, host: str) -> ServerConnection | None:
        """Return the connection, or None if there are too many, or too many new ones."""
        host = host.removeprefix(_MAPPED)  # limits, quotas and logs know one name of an address
        name = self._security.name
        if not self._context.client_quotas.admits_connection(host, name):
            self._context.peer_log.warning(
                "connections", host, "too many new connections for its connection_creation_rate"
            )
            return None
        kind = SaslServerConnection if self._security.uses_sasl else ServerConnection
        connection = kind(self._context, self._security, self._handler_of(name), host)
        if self._context.connection_quotas.admit(connection, host, name):
            return connection
        self._context.peer_log.warning("connections", host, "too many connections")
        return None

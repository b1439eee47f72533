"""Limits on the time of a request and the number of connections of the HTTP server.

uvicorn waits forever for the rest of a request. Here a request must arrive within a time limit that
starts with its first byte, and connections past the limit are closed at once.
"""

import asyncio
from typing import ClassVar

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol


class TimeLimitedProtocol(H11Protocol):
    """A connection with a time limit for requests; uvicorn creates one per client."""

    READ_TIMEOUT_S: ClassVar[float] = 20.0
    MAX_CONNECTIONS: ClassVar[int] = 1000
    _deadline: asyncio.TimerHandle | None = None
    _has_spoken = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the connection if there are too many; otherwise wait for its first request."""
        super().connection_made(transport)
        if len(self.connections) > self.MAX_CONNECTIONS:
            transport.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Start waiting again: the rest of an unread body may still arrive."""
        self._has_spoken = True
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Run the deadline while the client owes bytes; further bytes do not extend it."""
        if not self._owes():
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.READ_TIMEOUT_S, self._too_slow)

    def _owes(self) -> bool:
        if self.conn.their_state is h11.SEND_BODY:
            return True
        if self.conn.their_state is not h11.IDLE:
            return False
        return not self._has_spoken or bool(self.conn.trailing_data[0])

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self.transport.abort()


def limited_config(
    app: object, *, read_timeout_s: float, max_connections: int, stop_timeout_s: float
) -> Config:
    """Return a uvicorn configuration with these limits that logs little and trusts no headers."""
    limits = {"READ_TIMEOUT_S": read_timeout_s, "MAX_CONNECTIONS": max_connections}
    return Config(
        app,  # type: ignore[arg-type]
        http=type("LimitedProtocol", (TimeLimitedProtocol,), limits),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=int(stop_timeout_s) + 1,
        h11_max_incomplete_event_size=16_384,
    )

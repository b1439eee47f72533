"""HTTP for Prometheus and for health checks: GET /metrics, /healthz and /readyz.

Small and strict: one request on a connection, no body, and limits for everything that a peer chooses.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qs, urlsplit

from headwater.broker.turns import Steps, Turns
from headwater.seams.timers import Timer

log = logging.getLogger("headwater.server")

MAX_HEAD = 8 * 1024
MAX_IGNORED = 64 * 1024
"""Bytes after a request that are read and dropped, so that its answer is not lost."""
MAX_CONNECTIONS = 32
MAX_ASKED = 100
TIME_LIMIT_S = 10.0
"""For a whole exchange, the client's part included."""
TEXT = "text/plain; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_PATHS = (
    b"/metrics  numbers for Prometheus; ?topic=NAME adds the partitions of a topic\n"
    b"/healthz  whether the broker runs\n"
    b"/readyz   whether it serves clients\n"
)

MakeText = Callable[[Collection[str]], Steps[bytes]]
Why = Callable[[], str]
"""Why the broker is not healthy, or not ready; empty if it is."""


class MetricsServer:
    """Answers all connections. One text is made at a time, in turns with long requests."""

    def __init__(self, turns: Turns, make_text: MakeText, not_healthy: Why, not_ready: Why) -> None:
        self._turns = turns
        self._make_text = make_text
        self._checks = {"/healthz": not_healthy, "/readyz": not_ready}
        self._open: dict[HttpConnection, None] = {}
        self._waiting: dict[frozenset[str], list[HttpConnection]] = {}
        self._making = False
        self.gone = False

    def accept(self) -> "HttpConnection":
        """Return the protocol of a new connection."""
        return HttpConnection(self)

    def close(self) -> None:
        """Close every connection, and make no more texts."""
        self.gone = True
        for connection in list(self._open):
            connection.abort()

    def hold_bytes(self, size: int) -> None:
        """Requests here have no bytes that count."""

    # -- what connections call

    def admit(self, connection: "HttpConnection") -> bool:
        """Count a connection; one that asks for nothing, or nothing more, makes room for it."""
        if len(self._open) >= MAX_CONNECTIONS:
            idle = next((one for one in self._open if one.idle), None)
            if idle is None:
                return False
            idle.abort()
            self._open.pop(idle, None)
        self._open[connection] = None
        return True

    def leave(self, connection: "HttpConnection") -> None:
        """Forget a connection."""
        self._open.pop(connection, None)

    def serve(self, connection: "HttpConnection", target: str) -> None:
        """Answer a GET, now or when the text is made."""
        url = urlsplit(target)
        if url.path == "/metrics":
            topics = parse_qs(url.query, max_num_fields=MAX_ASKED).get("topic", [])
            self._waiting.setdefault(frozenset(topics), []).append(connection)
            self._make_next()
        elif url.path in self._checks:
            why = self._checks[url.path]()
            status = HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK
            connection.answer(status, f"{why or 'ok'}\n".encode())
        else:
            connection.answer(HTTPStatus.NOT_FOUND, _PATHS)

    def _make_next(self) -> None:
        if self._waiting and not self._making and not self.gone:
            self._making = True
            asked = next(iter(self._waiting))
            self._turns.start(self._make(asked), self)

    def _make(self, asked: frozenset[str]) -> Steps[None]:
        status, kind = HTTPStatus.OK, PROMETHEUS
        try:
            text = yield from self._make_text(asked)
        except Exception:
            log.exception("the metrics could not be read")
            status, kind, text = HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, b"see the broker's log\n"
        for connection in self._waiting.pop(asked, ()):
            connection.answer(status, text, kind)
        self._making = False
        asyncio.get_running_loop().call_soon(self._make_next)


class HttpConnection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, server: MetricsServer) -> None:
        self.asked = False
        self._server = server
        self._head = b""
        self._ignored = 0
        self._with_body = True
        self._answered = False
        self._peer_is_done = False
        self._transport: asyncio.Transport | None = None
        self._timer: Timer | None = None

    @property
    def idle(self) -> bool:
        """Whether the peer has not asked yet, or its whole answer is on the way."""
        if self._answered and self._transport is not None:
            return self._transport.get_write_buffer_size() == 0
        return not self.asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the peer for a limited time."""
        self._transport = cast("asyncio.Transport", transport)
        if self._server.admit(self):
            self._timer = asyncio.get_running_loop().call_later(TIME_LIMIT_S, self.abort)
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the peer."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._server.leave(self)

    def data_received(self, data: bytes) -> None:
        """Collect the head of the request; drop what comes after it."""
        if self.asked:
            self._ignored += len(data)
            if self._ignored > MAX_IGNORED:
                self.abort()
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n", 0, MAX_HEAD)
        if end >= 0:
            self.asked = True
            self._serve(self._head[:end])
        elif len(self._head) >= MAX_HEAD:
            self.asked = True
            self.answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"the request is too long\n")

    def _serve(self, head: bytes) -> None:
        parts = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
            self.answer(HTTPStatus.BAD_REQUEST, b"this is not HTTP/1.1\n")
            return
        method, target, _ = parts
        if method not in ("GET", "HEAD"):
            self.answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET is served\n")
            return
        self._with_body = method == "GET"
        try:
            self._server.serve(self, target)
        except ValueError:
            self.answer(HTTPStatus.BAD_REQUEST, b"the address cannot be read\n")

    def answer(self, status: HTTPStatus, body: bytes, kind: str = TEXT) -> None:
        """Send the answer and close once the peer has read it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nAllow: GET, HEAD\r\n"
            "Connection: close\r\n\r\n"
        ).encode("latin-1")
        transport.writelines([head, body] if self._with_body else [head])
        self._answered = True
        if self._peer_is_done:
            transport.close()
        else:
            # The peer closes first: closing with unread bytes could cost it the answer.
            transport.write_eof()

    def eof_received(self) -> bool:
        """Keep the connection of a peer that waits for its answer."""
        self._peer_is_done = True
        return self.asked and not self._answered

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

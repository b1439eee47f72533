"""A request being handled, and its reply."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from headwater.broker.pending_response import PendingResponse
from headwater.broker.server_connection import ServerConnection
from headwater.broker.turns import Steps
from headwater.seams.files import Buffer
from headwater.wire import framing
from headwater.wire.schema import Struct

if TYPE_CHECKING:
    from headwater.broker.apis import ServedApi

log = logging.getLogger("headwater.server")


class Replier(Protocol):
    """Receives the response to a request: a client, or the controller in this process."""

    def reply(self, response: Struct) -> None:
        """Send the response; call exactly once."""

    def reply_in_turns(self, response: Struct | Steps[Struct | None]) -> None:
        """Answer, exactly once, with a response that may be long."""


class Request(PendingResponse):
    """One request of one client; `reply` is called exactly once, now or later."""

    __slots__ = (
        "client_id",
        "correlation_id",
        "on_gone",
        "row",
        "started_us",
        "throttle_ms",
        "version",
    )

    def __init__(
        self,
        connection: ServerConnection,
        row: "ServedApi",
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        super().__init__(connection)
        self.row = row
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.throttle_ms, connection.throttle_ms = connection.throttle_ms, 0
        self.started_us = connection.context.clock.monotonic_us()
        self.on_gone: Callable[[], None] | None = None
        """Called if the client disconnects before the response."""

    def fill(self, buffers: list[Buffer]) -> None:
        """Set the response, and record how long it took."""
        if self.buffers is None:
            connection = self.connection
            context = connection.context
            took_us = context.clock.monotonic_us() - self.started_us
            context.metrics.apis[self.row.api.key].time_ms.observe(took_us / 1000)
            self.buffers = buffers
            connection.response_ready(self)

    def reply(self, response: Struct) -> None:
        """Send the response, on the loop thread; the connection keeps the order."""
        if self.buffers is None:
            self._finish(response)
            buffers = framing.response(self.correlation_id, self.version, response)
            self.connection.answer_made(buffers)
            self.fill(buffers)

    def reply_bytes(self, response: bytes) -> None:
        """Answer with a whole response, encoded elsewhere."""
        if self.buffers is None:
            buffers: list[Buffer] = [len(response).to_bytes(4), response]
            self.connection.answer_made(buffers)
            self.fill(buffers)

    def reply_in_turns(self, response: Struct | Steps[Struct | None]) -> None:
        """Send a response that is long or still to be built.

        It is built and encoded over several rounds of the event loop. Nothing more is read from this
        client meanwhile. The steps that build a response may call this again at their end.
        """
        hold = Hold(self.connection)
        if not self.connection.context.turns.start(self._make(response, hold), self.connection):
            hold.acquire()

    def _finish(self, response: Any) -> None:
        """Count an error of the whole request, and set the throttle time."""
        code = getattr(response, "error_code", 0)
        if code:
            self.connection.context.metrics.error(self.row.api.key, code)
        quotas = self.connection.context.quotas
        if quotas is not None:
            self.throttle_ms = max(self.throttle_ms, quotas.request_throttle_ms(self.connection))
        if self.throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = self.throttle_ms

    def _make(self, response: Struct | Steps[Struct | None], hold: "Hold") -> Steps[None]:
        try:
            if isinstance(response, Struct):
                made: Struct | None = response
            else:
                made = yield from response
            if made is not None and not self.answered:
                self._finish(made)
                buffers = yield from framing.response_in_steps(
                    self.correlation_id, self.version, made
                )
                self.connection.answer_made(buffers)
                self.fill(buffers)
        except Exception:
            log.exception("answering a %s request failed", self.row.api.name)
            self.reply_nothing()
            self.connection.dismiss()
        finally:
            hold.release()

    def peer_gone(self) -> None:
        """Handle the disconnect of the client."""
        if self.on_gone is not None:
            self.on_gone()

    def reply_nothing(self) -> None:
        """Complete without a response (acks=0)."""
        self.fill([])


class Hold:
    """Pauses reading from a connection while a series of steps runs."""

    __slots__ = ("_connection", "_taken")

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._taken = False

    def acquire(self) -> None:
        """Pause reading: the steps continue in later rounds."""
        self._taken = True
        self._connection.hold()

    def release(self) -> None:
        """Resume reading: the steps are done."""
        if self._taken:
            self._connection.release()

"""Envelope: a client's request that another broker forwarded to the controller."""

import logging
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.broker.turns import Steps
from headwater.errors import E
from headwater.security.principals import Principal
from headwater.wire import codec, framing
from headwater.wire.framing import ParsedRequestHeader, read_request_header
from headwater.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from headwater.wire.schema import Struct

if TYPE_CHECKING:
    from headwater.broker.apis import ServedApi

log = logging.getLogger("headwater.server")

SIZE = 4
"""Bytes in front of a response that an envelope does not carry."""


class ForwardedClient(NamedTuple):
    """The client behind a forwarded request."""

    principal: Principal
    host: str
    listener: str


class ForwardedRequest:
    """A forwarded request, as handlers see it; its response goes back in the envelope."""

    def __init__(
        self,
        envelope: Request,
        row: "ServedApi",
        header: ParsedRequestHeader,
        client: ForwardedClient,
    ) -> None:
        self.row = row
        self.version = header.version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.connection = client
        self.throttle_ms = 0
        self._envelope = envelope

    def reply(self, response: Struct) -> None:
        """Send the response; call exactly once."""
        self._set_throttle(response)
        self._send(framing.response(self.correlation_id, self.version, response))

    def reply_in_turns(self, response: Struct | Steps[Struct | None]) -> None:
        """Answer, exactly once, with a response that may be long."""
        connection = self._envelope.connection
        connection.context.turns.start(self._make(response), connection)

    def fail(self) -> None:
        """Answer that the request could not be handled."""
        self._envelope.reply(EnvelopeResponse(error_code=E.UNKNOWN_SERVER_ERROR))

    def _make(self, response: Struct | Steps[Struct | None]) -> Steps[None]:
        try:
            made = response if isinstance(response, Struct) else (yield from response)
            if made is not None:
                self._set_throttle(made)
                self._send(
                    (yield from framing.response_in_steps(self.correlation_id, self.version, made))
                )
        except Exception:
            log.exception("answering a forwarded %s request failed", self.row.api.name)
            self.fail()

    def _set_throttle(self, response: Any) -> None:
        if self.throttle_ms:
            response.throttle_time_ms = self.throttle_ms

    def _send(self, buffers: list[Any]) -> None:
        self._envelope.reply(EnvelopeResponse(response_data=b"".join(buffers)[SIZE:]))


def handle_envelope(
    context: Context, request: Request, body: EnvelopeRequest
) -> EnvelopeResponse | Steps[None]:
    """Answer as the controller; a broker that is not the controller answers NOT_CONTROLLER."""
    if not context.controller.active:
        return EnvelopeResponse(error_code=E.NOT_CONTROLLER)
    return _handle(context, request, body)


def _handle(context: Context, request: Request, body: EnvelopeRequest) -> Steps[None]:
    from headwater.broker.apis import FORWARDED

    frame = bytes(body.request_data)
    header = read_request_header(frame, 0, len(frame))
    row = FORWARDED.get(header.api_key)
    if row is None or not row.api.served.holds(header.version):
        request.reply(EnvelopeResponse(error_code=E.UNSUPPORTED_VERSION))
        return
    kind, _, name = (body.request_principal or b"").decode().partition(":")
    client = ForwardedClient(
        Principal(kind, name),
        bytes(body.client_host_address).decode(),
        request.connection.listener,
    )
    inner = ForwardedRequest(request, row, header, client)
    limit = row.most_elements(context)
    try:
        decoded, _ = yield from codec.decode_in_steps(
            row.api.request, header.version, frame, header.body, len(frame), limit
        )
        response = row.answer(context, inner, decoded)
    except codec.WireError:
        inner.fail()  # the broker that passed it on finds the same, and tells its client
        return
    except Exception:
        log.exception("handling a forwarded %s request failed", row.api.name)
        inner.fail()
        return
    if isinstance(response, GeneratorType):
        inner.reply_in_turns(response)
    elif response is not None:
        inner.reply(cast("Struct", response))

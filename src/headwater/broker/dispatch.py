"""Dispatches a frame to its handler by API key and version, and rejects invalid requests.

A request with an unknown API or version, or one that cannot be decoded, closes the connection, as in
Kafka. Only ApiVersions answers an unknown version, so that a client can find a common one.
"""

import logging
from struct import Struct as Packer
from types import GeneratorType
from typing import Any, cast

from headwater.broker.apis import BEFORE_AUTHENTICATION, Listeners, ServedApi, served_on
from headwater.broker.client_quotas import HELD, ClientQuotas
from headwater.broker.context import Context
from headwater.broker.request import Hold, Request
from headwater.broker.server_connection import ServerConnection
from headwater.broker.turns import Steps, finish
from headwater.controller.channel_loop import OnReply
from headwater.controller.control_requests import ControlRequest, ControlResponse
from headwater.errors import KafkaError
from headwater.security.broker_handshake import MECHANISM
from headwater.security.principals import BROKER
from headwater.transport.frame_protocol import MAPPED_BUFFER
from headwater.wire import codec
from headwater.wire.apis import API_VERSIONS, PRODUCE, SASL_HANDSHAKE, key_of
from headwater.wire.framing import ParsedRequestHeader, read_request_header
from headwater.wire.messages.sasl import SaslHandshakeRequest
from headwater.wire.primitives import Buffer
from headwater.wire.schema import Struct

log = logging.getLogger("headwater.server")

MOST_EARLY = 16
"""The most requests before a login: clients send two ApiVersions, a handshake and a few tokens."""
LARGE = 8 * 1024
"""A larger request is decoded in turns; its array items are counted before they are created."""

_read_start = Packer(">hh").unpack_from


class Dispatch:
    """Serves requests of clients and of the local controller."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._table = served_on(Listeners.CLIENT)
        self._control = served_on(Listeners.CONTROL)
        self._counters = context.metrics.apis

    def receive(self, message: ControlRequest, on_reply: OnReply) -> None:
        """Serve a request of this broker's own controller."""
        row = self._control[key_of(type(message))]
        self._counters[row.api.key].requests += 1
        response = row.handler(self._context, _LocalRequest(on_reply), message)
        if response is not None:
            on_reply(cast("ControlResponse", response))

    def frame(self, connection: ServerConnection, start: int, end: int) -> None:
        """Handle the request in `connection.buffer[start:end]`."""
        route, quotas = connection.route, self._context.quotas
        if quotas is None:
            if route is None or not route.try_fast_path(start, end):
                self._frame_of_api(connection, start, end)
            return
        meter = connection.meter
        if meter is not None and meter.route is route and route is not None:
            bucket = meter.of_route
            left = bucket.left - (end - start)
            if left >= 0 and route.try_fast_path(start, end):
                bucket.left = left
                return
        self._frame_with_quotas(quotas, connection, start, end)

    def _frame_with_quotas(
        self, quotas: ClientQuotas, connection: ServerConnection, start: int, end: int
    ) -> None:
        throttle_ms = quotas.admit(connection, start, end)
        route = connection.route
        if throttle_ms:
            if throttle_ms == HELD:
                return
            connection.throttle_ms = throttle_ms
            route = None  # the answers of the fast path have no throttle time
        meter = connection.meter
        timed = meter is not None and meter.request is not None
        if timed:
            quotas.begin_request(connection)
        if route is None or not route.try_fast_path(start, end):
            self._frame_of_api(connection, start, end)
        elif meter is not None and not timed:
            meter.use_route(route)
        if timed:
            quotas.end_request(connection)

    def _frame_of_api(self, connection: ServerConnection, start: int, end: int) -> None:
        api_key, version = _read_start(connection.buffer, start)
        row = self._table.get(api_key) or self._row_for_brokers(connection, api_key)
        if row is None or not row.api.served.holds(version):
            if row is None or api_key != API_VERSIONS:
                self._refuse(connection, f"API key {api_key} version {version} is not served")
                return
            version = 0
        if not (connection.authenticated or self._may_be_early(connection, row)):
            return
        self._counters[api_key].requests += 1
        self._handle(connection, row, version, start, end)

    def _may_be_early(self, connection: ServerConnection, row: ServedApi) -> bool:
        """Whether a peer may send this before it has authenticated; else it is refused."""
        connection.session_end.early += 1
        if not row.before_authentication:
            self._refuse(connection, f"a {row.api.name} request came before authentication")
        elif connection.session_end.early > MOST_EARLY:
            self._refuse(connection, f"more than {MOST_EARLY} requests came before authentication")
        else:
            return True
        return False

    def frame_while_starting(self, connection: ServerConnection, start: int, end: int) -> None:
        """Handle requests of brokers and of the controller; requests of clients wait.

        Brokers may come to any listener: while inter.broker.listener.name changes, they use different
        ones. Clients may log in meanwhile on the listeners of brokers only.
        """
        if self._context.serving:
            # The connection was still being set up when this broker began to serve.
            connection.on_frame = self.frame
            self.frame(connection, start, end)
            return
        api_key, _ = _read_start(connection.buffer, start)
        if (api_key in BEFORE_AUTHENTICATION or api_key in self._control) and (
            self._context.lets_brokers_in(connection.listener)
            or self._may_be_broker(connection, start, end)
        ):
            self.frame(connection, start, end)
        else:
            connection.wait_for_start(start)

    def _may_be_broker(self, connection: ServerConnection, start: int, end: int) -> bool:
        """Return whether the peer is a broker, or may begin to prove that it is one."""
        if connection.principal.kind == BROKER:
            return True
        if connection.sasl is not None and connection.sasl.mechanism == MECHANISM:
            return True
        api_key, version = _read_start(connection.buffer, start)
        if api_key == API_VERSIONS:
            return True  # the first request of a broker, and the same for all
        row = self._table[SASL_HANDSHAKE]
        if api_key != SASL_HANDSHAKE or not row.api.served.holds(version):
            return False
        view = connection.view
        try:
            header = read_request_header(view, start, end)
            body, _ = codec.decode(SaslHandshakeRequest, version, view, header.body, end)
        except codec.WireError:
            return False  # once this broker serves, it is refused
        return body.mechanism == MECHANISM

    def frame_of_controller(self, connection: ServerConnection, start: int, end: int) -> None:
        """Handle a request on the control plane listener, which serves only brokers."""
        api_key, _ = _read_start(connection.buffer, start)
        if connection.principal.kind == BROKER or api_key in BEFORE_AUTHENTICATION:
            self.frame(connection, start, end)
        else:
            self._refuse(connection, "a client came to control.plane.listener.name")

    def _row_for_brokers(self, connection: ServerConnection, api_key: int) -> ServedApi | None:
        return self._control.get(api_key) if connection.principal.kind == BROKER else None

    def _handle(
        self, connection: ServerConnection, row: ServedApi, version: int, start: int, end: int
    ) -> None:
        connection.frame = (start, end)
        view = connection.view
        try:
            header = read_request_header(view, start, end)
            if header.version != version:
                body = None
            elif row.by_controller and self._forward(connection, row, header, start, end):
                return
            elif end - start > LARGE:
                if not self._refused_as_large(connection, row, header, end - start):
                    self._decode_large(connection, row, start, end)
                return
            else:
                body, _ = codec.decode(row.api.request, version, view, header.body, end)
        except codec.WireError as broken:
            self._refuse(connection, f"a {row.api.name} request cannot be read: {broken}")
            return
        self._serve(connection, row, version, header, body)

    def _forward(
        self,
        connection: ServerConnection,
        row: ServedApi,
        header: ParsedRequestHeader,
        start: int,
        end: int,
    ) -> bool:
        """Forward a request that only the controller can answer; False if this broker is the controller."""
        forwarding = self._context.forwarding
        if forwarding is None or not forwarding.needed:
            return False
        frame = bytes(connection.view[start:end])
        request = Request(connection, row, header.version, header.correlation_id, header.client_id)
        limit = row.most_elements(self._context)

        def serve_here() -> None:
            connection.hold()
            steps = self._decode(connection, row, frame, limit, request)
            self._context.turns.start_large(steps, connection, len(frame))

        forwarding.forward(request, frame, serve_here)
        return True

    def _refused_as_large(
        self,
        connection: ServerConnection,
        row: ServedApi,
        header: ParsedRequestHeader,
        size: int,
    ) -> bool:
        """Answer a request that is too large to be decoded; False if it is not."""
        problem = "" if row.large_problem is None else row.large_problem(self._context, size)
        if not problem:
            return False
        said = f"refused a {row.api.name} request: {problem}"
        self._context.peer_log.warning("requests", connection.host, said)
        request = Request(connection, row, header.version, header.correlation_id, header.client_id)
        request.reply(row.refusal_undecoded(request))
        return True

    def _decode_large(
        self, connection: ServerConnection, row: ServedApi, start: int, end: int
    ) -> None:
        """Decode a large request in turns; the client's next request is read after it.

        Batches of a produce request are used where they were received: it begins to be decoded now.
        """
        limit, turns = row.most_elements(self._context), self._context.turns
        if row.api.key == PRODUCE:
            hold = Hold(connection)
            steps = self._decode_in_place(connection, row, start, end, limit, hold)
            if not turns.start(steps, connection, len(connection.buffer)):
                hold.acquire()
                connection.give_up_buffer()
                connection.frame = (0, 0)
            return
        frame: Buffer
        if end - start > MAPPED_BUFFER:
            frame = connection.view[start:end]
            weight = connection.give_up_buffer()
        else:
            frame = bytes(connection.view[start:end])
            weight = len(frame)
        connection.hold()
        turns.start_large(self._decode(connection, row, frame, limit), connection, weight)

    def _decode_in_place(
        self,
        connection: ServerConnection,
        row: ServedApi,
        start: int,
        end: int,
        limit: int,
        hold: Hold,
    ) -> Steps[None]:
        """Decode a request whose slices of the receive buffer are kept."""
        view = connection.view
        try:
            header = read_request_header(view, start, end)
            body, _ = yield from codec.decode_in_steps(
                row.api.request, header.version, view, header.body, end, limit
            )
        except codec.WireError as broken:
            self._refuse(connection, f"a {row.api.name} request cannot be read: {broken}")
        else:
            self._serve(connection, row, header.version, header, body)
        finally:
            hold.release()

    def _decode(
        self,
        connection: ServerConnection,
        row: ServedApi,
        frame: Buffer,
        limit: int,
        request: Request | None = None,
    ) -> Steps[None]:
        try:
            header = read_request_header(frame, 0, len(frame))
            body, _ = yield from codec.decode_in_steps(
                row.api.request, header.version, frame, header.body, len(frame), limit
            )
        except codec.WireError as broken:
            if request is not None:
                request.reply_nothing()
            self._refuse(connection, f"a {row.api.name} request cannot be read: {broken}")
        else:
            del frame
            if request is None:
                self._serve(connection, row, header.version, header, body)
            else:
                self._answer(request, body)
        finally:
            connection.release()

    def _serve(
        self,
        connection: ServerConnection,
        row: ServedApi,
        version: int,
        header: ParsedRequestHeader,
        body: Any,
    ) -> None:
        request = Request(connection, row, version, header.correlation_id, header.client_id)
        self._answer(request, body)

    def _answer(self, request: Request, body: Any) -> None:
        connection, row = request.connection, request.row
        try:
            response = row.answer(self._context, request, body)
        except KafkaError as refused:
            request.reply_nothing()
            self._refuse(connection, f"a {row.api.name} request was refused: {refused.message}")
            return
        except Exception:
            log.exception("handling a %s request failed", row.api.name)
            request.reply_nothing()
            connection.dismiss()
            return
        if isinstance(response, GeneratorType):
            request.reply_in_turns(response)
        elif response is not None:
            request.reply(cast("Struct", response))

    def _refuse(self, connection: ServerConnection, why: str) -> None:
        self._context.peer_log.warning("requests", connection.host, f"closed a connection: {why}")
        connection.dismiss()


class _LocalRequest:
    """A request of the controller in this process."""

    __slots__ = ("_on_reply",)

    def __init__(self, on_reply: OnReply) -> None:
        self._on_reply = on_reply

    def reply(self, response: Struct) -> None:
        self._on_reply(cast("ControlResponse", response))

    def reply_in_turns(self, response: Struct | Steps[Struct | None]) -> None:
        made = response if isinstance(response, Struct) else finish(response)
        if made is not None:
            self.reply(made)

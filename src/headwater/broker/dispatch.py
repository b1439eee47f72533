"""From a frame to its handler: which API, which version, and what to do with nonsense.

A request of an unknown API or version, or one that cannot be read, closes the connection, as
Kafka does; only ApiVersions answers a version that it does not know, so that a client can find
one in common.
"""

import logging
from collections.abc import Callable, Mapping
from struct import Struct as Packer
from types import GeneratorType
from typing import Any, NamedTuple, cast

from headwater.broker.context import Context
from headwater.broker.handlers import produce
from headwater.broker.request import Request
from headwater.broker.server_connection import ServerConnection
from headwater.broker.turns import Steps, finish
from headwater.errors import KafkaError
from headwater.wire import codec
from headwater.wire.apis import (
    ALTER_CONFIGS,
    API,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    PRODUCE,
    Api,
)
from headwater.wire.framing import ParsedRequestHeader, read_request_header
from headwater.wire.schema import Struct

log = logging.getLogger("headwater.server")

Handler = Callable[[Context, Request, Any], Struct | Steps[Struct | None] | None]
"""A handler whose work grows with its request or answer is a generator: see `turns`."""
LARGE = 8 * 1024
"""A request of more bytes is decoded in turns; its array items are counted before they are made."""
MAX_CONTROLLER_ELEMENTS = 10_000
"""The most array items in a request that changes topics or configs. Kafka's controller refuses what
would make more records than this at a time, and makes one or more of each item."""
_CONTROLLER_APIS = frozenset(
    {CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS}
)

_read_start = Packer(">hhi").unpack_from


class _Entry(NamedTuple):
    api: Api
    first: int
    last: int
    handler: Handler


class Dispatch:
    """The table of what this broker serves."""

    def __init__(self, context: Context, handlers: Mapping[int, Handler]) -> None:
        self._context = context
        self._table = {
            key: _Entry(API[key], API[key].served.lowest, API[key].served.highest, handler)
            for key, handler in handlers.items()
        }
        self.requests: dict[int, int] = dict.fromkeys(handlers, 0)

    def frame(self, connection: ServerConnection, start: int, end: int) -> None:
        """Handle the request in `connection.buffer[start:end]`."""
        api_key, version, correlation_id = _read_start(connection.buffer, start)
        route = connection.route
        if (
            api_key == PRODUCE
            and route is not None
            and produce.try_fast_path(
                self._context, connection, route, version, correlation_id, start, end
            )
        ):
            self.requests[PRODUCE] += 1
            return
        entry = self._table.get(api_key)
        if entry is None or not entry.first <= version <= entry.last:
            if entry is None or api_key != API_VERSIONS:
                self._refuse(connection, f"API key {api_key} version {version} is not served")
                return
            version = 0
        self.requests[api_key] += 1
        self._handle(connection, entry, version, start, end)

    def _handle(
        self, connection: ServerConnection, entry: _Entry, version: int, start: int, end: int
    ) -> None:
        connection.frame = (start, end)
        view = connection.view
        try:
            header = read_request_header(view, start, end)
            if header.version != version:
                body = None
            elif end - start > LARGE:
                self._decode_large(connection, entry, start, end)
                return
            else:
                body, _ = codec.decode(entry.api.request, version, view, header.body, end)
        except codec.WireError as broken:
            self._refuse(connection, f"a {entry.api.name} request cannot be read: {broken}")
            return
        self._serve(connection, entry, version, header, body)

    def _decode_large(
        self, connection: ServerConnection, entry: _Entry, start: int, end: int
    ) -> None:
        """Decode a large request in turns; the client's next one is taken after it.

        Batches of a produce request are used where they were received, so it is decoded at once.
        """
        limit = self._context.settings.max_request_elements
        if entry.api.key in _CONTROLLER_APIS:
            limit = min(limit, MAX_CONTROLLER_ELEMENTS)
        if entry.api.key == PRODUCE:
            header = read_request_header(connection.view, start, end)
            steps = codec.decode_in_steps(
                entry.api.request, header.version, connection.view, header.body, end, limit
            )
            self._serve(connection, entry, header.version, header, finish(steps)[0])
            return
        frame = bytes(connection.view[start:end])
        connection.hold()
        self._context.turns.start(self._decode(connection, entry, frame, limit), connection)

    def _decode(
        self, connection: ServerConnection, entry: _Entry, frame: bytes, limit: int
    ) -> Steps[None]:
        try:
            header = read_request_header(frame, 0, len(frame))
            body, _ = yield from codec.decode_in_steps(
                entry.api.request, header.version, frame, header.body, len(frame), limit
            )
        except codec.WireError as broken:
            self._refuse(connection, f"a {entry.api.name} request cannot be read: {broken}")
        else:
            del frame
            self._serve(connection, entry, header.version, header, body)
        finally:
            connection.release()

    def _serve(
        self,
        connection: ServerConnection,
        entry: _Entry,
        version: int,
        header: ParsedRequestHeader,
        body: Any,
    ) -> None:
        request = Request(
            connection, header.api_key, version, header.correlation_id, header.client_id
        )
        try:
            response = entry.handler(self._context, request, body)
        except KafkaError as refused:
            request.reply_nothing()
            self._refuse(connection, f"a {entry.api.name} request was refused: {refused.message}")
            return
        except Exception:
            log.exception("handling a %s request failed", entry.api.name)
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

"""A request that is being handled, and the place where its answer goes."""

from collections.abc import Callable

from headwater.broker.connection import Connection, Slot
from headwater.wire import framing
from headwater.wire.schema import Struct


class Request(Slot):
    """One request of one client; `reply` may come at any later moment, exactly once."""

    __slots__ = ("api_key", "client_id", "correlation_id", "on_gone", "version")

    def __init__(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        super().__init__(connection)
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.on_gone: Callable[[], None] | None = None
        """Called if the client leaves before its answer: nobody waits for this any more."""

    def reply(self, response: Struct) -> None:
        """Answer, on the loop thread; the connection keeps the order."""
        if self.buffers is None:
            buffers = framing.response(self.correlation_id, self.version, response)
            self.connection.answer_made(sum(map(len, buffers)))
            self.fill(buffers)

    def peer_gone(self) -> None:
        """The client left."""
        if self.on_gone is not None:
            self.on_gone()

    def reply_nothing(self) -> None:
        """The protocol wants no answer (acks=0)."""
        self.fill([])

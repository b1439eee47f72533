"""The slot of one response in its connection's order."""

from typing import TYPE_CHECKING

from headwater.seams.files import Buffer

if TYPE_CHECKING:
    from headwater.broker.server_connection import ServerConnection


class PendingResponse:
    """A response that may be set before it is its turn."""

    __slots__ = ("buffers", "connection")

    def __init__(self, connection: "ServerConnection") -> None:
        self.connection = connection
        self.buffers: list[Buffer] | None = None
        connection.pending.append(self)

    @property
    def answered(self) -> bool:
        """Return whether the response is set."""
        return self.buffers is not None

    def fill(self, buffers: list[Buffer]) -> None:
        """Set the response, empty for a request without one; call exactly once."""
        if self.buffers is None:
            self.buffers = buffers
            self.connection.response_ready(self)

    def peer_gone(self) -> None:
        """Handle a disconnect before the response."""

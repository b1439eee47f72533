"""What the mechanisms of SASL have in common: an exchange of tokens that ends with a user. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headwater.security.principals import Principal


class AuthenticationRefused(Exception):
    """The peer is not who it says, or does not follow the mechanism.

    The reason is for this side's log. The other side is not told more than that it failed. An empty
    reason was logged before.
    """


class WaitFirst(Exception):
    """An exchange needs something that is being fetched: feed it the same token again after that.

    `when_ready` calls back, whether it came or not.
    """

    def __init__(self, when_ready: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self.when_ready = when_ready


@dataclass(frozen=True, slots=True)
class ServerStep:
    """The server's next token; with `principal`, the exchange is complete."""

    token: bytes = b""
    principal: Principal | None = None
    lifetime_ms: int = 0
    """For how long the proof is good; 0 without end."""
    by_token: bool = False
    """Whether the proof is a delegation token."""
    refused: str = ""
    """Why the exchange will fail, for the log; the client is answered once more."""


class ServerExchange(Protocol):
    """The server's end of one exchange."""

    def feed(self, token: bytes) -> ServerStep:
        """Answer the client's next token; AuthenticationRefused ends the exchange.

        After WaitFirst, nothing has changed.
        """


class ClientExchange(Protocol):
    """The client's end of one exchange."""

    def first(self) -> bytes:
        """Return the first token."""

    def next(self, token: bytes) -> bytes | None:
        """Answer the server's token; None if the exchange is complete. AuthenticationRefused ends it."""

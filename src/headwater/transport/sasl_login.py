"""The client's side of SASL on a connection: choose a mechanism, then exchange tokens."""

from collections.abc import Generator
from typing import Any, Protocol

from headwater.errors import KafkaError, error_of
from headwater.transport.client_connection import ClientConnection
from headwater.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from headwater.wire.schema import Struct


class TokenExchange(Protocol):
    """A mechanism, as the client's end sees it."""

    def first(self) -> bytes:
        """Return the first token."""

    def next(self, token: bytes) -> bytes | None:
        """Answer the server's token; None if the exchange is complete."""


LoginSteps = Generator[Struct, Any, int]
"""Requests to send; each answer is passed back, and the result is the lifetime of the session in ms."""


def login_steps(mechanism: str, exchange: TokenExchange) -> LoginSteps:
    """Choose a mechanism and exchange its tokens.

    The result is 0 for a session as long as the connection. Raises KafkaError if the broker does not
    offer the mechanism or refuses a token.
    """
    chosen: SaslHandshakeResponse = yield SaslHandshakeRequest(mechanism=mechanism)
    if chosen.error_code:
        offered = ", ".join(chosen.mechanisms) or "none"
        raise KafkaError(
            error_of(chosen.error_code), f"this listener offers other mechanisms: {offered}"
        )
    token: bytes | None = exchange.first()
    lifetime_ms = 0
    while token is not None:
        answer: SaslAuthenticateResponse = yield SaslAuthenticateRequest(auth_bytes=token)
        if answer.error_code:
            raise KafkaError(error_of(answer.error_code), answer.error_message)
        lifetime_ms = answer.session_lifetime_ms
        token = exchange.next(bytes(answer.auth_bytes))
    return lifetime_ms


def answer_to(request: Struct) -> type[Struct]:
    """Return the type of the answer to a request of `login_steps`."""
    is_first = isinstance(request, SaslHandshakeRequest)
    return SaslHandshakeResponse if is_first else SaslAuthenticateResponse


async def log_in(connection: ClientConnection, mechanism: str, exchange: TokenExchange) -> int:
    """Authenticate a connection; return the lifetime of the session in ms, 0 without end."""
    steps = login_steps(mechanism, exchange)
    request = next(steps)
    while True:
        version = connection.version_for(request)
        answer = await connection.call_version(request, answer_to(request), version)
        try:
            request = steps.send(answer)
        except StopIteration as complete:
            return int(complete.value)

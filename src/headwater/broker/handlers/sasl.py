"""SaslHandshake, SaslAuthenticate: authentication of other brokers.

The only mechanism is private to the brokers of a cluster, is served on their listeners only and is
not advertised. An authenticated connection may send follower fetches and control requests, which are
refused to all other clients.
"""

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.errors import E
from headwater.security.broker_handshake import (
    MECHANISM,
    NONCE_BYTES,
    CalledBroker,
    HandshakeError,
)
from headwater.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


def handle_sasl_handshake(
    context: Context, request: Request, body: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Begin the exchange; there is no mechanism for clients yet."""
    if body.mechanism != MECHANISM:
        return SaslHandshakeResponse(error_code=E.ILLEGAL_SASL_STATE)
    nonce = context.randomness.below(1 << 8 * NONCE_BYTES).to_bytes(NONCE_BYTES)
    request.connection.handshake = CalledBroker(context.credentials, nonce)
    return SaslHandshakeResponse(mechanisms=[MECHANISM])


def handle_sasl_authenticate(
    context: Context, request: Request, body: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Answer the caller's challenge, then check its proof; a failure ends the connection."""
    connection = request.connection
    handshake = connection.handshake
    if handshake is None:
        return SaslAuthenticateResponse(error_code=E.ILLEGAL_SASL_STATE)
    data = bytes(body.auth_bytes)
    try:
        if not handshake.challenged:
            return SaslAuthenticateResponse(auth_bytes=handshake.challenge(data))
        connection.principal = handshake.check(data)
    except HandshakeError as refused:
        context.peer_log.warning(
            "brokers", connection.host, f"refused a connection of a broker: {refused}"
        )
        connection.handshake = None
        connection.dismiss()
        return SaslAuthenticateResponse(
            error_code=E.SASL_AUTHENTICATION_FAILED,
            error_message=f"the broker was refused: {refused}",
        )
    connection.handshake = None
    return SaslAuthenticateResponse()

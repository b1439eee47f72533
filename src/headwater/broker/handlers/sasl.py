"""SaslHandshake, SaslAuthenticate: who the peer of a connection is.

Clients use the mechanisms of their listener. Brokers use one of their own, which is not advertised: an
authenticated broker may send follower fetches and control requests. The rules are in
`security/sasl_session.py`; this file answers, delays failures and ends sessions.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from headwater.broker.context import Context
from headwater.broker.pending_response import PendingResponse
from headwater.broker.request import Request
from headwater.broker.server_connection import OnFrame, ServerConnection
from headwater.errors import E, KafkaError
from headwater.security.broker_handshake import MECHANISM, HandshakeError
from headwater.security.plain import PLAIN
from headwater.security.sasl_exchange import AuthenticationRefused, WaitFirst
from headwater.security.sasl_session import SaslSession, SessionStep
from headwater.transport.frame_protocol import SMALLEST_FRAME
from headwater.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

RAW_TOKENS = 0
"""The version of SaslHandshake that tokens follow without SaslAuthenticate around them."""
REAUTHENTICATION_GRACE_S = 10.0
"""How long an expired connection may still authenticate again before it is closed."""


def handle_sasl_handshake(
    context: Context, request: Request, body: SaslHandshakeRequest
) -> SaslHandshakeResponse | None:
    """Begin the exchange of a mechanism; 0: tokens follow as bare frames."""
    connection = request.connection
    session = _session(context, connection)
    error = session.choose(body.mechanism, context.clock.monotonic_ms())
    mechanisms = [] if error is E.ILLEGAL_SASL_STATE else session.advertised
    response = SaslHandshakeResponse(error_code=error, mechanisms=mechanisms)
    if error is not E.NONE:
        if error is E.UNSUPPORTED_SASL_MECHANISM or not connection.authenticated:
            why = f"{body.mechanism[:64]!r} is not a mechanism for this login"
            _refuse(context, connection, body.mechanism[:64], why, partial(request.reply, response))
            return None
        return response
    if body.mechanism == MECHANISM:
        response.mechanisms = [MECHANISM]
    connection.end_session()
    if request.version == RAW_TOKENS:
        _take_raw_tokens(context, connection, session)
    return response


def handle_sasl_authenticate(
    context: Context, request: Request, body: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | None:
    """Pass a token to the mechanism; a failure is answered later and ends the connection.

    1: the answer says when the client has to authenticate again.
    """
    connection = request.connection
    session = connection.sasl
    if session is None or not session.in_exchange:
        if not connection.authenticated:
            raise KafkaError(E.ILLEGAL_SASL_STATE, "it came without a SaslHandshake before it")
        return SaslAuthenticateResponse(
            error_code=E.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    token = bytes(body.auth_bytes)

    def accepted(step: SessionStep) -> None:
        request.reply(
            SaslAuthenticateResponse(auth_bytes=step.token, session_lifetime_ms=step.lifetime_ms)
        )

    def refused(problem: AuthenticationRefused) -> None:
        response = SaslAuthenticateResponse(
            error_code=E.SASL_AUTHENTICATION_FAILED, error_message=_told(session, problem)
        )
        _refuse(
            context,
            connection,
            session.mechanism,
            _logged(session, problem),
            partial(request.reply, response),
        )

    _feed(context, connection, session, token, accepted, refused)
    return None


def _feed(
    context: Context,
    connection: ServerConnection,
    session: SaslSession,
    token: bytes,
    accepted: Callable[[SessionStep], None],
    refused: Callable[[AuthenticationRefused], None],
) -> None:
    """Pass a token to the exchange; read nothing more until it has an answer."""
    try:
        step = session.feed(token, context.clock.monotonic_ms())
    except WaitFirst as waits:
        connection.hold()

        def again() -> None:
            if not connection.gone:
                connection.release()
                _feed(context, connection, session, token, accepted, refused)

        waits.when_ready(again)
    except AuthenticationRefused as problem:
        refused(problem)
    else:
        if step.refused:
            _log_refusal(
                context, connection, session.mechanism, f"with {session.mechanism}: {step.refused}"
            )
        _authenticated(context, connection, step)
        accepted(step)


def _session(context: Context, connection: ServerConnection) -> SaslSession:
    if connection.sasl is None:
        connection.sasl = SaslSession(
            context.sasl[connection.listener], anonymous=connection.authenticated
        )
    return connection.sasl


def _told(session: SaslSession, refused: AuthenticationRefused) -> str:
    """Return the reason for the peer: the same one for every wrong user and password."""
    if isinstance(refused, HandshakeError):
        return f"the broker was refused: {refused}"
    if session.mechanism == PLAIN:
        return "Authentication failed: Invalid username or password"
    return (
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {session.mechanism}"
    )


def _logged(session: SaslSession, refused: AuthenticationRefused) -> str:
    """Return the reason for the log; empty if it was logged before."""
    return f"with {session.mechanism}: {refused}" if str(refused) else ""


def _authenticated(context: Context, connection: ServerConnection, step: SessionStep) -> None:
    if step.principal is None:
        return
    connection.authenticated_as(step.principal)
    if step.lifetime_ms:
        connection.session_end.set(step.lifetime_ms / 1000, partial(_expire, context, connection))


def _expire(context: Context, connection: ServerConnection) -> None:
    """Serve only re-authentication, for a limited time."""
    session = connection.sasl
    if session is None or connection.gone:
        return
    if session.expires(context.clock.monotonic_ms()):
        connection.end_session()
        connection.session_end.set(REAUTHENTICATION_GRACE_S, partial(_close_idle, connection))
    else:  # the timer is a little early
        connection.session_end.set(0.001, partial(_expire, context, connection))


def _close_idle(connection: ServerConnection) -> None:
    """Close an expired connection; requests that it sent in time are answered first."""
    if connection.pending:
        connection.session_end.set(REAUTHENTICATION_GRACE_S, partial(_close_idle, connection))
    else:
        connection.dismiss()


def _refuse(
    context: Context,
    connection: ServerConnection,
    mechanism: str,
    why: str,
    answer: Callable[[], object],
) -> None:
    """Log the reason, then answer and close after a delay; read nothing more until then."""
    if why:
        _log_refusal(context, connection, mechanism, why)
    connection.end_session()
    connection.hold()

    def close() -> None:
        answer()
        connection.dismiss()

    delay_s = context.settings.connection_failed_authentication_delay_ms / 1000
    asyncio.get_running_loop().call_later(delay_s, close)


def _log_refusal(context: Context, connection: ServerConnection, mechanism: str, why: str) -> None:
    context.peer_log.warning("authentication", connection.host, f"refused a login: {why}")
    context.audit.login_refused(connection, mechanism, why)


def _take_raw_tokens(context: Context, connection: ServerConnection, session: SaslSession) -> None:
    """Take each frame as a token until the exchange is complete, as before SaslAuthenticate existed."""
    serve: OnFrame = connection.on_frame

    def take(connection: ServerConnection, start: int, end: int) -> None:
        slot = PendingResponse(connection)

        def accepted(step: SessionStep) -> None:
            if step.principal is not None:
                connection.min_frame = SMALLEST_FRAME
                connection.on_frame = serve
            slot.fill([len(step.token).to_bytes(4), step.token])

        def refused(problem: AuthenticationRefused) -> None:
            _refuse(
                context,
                connection,
                session.mechanism,
                _logged(session, problem),
                partial(slot.fill, []),
            )

        token = bytes(connection.view[start:end])
        _feed(context, connection, session, token, accepted, refused)

    connection.min_frame = 0  # a token may be shorter than a request
    connection.on_frame = take

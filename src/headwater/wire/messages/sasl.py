"""SASL: which mechanism (17), and its exchange of bytes (36)."""

from headwater.wire.schema import Struct, i16, i64, since


class SaslHandshakeRequest(Struct, api_key=17, versions="0-1"):
    """Choose a mechanism.

    1: the exchange uses SaslAuthenticate instead of bare bytes.
    """

    mechanism: str = ""


class SaslHandshakeResponse(Struct, api_key=17, versions="0-1"):
    """Whether the mechanism can be used, and which ones can."""

    error_code: i16 = 0
    mechanisms: list[str] = since(default=[])


class SaslAuthenticateRequest(Struct, api_key=36, versions="0-2", flexible="2+"):
    """The client's next bytes of the exchange."""

    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Struct, api_key=36, versions="0-2", flexible="2+"):
    """The server's next bytes of the exchange.

    1: when the client has to authenticate again.
    """

    error_code: i16 = 0
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: i64 = since("1+", default=0, ignorable=True)

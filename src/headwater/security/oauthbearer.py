"""SASL OAUTHBEARER (RFC 7628), both ends. Pure.

The client sends a token of its identity provider. The token itself is sent, so the mechanism needs
TLS around it.
"""

import re
from collections.abc import Callable, Mapping

from headwater.security.bearer_tokens import MAX_TOKEN_BYTES, TokenRefused, VerifiedToken
from headwater.security.principals import USER, Principal
from headwater.security.sasl_exchange import AuthenticationRefused, ServerStep

OAUTHBEARER = "OAUTHBEARER"
MAX_MESSAGE_BYTES = MAX_TOKEN_BYTES + 4096
ACKNOWLEDGED = b"\x01"
"""What a client sends when it has read that its token is refused."""
_INVALID_TOKEN = b'{"status":"invalid_token"}'

_NAME = r"(?:[^\x00\x01,=]|=2C|=3D)+"
_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[^\x01]+\x01)*)\x01\Z")
_PAIR = re.compile(r"(?P<key>[A-Za-z]+)=(?P<value>[\x20-\x7e\t\r\n]*)\Z")
_BEARER = re.compile(r"[Bb]earer +(?P<token>[A-Za-z0-9._~+/-]+=*) *\Z")
_EXTENSION = re.compile(r"[A-Za-z]+\Z")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+\Z")

VerifyToken = Callable[[str], VerifiedToken]
"""Returns whom a token names; TokenRefused otherwise. May raise WaitFirst."""


class OAuthBearerServer:
    """The server's end. A refused token is answered first, and fails when the client has read that."""

    def __init__(self, verify: VerifyToken) -> None:
        self._verify = verify
        self._is_refused = False

    def feed(self, token: bytes) -> ServerStep:
        """Check the client's message, or end an exchange whose token was refused."""
        if self._is_refused:
            raise AuthenticationRefused("")  # the reason is known since the message before
        authzid, bearer = _parse_first(token)
        try:
            verified = self._verify(bearer)
        except TokenRefused as refused:
            self._is_refused = True
            return ServerStep(_INVALID_TOKEN, refused=str(refused))
        if authzid not in (None, verified.name):
            raise AuthenticationRefused(f"user {verified.name!r} asks to act as another user")
        return ServerStep(
            principal=Principal(USER, verified.name), lifetime_ms=verified.lifetime_ms
        )


class OAuthBearerClient:
    """Sends a token with extensions."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        problem = token_problem(token) or extensions_problem(extensions or {})
        if problem:
            raise AuthenticationRefused(problem)
        self._token = token
        self._extensions = extensions or {}
        self.refusal = ""
        """What the broker said of a token that it refused."""

    def first(self) -> bytes:
        """Return the message with the token."""
        pairs = {"auth": f"Bearer {self._token}", **self._extensions}
        lines = [f"{name}={value}\x01" for name, value in pairs.items()]
        return f"n,,\x01{''.join(lines)}\x01".encode()

    def next(self, token: bytes) -> bytes | None:
        """Complete, or acknowledge that the token is refused: the broker then ends the exchange."""
        if self.refusal:
            raise AuthenticationRefused("the broker refused the token, and then accepted it")
        if not token:
            return None
        self.refusal = token[:200].decode("utf-8", "replace")
        return ACKNOWLEDGED


def token_problem(token: str) -> str | None:
    """Return why a token cannot be sent, without quoting it; None if it can."""
    if len(token) > MAX_TOKEN_BYTES:
        return f"the token has more than {MAX_TOKEN_BYTES} bytes"
    if _BEARER.match(f"Bearer {token}") is None:
        return "the token is empty, or has characters that a bearer token cannot have"
    return None


def extensions_problem(extensions: Mapping[str, str]) -> str | None:
    """Return why SASL extensions cannot be sent; None if they can."""
    for name, value in extensions.items():
        if _EXTENSION.match(name) is None or name.lower() == "auth":
            return f"the SASL extension {name!r} is not a name of letters other than 'auth'"
        if _VALUE.match(value) is None:
            return f"the SASL extension {name!r} has a value that cannot be sent"
    return None


def _parse_first(message: bytes) -> tuple[str | None, str]:
    """Return the authorization id and the token."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise AuthenticationRefused(
            f"an OAUTHBEARER message has more than {MAX_MESSAGE_BYTES} bytes"
        )
    try:
        first = _FIRST.match(message.decode())
    except UnicodeDecodeError:
        raise AuthenticationRefused("an OAUTHBEARER message is not UTF-8") from None
    if first is None:
        raise AuthenticationRefused("the OAUTHBEARER message is malformed")
    pairs: dict[str, str] = {}
    for text in first["pairs"].split("\x01")[:-1]:
        pair = _PAIR.match(text)
        if pair is None or pair["key"] in pairs:
            raise AuthenticationRefused("the OAUTHBEARER message has a malformed extension")
        pairs[pair["key"]] = pair["value"]
    bearer = _BEARER.match(pairs.get("auth", ""))
    if bearer is None:
        raise AuthenticationRefused("the OAUTHBEARER message has no bearer token")
    authzid = first["authzid"]
    if authzid is not None:
        authzid = authzid.replace("=2C", ",").replace("=3D", "=")
    return authzid, bearer["token"]

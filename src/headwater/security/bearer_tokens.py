"""Tokens of an identity provider (JWT): whom they name, and until when. Pure.

The signature is checked before the claims are read. Which key made it is said by `kid` alone: a key,
or the address of one, inside the token is never used.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from headwater.security.strict_json import StrictJsonError, parse_object

MAX_TOKEN_BYTES = 16_384
MAX_NAME_BYTES = 1024
MAX_ID_CHARS = 256
"""Of the name of a key."""
MAX_SESSION_MS = 24 * 3_600_000
"""The longest session that a token gives, whatever its lifetime."""
MIN_SESSION_MS = 1000
"""The session of a token that expires now; clocks may differ by the clock skew."""
ALGORITHMS = frozenset(
    [f"{family}{size}" for family in ("RS", "PS", "ES") for size in (256, 384, 512)] + ["EdDSA"]
)
_LATEST_S = 1 << 53
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*\Z")


class TokenRefused(Exception):
    """The token proves nothing; the reason is for the log, and quotes nothing that is secret."""


class VerifiedToken(NamedTuple):
    """Whom a token names, and for how long from now."""

    name: str
    lifetime_ms: int


class Keys(Protocol):
    """The keys of the provider."""

    def fits(self, kid: str, algorithm: str) -> bool:
        """Return whether a key called `kid` can be used with the algorithm."""

    def verifies(self, kid: str, algorithm: str, signature: bytes, signed: bytes) -> bool:
        """Return whether that key made the signature."""


FindKeys = Callable[[str], Keys]
"""Returns the keys in which to look for a `kid`; TokenRefused if none can be had."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say."""

    audiences: frozenset[str]
    """A token must be meant for one of these; empty: its audience does not matter."""
    issuer: str | None
    """Who must have issued it; None: anybody with the key."""
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    skew_ms: int = 30_000


def verify_token(token: str, rules: TokenRules, find_keys: FindKeys, now_ms: int) -> VerifiedToken:
    """Return whom the token names; TokenRefused if it is forged, or not for this broker and time."""
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenRefused(f"the token has more than {MAX_TOKEN_BYTES} bytes")
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise TokenRefused("the token is not a signed JWT of three parts")
    header = _object(parts[0], "header")
    kid, algorithm = _signed_by(header)
    signature = _bytes(parts[2], "signature")
    keys = find_keys(kid)
    if not keys.fits(kid, algorithm):
        raise TokenRefused(f"no key {kid!r} of the JWKS is for {algorithm}")
    if not keys.verifies(kid, algorithm, signature, f"{parts[0]}.{parts[1]}".encode()):
        raise TokenRefused(f"key {kid!r} of the JWKS did not make the signature")
    return _check_claims(_object(parts[1], "payload"), rules, now_ms)


def decoded(text: str) -> bytes:
    """Return the bytes of base64url without padding, as JWS writes them; ValueError otherwise."""
    if _BASE64URL.match(text) is None:
        raise ValueError("is not base64url")
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if urlsafe_b64encode(data).rstrip(b"=") != text.encode():
        raise ValueError("is not base64url")
    return data


def _signed_by(header: dict[str, Any]) -> tuple[str, str]:
    kid, algorithm = header.get("kid"), header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRefused("the token is not signed with RS, PS, ES (256, 384, 512) or EdDSA")
    if not isinstance(kid, str) or not 0 < len(kid) <= MAX_ID_CHARS:
        raise TokenRefused("the token does not name its key (kid)")
    if "crit" in header:
        raise TokenRefused("the token needs an extension that is not supported (crit)")
    return kid, algorithm


def _check_claims(claims: dict[str, Any], rules: TokenRules, now_ms: int) -> VerifiedToken:
    expires_ms, issued_ms = _time_ms(claims, "exp"), _time_ms(claims, "iat")
    if now_ms >= expires_ms + rules.skew_ms:
        raise TokenRefused("the token has expired")
    if issued_ms > now_ms + rules.skew_ms:
        raise TokenRefused("the token was issued in the future: compare the clocks")
    if issued_ms > expires_ms:
        raise TokenRefused("the token expired before it was issued")
    if "nbf" in claims and _time_ms(claims, "nbf") > now_ms + rules.skew_ms:
        raise TokenRefused("the token is not valid yet (nbf)")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused("the token is of another issuer (iss)")
    if rules.audiences and rules.audiences.isdisjoint(_texts(claims.get("aud"), "aud")):
        raise TokenRefused("the token is for another audience (aud)")
    if claims.get(rules.scope_claim):
        _texts(claims[rules.scope_claim], rules.scope_claim)
    lifetime_ms = min(max(expires_ms - now_ms, MIN_SESSION_MS), MAX_SESSION_MS)
    return VerifiedToken(_name(claims, rules.subject_claim), lifetime_ms)


def _name(claims: dict[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenRefused(f"the token names no user ({claim})")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = MAX_NAME_BYTES + 1
    if size > MAX_NAME_BYTES or not name.isprintable():
        raise TokenRefused(f"the token names a user that cannot be one ({claim})")
    return name


def _time_ms(claims: dict[str, Any], claim: str) -> int:
    value = claims.get(claim)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"the token has no time {claim}")
    if not 0 < value < _LATEST_S:  # neither are NaN and infinity
        raise TokenRefused(f"the token has an impossible time {claim}")
    return int(value * 1000)


def _texts(value: Any, claim: str) -> list[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(one, str) and one for one in values):
        raise TokenRefused(f"the token has no usable {claim}")
    return values


def _object(part: str, what: str) -> dict[str, Any]:
    try:
        return parse_object(_bytes(part, what))
    except StrictJsonError as wrong:
        raise TokenRefused(f"the {what} of the token {wrong}") from None


def _bytes(part: str, what: str) -> bytes:
    try:
        return decoded(part)
    except ValueError:
        raise TokenRefused(f"the {what} of the token is not base64url") from None

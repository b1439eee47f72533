"""SASL PLAIN (RFC 4616), both ends. Pure.

The password itself is sent, so the mechanism needs TLS around it.
"""

import hmac
from collections.abc import Mapping

from headwater.security.principals import USER, Principal
from headwater.security.sasl_exchange import AuthenticationRefused, ServerStep

PLAIN = "PLAIN"
MAX_PART_BYTES = 1024


class PlainServer:
    """Compares passwords with those of `users`; an unknown user takes as long as a known one."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def feed(self, token: bytes) -> ServerStep:
        """Check the only token."""
        parts = token.split(b"\0")
        if len(parts) != 3 or any(len(part) > MAX_PART_BYTES for part in parts):
            raise AuthenticationRefused("the token is not [authzid] NUL user NUL password")
        try:
            authzid, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise AuthenticationRefused("the token is not UTF-8") from None
        if not user or not password:
            raise AuthenticationRefused("the user or the password is empty")
        known = self._users.get(user)
        # Digests have one length: the time says nothing about the length of the password.
        fits = hmac.compare_digest(_digest(known or ""), _digest(password))
        if known is None or not fits:
            raise AuthenticationRefused(f"user {user!r} or the password is wrong")
        if authzid not in ("", user):
            raise AuthenticationRefused(f"user {user!r} asks to act as another user")
        return ServerStep(principal=Principal(USER, user))


class PlainClient:
    """Sends the user and the password."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        """Return the only token."""
        return self._token

    def next(self, token: bytes) -> bytes | None:
        """Complete: the server has accepted."""
        return None


def _digest(text: str) -> bytes:
    return hmac.digest(b"PLAIN", text.encode(), "sha256")

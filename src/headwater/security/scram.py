"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both ends. Pure.

Neither end learns the password from the other, and each proves that it knows something derived from
it. Stricter than Kafka: the channel binding of the last message must be that of the first, messages
and nonces are short, and a mandatory extension is refused.
"""

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Mapping
from typing import NamedTuple

from headwater.security.principals import USER, Principal
from headwater.security.sasl_exchange import AuthenticationRefused, ServerStep
from headwater.security.scram_credentials import (
    MAX_ITERATIONS,
    MAX_SALT_BYTES,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
)

MAX_MESSAGE_BYTES = 4096
NONCE_BYTES = 24

_NAME = r"(?:[^\x00,=]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]{8,256}"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS = r"(?P<extensions>(?:,[A-Za-z]+=[^\x00,]+)*)"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})\Z"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})\Z"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})"
    rf"(?P<extensions>(?:,[A-Za-z]+=[^\x00,]+)*)\Z"
)
_SERVER_FINAL = re.compile(
    r"(?:v=(?P<signature>[A-Za-z0-9+/]+={0,2})|e=(?P<error>[^\x00,]+))(?:,.*)?\Z"
)


class Account(NamedTuple):
    """Who logs in: the credential, and the user that it proves.

    `left_ms` is set for a delegation token: how long it is still valid, 0 if it has expired.
    """

    credential: ScramCredential
    user: str
    left_ms: Callable[[], int] | None = None


FindAccount = Callable[[str, Mapping[str, str]], Account]
"""Finds the account for a name with the extensions of the client; may raise WaitFirst."""


class ScramServer:
    """The server's end; `find` returns an account for any name of a user."""

    def __init__(self, mechanism: ScramMechanism, find: FindAccount, nonce: bytes) -> None:
        self._mechanism = mechanism
        self._find = find
        self._own_nonce = b64encode(nonce).decode()
        self._begun: _Begun | None = None

    def feed(self, token: bytes) -> ServerStep:
        """Answer the first message with the salt, the last one with the server's signature."""
        text = _text(token)
        if self._begun is None:
            return ServerStep(self._begin(text))
        begun, self._begun = self._begun, None
        return begun.finish(text)

    def _begin(self, text: str) -> bytes:
        first = _CLIENT_FIRST.match(text)
        if first is None:
            raise AuthenticationRefused("the first SCRAM message is malformed")
        name = _unescaped(first["name"])
        if first["authzid"] is not None and _unescaped(first["authzid"]) != name:
            raise AuthenticationRefused(f"user {name!r} asks to act as another user")
        account = self._find(name, _extensions(first["extensions"]))
        credential = account.credential
        nonce = first["nonce"] + self._own_nonce
        salt = b64encode(credential.salt).decode()
        answer = f"r={nonce},s={salt},i={credential.iterations}"
        self._begun = _Begun(
            self._mechanism, account, first["header"], nonce, f"{first['bare']},{answer}"
        )
        return answer.encode()


class _Begun:
    """A server that waits for the last message."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        account: Account,
        header: str,
        nonce: str,
        messages: str,
    ) -> None:
        self._mechanism = mechanism
        self._account = account
        self._header = header
        self._nonce = nonce
        self._messages = messages

    def finish(self, text: str) -> ServerStep:
        final = _CLIENT_FINAL.match(text)
        if final is None:
            raise AuthenticationRefused("the last SCRAM message is malformed")
        _extensions(final["extensions"])
        if not hmac.compare_digest(final["nonce"], self._nonce):
            raise AuthenticationRefused("the last SCRAM message has another nonce")
        if final["binding"] != b64encode(self._header.encode()).decode():
            raise AuthenticationRefused("the last SCRAM message has another channel binding")
        mechanism, (credential, user, left_ms) = self._mechanism, self._account
        signed = f"{self._messages},{final['without_proof']}".encode()
        proof = _decoded(final["proof"])
        signature = mechanism.mac(credential.stored_key, signed)
        if len(proof) != len(signature):
            raise AuthenticationRefused("the proof has the wrong size")
        stored_key = mechanism.hashed(_xor(proof, signature))
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise AuthenticationRefused(f"user {user!r} or the password is wrong")
        verifier = b64encode(mechanism.mac(credential.server_key, signed)).decode()
        lifetime_ms = left_ms() if left_ms is not None else 0
        if left_ms is not None and lifetime_ms <= 0:
            raise AuthenticationRefused(f"a delegation token of user {user!r} has expired")
        return ServerStep(
            f"v={verifier}".encode(),
            Principal(USER, user),
            lifetime_ms=lifetime_ms,
            by_token=left_ms is not None,
        )


class ScramClient:
    """The client's end; `salted_password(salt, iterations)` may remember what it derived."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        salted_password: Callable[[bytes, int], bytes],
        nonce: bytes,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._salted_password = salted_password
        self._nonce = b64encode(nonce).decode()
        extra = "".join(f",{name}={value}" for name, value in (extensions or {}).items())
        self._bare = f"n={_escaped(user)},r={self._nonce}{extra}"
        self._expected: bytes | None = None

    def first(self) -> bytes:
        """Return the first message, without channel binding and authorization id."""
        return f"n,,{self._bare}".encode()

    def next(self, token: bytes) -> bytes | None:
        """Return the proof of the password; then check that the server knows it too."""
        text = _text(token)
        if self._expected is None:
            return self._prove(text)
        final = _SERVER_FINAL.match(text)
        if final is None or final["signature"] is None:
            raise AuthenticationRefused("the broker refused the password")
        if not hmac.compare_digest(_decoded(final["signature"]), self._expected):
            raise AuthenticationRefused("the broker did not prove that it knows the password")
        return None

    def _prove(self, text: str) -> bytes:
        first = _SERVER_FIRST.match(text)
        if first is None:
            raise AuthenticationRefused("the broker's SCRAM message is malformed")
        _extensions(first["extensions"])
        if not first["nonce"].startswith(self._nonce) or first["nonce"] == self._nonce:
            raise AuthenticationRefused("the broker's nonce does not extend that of this client")
        iterations, salt = int(first["iterations"]), _decoded(first["salt"])
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS or len(salt) > MAX_SALT_BYTES:
            raise AuthenticationRefused(
                f"the broker asks for {iterations} iterations; a client computes {MIN_ITERATIONS} "
                f"to {MAX_ITERATIONS}"
            )
        mechanism = self._mechanism
        salted = self._salted_password(salt, iterations)
        final = f"c={b64encode(b'n,,').decode()},r={first['nonce']}"
        signed = f"{self._bare},{text},{final}".encode()
        key = mechanism.client_key(salted)
        proof = _xor(key, mechanism.mac(mechanism.hashed(key), signed))
        self._expected = mechanism.mac(mechanism.server_key(salted), signed)
        return f"{final},p={b64encode(proof).decode()}".encode()


def _text(token: bytes) -> str:
    if len(token) > MAX_MESSAGE_BYTES:
        raise AuthenticationRefused(f"a SCRAM message has more than {MAX_MESSAGE_BYTES} bytes")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationRefused("a SCRAM message is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except BadBase64:
        raise AuthenticationRefused("a SCRAM message has invalid base64") from None


def _extensions(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(",")[1:]:
        name, _, value = part.partition("=")
        if name in found or name == "m":
            raise AuthenticationRefused("a SCRAM message has an extension that is not supported")
        found[name] = value
    return found


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))

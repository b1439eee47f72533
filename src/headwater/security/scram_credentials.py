"""What a broker keeps of a SCRAM password (RFC 5802, RFC 7677), and how it is derived. Pure.

A credential verifies a proof of the password, and cannot be used to log in. Its text is Kafka's:
`salt=...,stored_key=...,server_key=...,iterations=4096`.
"""

import hmac
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from dataclasses import dataclass, field
from hashlib import new, pbkdf2_hmac
from typing import NamedTuple, Self

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
"""As in Kafka. A client computes each iteration, so that a larger number could stall it."""
DEFAULT_ITERATIONS = 8192
SALT_BYTES = 26
"""As long as the salts that Kafka's tools make: other salts would tell who made a user."""
MAX_SALT_BYTES = 1024
MAX_NAME_BYTES = 255


class ScramMechanism(NamedTuple):
    """A SCRAM mechanism, with its number in the protocol."""

    name: str
    digest: str
    number: int
    key_bytes: int

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Derive a key from a password; takes milliseconds."""
        return pbkdf2_hmac(self.digest, password.encode(), salt, iterations)

    def client_key(self, salted_password: bytes) -> bytes:
        return self.mac(salted_password, b"Client Key")

    def server_key(self, salted_password: bytes) -> bytes:
        return self.mac(salted_password, b"Server Key")

    def mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.digest)

    def hashed(self, data: bytes) -> bytes:
        return new(self.digest, data).digest()


SCRAM_SHA_256 = ScramMechanism("SCRAM-SHA-256", "sha256", 1, 32)
SCRAM_SHA_512 = ScramMechanism("SCRAM-SHA-512", "sha512", 2, 64)
SCRAM = {one.name: one for one in (SCRAM_SHA_256, SCRAM_SHA_512)}
SCRAM_BY_NUMBER = {one.number: one for one in SCRAM.values()}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What verifies the password of one user with one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted_password(
        cls, mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int
    ) -> Self:
        stored_key = mechanism.hashed(mechanism.client_key(salted_password))
        return cls(salt, stored_key, mechanism.server_key(salted_password), iterations)

    def copy(self) -> "ScramCredential":
        """Return an equal credential that shares no bytes with this one."""
        salt, stored_key, server_key = (
            bytes(memoryview(one)) for one in (self.salt, self.stored_key, self.server_key)
        )
        return ScramCredential(salt, stored_key, server_key, self.iterations + 0)

    def encode(self) -> str:
        """Return the credential as Kafka stores it."""
        return (
            f"salt={_text(self.salt)},stored_key={_text(self.stored_key)},"
            f"server_key={_text(self.server_key)},iterations={self.iterations}"
        )

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read what `encode` wrote; ValueError otherwise, without the text in it."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            salt, stored_key, server_key = (
                b64decode(parts[name], validate=True)
                for name in ("salt", "stored_key", "server_key")
            )
            if len(parts) != 4 or not (salt and stored_key and server_key):
                raise ValueError
            return cls(salt, stored_key, server_key, int(parts["iterations"]))
        except (KeyError, BadBase64, ValueError):
            raise ValueError("the SCRAM credential cannot be read") from None


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def user_name_problem(name: str) -> str | None:
    """Return why a user cannot have this name, or None."""
    if not name:
        return "a user needs a name"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"the name of a user has at most {MAX_NAME_BYTES} bytes"
    if name == "<default>":
        return "<default> stands for all users without a setting of their own"
    return None


def iterations_problem(iterations: int) -> str | None:
    """Return why a credential cannot have this number of iterations, or None."""
    if MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        return None
    few = "few" if iterations < MIN_ITERATIONS else "many"
    return f"too {few} iterations: {iterations}; use {MIN_ITERATIONS} to {MAX_ITERATIONS}"

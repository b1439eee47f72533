"""The SCRAM credentials of all users, as this broker knows them. Pure.

An unknown user gets a credential too, which no password fits: its salt is a keyed hash of the name,
so that it stays the same, and a peer cannot find out which users exist. It cannot measure it either:
both ways look up one credential that exists, one that does not, and read the same bytes. An unknown
user reads those of another user, always the same one.

Users may have different iterations and sizes of salts: Kafka's tools make salts of 25 and of 26 bytes. An
unknown user has those of some users, drawn by a keyed hash of the name, so that no user is conspicuous.
"""

import heapq
import hmac
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headwater.security.scram_credentials import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    SCRAM,
    ScramCredential,
    ScramMechanism,
)

_NOBODY = "\0"
"""The end of a name that no client can send."""
MOST_SHAPES = 32
"""How many shapes unknown users may have: each costs a hash at each login."""


class CredentialShape(NamedTuple):
    """What a server tells everybody of a credential."""

    iterations: int
    salt_bytes: int


DEFAULT_SHAPE = CredentialShape(DEFAULT_ITERATIONS, SALT_BYTES)


class ScramUsers:
    """Credentials by user and mechanism; `secret` is the secret of the cluster."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hmac.digest(secret, b"salts of unknown users", "sha512")
        self._users: dict[str, dict[str, ScramCredential]] = {}
        self._of = {name: _Credentials() for name in SCRAM}

    def replace(self, user: str, configs: Mapping[str, str]) -> list[str]:
        """Set the credentials among the configs of a user; return the mechanisms of unreadable ones."""
        kept: dict[str, ScramCredential] = {}
        unreadable = []
        for mechanism in SCRAM.keys() & configs.keys():
            try:
                kept[mechanism] = ScramCredential.decode(configs[mechanism])
            except ValueError:
                unreadable.append(mechanism)
        self._users.pop(user, None)
        for mechanism, credentials in self._of.items():
            credentials.replace(user, kept.get(mechanism))
        if kept:
            self._users[user] = kept
        return unreadable

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """Return the credential of a user; of an unknown one, after the same work, one that never fits."""
        credentials = self._of[mechanism.name]
        unknown = self._unknown(mechanism, user, credentials)
        if not credentials.names:
            return unknown
        nobody = user + _NOBODY
        elsewhere = _Kept(unknown, credentials.place_for(unknown.stored_key))
        found = credentials.get(user)
        here = elsewhere if found is None else found
        other = credentials.names[here.place]
        second = credentials.get(other if found is None else nobody)
        read = second if found is None else found
        assert read is not None
        known = read.credential.copy()
        return here.credential if found is None else known

    def of(self, user: str) -> Mapping[str, ScramCredential]:
        """Return the credentials of a user by mechanism."""
        return self._users.get(user, {})

    def names(self) -> Iterator[str]:
        """Return the users that have a credential now."""
        return iter(list(self._users))

    def _unknown(
        self, mechanism: ScramMechanism, user: str, credentials: "_Credentials"
    ) -> ScramCredential:
        name = f"{mechanism.name}:{user}".encode()
        iterations, size = self._shape_of(name, credentials.shapes())
        salt = hmac.digest(self._secret, b"salt:" + name, "sha512")
        key = hmac.digest(self._secret, b"key:" + name, "sha512")[: mechanism.key_bytes]
        return ScramCredential(salt[:size], key, bytes(memoryview(key)), iterations)

    def _shape_of(self, name: bytes, shapes: Mapping[CredentialShape, int]) -> CredentialShape:
        """Draw a shape by weight; when a weight changes, few names have another one (rendezvous)."""

        def lot(shape: CredentialShape) -> float:
            iterations, size = shape
            drawn = hmac.digest(
                self._secret, b"shape:%d:%d:%b" % (iterations, size, name), "sha512"
            )
            return math.log((int.from_bytes(drawn[:6]) + 1) / (1 << 48)) / shapes[shape]

        return max(shapes, key=lot)


class _Kept(NamedTuple):
    """A credential, and the place of its user in the list of names."""

    credential: ScramCredential
    place: int


class _Credentials:
    """The credentials of one mechanism."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._by_user: dict[str, _Kept] = {}
        self._seen = Counter[CredentialShape]()
        self._shapes: Mapping[CredentialShape, int] | None = None

    def get(self, user: str) -> _Kept | None:
        """Return the credential of a user, whose name is hashed again however often it was."""
        return self._by_user.get((user + _NOBODY)[: len(user)])

    def replace(self, user: str, credential: ScramCredential | None) -> None:
        """Set the credential of a user, or remove it."""
        self._shapes = None
        former = self._by_user.pop(user, None)
        if former is not None:
            self._seen[_shape(former.credential)] -= 1
            last = self.names.pop()
            if last != user:
                self.names[former.place] = last
                self._by_user[last] = self._by_user[last]._replace(place=former.place)
        if credential is not None:
            self._seen[_shape(credential)] += 1
            self._by_user[user] = _Kept(credential, len(self.names))
            self.names.append(user)

    def shapes(self) -> Mapping[CredentialShape, int]:
        """Return the most common shapes, with how many users have them, at least 1.

        A shape stays when its last user goes: the answers for the names that drew it would change.
        """
        shapes = self._shapes
        if shapes is None:
            weights = ((max(1, count), shape) for shape, count in self._seen.items())
            most = heapq.nlargest(MOST_SHAPES, weights)
            shapes = self._shapes = {shape: weight for weight, shape in most} or {DEFAULT_SHAPE: 1}
        return shapes

    def place_for(self, key: bytes) -> int:
        """Return where a user is in `names`, the same for a key as long as they do not change."""
        return int.from_bytes(key[:8]) % max(1, len(self.names))


def _shape(credential: ScramCredential) -> CredentialShape:
    return CredentialShape(credential.iterations, len(credential.salt))

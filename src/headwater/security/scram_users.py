"""The SCRAM credentials of all users, as this broker knows them. Pure.

An unknown user gets a credential too, which no password fits: its salt is a keyed hash of the name,
so that it stays the same, and a peer cannot find out which users exist.
"""

import hmac
from collections import Counter
from collections.abc import Iterator, Mapping

from headwater.security.scram_credentials import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    SCRAM,
    ScramCredential,
    ScramMechanism,
)


class ScramUsers:
    """Credentials by user and mechanism; `secret` is the secret of the cluster."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hmac.digest(secret, b"salts of unknown users", "sha512")
        self._users: dict[str, dict[str, ScramCredential]] = {}
        self._shapes = {name: Counter[tuple[int, int]]() for name in SCRAM}

    def replace(self, user: str, configs: Mapping[str, str]) -> list[str]:
        """Set the credentials among the configs of a user; return the mechanisms of unreadable ones."""
        kept: dict[str, ScramCredential] = {}
        unreadable = []
        for mechanism in SCRAM.keys() & configs.keys():
            try:
                kept[mechanism] = ScramCredential.decode(configs[mechanism])
            except ValueError:
                unreadable.append(mechanism)
        for mechanism, former in self._users.pop(user, {}).items():
            self._shapes[mechanism][_shape(former)] -= 1
        for mechanism, credential in kept.items():
            self._shapes[mechanism][_shape(credential)] += 1
        if kept:
            self._users[user] = kept
        return unreadable

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """Return the credential of a user; of an unknown one, after the same work, one that never fits."""
        unknown = self._unknown(mechanism, user)
        return self._users.get(user, {}).get(mechanism.name, unknown)

    def of(self, user: str) -> Mapping[str, ScramCredential]:
        """Return the credentials of a user by mechanism."""
        return self._users.get(user, {})

    def names(self) -> Iterator[str]:
        """Return the users that have a credential now."""
        return iter(list(self._users))

    def _unknown(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        # It looks like most of the credentials: same iterations, same size of the salt.
        usual = self._shapes[mechanism.name].most_common(1)
        iterations, size = usual[0][0] if usual else (DEFAULT_ITERATIONS, SALT_BYTES)
        name = f"{mechanism.name}:{user}".encode()
        salt = hmac.digest(self._secret, b"salt:" + name, "sha512")
        key = hmac.digest(self._secret, b"key:" + name, "sha512")[: mechanism.key_bytes]
        return ScramCredential(salt[:size], key, key, iterations)


def _shape(credential: ScramCredential) -> tuple[int, int]:
    return credential.iterations, len(credential.salt)

"""The delegation tokens of the cluster (KIP-48), as this broker knows them. Pure.

Everybody who has the HMAC of a token can log in with SCRAM as its owner: the id of the token is the
name, the HMAC in base64 the password. The HMAC is made of the id with a secret of the brokers, and is
never stored.
"""

import hmac
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from headwater.security.principals import Principal
from headwater.security.scram_credentials import (
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
)

EXTENSION = "tokenauth"
"""The extension of SCRAM that says `true` if the name is the id of a token."""


class TokenInformation(NamedTuple):
    """One token; times are of the wall clock."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    @property
    def ends_ms(self) -> int:
        """Return when it expires, unless it is renewed."""
        return min(self.max_ms, self.expires_ms)

    def has_expired(self, now_ms: int) -> bool:
        """Return whether nobody may log in with it any more."""
        return self.ends_ms <= now_ms

    def may_renew(self, who: Principal) -> bool:
        """Return whether a principal may renew the token and end it."""
        return who == self.owner or who in self.renewers

    def concerns(self, who: Principal) -> bool:
        """Return whether a principal owns, requested or may renew the token."""
        return who == self.requester or self.may_renew(who)


class _Known:
    __slots__ = ("credentials", "hmac", "token")

    def __init__(self, token: TokenInformation, hmac: bytes) -> None:
        self.token = token
        self.hmac = hmac
        self.credentials: dict[str, ScramCredential] = {}


class DelegationTokens:
    """Tokens by id and by HMAC; `key` is `delegation.token.secret.key`."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._known: dict[str, _Known] = {}
        self._ids: dict[bytes, str] = {}
        """By hash of the HMAC, so that the time of a search reveals nothing about an HMAC."""
        self._owned = Counter[Principal]()
        self._requested = Counter[Principal]()

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[TokenInformation]:
        """Iterate over the tokens that there are now."""
        return (known.token for known in list(self._known.values()))

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC of a token."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def get(self, token_id: str) -> TokenInformation | None:
        """Return a token by its id."""
        known = self._known.get(token_id)
        return known.token if known is not None else None

    def with_hmac(self, given: bytes) -> TokenInformation | None:
        """Return the token with this HMAC."""
        return self.get(self._ids.get(sha256(given).digest(), ""))

    def put(self, token: TokenInformation) -> None:
        """Add a token, or replace the one with its id."""
        known = self._known.get(token.token_id)
        self.count(token, 1)
        if known is not None:
            self.count(known.token, -1)
            known.token = token
            return
        secret = self.hmac_of(token.token_id)
        self._known[token.token_id] = _Known(token, secret)
        self._ids[sha256(secret).digest()] = token.token_id

    def remove(self, token_id: str) -> None:
        """Forget a token, if it is known."""
        known = self._known.pop(token_id, None)
        if known is not None:
            del self._ids[sha256(known.hmac).digest()]
            self.count(known.token, -1)

    def count(self, token: TokenInformation, change: int) -> None:
        """Count a token that is being made for its owner and its requester, or stop counting it."""
        for counter, who in ((self._owned, token.owner), (self._requested, token.requester)):
            counter[who] += change
            if not counter[who]:
                del counter[who]

    def most_of(self, owner: Principal, requester: Principal) -> int:
        """Return the number of tokens of the owner, or that of the requester if it is larger."""
        return max(self._owned[owner], self._requested[requester])

    def credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential | None:
        """Return the credential of a token, if it was derived."""
        known = self._known.get(token_id)
        return known.credentials.get(mechanism.name) if known is not None else None

    def derive(self, mechanism: ScramMechanism, token_id: str) -> None:
        """Derive the credential of a token; takes milliseconds, and may run on a thread.

        All brokers have the same salt: clients remember what they derived.
        """
        known = self._known.get(token_id)
        if known is None:
            return
        name = f"salt:{mechanism.name}:{token_id}".encode()
        salt = hmac.digest(self._key, name, "sha512")[:SALT_BYTES]
        password = b64encode(known.hmac).decode()
        salted = mechanism.salted_password(password, salt, MIN_ITERATIONS)
        known.credentials[mechanism.name] = ScramCredential.of_salted_password(
            mechanism, salt, salted, MIN_ITERATIONS
        )

"""Logins with delegation tokens: the id of a token instead of a user."""

from collections.abc import Callable
from functools import partial

from headwater.seams.tasks import Lane
from headwater.security.delegation_tokens import DelegationTokens
from headwater.security.sasl_exchange import AuthenticationRefused, WaitFirst
from headwater.security.scram import Account
from headwater.security.scram_credentials import ScramMechanism


class TokenLogins:
    """Finds the accounts of tokens; `off_loop` is `Context.off_loop`."""

    def __init__(
        self,
        tokens: DelegationTokens,
        wall_ms: Callable[[], int],
        off_loop: Callable[[Callable[[], object], Callable[..., None], Lane], None],
    ) -> None:
        self._tokens = tokens
        self._wall_ms = wall_ms
        self._off_loop = off_loop

    def account(self, mechanism: ScramMechanism, token_id: str) -> Account:
        """Return the account of a token; its credential is derived at the first login."""
        token = self._tokens.get(token_id)
        if token is None:
            raise AuthenticationRefused(f"there is no delegation token {token_id[:64]!r}")
        if self._left_ms(token_id) <= 0:
            raise AuthenticationRefused(f"delegation token {token_id} has expired")
        credential = self._tokens.credential(mechanism, token_id)
        if credential is None:
            raise WaitFirst(partial(self._derive, mechanism, token_id))
        return Account(credential, token.owner.name, partial(self._left_ms, token_id))

    def _left_ms(self, token_id: str) -> int:
        """Return how long the token is still valid; 0 if it was removed."""
        token = self._tokens.get(token_id)
        return token.ends_ms - self._wall_ms() if token is not None else 0

    def _derive(self, mechanism: ScramMechanism, token_id: str, then: Callable[[], None]) -> None:
        derive = partial(self._tokens.derive, mechanism, token_id)
        self._off_loop(derive, lambda *_: then(), Lane.CODEC)

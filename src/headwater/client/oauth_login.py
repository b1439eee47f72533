"""The logins of clients that have tokens of an identity provider."""

import asyncio
from functools import partial

from headwater.client.login import Login
from headwater.client.token_source import TokenSource, on_thread, source_of
from headwater.config.client_oauth import OAuthCredentials
from headwater.errors import E, KafkaError
from headwater.seams.randomness import Randomness
from headwater.security.oauthbearer import OAuthBearerClient
from headwater.security.sasl_exchange import AuthenticationRefused, ClientExchange


class OAuthLogin(Login):
    """Authenticates connections with tokens; a token is there before a connection waits for it."""

    def __init__(self, credentials: OAuthCredentials, randomness: Randomness) -> None:
        super().__init__(credentials, randomness)
        self._source: TokenSource = source_of(credentials)

    def begin(self) -> ClientExchange:
        """Return a new exchange with the token of the last refresh."""
        token = self._source.current
        return OAuthBearerClient(token.text, dict(token.extensions))

    async def get_ready(self) -> None:
        """Replace the token if it is due, without holding the loop."""
        if not self._source.is_fresh:
            await on_thread(partial(self._source.refresh, asyncio.get_running_loop()))

    def get_ready_here(self) -> None:
        """Replace the token if it is due, on this thread."""
        self._source.refresh()

    def refusal(self, address: str, problem: KafkaError | AuthenticationRefused) -> KafkaError:
        """Return the error for a failed login, and use its token no more."""
        if isinstance(problem, AuthenticationRefused) or (
            problem.code is E.SASL_AUTHENTICATION_FAILED
        ):
            self._source.forget(self._source.current.text)
        return super().refusal(address, problem)

    def _who(self) -> tuple[str, str]:
        credentials = self.credentials
        source = credentials.source if isinstance(credentials, OAuthCredentials) else ""
        return (
            f"a token from {source}",
            "compare its issuer, audience and times with the broker's sasl.oauthbearer. settings; the "
            "broker's log says what does not fit",
        )

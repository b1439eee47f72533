"""OAUTHBEARER of listeners: the rules for tokens, and the keys that check them, from the settings.

Only a broker with such a listener imports this, and needs the extra `security`.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import cast
from urllib.parse import urlsplit

from headwater.broker.context import OffLoop
from headwater.broker.token_keys import TokenKeys
from headwater.config.addresses import is_loopback
from headwater.config.broker import BrokerSettings
from headwater.config.jaas import JaasEntry
from headwater.config.keys import ConfigError, Value
from headwater.config.listeners import Listener
from headwater.config.oauth_module import refuse_unknown_options, trust_of
from headwater.config.tls import TlsSettings
from headwater.seams.clock import Clock
from headwater.seams.web import WebError, fetch
from headwater.security.bearer_tokens import TokenRules, VerifiedToken, verify_token
from headwater.security.key_refresh import KeyRefresh
from headwater.security.oauthbearer import OAUTHBEARER, OAuthBearerServer
from headwater.transport.tls import cached_client_context

log = logging.getLogger("headwater.server")

_KEY = "sasl.oauthbearer."


class ListenerOAuth:
    """Makes the mechanism of listeners; those with the same settings share their keys."""

    def __init__(self, settings: BrokerSettings, off_loop: OffLoop, clock: Clock) -> None:
        self._settings = settings
        self._off_loop = off_loop
        self._clock = clock
        self._keys: dict[object, TokenKeys] = {}

    @property
    def token_keys(self) -> list[TokenKeys]:
        """Return all keys that are fetched."""
        return list(self._keys.values())

    def begin(
        self, listener: Listener, entries: list[JaasEntry]
    ) -> Callable[[], OAuthBearerServer]:
        """Return what begins an exchange; ConfigError if tokens could not be checked."""
        options: dict[str, str] = {}
        for entry in entries:
            if OAUTHBEARER in entry.mechanisms:
                refuse_unknown_options(entry)
                options.update(entry.options)
        rules = self._rules(listener)
        keys = self._shared_keys(listener, trust_of(options))
        _warn_of_plain_tokens(listener)

        def verify(token: str) -> VerifiedToken:
            return verify_token(token, rules, keys.find, self._clock.wall_ms())

        return partial(OAuthBearerServer, verify)

    def value_of(self, listener: Listener, name: str) -> Value:
        """Return the value of a key for OAUTHBEARER on a listener."""
        return self._settings.of_listener(listener.name, name, OAUTHBEARER)

    def _rules(self, listener: Listener) -> TokenRules:
        audiences = cast(
            "tuple[str, ...]", self.value_of(listener, "sasl.oauthbearer.expected.audience")
        )
        issuer = self.value_of(listener, "sasl.oauthbearer.expected.issuer")
        if not (audiences and issuer) and not self.value_of(
            listener, "sasl.oauthbearer.allow.unverified.audience"
        ):
            missing = "expected.issuer" if audiences else "expected.audience"
            raise ConfigError(
                f"listener {listener.name} would accept tokens that were made for other services: "
                f"set {_KEY}{missing}, or {_KEY}allow.unverified.audience=true to accept them"
            )
        return TokenRules(
            frozenset(audiences),
            None if issuer is None else str(issuer),
            str(self.value_of(listener, "sasl.oauthbearer.sub.claim.name")),
            str(self.value_of(listener, "sasl.oauthbearer.scope.claim.name")),
            1000 * cast("int", self.value_of(listener, "sasl.oauthbearer.clock.skew.seconds")),
        )

    def _shared_keys(self, listener: Listener, trust: TlsSettings) -> TokenKeys:
        url = self.value_of(listener, "sasl.oauthbearer.jwks.endpoint.url")
        if url is None:
            raise ConfigError(
                f"listener {listener.name} offers OAUTHBEARER without keys to check tokens with: "
                f"set {_KEY}jwks.endpoint.url to the JWKS of the identity provider"
            )
        times = [
            cast("int", value)
            for value in (
                self.value_of(listener, "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
                self.value_of(listener, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
                self.value_of(listener, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
            )
        ]
        shared = (url, trust, *times)
        if shared not in self._keys:
            self._keys[shared] = self._begin_fetching(str(url), trust, KeyRefresh(*times))
        return self._keys[shared]

    def _begin_fetching(self, url: str, trust: TlsSettings, refresh: KeyRefresh) -> TokenKeys:
        cached_client_context(trust)  # raises now if the trust store cannot be read

        def read() -> bytes:
            return fetch(url, cached_client_context(trust))

        keys = TokenKeys(url, read, refresh, self._off_loop, self._clock)
        parts = urlsplit(url)
        if parts.scheme == "file":
            try:
                keys.use(keys.read_now())
            except (WebError, ValueError) as problem:
                raise ConfigError(f"{_KEY}jwks.endpoint.url={url} {problem}") from None
            return keys
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            log.warning(
                "the keys for tokens come from %s without TLS: anyone who can change them in transit "
                "can log in as any user; use https",
                url,
            )
        keys.fetch()
        return keys


def _warn_of_plain_tokens(listener: Listener) -> None:
    if listener.protocol != "SASL_SSL" and not is_loopback(listener.host):
        log.warning(
            "listener %s accepts tokens without TLS: anyone who reads one can use it until it expires; use "
            "SASL_SSL",
            listener.name,
        )

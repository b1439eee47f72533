"""The SASL mechanisms that each listener offers, from the settings."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from headwater.broker.token_logins import TokenLogins
from headwater.config.broker import BrokerSettings
from headwater.config.jaas import JaasEntry, JaasError, parse_jaas, read_jaas_file
from headwater.config.keys import ConfigError
from headwater.config.listeners import Listener
from headwater.seams.clock import Clock
from headwater.seams.randomness import Randomness
from headwater.security import broker_handshake, scram
from headwater.security.broker_handshake import BrokerCredentials, CalledBroker
from headwater.security.delegation_tokens import EXTENSION
from headwater.security.oauthbearer import OAUTHBEARER
from headwater.security.plain import PLAIN, PlainServer
from headwater.security.sasl_exchange import AuthenticationRefused, ServerExchange
from headwater.security.sasl_session import SaslMechanism
from headwater.security.scram import Account, ScramServer
from headwater.security.scram_credentials import SCRAM, ScramMechanism
from headwater.security.scram_users import ScramUsers

if TYPE_CHECKING:
    from headwater.broker.context import OffLoop
    from headwater.broker.listener_oauth import ListenerOAuth
    from headwater.broker.token_keys import TokenKeys

log = logging.getLogger("headwater.server")

Offered = Mapping[str, SaslMechanism]
USER_PREFIX = "user_"
"""What precedes the name of a user in the options of Kafka's PLAIN login module."""


class ListenerSasl:
    """Makes the mechanisms of listeners."""

    def __init__(
        self,
        settings: BrokerSettings,
        users: ScramUsers,
        credentials: BrokerCredentials,
        randomness: Randomness,
        off_loop: "OffLoop",
        clock: Clock,
        token_logins: TokenLogins | None = None,
    ) -> None:
        self._settings = settings
        self._users = users
        self._credentials = credentials
        self._randomness = randomness
        self._token_logins = token_logins
        self._off_loop = off_loop
        self._clock = clock
        self._oauth: ListenerOAuth | None = None

    def offered(self) -> dict[str, Offered]:
        """Return the mechanisms by listener; ConfigError for a listener where no login is possible."""
        return {
            listener.name: {one.name: one for one in self._mechanisms(listener)}
            for listener in self._settings.listening
        }

    @property
    def token_keys(self) -> "list[TokenKeys]":
        """Return the keys of identity providers that the offered mechanisms use."""
        return [] if self._oauth is None else self._oauth.token_keys

    def _mechanisms(self, listener: Listener) -> list[SaslMechanism]:
        found = []
        if listener.protocol.startswith("SASL_"):
            found = [
                SaslMechanism(name, self._begin(listener, name), self._lifetime_ms(listener, name))
                for name in _enabled(self._settings, listener)
            ]
        # On every listener: while inter.broker.listener.name changes, other brokers use another one.
        begin = self._begin_broker
        found.append(SaslMechanism(broker_handshake.MECHANISM, begin, advertised=False))
        return found

    def _lifetime_ms(self, listener: Listener, mechanism: str) -> int:
        value = self._settings.of_listener(listener.name, "connections.max.reauth.ms", mechanism)
        return cast("int", value)

    def _begin(self, listener: Listener, name: str) -> Callable[[], ServerExchange]:
        if name == PLAIN:
            return partial(PlainServer, plain_users(self._settings, listener))
        if name == OAUTHBEARER:
            return self._begin_oauth(listener)
        mechanism = SCRAM[name]
        find = partial(self._find, mechanism)
        return lambda: ScramServer(mechanism, find, self._nonce(scram.NONCE_BYTES))

    def _begin_oauth(self, listener: Listener) -> Callable[[], ServerExchange]:
        try:
            from headwater.broker.listener_oauth import ListenerOAuth  # needs an extra
        except ModuleNotFoundError as missing:
            raise ConfigError(
                f"listener {listener.name} offers OAUTHBEARER, which needs the package "
                f"{(missing.name or '').partition('.')[0]}: pip install 'headwater[security]'"
            ) from None
        if self._oauth is None:
            self._oauth = ListenerOAuth(self._settings, self._off_loop, self._clock)
        try:
            return self._oauth.begin(listener, _entries(self._settings, listener, OAUTHBEARER))
        except JaasError as wrong:
            raise ConfigError(
                f"the login configuration of listener {listener.name} cannot be used: {wrong.message}"
            ) from None

    def _find(self, mechanism: ScramMechanism, name: str, extensions: Mapping[str, str]) -> Account:
        if extensions.get(EXTENSION, "").lower() != "true":
            return Account(self._users.credential(mechanism, name), name)
        if self._token_logins is None:
            raise AuthenticationRefused(
                "a client has a delegation token, but delegation.token.secret.key is not set"
            )
        return self._token_logins.account(mechanism, name)

    def _begin_broker(self) -> ServerExchange:
        return CalledBroker(self._credentials, self._nonce(broker_handshake.NONCE_BYTES))

    def _nonce(self, size: int) -> bytes:
        return self._randomness.below(1 << 8 * size).to_bytes(size)


def _enabled(settings: BrokerSettings, listener: Listener) -> list[str]:
    enabled = cast(
        "tuple[str, ...]", settings.of_listener(listener.name, "sasl.enabled.mechanisms")
    )
    is_safe = listener.protocol == "SASL_SSL" or settings.of_listener(
        listener.name, "sasl.plain.without.tls"
    )
    offered = [name for name in enabled if is_safe or name != PLAIN]
    if not offered:
        raise ConfigError(
            f"listener {listener.name} offers no SASL mechanism: PLAIN would send passwords over "
            f"{listener.protocol} unencrypted; use SASL_SSL or SCRAM-SHA-512, or set "
            "sasl.plain.without.tls=true on a network you trust"
        )
    if len(offered) < len(enabled):
        log.warning(
            "listener %s does not offer PLAIN: passwords would cross the network unencrypted; use "
            "SASL_SSL, or set sasl.plain.without.tls=true on a network you trust",
            listener.name,
        )
    return offered


def plain_users(settings: BrokerSettings, listener: Listener) -> dict[str, str]:
    """Return the users of PLAIN on a listener with their passwords; ConfigError without any."""
    key = f"listener.name.{listener.name.lower()}.plain.sasl.jaas.config"
    try:
        users = {
            name.removeprefix(USER_PREFIX): password
            for entry in _entries(settings, listener, PLAIN)
            if PLAIN in entry.mechanisms
            for name, password in entry.options.items()
            if name.startswith(USER_PREFIX)
        }
    except JaasError as wrong:
        raise ConfigError(
            f"the users of listener {listener.name} cannot be read: {wrong.message}"
        ) from None
    if not users or "" in users or "" in users.values():
        file = settings.java_security_auth_login_config
        looked = f" ({file} has none for it: see its sections)" if file else ""
        raise ConfigError(
            f"listener {listener.name} offers PLAIN, which needs users with passwords{looked}: set {key}="
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD";'
        )
    return users


def _entries(settings: BrokerSettings, listener: Listener, mechanism: str) -> list[JaasEntry]:
    text = settings.of_listener(listener.name, "sasl.jaas.config", mechanism)
    if text is not None:
        return parse_jaas(str(text))
    file = settings.java_security_auth_login_config
    if file is None:
        return []
    sections = read_jaas_file(file)
    own = f"{listener.name.lower()}.KafkaServer"
    return sections.get(own) or sections.get("KafkaServer", [])

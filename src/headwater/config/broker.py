"""A broker's settings: its file, the command line and stored changes resolved to values.

Precedence: default < file < command line < cluster-wide < per-broker. A bad key at startup is an
error. A bad stored change is skipped and kept in `ignored`, because the broker must start.
"""

import os.path
from collections.abc import Mapping
from functools import partial
from typing import Self

from headwater.config.broker_keys.authorization import AuthorizationKeys, parse_principals
from headwater.config.broker_keys.connections import ConnectionKeys
from headwater.config.broker_keys.groups import GroupKeys
from headwater.config.broker_keys.listeners import ListenerKeys
from headwater.config.broker_keys.logs import LogKeys
from headwater.config.broker_keys.node import NodeKeys
from headwater.config.broker_keys.oauthbearer import OAuthBearerKeys
from headwater.config.broker_keys.replication import ReplicationKeys
from headwater.config.broker_keys.sasl import SaslKeys
from headwater.config.broker_keys.tls import BrokerTlsKeys
from headwater.config.broker_keys.tokens import DelegationTokenKeys
from headwater.config.broker_keys.topic_defaults import TopicDefaultKeys
from headwater.config.broker_keys.transactions import TransactionKeys
from headwater.config.broker_keys.zookeeper import ZooKeeperKeys, ZooKeeperTls, require_pem
from headwater.config.foreign import idle_key, why_not_here
from headwater.config.keys import BOOLEAN, ConfigError, Key, Mode, Value, key
from headwater.config.listener_overrides import names_of, parse_override
from headwater.config.listeners import Listener, advertised_listeners, parse_listeners
from headwater.config.properties import Assignment, read_properties
from headwater.config.resolve import Layers, configured
from headwater.config.security_profile import (
    HARDENED,
    described,
    hardening,
    refuse_open_listeners,
)
from headwater.config.tls import TlsSettings, tls_settings
from headwater.config.topic import TopicSettings
from headwater.config.unused_security import refuse_unused

_UNITS = {"hours": 3_600_000, "minutes": 60_000}


class BrokerSettings(
    NodeKeys,
    ListenerKeys,
    BrokerTlsKeys,
    ZooKeeperKeys,
    SaslKeys,
    DelegationTokenKeys,
    OAuthBearerKeys,
    ConnectionKeys,
    TopicDefaultKeys,
    LogKeys,
    ReplicationKeys,
    GroupKeys,
    TransactionKeys,
    AuthorizationKeys,
):
    """The resolved settings of one broker, and the layers they came from."""

    unstable_api_versions_enable: bool = key(
        "unstable.api.versions.enable",
        BOOLEAN,
        default=False,
        doc="Offer versions of APIs that are not finished.",
        idle="only finished versions are served",
    )

    layers: Layers
    topic_defaults: TopicSettings
    listening: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    ignored: tuple[ConfigError, ...]
    hardening: tuple[str, ...] = ()
    """What security.profile has set, each with its reason."""

    def __init__(self, layers: Layers, ignored: tuple[ConfigError, ...] = ()) -> None:
        values = {row.name: _effective(layers, row) for row in self.KEYS.values()}
        _unify_ids(layers, values)
        given = values["log.dirs"]
        folders = given if isinstance(given, tuple) and given else (str(values["log.dir"]),)
        # As in Kafka, clients and tools get paths that do not depend on where the broker was started.
        values["log.dirs"] = tuple(os.path.abspath(folder) for folder in folders)
        super().__init__(values)
        listening = parse_listeners(
            "listeners", self.listeners, self.listener_security_protocol_map
        )
        advertised = parse_listeners(
            "advertised.listeners",
            self.advertised_listeners or (),
            self.listener_security_protocol_map,
        )
        vars(self).update(
            layers=layers,
            topic_defaults=_topic_defaults(layers),
            listening=listening,
            advertised=advertised_listeners(listening, advertised),
            ignored=ignored,
        )

    @classmethod
    def load(cls, file: str | None = None, overrides: Mapping[str, str] | None = None) -> Self:
        """Settings from a properties file, overlaid by `overrides` of the command line."""
        assigned = read_properties(file) if file else {}
        for name, value in (overrides or {}).items():
            assigned[name] = Assignment(value, "command line")
        for name, assignment in assigned.items():
            try:
                cls.key(name).parse(assignment.value)
            except ConfigError as problem:
                raise ConfigError(f"{assignment.origin}: {problem.message}") from None
        static = {name: value for name, (value, _) in assigned.items()}
        settings = cls(Layers({}, {}, static))
        if settings.security_profile == HARDENED:
            added = hardening(assigned, lambda name, text: cls.key(name).parse(text))
            settings = cls(Layers({}, {}, static | added))
            vars(settings).update(hardening=tuple(described(added)))
            settings.refuse_open_listeners()
        settings.topic_defaults.refuse_contradictions()
        # Raises now, not later, if a name is not a listener or the keys contradict each other.
        _ = settings.listeners_of_brokers
        for listener in settings.listening:
            settings.tls_of(listener)
        settings.refuse_unknown_listeners(assigned)
        refuse_unused(assigned, settings.listening, settings.authorizer_class_name)
        settings.refuse_open_zookeeper()
        return settings

    @classmethod
    def key(cls, name: str) -> Key:
        """The row called `name`; for a key of Kafka that is not supported, the error says why."""
        override = parse_override(name)
        if override is not None:
            row = cls.key(override.key)
            if not row.per_listener:
                raise ConfigError(f"{name} is not supported: set {row.name} for all listeners")
            return row.called(name)
        why = why_not_here(name) if name not in cls.KEYS else None
        if why:
            raise ConfigError(f"{name} is not supported: {why}")
        return super().key(name)

    @classmethod
    def dynamic_key(cls, name: str) -> Key:
        """The row called `name`, including keys of Kafka that may be stored but have no effect."""
        if not name.isprintable():
            return super().key(name)  # raises: no key has control characters
        override = parse_override(name)
        if override is not None and override.key in cls.KEYS:
            return cls.key(name)
        return cls.KEYS.get(name) or idle_key(name) or cls.key(name)

    @classmethod
    def check(cls, overrides: Mapping[str, str], *, cluster_wide: bool) -> ConfigError | None:
        """Why `overrides` cannot be set on a running broker (or all of them), or None."""
        try:
            for name, text in overrides.items():
                row = cls.dynamic_key(name)
                if row.name in BrokerTlsKeys.KEYS and row.mode is not Mode.READ_ONLY:
                    raise ConfigError(
                        f"{name} changes for one listener at a time: set listener.name.NAME.{name}"
                    )
                row.parse(text)
                _refuse_mode(row, cluster_wide)
        except ConfigError as problem:
            return problem
        return None

    def with_dynamic(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> Self:
        """These settings with stored changes applied; unusable ones go into `ignored`."""
        ignored: list[ConfigError] = []
        kept = Layers(
            _usable(broker, ignored, cluster_wide=False),
            _usable(cluster, ignored, cluster_wide=True),
            self.layers.static,
        )
        return type(self)(kept, tuple(ignored))

    @property
    def super_principals(self) -> tuple[str, ...]:
        """The principals of super.users."""
        return parse_principals(self.super_users)

    def is_set(self, name: str) -> bool:
        """Whether `name` is set in any layer."""
        return any(name in layer for layer in self.layers)

    def of_listener(self, listener: str, name: str, mechanism: str | None = None) -> Value:
        """The value of `name` for a listener, or for a SASL mechanism on it.

        A value for the mechanism comes first, then one for the listener, then the general one.
        """
        for candidate in names_of(name, listener, mechanism):
            for _, text, _ in configured(self.layers, (candidate,)):
                return self.key(candidate).parse(text)
        return self.KEYS[name].default

    def tls_of(self, listener: Listener) -> TlsSettings | None:
        """The TLS of a listener; None without."""
        if not listener.uses_tls:
            return None
        try:
            client_auth = str(self.of_listener(listener.name, "ssl.client.auth"))
            return tls_settings(partial(self.of_listener, listener.name), client_auth)
        except ConfigError as problem:
            raise ConfigError(f"listener {listener.name}: {problem.message}") from None

    def refuse_open_listeners(self) -> None:
        """Raise ConfigError for a listener that security.profile=hardened does not allow."""
        refuse_open_listeners(
            self.listening, lambda one: self.of_listener(one.name, "ssl.client.auth")
        )

    def refuse_unknown_listeners(self, assigned: Mapping[str, Assignment]) -> None:
        """Raise ConfigError for a setting of a listener that does not exist."""
        names = {listener.name for listener in self.listening}
        for name, assignment in assigned.items():
            override = parse_override(name)
            if override is not None and override.listener not in names:
                raise ConfigError(
                    f"{assignment.origin}: {name} is for the listener {override.listener}, which "
                    f"is missing in listeners ({', '.join(sorted(names))})"
                )

    @property
    def zookeeper_address(self) -> tuple[str, str]:
        """The servers of zookeeper.connect, and the root path of the cluster."""
        hosts, slash, path = (self.zookeeper_connect or "").partition("/")
        return hosts, f"{slash}{path}".rstrip("/")

    @property
    def zookeeper_connection_timeout(self) -> int:
        """How many milliseconds a start waits for a ZooKeeper server."""
        return self.zookeeper_connection_timeout_ms or self.zookeeper_session_timeout_ms

    @property
    def zookeeper_login(self) -> str | None:
        """`user:password` for ZooKeeper's scheme digest; None for a broker without a login."""
        user, password = self.zookeeper_digest_username, self.zookeeper_digest_password
        if (user is None) != (password is None):
            raise ConfigError(
                "zookeeper.digest.username and zookeeper.digest.password belong together: set both"
            )
        return None if user is None else f"{user}:{password}"

    @property
    def zookeeper_tls(self) -> ZooKeeperTls | None:
        """How to connect to ZooKeeper with TLS; None for plain TCP."""
        keystore, truststore = (
            self.zookeeper_ssl_keystore_location,
            self.zookeeper_ssl_truststore_location,
        )
        if not self.zookeeper_ssl_client_enable:
            if keystore or truststore:
                raise ConfigError(
                    "zookeeper.ssl.keystore.location and zookeeper.ssl.truststore.location need "
                    "zookeeper.ssl.client.enable=true: set it, or remove them"
                )
            return None
        if keystore:
            require_pem(
                "zookeeper.ssl.keystore.location", keystore, self.zookeeper_ssl_keystore_type
            )
        if truststore:
            require_pem(
                "zookeeper.ssl.truststore.location", truststore, self.zookeeper_ssl_truststore_type
            )
        return ZooKeeperTls(
            keystore,
            self.zookeeper_ssl_keystore_password,
            truststore,
            bool(self.zookeeper_ssl_endpoint_identification_algorithm),
        )

    def refuse_open_zookeeper(self) -> None:
        """Raise ConfigError if ACLs are wanted, but the broker has no identity to give them to."""
        login, tls = self.zookeeper_login, self.zookeeper_tls
        if self.zookeeper_set_acl and not (login or (tls and tls.keystore)):
            raise ConfigError(
                "zookeeper.set.acl=true needs an identity that nodes can belong to: set "
                "zookeeper.digest.username and zookeeper.digest.password, or "
                "zookeeper.ssl.keystore.location"
            )

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """The host and port of metrics.listener; None if metrics are not served."""
        host, _, port = self.metrics_listener.rpartition(":")
        return (host.strip("[]"), int(port)) if self.metrics_listener else None

    @property
    def listeners_of_brokers(self) -> tuple[str, ...]:
        """The names of the listeners to which other brokers connect."""
        return (self.inter_broker_listener.name, self.control_plane_listener.name)

    @property
    def control_plane_listener(self) -> Listener:
        """The listener for requests of the controller, by default the inter-broker listener."""
        wanted = self.control_plane_listener_name
        if wanted is None:
            return self.inter_broker_listener
        chosen = next((one for one in self.listening if one.name == wanted.upper()), None)
        if chosen is None:
            raise ConfigError(f"control.plane.listener.name={wanted} is not among the listeners")
        if chosen == self.inter_broker_listener:
            raise ConfigError(
                f"control.plane.listener.name={wanted} is also the inter-broker listener: give the "
                "controller a listener of its own, or leave the key out"
            )
        return chosen

    @property
    def inter_broker_listener(self) -> Listener:
        """The listener for traffic between brokers, by default the first."""
        wanted = self.inter_broker_listener_name or self.security_inter_broker_protocol
        chosen = self.is_set("security.inter.broker.protocol")
        if self.inter_broker_listener_name and chosen:
            raise ConfigError(
                "inter.broker.listener.name and security.inter.broker.protocol are both set: "
                "keep the first, the protocol is that of the listener"
            )
        for listener in self.listening:
            if listener.name == wanted.upper():
                return listener
        if self.inter_broker_listener_name:
            raise ConfigError(f"inter.broker.listener.name={wanted} is not among the listeners")
        if chosen:
            raise ConfigError(
                f"security.inter.broker.protocol={wanted} needs a listener called {wanted}: add it "
                "to listeners, or set inter.broker.listener.name instead"
            )
        return self.listening[0]


def _effective(layers: Layers, row: Key) -> Value:
    for name, text, _ in configured(layers, (row.name,)):
        return BrokerSettings.key(name).parse(text)
    return row.default


def _unify_ids(layers: Layers, values: dict[str, Value]) -> None:
    """Make node.id and broker.id the same number."""
    given = {name for name in ("node.id", "broker.id") if name in layers.static}
    if len(given) == 2 and values["node.id"] != values["broker.id"]:
        raise ConfigError("node.id and broker.id differ: set only node.id")
    chosen = values["broker.id" if given == {"broker.id"} else "node.id"]
    values["node.id"] = values["broker.id"] = chosen


def _topic_defaults(layers: Layers) -> TopicSettings:
    values: dict[str, Value] = {}
    for row in TopicSettings.KEYS.values():
        values[row.name] = row.default
        for name, text, _ in configured(layers, row.synonyms):
            values[row.name] = _in_topic_unit(name, BrokerSettings.KEYS[name].parse(text))
            break
    return TopicSettings(values)


def _in_topic_unit(name: str, value: Value) -> Value:
    unit = _UNITS.get(name.rpartition(".")[2])
    if isinstance(value, int) and unit:
        return value * unit if value >= 0 else -1
    return value


def _refuse_mode(row: Key, cluster_wide: bool) -> None:
    if row.mode is Mode.READ_ONLY:
        raise ConfigError(
            f"{row.name} cannot be changed while the broker runs: set it in the broker's file and "
            f"restart the broker"
        )
    if cluster_wide and row.mode is Mode.PER_BROKER:
        raise ConfigError(f"{row.name} cannot be set for the whole cluster: name a broker")


def _usable(
    stored: Mapping[str, str], ignored: list[ConfigError], *, cluster_wide: bool
) -> dict[str, str]:
    kept = {}
    for name, text in stored.items():
        problem = BrokerSettings.check({name: text}, cluster_wide=cluster_wide)
        if problem:
            ignored.append(problem)
        else:
            kept[name] = text
    return kept

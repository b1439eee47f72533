"""`security.profile=hardened`: settings for an untrusted network, and their reasons.

The profile sets keys that are not set, and refuses to start with others that contradict it. Stricter
values than its own stay.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from headwater.config.broker_keys.authorization import STANDARD_AUTHORIZER
from headwater.config.keys import INT32_MAX, ConfigError, Value
from headwater.config.listener_overrides import parse_override
from headwater.config.listeners import Listener
from headwater.config.properties import Assignment

PROFILE = "security.profile"
HARDENED = "hardened"

ParseValue: TypeAlias = Callable[[str, str], Value]
"""Parses the text of a key."""


class _Rule(NamedTuple):
    """What the profile sets, why, and which other values contradict it."""

    value: str
    why: str
    contradicts: Callable[[Value], bool]


def _beyond(most: int) -> Callable[[Value], bool]:
    return lambda value: isinstance(value, int) and value > most


def _below(least: int) -> Callable[[Value], bool]:
    return lambda value: isinstance(value, int) and value < least


def _any_value(value: Value) -> bool:
    return False


_RULES: Mapping[str, _Rule] = {
    "authorizer.class.name": _Rule(
        STANDARD_AUTHORIZER, "nobody may do what no ACL allows", lambda value: not value
    ),
    "allow.everyone.if.no.acl.found": _Rule("false", "a resource without ACLs is closed", bool),
    "sasl.plain.without.tls": _Rule("false", "passwords never cross the network unencrypted", bool),
    "sasl.server.max.receive.size": _Rule("65536", "strangers cost little memory", _beyond(65_536)),
    "socket.request.max.bytes": _Rule(
        "16777216", "one request costs little memory", _beyond(16_777_216)
    ),
    "connection.failed.authentication.delay.ms": _Rule(
        "1000", "guessing passwords is slow", _below(1000)
    ),
    "max.connections.per.ip": _Rule("200", "one machine cannot take all connections", _beyond(200)),
    "max.connections.per.ip.overrides": _Rule(
        f"127.0.0.1:{INT32_MAX},::1:{INT32_MAX}", "this machine is not limited", _any_value
    ),
    "max.connection.creation.rate.per.ip": _Rule(
        "50", "one machine cannot keep the broker busy with handshakes", _beyond(50)
    ),
    "ssl.endpoint.identification.algorithm": _Rule(
        "https", "brokers check each other's names", lambda value: not value
    ),
    "zookeeper.set.acl": _Rule("true", "only brokers may change metadata", lambda value: not value),
}
_ONLY_WITH_ZOOKEEPER = ("zookeeper.set.acl",)


def hardening(assigned: Mapping[str, Assignment], parse: ParseValue) -> dict[str, str]:
    """Return what the profile adds to the settings; ConfigError for one that contradicts it."""
    for name, (text, origin) in assigned.items():
        override = parse_override(name)
        rule = _RULES.get(name if override is None else override.key)
        if rule is not None and rule.contradicts(parse(name, text)):
            raise ConfigError(
                f"{origin}: {name}={text} contradicts {PROFILE}={HARDENED}, which needs "
                f"{rule.value}, because {rule.why}: remove one of them"
            )
    return {
        name: rule.value
        for name, rule in _RULES.items()
        if name not in assigned
        and ("zookeeper.connect" in assigned or name not in _ONLY_WITH_ZOOKEEPER)
    }


def refuse_open_listeners(
    listeners: Sequence[Listener], client_auth: Callable[[Listener], Value]
) -> None:
    """Raise ConfigError for a listener on which clients need no login, or are not encrypted."""
    for listener in listeners:
        if not listener.uses_tls:
            raise ConfigError(
                f"listener {listener} contradicts {PROFILE}={HARDENED}: {listener.protocol} is not "
                "encrypted; use SASL_SSL, or SSL with ssl.client.auth=required"
            )
        if listener.protocol == "SSL" and client_auth(listener) != "required":
            raise ConfigError(
                f"listener {listener} contradicts {PROFILE}={HARDENED}: it lets clients in that "
                "nobody knows; use SASL_SSL, or set ssl.client.auth=required"
            )


def described(added: Mapping[str, str]) -> Iterator[str]:
    """Yield what the profile has set, each with its reason."""
    for name, value in added.items():
        yield f"{name}={value}: {_RULES[name].why}"

"""Refuses security settings that have no effect, because their owner believes that they protect."""

from collections.abc import Mapping, Sequence

from headwater.config.broker_keys.tls import BrokerTlsKeys
from headwater.config.keys import ConfigError
from headwater.config.listener_overrides import parse_override
from headwater.config.listeners import Listener
from headwater.config.properties import Assignment

_OF_LOGINS = ("sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.plain.without.tls")
_OF_AUTHORIZER = ("super.users", "allow.everyone.if.no.acl.found")


def refuse_unused(
    assigned: Mapping[str, Assignment], listeners: Sequence[Listener], authorizer: str
) -> None:
    """Raise ConfigError for the first setting that has no listener, or no authorizer."""
    for name, assignment in assigned.items():
        override = parse_override(name)
        concerned, key = listeners, name
        if override is not None:
            concerned = [one for one in listeners if one.name == override.listener]
            key = override.key
        why = _why_unused(key, concerned, authorizer)
        if why is not None:
            raise ConfigError(f"{assignment.origin}: {name} is set, but {why}, or remove it")


def _why_unused(key: str, listeners: Sequence[Listener], authorizer: str) -> str | None:
    if key in BrokerTlsKeys.KEYS and not any(one.uses_tls for one in listeners):
        return "no listener that it is for uses TLS: change the listener to SSL or SASL_SSL"
    if key in _OF_LOGINS and not any(one.protocol.startswith("SASL_") for one in listeners):
        return "no listener that it is for uses SASL: change the listener to SASL_SSL"
    if key in _OF_AUTHORIZER and not authorizer:
        return "every client may do everything: set authorizer.class.name"
    return None

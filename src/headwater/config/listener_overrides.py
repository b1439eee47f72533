"""`listener.name.NAME.KEY`: a setting of one listener, or of one SASL mechanism on it.

Kafka writes both names in lower case: `listener.name.clients.ssl.client.auth`,
`listener.name.clients.scram-sha-512.sasl.jaas.config`.
"""

from typing import NamedTuple

PREFIX = "listener.name."
MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")


class ListenerOverride(NamedTuple):
    """The parts of a `listener.name.` key."""

    listener: str
    mechanism: str | None
    key: str


def parse_override(name: str) -> ListenerOverride | None:
    """The parts of `name`; None if it is not the setting of a listener."""
    if not name.startswith(PREFIX):
        return None
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    mechanism, _, key = rest.partition(".")
    if mechanism in MECHANISMS:
        return ListenerOverride(listener.upper(), mechanism, key)
    return ListenerOverride(listener.upper(), None, rest)


def names_of(key: str, listener: str, mechanism: str | None = None) -> tuple[str, ...]:
    """The names under which `key` may be set for a listener, the most specific first."""
    prefix = f"{PREFIX}{listener.lower()}."
    special = (f"{prefix}{mechanism.lower()}.{key}",) if mechanism else ()
    return (*special, f"{prefix}{key}", key)

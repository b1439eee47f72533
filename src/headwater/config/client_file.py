"""Config files of clients: keys of producers, consumers and admins in Java's properties format."""

from headwater.config.client import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from headwater.config.client_tls import ALIASES
from headwater.config.keys import ConfigError
from headwater.config.properties import read_properties

_ROLES = (AdminSettings, ProducerSettings, ConsumerSettings)
_BOOTSTRAP = "bootstrap.servers"


def read_client_file(path: str) -> dict[str, str]:
    """Return the settings in a file by Kafka's keys; ConfigError if no client has one of them."""
    found: dict[str, str] = {}
    for name, (value, origin) in read_properties(path).items():
        key = ALIASES.get(name, name)
        if not any(key in role.KEYS for role in _ROLES):
            try:
                ConsumerSettings.of({_BOOTSTRAP: "localhost:9092"} | {name: value})
            except ConfigError as wrong:
                raise ConfigError(f"{origin}: {wrong.message}") from None
        found[key] = value
    return found


def connecting_settings(path: str) -> dict[str, str]:
    """Return the settings in a file that every client has: brokers, timeouts, TLS and login."""
    found = read_client_file(path)
    return {name: value for name, value in found.items() if name in ClientSettings.KEYS}

"""The config file of `headwater --config FILE`: client settings for every command.

The file is in Java's properties format, as for Kafka's tools. One file may hold keys of producers,
consumers and admins; each client uses its own. Options of a command override the environment, and
both override the file.
"""

import click

from headwater.cli.app import CONFIG_FILE
from headwater.config.client import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from headwater.config.client_tls import ALIASES
from headwater.config.keys import ConfigError
from headwater.config.properties import read_properties

BOOTSTRAP = "bootstrap.servers"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_ROLES = (AdminSettings, ProducerSettings, ConsumerSettings)


def file_settings(role: type[ClientSettings]) -> dict[str, str]:
    """Return the settings in the config file for clients of `role`, by key."""
    found = {ALIASES.get(name, name): value for name, value in _checked().items()}
    return {name: value for name, value in found.items() if name in role.KEYS}


def default_bootstrap(context: click.Context | None = None) -> str:
    """Return the brokers for commands without --bootstrap-server or environment variable."""
    return _checked(context).get(BOOTSTRAP, DEFAULT_BOOTSTRAP)


def refuse_secured(who: str) -> None:
    """Refuse a config file with TLS or a login for a command that has neither."""
    protocol = _checked().get("security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise ConfigError(
            f"{who} connects without TLS and without a login, but the config file has "
            f"security.protocol={protocol}: name a PLAINTEXT listener in a file without it, or use "
            "the Spark source and sink of topics, which take kafka.security.protocol as an option"
        )


def _checked(context: click.Context | None = None) -> dict[str, str]:
    context = context or click.get_current_context(silent=True)
    path = context.find_root().params.get(CONFIG_FILE) if context else None
    if path is None:
        return {}
    found = read_properties(path)
    for name, (value, origin) in found.items():
        if not any(ALIASES.get(name, name) in role.KEYS for role in _ROLES):
            try:
                ConsumerSettings.of({BOOTSTRAP: DEFAULT_BOOTSTRAP} | {name: value})
            except ConfigError as wrong:
                raise ConfigError(f"{origin}: {wrong.message}") from None
    return {name: value for name, (value, _) in found.items()}

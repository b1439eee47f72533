"""The config file of `headwater --config FILE`: client settings that every command begins with.

The file is in Java's properties format, as Kafka's tools read it. One file may hold keys of
producers, consumers and admins: each client takes its own. Options of a command beat the
environment, and both beat the file.
"""

import click

from headwater.cli.app import CONFIG_FILE
from headwater.config.client import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from headwater.config.keys import ConfigError
from headwater.config.properties import read_properties

BOOTSTRAP = "bootstrap.servers"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_ROLES = (AdminSettings, ProducerSettings, ConsumerSettings)


def file_settings(role: type[ClientSettings]) -> dict[str, str]:
    """The settings in the config file that clients of `role` have, by key; without a file, none."""
    return {name: value for name, value in _checked().items() if name in role.KEYS}


def default_bootstrap(context: click.Context | None = None) -> str:
    """The brokers to ask where the command line and the environment name none."""
    return _checked(context).get(BOOTSTRAP, DEFAULT_BOOTSTRAP)


def _checked(context: click.Context | None = None) -> dict[str, str]:
    context = context or click.get_current_context(silent=True)
    path = context.find_root().params.get(CONFIG_FILE) if context else None
    if path is None:
        return {}
    found = read_properties(path)
    for name, (value, origin) in found.items():
        if not any(name in role.KEYS for role in _ROLES):
            try:
                ConsumerSettings.of({BOOTSTRAP: DEFAULT_BOOTSTRAP} | {name: value})
            except ConfigError as wrong:
                raise ConfigError(f"{origin}: {wrong.message}") from None
    return {name: value for name, (value, _) in found.items()}

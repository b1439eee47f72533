"""The config file of `headwater --config FILE`: client settings for every command.

The file is in Java's properties format, as for Kafka's tools. One file may hold keys of producers,
consumers and admins; each client uses its own. Options of a command override the environment, and
both override the file.
"""

import os

import click

from headwater.cli.app import CONFIG_FILE
from headwater.config.client import ClientSettings
from headwater.config.client_file import read_client_file

BOOTSTRAP = "bootstrap.servers"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def file_settings(role: type[ClientSettings]) -> dict[str, str]:
    """Return the settings in the config file for clients of `role`, by key."""
    return {name: value for name, value in _settings().items() if name in role.KEYS}


def default_bootstrap(context: click.Context | None = None) -> str:
    """Return the brokers for commands without --bootstrap-server or environment variable."""
    return file_bootstrap(context) or DEFAULT_BOOTSTRAP


def file_bootstrap(context: click.Context | None = None) -> str | None:
    """Return the brokers that the config file names."""
    return _settings(context).get(BOOTSTRAP)


def config_file(context: click.Context | None = None) -> str | None:
    """Return the absolute path of the config file."""
    context = context or click.get_current_context(silent=True)
    path = context.find_root().params.get(CONFIG_FILE) if context else None
    return None if path is None else os.path.abspath(path)


def _settings(context: click.Context | None = None) -> dict[str, str]:
    path = config_file(context)
    return {} if path is None else read_client_file(path)

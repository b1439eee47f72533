"""How all clients of a pipeline, an ingest or a replay connect: brokers, TLS and login.

Secrets stay in the config file. Spark gets the file's path as the option `configFile` of a source or
a sink: it writes options into plans, which its UI and its event log show. The driver reads the file,
and tasks get the settings with their serialized code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.config.client import ClientSettings
from headwater.config.client_file import connecting_settings
from headwater.config.client_tls import ALIASES
from headwater.config.keys import ConfigError, nearest

CONFIG_FILE: Final = "configFile"
"""The option of the source and the sink that names a config file."""
_PREFIX: Final = "kafka."
_BOOTSTRAP: Final = "bootstrap.servers"


@dataclass(frozen=True)
class ConnectionSettings:
    """The brokers of a run, its config file, and settings that override the file."""

    bootstrap_servers: str
    config_file: str | None = None
    """An absolute path on the driver's machine."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Settings by Kafka's keys; none of them is a secret."""

    def __post_init__(self) -> None:
        for name in self.overrides:
            row = ClientSettings.KEYS.get(name)
            if row is None:
                hint = nearest(name, ClientSettings.KEYS)
                raise ConfigError(f"{name} is not a setting that every client has{hint}")
            if row.sensitive:
                raise ConfigError(
                    f"{name} is a secret: Spark would show it in its plans; write it into a config "
                    "file and name that with --config"
                )

    @property
    def client(self) -> dict[str, Any]:
        """Return the keywords of a client in this process."""
        options = with_config_file(self.options)
        return {name.removeprefix(_PREFIX).replace(".", "_"): options[name] for name in options}

    @property
    def options(self) -> dict[str, str]:
        """Return the options of a source or a sink, without secrets."""
        file = {CONFIG_FILE: self.config_file} if self.config_file else {}
        given = {_PREFIX + name: value for name, value in self.overrides.items()}
        return {**file, **given, _PREFIX + _BOOTSTRAP: self.bootstrap_servers}

    def source_options(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a source; a login is not sent to other brokers that it names."""
        if any(name.lower() == _PREFIX + _BOOTSTRAP for name in given):
            return dict(given)
        return {**self.options, **given}


def with_config_file(options: Mapping[str, str]) -> dict[str, str]:
    """Replace `configFile` by the settings of the file as `kafka.` options; given ones override.

    Only settings that every client has are used.
    """
    path, found = None, {}
    for name, value in options.items():
        if name.lower() == CONFIG_FILE.lower():
            path = value
        else:
            found[name] = value
    if path is None:
        return found
    given = {_key(name) for name in found if name.lower().startswith(_PREFIX)}
    return {
        **{
            _PREFIX + name: text
            for name, text in connecting_settings(path).items()
            if name not in given
        },
        **found,
    }


def _key(option: str) -> str:
    """Return Kafka's key of a `kafka.` option."""
    name = option.lower().removeprefix(_PREFIX)
    return ALIASES.get(name, name)

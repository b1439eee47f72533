"""The addresses on which the broker listens, and those it advertises to clients."""

from collections.abc import Sequence
from typing import NamedTuple

from headwater.config.keys import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ANYWHERE = ("", "0.0.0.0", "::")


class Listener(NamedTuple):
    """A named address and its security protocol."""

    name: str
    host: str
    port: int
    protocol: str

    @property
    def uses_tls(self) -> bool:
        """Whether its connections are encrypted."""
        return self.protocol.endswith("SSL")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listeners(key: str, texts: Sequence[str], protocol_map: str) -> tuple[Listener, ...]:
    """Parse listeners; ConfigError if one is malformed or a name appears twice."""
    protocols = _protocols(protocol_map)
    found = tuple(_listener(key, text, protocols) for text in texts)
    names = [listener.name for listener in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{key} has two listeners called {name}; give each its own name")
    return found


def advertised_listeners(
    listeners: Sequence[Listener], given: Sequence[Listener]
) -> tuple[Listener, ...]:
    """The addresses for clients: each listener's advertised one, or the one it listens on."""
    by_name = {listener.name: listener for listener in given}
    for name in by_name.keys() - {listener.name for listener in listeners}:
        raise ConfigError(f"advertised.listeners has {name}, which is missing in listeners")
    addresses = tuple(by_name.get(listener.name, listener) for listener in listeners)
    for listener in addresses:
        if listener.host in _ANYWHERE[1:]:
            raise ConfigError(
                f"clients cannot connect to {listener.host}: "
                f"set advertised.listeners={listener.name}://HOST:{listener.port}"
            )
    return addresses


def _protocols(text: str) -> dict[str, str]:
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = pair.partition(":")
        if protocol.upper() not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map cannot be {text!r}: {pair!r} is not NAME:PROTOCOL "
                f"with one of {', '.join(PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def _listener(key: str, text: str, protocols: dict[str, str]) -> Listener:
    name, slashes, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not (name and slashes and colon and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ConfigError(f"{key} cannot hold {text!r}: write NAME://HOST:PORT")
    protocol = protocols.get(name.upper())
    if protocol is None:
        raise ConfigError(
            f"{key} uses the listener {name}: give it a protocol in listener.security.protocol.map"
        )
    return Listener(name.upper(), host.strip("[]"), int(port), protocol)

"""The identity of a connection's peer."""

from typing import NamedTuple


class Principal(NamedTuple):
    """The authenticated identity of a connection, in Kafka's form `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


USER = "User"
ANONYMOUS = Principal(USER, "ANONYMOUS")
BROKER = "Broker"
"""The kind of a principal that has proven to be a broker of this cluster; its name is the id."""

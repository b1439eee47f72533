"""Addresses of leaders for a client that asked the wrong broker (KIP-951)."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from headwater.broker.context import Context
from headwater.broker.server_connection import ServerConnection

Endpoint = TypeVar("Endpoint", covariant=True)


class NodeEndpoint(Protocol[Endpoint]):
    """The NodeEndpoint struct of Produce and Fetch responses."""

    def __call__(self, *, node_id: int, host: str, port: int, rack: str | None) -> Endpoint: ...


def leader_endpoints(
    context: Context,
    connection: ServerConnection,
    leaders: Iterable[int],
    make: NodeEndpoint[Endpoint],
) -> list[Endpoint]:
    """Return the addresses of brokers on the client's listener."""
    found = []
    for node in sorted(leaders):
        endpoint = context.metadata.endpoint(node, connection.listener)
        if endpoint is not None:
            host, port = endpoint
            rack = context.metadata.brokers[node].rack
            found.append(make(node_id=node, host=host, port=port, rack=rack))
    return found

"""Addresses of leaders for a client that asked the wrong broker (KIP-951)."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from headwater.broker.context import Context
from headwater.broker.server_connection import ServerConnection
from headwater.model import NO_EPOCH, NO_LEADER

Endpoint = TypeVar("Endpoint", covariant=True)


class NodeEndpoint(Protocol[Endpoint]):
    """The NodeEndpoint struct of Produce and Fetch responses."""

    def __call__(self, *, node_id: int, host: str, port: int, rack: str | None) -> Endpoint: ...


def newest_leader(context: Context, topic: str, partition: int) -> tuple[int, int]:
    """Return the leader and its epoch; -1 and -1 for a partition that this broker does not know.

    A replica here hears of its new leader in LeaderAndIsr, the metadata cache a moment later.
    """
    replica = context.replicas.get(topic, partition)
    known = context.metadata.partition(topic, partition)
    if known is None or (replica is not None and replica.leader_epoch > known.leader_epoch):
        return (replica.leader, replica.leader_epoch) if replica else (NO_LEADER, NO_EPOCH)
    return known.leader, known.leader_epoch


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

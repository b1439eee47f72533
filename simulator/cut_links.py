"""Which links each kind of partition cuts, as pairs of the sender's host and the receiver's."""

from simulator.cluster import Cluster
from simulator.node import Node
from simulator.randomness import Stream
from simulator.zookeeper import ZOOKEEPER_HOST


def links_to_cut(kind: str, cluster: Cluster, node: Node, chance: Stream) -> list[tuple[str, str]]:
    """Return the links that a partition of this kind around `node` cuts."""
    host = node.host
    brokers = [one.host for one in cluster.nodes if one is not node]
    clients = [loop.host for loop in cluster.client_loops]
    match kind:
        case "isolate":
            return _both_ways(host, [*brokers, ZOOKEEPER_HOST, *clients])
        case "cut off from brokers":
            return _both_ways(host, brokers)
        case "cut off from zookeeper":
            return _both_ways(host, [ZOOKEEPER_HOST])
        case "deaf to zookeeper":
            return [(ZOOKEEPER_HOST, host)]
        case "mute to zookeeper":
            return [(host, ZOOKEEPER_HOST)]
        case "one-way cut":
            return [(host, chance.choice(brokers))]
        case "one-way ring":
            return list(zip([host, *brokers], [*brokers, host], strict=True))
        case "bridge":
            return _both_ways(brokers[0], brokers[1:2]) if brokers else []
        case _:
            return _both_ways(host, clients)


def _both_ways(host: str, others: list[str]) -> list[tuple[str, str]]:
    return [link for other in others for link in ((host, other), (other, host))]

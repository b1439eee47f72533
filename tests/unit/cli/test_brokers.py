"""The rows of `headwater brokers list`."""

from headwater.cli.brokers import broker_rows
from headwater.client.admin.brokers import ClusterDescription
from headwater.client.topology import Node, PartitionView, TopicView


def test_a_broker_that_is_down_is_listed_out_of_sync_while_it_has_replicas():
    """Who waits for as many in-sync replicas as replicas must not go on without it."""
    cluster = ClusterDescription("c", 1, (Node(1, "a", 9092, "r"), Node(3, "b", 9093)))
    topic = TopicView(
        "orders",
        bytes(16),
        False,
        (
            PartitionView(0, 1, 4, (2, 1), (1,), (2,)),
            PartitionView(1, -1, 2, (2,), (2,), (2,)),
        ),
    )
    first, away, idle = broker_rows(cluster, [topic])
    assert (first["broker"], first["host"], first["controller"]) == (1, "a", True)
    assert (first["leads"], first["preferred"], first["replicas"], first["in_sync"]) == (1, 0, 1, 1)
    assert (away["broker"], away["host"], away["port"]) == (2, None, None)
    assert (away["leads"], away["preferred"], away["replicas"], away["in_sync"]) == (0, 2, 2, 0)
    assert (idle["broker"], idle["replicas"]) == (3, 0)

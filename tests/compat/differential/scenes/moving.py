"""ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46)."""

from headwater.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from tests.compat.differential.scene import Scene, scene
from tests.compat.differential.scenes.topics import create, topic

_Topic = AlterPartitionReassignmentsRequest.ReassignableTopic
_Partition = AlterPartitionReassignmentsRequest.ReassignablePartition
_Listed = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics


def move(
    name: str, partition: int, replicas: list[int] | None
) -> AlterPartitionReassignmentsRequest:
    """A request to move one partition; None cancels."""
    wanted = _Partition(partition_index=partition, replicas=replicas)
    return AlterPartitionReassignmentsRequest(topics=[_Topic(name=name, partitions=[wanted])])


@scene
def elect_leaders(s: Scene) -> None:
    s.ask("a topic", create(topic("led", 2)))
    for version in (0, 1, 2):
        for name, indexes in (("led", [0]), ("led", [0, 9]), ("nowhere", [0])):
            wanted = ElectLeadersRequest.ElectedTopic(topic=name, partitions=indexes)
            s.ask("some", ElectLeadersRequest(topic_partitions=[wanted]), version)
        s.ask("all", ElectLeadersRequest(topic_partitions=None), version)
    for kind in (1, 7):
        wanted = ElectLeadersRequest.ElectedTopic(topic="led", partitions=[0])
        s.ask("of a kind", ElectLeadersRequest(election_type=kind, topic_partitions=[wanted]))


@scene
def reassign_partitions(s: Scene) -> None:
    s.ask("a topic", create(topic("placed", 2)))
    for version in (0, 1):
        s.ask("where it is", move("placed", 0, [1]), version)
        s.ask("cancelled without a move", move("placed", 0, None), version)
        s.ask("unknown partition", move("placed", 9, [1]), version)
        s.ask("unknown topic", move("nowhere", 0, [1]), version)
        s.ask("unknown broker", move("placed", 0, [1, 77]), version)
        s.ask("a broker twice", move("placed", 0, [1, 1]), version)
        s.ask("no broker", move("placed", 0, []), version)
        s.ask("none", AlterPartitionReassignmentsRequest(), version)
    s.ask("listed", ListPartitionReassignmentsRequest(topics=None))
    for name in ("placed", "nowhere"):
        listed = _Listed(name=name, partition_indexes=[0, 9])
        s.ask("some listed", ListPartitionReassignmentsRequest(topics=[listed]))

"""Elections (43) and moves of replicas (45, 46)."""

from headwater.wire.schema import Struct, i8, i16, i32, since


class ElectLeadersRequest(Struct, api_key=43, versions="0-2", flexible="2+"):
    """Elect leaders by hand.

    1: preferred or unclean (KIP-460).
    """

    class ElectedTopic(Struct):
        """A topic's partitions."""

        topic: str = ""
        partitions: list[i32] = since(default=[])

    election_type: i8 = since("1+", default=0)
    topic_partitions: list[ElectedTopic] | None = since(default=[])
    timeout_ms: i32 = 60000


class ElectLeadersResponse(Struct, api_key=43, versions="0-2", flexible="2+"):
    """Which elections took place."""

    class ReplicaElectionResult(Struct):
        """One topic's results."""

        topic: str = ""
        partition_result: "list[ElectLeadersResponse.ElectionResult]" = since(default=[])

    class ElectionResult(Struct):
        """One partition's result."""

        partition_id: i32 = 0
        error_code: i16 = 0
        error_message: str | None = ""

    throttle_time_ms: i32 = 0
    error_code: i16 = since("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = since(default=[])


class AlterPartitionReassignmentsRequest(Struct, api_key=45, versions="0-1", flexible="0+"):
    """Move partitions to other brokers, or cancel such moves (KIP-455).

    1: whether the number of replicas may change.
    """

    class ReassignableTopic(Struct):
        """A topic's partitions."""

        name: str = ""
        partitions: "list[AlterPartitionReassignmentsRequest.ReassignablePartition]" = since(
            default=[]
        )

    class ReassignablePartition(Struct):
        """The new replicas of a partition; none cancels its move."""

        partition_index: i32 = 0
        replicas: list[i32] | None = None

    timeout_ms: i32 = 60000
    allow_replication_factor_change: bool = since("1+", default=True)
    topics: list[ReassignableTopic] = since(default=[])


class AlterPartitionReassignmentsResponse(Struct, api_key=45, versions="0-1", flexible="0+"):
    """Which moves began or were cancelled."""

    class ReassignableTopicResponse(Struct):
        """One topic's results."""

        name: str = ""
        partitions: "list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse]" = (
            since(default=[])
        )

    class ReassignablePartitionResponse(Struct):
        """One partition's result."""

        partition_index: i32 = 0
        error_code: i16 = 0
        error_message: str | None = ""

    throttle_time_ms: i32 = 0
    allow_replication_factor_change: bool = since("1+", default=True, ignorable=True)
    error_code: i16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = since(default=[])


class ListPartitionReassignmentsRequest(Struct, api_key=46, versions="0", flexible="0+"):
    """Ask which partitions are being moved."""

    class ListPartitionReassignmentsTopics(Struct):
        """A topic's partitions."""

        name: str = ""
        partition_indexes: list[i32] = since(default=[])

    timeout_ms: i32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class ListPartitionReassignmentsResponse(Struct, api_key=46, versions="0", flexible="0+"):
    """The moves under way."""

    class OngoingTopicReassignment(Struct):
        """A topic's partitions."""

        name: str = ""
        partitions: "list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]" = since(
            default=[]
        )

    class OngoingPartitionReassignment(Struct):
        """A partition with the replicas that come and go."""

        partition_index: i32 = 0
        replicas: list[i32] = since(default=[])
        adding_replicas: list[i32] = since(default=[])
        removing_replicas: list[i32] = since(default=[])

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = since(default=[])

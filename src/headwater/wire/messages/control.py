"""The controller's orders to its brokers (4-6) and what brokers ask of it (7, 56); never advertised."""

from headwater.model import NO_LEADER, ZERO_UUID
from headwater.wire.fields import OWN_TAGS
from headwater.wire.schema import Struct, Uuid, i8, i16, i32, i64, since


class LeaderAndIsrRequest(Struct, api_key=4, versions="0-7", flexible="4+"):
    """Tell a broker which partitions it leads or follows.

    2: grouped by topic, broker epoch.
    3: adding and removing replicas.
    5: topic ids, full or incremental.
    6: leader recovery state.
    7: whether the controller is KRaft.
    """

    class LeaderAndIsrPartitionState(Struct):
        """One partition's leadership."""

        topic_name: str = since("0-1", default="", ignorable=True)
        partition_index: i32 = 0
        controller_epoch: i32 = 0
        leader: i32 = 0
        leader_epoch: i32 = 0
        isr: list[i32] = since(default=[])
        partition_epoch: i32 = 0
        replicas: list[i32] = since(default=[])
        adding_replicas: list[i32] = since("3+", default=[], ignorable=True)
        removing_replicas: list[i32] = since("3+", default=[], ignorable=True)
        is_new: bool = since("1+", default=False, ignorable=True)
        leader_recovery_state: i8 = since("6+", default=0)
        elr: list[i32] = since("4+", default=[], tag=OWN_TAGS, ignorable=True)

    class LeaderAndIsrTopicState(Struct):
        """One topic's partitions."""

        topic_name: str = ""
        topic_id: Uuid = since("5+", default=ZERO_UUID, ignorable=True)
        partition_states: "list[LeaderAndIsrRequest.LeaderAndIsrPartitionState]" = since(default=[])

    class LeaderAndIsrLiveLeader(Struct):
        """A leader's address."""

        broker_id: i32 = 0
        host_name: str = ""
        port: i32 = 0

    controller_id: i32 = 0
    is_kraft_controller: bool = since("7+", default=False)
    controller_epoch: i32 = 0
    broker_epoch: i64 = since("2+", default=-1, ignorable=True)
    type: i8 = since("5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = since("0-1", default=[])
    topic_states: list[LeaderAndIsrTopicState] = since("2+", default=[])
    live_leaders: list[LeaderAndIsrLiveLeader] = since(default=[])


class LeaderAndIsrResponse(Struct, api_key=4, versions="0-7", flexible="4+"):
    """What the broker could take on.

    5: grouped by topic id.
    """

    class LeaderAndIsrPartitionError(Struct):
        """One partition's result."""

        topic_name: str = since("0-4", default="", ignorable=True)
        partition_index: i32 = 0
        error_code: i16 = 0

    class LeaderAndIsrTopicError(Struct):
        """One topic's results."""

        topic_id: Uuid = ZERO_UUID
        partition_errors: "list[LeaderAndIsrResponse.LeaderAndIsrPartitionError]" = since(
            default=[]
        )

    error_code: i16 = 0
    partition_errors: list[LeaderAndIsrPartitionError] = since("0-4", default=[])
    topics: list[LeaderAndIsrTopicError] = since("5+", default=[])


class StopReplicaRequest(Struct, api_key=5, versions="0-4", flexible="2+"):
    """Tell a broker to stop replicas, and perhaps to delete them.

    1: grouped by topic, broker epoch.
    3: leader epoch and deletion per partition.
    4: whether the controller is KRaft.
    """

    class StopReplicaPartitionV0(Struct):
        """A partition, in version 0."""

        topic_name: str = ""
        partition_index: i32 = 0

    class StopReplicaTopicV1(Struct):
        """A topic's partitions, in versions 1 and 2."""

        name: str = ""
        partition_indexes: list[i32] = since(default=[])

    class StopReplicaTopicState(Struct):
        """A topic's partitions."""

        topic_name: str = ""
        partition_states: "list[StopReplicaRequest.StopReplicaPartitionState]" = since(default=[])

    class StopReplicaPartitionState(Struct):
        """A partition to stop."""

        partition_index: i32 = 0
        leader_epoch: i32 = -1
        delete_partition: bool = False

    controller_id: i32 = 0
    is_kraft_controller: bool = since("4+", default=False)
    controller_epoch: i32 = 0
    broker_epoch: i64 = since("1+", default=-1, ignorable=True)
    delete_partitions: bool = since("0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = since("0", default=[])
    topics: list[StopReplicaTopicV1] = since("1-2", default=[])
    topic_states: list[StopReplicaTopicState] = since("3+", default=[])


class StopReplicaResponse(Struct, api_key=5, versions="0-4", flexible="2+"):
    """What was stopped."""

    class StopReplicaPartitionError(Struct):
        """One partition's result."""

        topic_name: str = ""
        partition_index: i32 = 0
        error_code: i16 = 0

    error_code: i16 = 0
    partition_errors: list[StopReplicaPartitionError] = since(default=[])


class UpdateMetadataRequest(Struct, api_key=6, versions="0-8", flexible="6+"):
    """Tell a broker what the cluster looks like.

    1: several listeners.
    2: racks.
    3: listener names.
    4: offline replicas.
    5: grouped by topic, broker epoch.
    7: topic ids.
    8: full or incremental, whether the controller is KRaft.
    """

    class UpdateMetadataPartitionState(Struct):
        """One partition."""

        topic_name: str = since("0-4", default="", ignorable=True)
        partition_index: i32 = 0
        controller_epoch: i32 = 0
        leader: i32 = 0
        leader_epoch: i32 = 0
        isr: list[i32] = since(default=[])
        zk_version: i32 = 0
        replicas: list[i32] = since(default=[])
        offline_replicas: list[i32] = since("4+", default=[], ignorable=True)
        elr: list[i32] = since("6+", default=[], tag=OWN_TAGS, ignorable=True)
        last_known_leader: i32 = since("6+", default=NO_LEADER, tag=OWN_TAGS + 1, ignorable=True)

    class UpdateMetadataTopicState(Struct):
        """One topic's partitions."""

        topic_name: str = ""
        topic_id: Uuid = since("7+", default=ZERO_UUID, ignorable=True)
        partition_states: "list[UpdateMetadataRequest.UpdateMetadataPartitionState]" = since(
            default=[]
        )
        partition_count: i32 = since("6+", default=0, tag=OWN_TAGS, ignorable=True)
        """How many partitions the topic has, or will have once it is created; 0 if not known."""

    class UpdateMetadataBroker(Struct):
        """A live broker."""

        id: i32 = 0
        v0_host: str = since("0", default="", ignorable=True)
        v0_port: i32 = since("0", default=0, ignorable=True)
        endpoints: "list[UpdateMetadataRequest.UpdateMetadataEndpoint]" = since(
            "1+", default=[], ignorable=True
        )
        rack: str | None = since("2+", default="", ignorable=True)

    class UpdateMetadataEndpoint(Struct):
        """One listener of a broker."""

        port: i32 = 0
        host: str = ""
        listener: str = since("3+", default="", ignorable=True)
        security_protocol: i16 = 0

    controller_id: i32 = 0
    is_kraft_controller: bool = since("8+", default=False)
    type: i8 = since("8+", default=0, tag=0)
    controller_epoch: i32 = 0
    broker_epoch: i64 = since("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = since("0-4", default=[])
    topic_states: list[UpdateMetadataTopicState] = since("5+", default=[])
    live_brokers: list[UpdateMetadataBroker] = since(default=[])


class UpdateMetadataResponse(Struct, api_key=6, versions="0-8", flexible="6+"):
    """That the broker knows."""

    error_code: i16 = 0


class ControlledShutdownRequest(Struct, api_key=7, versions="0-3", flexible="3+"):
    """Ask the controller to move leaders away.

    0: alone in having no client id in its header.
    2: broker epoch.
    """

    broker_id: i32 = 0
    broker_epoch: i64 = since("2+", default=-1, ignorable=True)


class ControlledShutdownResponse(Struct, api_key=7, versions="0-3", flexible="3+"):
    """The partitions that the broker still leads."""

    class RemainingPartition(Struct):
        """A partition still led."""

        topic_name: str = ""
        partition_index: i32 = 0

    error_code: i16 = 0
    remaining_partitions: list[RemainingPartition] = since(default=[])


class AlterPartitionRequest(Struct, api_key=56, versions="0-3", flexible="0+"):
    """Ask the controller to store another in-sync set (KIP-497).

    1: leader recovery state.
    2: topic ids.
    3: the broker epoch of each member (KIP-903).
    """

    class AlterPartitionTopic(Struct):
        """A topic's partitions."""

        topic_name: str = since("0-1", default="", ignorable=True)
        topic_id: Uuid = since("2+", default=ZERO_UUID, ignorable=True)
        partitions: "list[AlterPartitionRequest.AlteredPartition]" = since(default=[])

    class AlteredPartition(Struct):
        """The in-sync set that the leader wants, and the state that it starts from."""

        partition_index: i32 = 0
        leader_epoch: i32 = 0
        new_isr: list[i32] = since("0-2", default=[])
        new_isr_with_epochs: "list[AlterPartitionRequest.IsrMember]" = since("3+", default=[])
        leader_recovery_state: i8 = since("1+", default=0)
        partition_epoch: i32 = 0
        keeps_records: bool = since(default=False, tag=OWN_TAGS, ignorable=True)

    class IsrMember(Struct):
        """A member, with the epoch of its registration."""

        broker_id: i32 = 0
        broker_epoch: i64 = -1

    broker_id: i32 = 0
    broker_epoch: i64 = -1
    topics: list[AlterPartitionTopic] = since(default=[])


class AlterPartitionResponse(Struct, api_key=56, versions="0-3", flexible="0+"):
    """The states that are stored now."""

    class AlterPartitionTopicResult(Struct):
        """One topic's results."""

        topic_name: str = since("0-1", default="", ignorable=True)
        topic_id: Uuid = since("2+", default=ZERO_UUID, ignorable=True)
        partitions: "list[AlterPartitionResponse.AlterPartitionResult]" = since(default=[])

    class AlterPartitionResult(Struct):
        """One partition's result; the state is set only without an error."""

        partition_index: i32 = 0
        error_code: i16 = 0
        leader_id: i32 = 0
        leader_epoch: i32 = 0
        isr: list[i32] = since(default=[])
        leader_recovery_state: i8 = since("1+", default=0, ignorable=True)
        partition_epoch: i32 = 0
        elr: list[i32] = since(default=[], tag=OWN_TAGS, ignorable=True)

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    topics: list[AlterPartitionTopicResult] = since(default=[])

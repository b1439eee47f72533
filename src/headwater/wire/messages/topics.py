"""Topics: creation (19), deletion (20), growth (37) and the cutting of their logs (21)."""

from headwater.model import ZERO_UUID
from headwater.wire.schema import Struct, Uuid, i8, i16, i32, i64, since


class CreateTopicsRequest(Struct, api_key=19, versions="0-7", flexible="5+"):
    """Create topics.

    1: validate only.
    4: -1 for partitions and replicas asks for the broker's default.
    """

    class CreatableTopic(Struct):
        """A topic to create."""

        name: str = ""
        num_partitions: i32 = 0
        replication_factor: i16 = 0
        assignments: "list[CreateTopicsRequest.CreatableReplicaAssignment]" = since(default=[])
        configs: "list[CreateTopicsRequest.CreatableTopicConfig]" = since(default=[])

    class CreatableReplicaAssignment(Struct):
        """Where one partition's replicas go."""

        partition_index: i32 = 0
        broker_ids: list[i32] = since(default=[])

    class CreatableTopicConfig(Struct):
        """A config of the new topic."""

        name: str = ""
        value: str | None = ""

    topics: list[CreatableTopic] = since(default=[])
    timeout_ms: i32 = 60000
    validate_only: bool = since("1+", default=False)


class CreateTopicsResponse(Struct, api_key=19, versions="0-7", flexible="5+"):
    """What was created.

    1: error message.
    5: the topic as it became (KIP-525).
    7: topic id.
    """

    class CreatableTopicResult(Struct):
        """One topic's result."""

        name: str = ""
        topic_id: Uuid = since("7+", default=ZERO_UUID, ignorable=True)
        error_code: i16 = 0
        error_message: str | None = since("1+", default="", ignorable=True)
        topic_config_error_code: i16 = since("5+", default=0, tag=0, ignorable=True)
        num_partitions: i32 = since("5+", default=-1, ignorable=True)
        replication_factor: i16 = since("5+", default=-1, ignorable=True)
        configs: "list[CreateTopicsResponse.CreatableTopicConfigs] | None" = since(
            "5+", default=[], ignorable=True
        )

    class CreatableTopicConfigs(Struct):
        """A config in effect."""

        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: i8 = -1
        is_sensitive: bool = False

    throttle_time_ms: i32 = since("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = since(default=[])


class DeleteTopicsRequest(Struct, api_key=20, versions="0-6", flexible="4+"):
    """Delete topics.

    6: by name or id.
    """

    class DeleteTopicState(Struct):
        """A topic by name, or by id with a null name."""

        name: str | None = None
        topic_id: Uuid = ZERO_UUID

    topics: list[DeleteTopicState] = since("6+", default=[])
    topic_names: list[str] = since("0-5", default=[], ignorable=True)
    timeout_ms: i32 = 0


class DeleteTopicsResponse(Struct, api_key=20, versions="0-6", flexible="4+"):
    """What was deleted.

    5: error message.
    6: topic id.
    """

    class DeletableTopicResult(Struct):
        """One topic's result."""

        name: str | None = since(default="", nullable="6+")
        topic_id: Uuid = since("6+", default=ZERO_UUID, ignorable=True)
        error_code: i16 = 0
        error_message: str | None = since("5+", default=None, ignorable=True)

    throttle_time_ms: i32 = since("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = since(default=[])


class DeleteRecordsRequest(Struct, api_key=21, versions="0-2", flexible="2+"):
    """Move the starts of logs forward."""

    class DeleteRecordsTopic(Struct):
        """Partitions of one topic."""

        name: str = ""
        partitions: "list[DeleteRecordsRequest.DeleteRecordsPartition]" = since(default=[])

    class DeleteRecordsPartition(Struct):
        """The offset before which all goes; -1 for the high watermark."""

        partition_index: i32 = 0
        offset: i64 = 0

    topics: list[DeleteRecordsTopic] = since(default=[])
    timeout_ms: i32 = 0


class DeleteRecordsResponse(Struct, api_key=21, versions="0-2", flexible="2+"):
    """Where the logs begin now."""

    class DeleteRecordsTopicResult(Struct):
        """One topic's results."""

        name: str = ""
        partitions: "list[DeleteRecordsResponse.DeleteRecordsPartitionResult]" = since(default=[])

    class DeleteRecordsPartitionResult(Struct):
        """One partition's result."""

        partition_index: i32 = 0
        low_watermark: i64 = 0
        error_code: i16 = 0

    throttle_time_ms: i32 = 0
    topics: list[DeleteRecordsTopicResult] = since(default=[])


class CreatePartitionsRequest(Struct, api_key=37, versions="0-3", flexible="2+"):
    """Add partitions to topics."""

    class CreatePartitionsTopic(Struct):
        """A topic and its new partition count."""

        name: str = ""
        count: i32 = 0
        assignments: "list[CreatePartitionsRequest.CreatePartitionsAssignment] | None" = since(
            default=[]
        )

    class CreatePartitionsAssignment(Struct):
        """Where one new partition's replicas go."""

        broker_ids: list[i32] = since(default=[])

    topics: list[CreatePartitionsTopic] = since(default=[])
    timeout_ms: i32 = 0
    validate_only: bool = False


class CreatePartitionsResponse(Struct, api_key=37, versions="0-3", flexible="2+"):
    """What was added."""

    class CreatePartitionsTopicResult(Struct):
        """One topic's result."""

        name: str = ""
        error_code: i16 = 0
        error_message: str | None = None

    throttle_time_ms: i32 = 0
    results: list[CreatePartitionsTopicResult] = since(default=[])

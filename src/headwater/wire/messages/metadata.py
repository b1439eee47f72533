"""What the cluster holds: Metadata (3) and its paged successor DescribeTopicPartitions (75)."""

from headwater.model import ZERO_UUID
from headwater.wire.schema import Struct, Uuid, i16, i32, since


class MetadataRequest(Struct, api_key=3, versions="0-13", flexible="9+"):
    """Ask for brokers, topics and leaders.

    0: no topics means all; 1: null does, and none means none.
    4: may create topics.
    8: authorized operations.
    10: topics by id as well; 12: a topic may be asked for by id alone.
    11: the cluster's operations moved to DescribeCluster.
    """

    class MetadataRequestTopic(Struct):
        """A topic by name, or by id with a null name."""

        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        name: str | None = since(default="", nullable="10+")

    topics: list[MetadataRequestTopic] | None = since(default=[], nullable="1+")
    allow_auto_topic_creation: bool = since("4+", default=True)
    include_cluster_authorized_operations: bool = since("8-10", default=False)
    include_topic_authorized_operations: bool = since("8+", default=False)


class MetadataResponse(Struct, api_key=3, versions="0-13", flexible="9+"):
    """Brokers, topics and leaders.

    1: controller, racks, internal topics.
    2: cluster id.
    5: offline replicas.
    7: leader epochs.
    8: authorized operations.
    10: topic ids; 12: the name may be null.
    13: an error for the whole answer (rebootstrap).
    """

    class MetadataResponseBroker(Struct):
        """A live broker."""

        node_id: i32 = 0
        host: str = ""
        port: i32 = 0
        rack: str | None = since("1+", default=None, ignorable=True)

    class MetadataResponseTopic(Struct):
        """A topic."""

        error_code: i16 = 0
        name: str | None = since(default="", nullable="12+")
        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        is_internal: bool = since("1+", default=False, ignorable=True)
        partitions: "list[MetadataResponse.MetadataResponsePartition]" = since(default=[])
        topic_authorized_operations: i32 = since("8+", default=-(1 << 31))

    class MetadataResponsePartition(Struct):
        """A partition, its leader and its replicas."""

        error_code: i16 = 0
        partition_index: i32 = 0
        leader_id: i32 = 0
        leader_epoch: i32 = since("7+", default=-1, ignorable=True)
        replica_nodes: list[i32] = since(default=[])
        isr_nodes: list[i32] = since(default=[])
        offline_replicas: list[i32] = since("5+", default=[], ignorable=True)

    throttle_time_ms: i32 = since("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = since(default=[])
    cluster_id: str | None = since("2+", default=None, ignorable=True)
    controller_id: i32 = since("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = since(default=[])
    cluster_authorized_operations: i32 = since("8-10", default=-(1 << 31))
    error_code: i16 = since("13+", default=0, ignorable=True)


class DescribeTopicPartitionsRequest(Struct, api_key=75, versions="0", flexible="0+"):
    """Ask for topics page by page."""

    class TopicRequest(Struct):
        """A topic by name."""

        name: str = ""

    class Cursor(Struct):
        """Where the page begins."""

        topic_name: str = ""
        partition_index: i32 = 0

    topics: list[TopicRequest] = since(default=[])
    response_partition_limit: i32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponse(Struct, api_key=75, versions="0", flexible="0+"):
    """One page of topics, sorted by name."""

    class DescribeTopicPartitionsResponseTopic(Struct):
        """A topic."""

        error_code: i16 = 0
        name: str | None = ""
        topic_id: Uuid = ZERO_UUID
        is_internal: bool = False
        partitions: "list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition]" = since(
            default=[]
        )
        topic_authorized_operations: i32 = -(1 << 31)

    class DescribeTopicPartitionsResponsePartition(Struct):
        """A partition, its leader and its replicas."""

        error_code: i16 = 0
        partition_index: i32 = 0
        leader_id: i32 = 0
        leader_epoch: i32 = -1
        replica_nodes: list[i32] = since(default=[])
        isr_nodes: list[i32] = since(default=[])
        eligible_leader_replicas: list[i32] | None = None
        last_known_elr: list[i32] | None = None
        offline_replicas: list[i32] = since(default=[])

    class Cursor(Struct):
        """Where the next page begins."""

        topic_name: str = ""
        partition_index: i32 = 0

    throttle_time_ms: i32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = since(default=[])
    next_cursor: Cursor | None = None

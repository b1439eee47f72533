"""The cluster itself: versions spoken (18), brokers (60), disks (35)."""

from headwater.wire.schema import Struct, i8, i16, i32, i64, since


class ApiVersionsRequest(Struct, api_key=18, versions="0-5", flexible="3+"):
    """Ask what the broker speaks.

    3: name and version of the client.
    5: which cluster and node the client believes it talks to.
    """

    client_software_name: str = since("3+", default="", ignorable=True)
    client_software_version: str = since("3+", default="", ignorable=True)
    cluster_id: str | None = since("5+", default=None, ignorable=True)
    node_id: i32 = since("5+", default=-1, ignorable=True)


class ApiVersionsResponse(Struct, api_key=18, versions="0-5", flexible="3+"):
    """What the broker speaks. Its header is always version 0, so that any client can read it.

    1: throttle time.
    3: features, in tags.
    """

    class ApiVersion(Struct):
        """An API and its served versions."""

        api_key: i16 = 0
        min_version: i16 = 0
        max_version: i16 = 0

    class SupportedFeatureKey(Struct):
        """A feature that the broker knows."""

        name: str = ""
        min_version: i16 = 0
        max_version: i16 = 0

    class FinalizedFeatureKey(Struct):
        """A feature in use."""

        name: str = ""
        max_version_level: i16 = 0
        min_version_level: i16 = 0

    error_code: i16 = 0
    api_keys: list[ApiVersion] = since(default=[])
    throttle_time_ms: i32 = since("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = since("3+", default=[], tag=0, ignorable=True)
    finalized_features_epoch: i64 = since("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = since("3+", default=[], tag=2, ignorable=True)
    zk_migration_ready: bool = since("3+", default=False, tag=3, ignorable=True)


class DescribeClusterRequest(Struct, api_key=60, versions="0-2", flexible="0+"):
    """Ask for the cluster's members.

    1: brokers or controllers.
    2: fenced brokers too.
    """

    include_cluster_authorized_operations: bool = False
    endpoint_type: i8 = since("1+", default=1)
    include_fenced_brokers: bool = since("2+", default=False)


class DescribeClusterResponse(Struct, api_key=60, versions="0-2", flexible="0+"):
    """The cluster's members.

    2: whether a broker is fenced.
    """

    class DescribeClusterBroker(Struct):
        """A broker."""

        broker_id: i32 = 0
        host: str = ""
        port: i32 = 0
        rack: str | None = None
        is_fenced: bool = since("2+", default=False)

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = None
    endpoint_type: i8 = since("1+", default=1)
    cluster_id: str = ""
    controller_id: i32 = -1
    brokers: list[DescribeClusterBroker] = since(default=[])
    cluster_authorized_operations: i32 = -(1 << 31)


class AlterReplicaLogDirsRequest(Struct, api_key=34, versions="0-2", flexible="2+"):
    """Move replicas of the broker to other log directories."""

    class AlterReplicaLogDir(Struct):
        """What one directory should hold."""

        path: str = ""
        topics: "list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]" = since(default=[])

    class AlterReplicaLogDirTopic(Struct):
        """Partitions of one topic."""

        name: str = ""
        partitions: list[i32] = since(default=[])

    dirs: list[AlterReplicaLogDir] = since(default=[])


class AlterReplicaLogDirsResponse(Struct, api_key=34, versions="0-2", flexible="2+"):
    """Which moves began."""

    class AlterReplicaLogDirTopicResult(Struct):
        """One topic."""

        topic_name: str = ""
        partitions: "list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]" = since(
            default=[]
        )

    class AlterReplicaLogDirPartitionResult(Struct):
        """One partition."""

        partition_index: i32 = 0
        error_code: i16 = 0

    throttle_time_ms: i32 = 0
    results: list[AlterReplicaLogDirTopicResult] = since(default=[])


class DescribeLogDirsRequest(Struct, api_key=35, versions="0-5", flexible="2+"):
    """Ask for log directories and sizes."""

    class DescribableLogDirTopic(Struct):
        """Partitions of one topic."""

        topic: str = ""
        partitions: list[i32] = since(default=[])

    topics: list[DescribableLogDirTopic] | None = since(default=[])


class DescribeLogDirsResponse(Struct, api_key=35, versions="0-5", flexible="2+"):
    """Log directories and what is in them.

    3: an error for the whole answer.
    4: total and usable bytes.
    5: whether new partitions are kept away.
    """

    class DescribeLogDirsResult(Struct):
        """One directory."""

        error_code: i16 = 0
        log_dir: str = ""
        topics: "list[DescribeLogDirsResponse.DescribeLogDirsTopic]" = since(default=[])
        total_bytes: i64 = since("4+", default=-1, ignorable=True)
        usable_bytes: i64 = since("4+", default=-1, ignorable=True)
        is_cordoned: bool = since("5+", default=False, ignorable=True)

    class DescribeLogDirsTopic(Struct):
        """A topic in it."""

        name: str = ""
        partitions: "list[DescribeLogDirsResponse.DescribeLogDirsPartition]" = since(default=[])

    class DescribeLogDirsPartition(Struct):
        """A partition in it."""

        partition_index: i32 = 0
        partition_size: i64 = 0
        offset_lag: i64 = 0
        is_future_key: bool = False

    throttle_time_ms: i32 = 0
    error_code: i16 = since("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = since(default=[])

"""DescribeLogDirs: the log dirs of this broker's partitions and their sizes."""

from collections.abc import Iterable

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.errors import E
from headwater.replication.replica import Replica
from headwater.wire.messages.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse

_Dir = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = DescribeLogDirsResponse.DescribeLogDirsTopic


def handle_describe_log_dirs(
    context: Context, request: Request, body: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Return the sizes of partitions by log dir, and the free space."""
    wanted = None
    if body.topics is not None:
        wanted = {(topic.topic, index) for topic in body.topics for index in topic.partitions}
    response = DescribeLogDirsResponse()
    for directory in context.replicas.log_dirs.dirs:
        result = _Dir(log_dir=directory.path)
        response.results.append(result)
        if directory.offline:
            result.error_code = E.KAFKA_STORAGE_ERROR
            continue
        result.total_bytes, result.usable_bytes = context.files.space(directory.path)
        result.topics = _topics(
            replica
            for replica in context.replicas
            if directory.holds(replica.directory)
            and (wanted is None or replica.topic_partition in wanted)
        )
    return response


def _topics(replicas: Iterable[Replica]) -> list[_Topic]:
    topics: dict[str, _Topic] = {}
    for replica in replicas:
        name, index = replica.topic_partition
        topic = topics.setdefault(name, _Topic(name=name))
        topic.partitions.append(
            DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=index,
                partition_size=replica.upkeep.size,
                offset_lag=max(0, replica.high_watermark - replica.log_end_offset),
            )
        )
    return list(topics.values())

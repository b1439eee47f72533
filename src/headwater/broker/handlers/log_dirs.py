"""DescribeLogDirs and AlterReplicaLogDirs: the log dirs of this broker, and moves between them."""

import logging
from collections.abc import Iterable

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.broker.turns import Steps, each
from headwater.errors import E, KafkaError
from headwater.log.log_dir import LogDir
from headwater.model import TopicPartition
from headwater.replication.replica import Replica
from headwater.wire.messages.cluster import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

_Dir = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
_TopicResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_MoveResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult

log = logging.getLogger("headwater.server")


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
        _add_futures(context, directory, wanted, result)
    return response


def _add_futures(
    context: Context, directory: LogDir, wanted: set[tuple[str, int]] | None, result: _Dir
) -> None:
    """Add the copies that will replace replicas of other dirs."""
    topics = {topic.name: topic for topic in result.topics}
    for future in context.replicas.log_dirs.futures:
        at = future.log.topic_partition
        current = context.replicas.log_dirs.logs.get(at)
        if future.log_dir is directory and (wanted is None or at in wanted):
            topic = topics.get(at.topic)
            if topic is None:
                topic = topics[at.topic] = _Topic(name=at.topic)
                result.topics.append(topic)
            end = future.log.log_end_offset
            topic.partitions.append(
                DescribeLogDirsResponse.DescribeLogDirsPartition(
                    partition_index=at.partition,
                    partition_size=future.log.size,
                    offset_lag=max(0, current.log_end_offset - end) if current else 0,
                    is_future_key=True,
                )
            )


def handle_alter_replica_log_dirs(
    context: Context, request: Request, body: AlterReplicaLogDirsRequest
) -> Steps[AlterReplicaLogDirsResponse]:
    """Begin moves of this broker's replicas to other log dirs."""
    results: dict[str, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
    for wanted in body.dirs:
        for topic in wanted.topics:
            result = results.get(topic.name)
            if result is None:
                result = results[topic.name] = _TopicResult(topic_name=topic.name)
            for index in topic.partitions:
                code = _move(context, TopicPartition(topic.name, index), wanted.path)
                result.partitions.append(_MoveResult(partition_index=index, error_code=code))
                yield
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def refuse_moves(
    request: Request, body: AlterReplicaLogDirsRequest, error: E
) -> AlterReplicaLogDirsResponse:
    """The client may not move replicas."""

    def of_partition(index: int) -> AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult:
        return _MoveResult(partition_index=index, error_code=error)

    topics = [topic for wanted in body.dirs for topic in wanted.topics]
    return AlterReplicaLogDirsResponse(
        results=[
            _TopicResult(topic_name=topic.name, partitions=each(topic.partitions, of_partition))
            for topic in topics
        ]
    )


def _move(context: Context, at: TopicPartition, path: str) -> E:
    try:
        context.log_dir_moves.move(at, path)
    except KafkaError as refused:
        log.info("%s is not moved to %s: %s", at, path, refused.message)
        return refused.code
    except OSError as failure:
        log.error("%s cannot be moved to %s: %s", at, path, failure)
        return E.KAFKA_STORAGE_ERROR
    return E.NONE


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

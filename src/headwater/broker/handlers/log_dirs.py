"""DescribeLogDirs and AlterReplicaLogDirs: the log dirs of this broker, and moves between them."""

import logging

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.broker.turns import Steps, each
from headwater.errors import E, KafkaError
from headwater.log.log_dir import LogDir
from headwater.model import TopicPartition
from headwater.seams.files import Files
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
) -> Steps[DescribeLogDirsResponse]:
    """Return the sizes of partitions by log dir, and the free space."""
    wanted = None
    if body.topics is not None:
        wanted = {(topic.topic, index) for topic in body.topics for index in topic.partitions}
    dirs = context.replicas.log_dirs.dirs
    described = {directory.path: _Description(directory, context.files) for directory in dirs}
    for replica in list(context.replicas):
        at = replica.topic_partition
        if wanted is None or at in wanted:
            described[replica.directory.rpartition("/")[0]].add(
                at, replica.upkeep.size, replica.high_watermark - replica.log_end_offset
            )
        yield
    for future in context.replicas.log_dirs.futures:
        at = future.log.topic_partition
        if wanted is None or at in wanted:
            current = context.replicas.log_dirs.logs.get(at)
            lag = current.log_end_offset - future.log.log_end_offset if current else 0
            described[future.log_dir.path].add(at, future.log.size, lag, is_future=True)
    return DescribeLogDirsResponse(results=[one.result for one in described.values()])


class _Description:
    """What a response says about one log dir."""

    def __init__(self, directory: LogDir, files: Files) -> None:
        self.result = _Dir(log_dir=directory.path)
        self._offline = bool(directory.offline)
        self._topics: dict[str, _Topic] = {}
        if self._offline:
            self.result.error_code = E.KAFKA_STORAGE_ERROR
        else:
            self.result.total_bytes, self.result.usable_bytes = files.space(directory.path)

    def add(self, at: TopicPartition, size: int, lag: int, *, is_future: bool = False) -> None:
        """Add a replica, or a copy that will replace one of another dir."""
        if self._offline:
            return
        topic = self._topics.get(at.topic)
        if topic is None:
            topic = self._topics[at.topic] = _Topic(name=at.topic)
            self.result.topics.append(topic)
        topic.partitions.append(
            DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=at.partition,
                partition_size=size,
                offset_lag=max(0, lag),
                is_future_key=is_future,
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

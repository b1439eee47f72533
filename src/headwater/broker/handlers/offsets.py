"""Offsets of a log: by time and by leader epoch."""

from collections import Counter

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.errors import E, KafkaError
from headwater.model import NO_EPOCH, NO_TIMESTAMP
from headwater.replication.replica import Replica
from headwater.security.acls import Operation, ResourceType
from headwater.wire.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_KNOWN_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_EPOCH_SINCE = 4  # the first version that has room for a leader epoch
_NOT_FOUND = (NO_TIMESTAMP, -1, NO_EPOCH)
READ_COMMITTED = 1
FIRST_WITH_LEADER_EPOCH = 4

_OffsetAnswer = ListOffsetsResponse.ListOffsetsPartitionResponse


# -- ListOffsets


def handle_list_offsets(
    context: Context, request: Request, body: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Find offsets by time or by name."""
    asked = Counter(
        (topic.name, partition.partition_index)
        for topic in body.topics
        for partition in topic.partitions
    )
    response = ListOffsetsResponse()
    for topic in body.topics:
        answer = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answer)
        for wanted in topic.partitions:
            found = _OffsetAnswer(partition_index=wanted.partition_index)
            answer.partitions.append(found)
            try:
                if asked[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(E.INVALID_REQUEST)
                if not context.authorize(
                    request, Operation.DESCRIBE, ResourceType.TOPIC, topic.name
                ):
                    raise KafkaError(E.TOPIC_AUTHORIZATION_FAILED)
                replica = context.replicas.leader(
                    topic.name, wanted.partition_index, wanted.current_leader_epoch
                )
                found.timestamp, found.offset, epoch = _find(
                    replica, wanted.timestamp, request.version, body.isolation_level
                )
                if request.version >= _EPOCH_SINCE:
                    found.leader_epoch = epoch
            except KafkaError as refused:
                found.error_code = refused.code
    return response


def _find(
    replica: Replica, timestamp: int, version: int, isolation_level: int
) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch) of what `timestamp` asks for."""
    log = replica.log
    if timestamp < 0 and _KNOWN_SINCE.get(timestamp, version + 1) > version:
        raise KafkaError(E.UNSUPPORTED_VERSION)
    end = replica.readable_end(isolation_level == READ_COMMITTED)
    if timestamp == LATEST:
        return NO_TIMESTAMP, end, replica.partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        epoch = log.epochs.epoch_at(start)
        return NO_TIMESTAMP, start, epoch if epoch >= 0 else replica.partition.leader_epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOT_FOUND
    found = (
        log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_time(timestamp, end)
    )
    return _NOT_FOUND if found is None or found[1] >= end else found


# -- OffsetForLeaderEpoch


def handle_offset_for_leader_epoch(
    context: Context, request: Request, body: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Tell a client or follower where the records of an epoch end (KIP-320)."""
    response = OffsetForLeaderEpochResponse()
    for topic in body.topics:
        answer = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answer)
        for wanted in topic.partitions:
            found = OffsetForLeaderEpochResponse.EpochEndOffset(partition=wanted.partition)
            answer.partitions.append(found)
            try:
                if not context.authorize(
                    request, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic
                ):
                    raise KafkaError(E.TOPIC_AUTHORIZATION_FAILED)
                replica = context.replicas.leader(
                    topic.topic, wanted.partition, wanted.current_leader_epoch
                )
                found.leader_epoch, found.end_offset = replica.log.epochs.end_offset(
                    wanted.leader_epoch, replica.log.log_end_offset
                )
            except KafkaError as refused:
                found.error_code = refused.code
    return response


HANDLERS = {2: handle_list_offsets, 23: handle_offset_for_leader_epoch}

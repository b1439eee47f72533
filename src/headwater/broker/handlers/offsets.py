"""Looks up offsets of a log by time and by leader epoch."""

import logging
from collections.abc import Callable
from functools import partial
from typing import cast

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.broker.turns import Steps, each
from headwater.errors import E, KafkaError
from headwater.log.time_lookup import Found
from headwater.model import EARLIEST, LATEST, NO_EPOCH, NO_TIMESTAMP, READ_COMMITTED, TopicPartition
from headwater.replication.isolation import FetchIsolation
from headwater.replication.offset_lookups import (
    offset_for_earliest,
    offset_for_latest,
    offset_for_time,
)
from headwater.replication.replica import Replica
from headwater.security.rights import DESCRIBE_TOPIC
from headwater.wire.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

log = logging.getLogger("headwater.server")

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
_OF_THE_START = frozenset({EARLIEST, EARLIEST_LOCAL})
_NOT_AVAILABLE_SINCE = 5
_EPOCH_SINCE = 4  # the first version with a leader epoch
_NOT_FOUND = (NO_TIMESTAMP, -1, NO_EPOCH)

_OffsetAnswer = ListOffsetsResponse.ListOffsetsPartitionResponse


# -- ListOffsets


def handle_list_offsets(
    context: Context, request: Request, body: ListOffsetsRequest
) -> Steps[ListOffsetsResponse | None]:
    """Find offsets by time, or the first and last offset; times are looked up on a file thread."""
    call = _ListOffsets(context, request, body)
    yield from call.collect()
    if not call.lookups:
        return call.response()
    call.look_up_next()
    return None


class _ListOffsets:
    """A pending ListOffsets request."""

    def __init__(self, context: Context, request: Request, body: ListOffsetsRequest) -> None:
        self.context = context
        self.request = request
        self.body = body
        self.isolation = (
            FetchIsolation.LAST_STABLE
            if body.isolation_level == READ_COMMITTED
            else FetchIsolation.HIGH_WATERMARK
        )
        self.lookups: list[tuple[TopicPartition, Callable[[], Found | None]]] = []
        self._found: dict[TopicPartition, Found | KafkaError] = {}
        self._twice: set[TopicPartition] = set()

    def collect(self) -> Steps[None]:
        """Find duplicate partitions and those that need a lookup by time."""
        seen: dict[str, set[int]] = {}
        for topic in self.body.topics:
            known = seen.setdefault(topic.name, set())
            for wanted in topic.partitions:
                index = wanted.partition_index
                if index in known:
                    self._twice.add(TopicPartition(topic.name, index))
                known.add(index)
                if wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP:
                    self._prepare(TopicPartition(topic.name, index), wanted)
                yield

    def _prepare(
        self, place: TopicPartition, wanted: ListOffsetsRequest.ListOffsetsPartition
    ) -> None:
        try:
            replica = self._leader(place, wanted)
        except KafkaError as refused:
            self._found[place] = refused.with_traceback(None)  # a traceback would keep its frames
            return
        timestamp = None if wanted.timestamp == MAX_TIMESTAMP else wanted.timestamp
        self.lookups.append((place, offset_for_time(replica, timestamp, self.isolation)))

    def look_up_next(self) -> None:
        """Look up one log after the other, so that other work can run in between."""
        if self.request.connection.gone:
            return
        if not self.lookups:
            self.request.reply_in_turns(self.response())
            return
        place, look = self.lookups.pop()

        def done(result: object, failure: Exception | None) -> None:
            self._found[place] = self._outcome(place, cast("Found | None", result), failure)
            self.look_up_next()

        self.context.off_loop(look, done)

    def _outcome(
        self, place: TopicPartition, found: Found | None, failure: Exception | None
    ) -> Found | KafkaError:
        if failure is None:
            return found or _NOT_FOUND
        if isinstance(failure, KafkaError):
            return failure
        replica = self.context.replicas.get(*place)
        if isinstance(failure, OSError) and replica is not None:
            return replica.read_failed(failure)
        log.error("looking up a time in %s failed", place, exc_info=failure)
        return KafkaError(E.UNKNOWN_SERVER_ERROR, str(failure))

    def response(self) -> ListOffsetsResponse:
        """Return the response, built while it is encoded."""
        return ListOffsetsResponse(topics=each(self.body.topics, self._topic))

    def _topic(
        self, topic: ListOffsetsRequest.ListOffsetsTopic
    ) -> ListOffsetsResponse.ListOffsetsTopicResponse:
        return ListOffsetsResponse.ListOffsetsTopicResponse(
            name=topic.name, partitions=each(topic.partitions, partial(self._partition, topic.name))
        )

    def _partition(
        self, topic: str, wanted: ListOffsetsRequest.ListOffsetsPartition
    ) -> _OffsetAnswer:
        answer = _OffsetAnswer(partition_index=wanted.partition_index)
        try:
            answer.timestamp, answer.offset, epoch = self._find(
                TopicPartition(topic, wanted.partition_index), wanted
            )
            if self.request.version >= _EPOCH_SINCE:
                answer.leader_epoch = epoch
        except KafkaError as refused:
            answer.error_code = refused.code
        return answer

    def _leader(
        self, place: TopicPartition, wanted: ListOffsetsRequest.ListOffsetsPartition
    ) -> Replica:
        """Return the replica; KafkaError if it cannot be used."""
        context = self.context
        if place in self._twice:
            raise KafkaError(E.INVALID_REQUEST)
        if not context.permits(self.request, DESCRIBE_TOPIC, place.topic):
            raise KafkaError(DESCRIBE_TOPIC.refusal)
        replica = context.replicas.leader(place.topic, place.partition, wanted.current_leader_epoch)
        version = self.request.version
        if wanted.timestamp < 0 and _KNOWN_SINCE.get(wanted.timestamp, version + 1) > version:
            raise KafkaError(E.UNSUPPORTED_VERSION)
        if wanted.timestamp not in _OF_THE_START and not replica.leading.knows_what_is_committed:
            # A lower end than the last leader showed would look like lost records.
            raise KafkaError(
                E.OFFSET_NOT_AVAILABLE
                if version >= _NOT_AVAILABLE_SINCE
                else E.LEADER_NOT_AVAILABLE
            )
        return replica

    def _find(
        self, place: TopicPartition, wanted: ListOffsetsRequest.ListOffsetsPartition
    ) -> Found:
        """Return (timestamp, offset, leader epoch) of the request."""
        replica, timestamp = self._leader(place, wanted), wanted.timestamp
        if timestamp == LATEST:
            return offset_for_latest(replica, self.isolation)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return offset_for_earliest(replica)
        found = self._found.get(place, _NOT_FOUND)
        if isinstance(found, KafkaError):
            raise found
        return found


# -- OffsetForLeaderEpoch


def handle_offset_for_leader_epoch(
    context: Context, request: Request, body: OffsetForLeaderEpochRequest
) -> None:
    """Return the end offset of a leader epoch (KIP-320)."""

    def of_topic(
        topic: OffsetForLeaderEpochRequest.OffsetForLeaderTopic,
    ) -> OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult:
        end = partial(_epoch_end, context, request, topic.topic)
        return OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
            topic=topic.topic, partitions=each(topic.partitions, end)
        )

    request.reply_in_turns(OffsetForLeaderEpochResponse(topics=each(body.topics, of_topic)))


def _epoch_end(
    context: Context,
    request: Request,
    topic: str,
    wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition,
) -> OffsetForLeaderEpochResponse.EpochEndOffset:
    found = OffsetForLeaderEpochResponse.EpochEndOffset(partition=wanted.partition)
    try:
        if not context.permits(request, DESCRIBE_TOPIC, topic):
            raise KafkaError(DESCRIBE_TOPIC.refusal)
        replica = context.replicas.leader(topic, wanted.partition, wanted.current_leader_epoch)
        found.leader_epoch, found.end_offset = replica.offset_for_epoch(wanted.leader_epoch)
    except KafkaError as refused:
        found.error_code = refused.code
    return found

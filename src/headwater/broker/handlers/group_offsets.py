"""The offsets of groups on the wire: OffsetCommit, OffsetFetch, OffsetDelete.

Each partition has its own error. What a client may not touch, or does not exist, is answered here;
the rest goes to the shard of the group.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwater.broker.context import Context
from headwater.broker.handlers.asking import Gather, ask
from headwater.broker.request import Request
from headwater.coordination.groups.offsets import (
    Commit,
    DeleteOffsets,
    FetchedTopic,
    FetchOffsets,
    NewOffset,
    OffsetsDeleted,
    WantedTopic,
    same_topic,
)
from headwater.coordination.groups.records import CommittedOffset
from headwater.coordination.groups.shard import GroupShard
from headwater.errors import E
from headwater.model import ZERO_UUID, TopicPartition, Uuid
from headwater.security.acls import Operation, ResourceType
from headwater.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

FIRST_COMMIT_WITH_GROUP_NOT_FOUND = 9
FIRST_WITH_TOPIC_ID = 10
FIRST_FETCH_WITH_GROUP_ERROR = 2
FIRST_FETCH_OF_SEVERAL_GROUPS = 8
NO_OFFSET = CommittedOffset(-1)


class _Topic(NamedTuple):
    """A topic that a client named by name or by id, and whether it may touch it."""

    name: str
    topic_id: Uuid
    error: E


class _Topics:
    """Looks up the topics of one request."""

    def __init__(self, context: Context, request: Request, operation: Operation) -> None:
        self._context = context
        self._request = request
        self._operation = operation
        self._by_id = request.version >= FIRST_WITH_TOPIC_ID

    def find(self, name: str, topic_id: Uuid = ZERO_UUID) -> _Topic:
        """The topic, with the reason why it cannot be used."""
        metadata = self._context.metadata
        if self._by_id:
            known = metadata.name_of.get(topic_id)
            if known is None:
                return _Topic("", topic_id, E.UNKNOWN_TOPIC_ID)
            name = known
        else:
            topic_id = metadata.topic_id(name) or ZERO_UUID
        allowed = self._context.authorize(self._request, self._operation, ResourceType.TOPIC, name)
        return _Topic(name, topic_id, E.NONE if allowed else E.TOPIC_AUTHORIZATION_FAILED)

    def refuse_partition(self, topic: _Topic, partition: int) -> E:
        """Why a partition cannot be written about, or NONE."""
        if topic.error is not E.NONE:
            return topic.error
        known = self._context.metadata.partition(topic.name, partition)
        return E.UNKNOWN_TOPIC_OR_PARTITION if known is None else E.NONE


# -- commit


def handle_offset_commit(
    context: Context, request: Request, body: OffsetCommitRequest
) -> OffsetCommitResponse | None:
    """Store how far a group has come."""
    if not context.authorize(request, Operation.READ, ResourceType.GROUP, body.group_id):
        count = sum(len(topic.partitions) for topic in body.topics)
        return _commit_response(body, [E.GROUP_AUTHORIZATION_FAILED] * count)
    topics = _Topics(context, request, Operation.READ)
    offsets: list[NewOffset] = []
    errors: list[E] = []
    for topic in body.topics:
        found = topics.find(topic.name, topic.topic_id)
        for partition in topic.partitions:
            error = topics.refuse_partition(found, partition.partition_index)
            errors.append(error)
            if error is E.NONE:
                offsets.append(_new_offset(found, partition))
    if not offsets:
        return _commit_response(body, errors)

    def done(answers: list[E]) -> None:
        rest = iter(answers)
        merged = [next(rest) if error is E.NONE else error for error in errors]
        request.reply(_commit_response(body, merged))

    command = _commit_command(request, body, tuple(offsets))
    ask(context, body.group_id, GroupShard.commit, command, lambda e: [e] * len(offsets), done)
    return None


def _new_offset(
    topic: _Topic, partition: OffsetCommitRequest.OffsetCommitRequestPartition
) -> NewOffset:
    return NewOffset(
        topic.name,
        topic.topic_id,
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata,
    )


def _commit_command(
    request: Request, body: OffsetCommitRequest, offsets: tuple[NewOffset, ...]
) -> Commit:
    says_not_found = request.version >= FIRST_COMMIT_WITH_GROUP_NOT_FOUND
    return Commit(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        offsets,
        body.retention_time_ms,
        E.GROUP_ID_NOT_FOUND if says_not_found else E.ILLEGAL_GENERATION,
    )


def _commit_response(body: OffsetCommitRequest, errors: Sequence[E]) -> OffsetCommitResponse:
    rest = iter(errors)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=next(rest)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


# -- fetch


class _Fetched(NamedTuple):
    """The answer for one group, in the form of the newest versions."""

    group_id: str
    error: E
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopics]


def handle_offset_fetch(context: Context, request: Request, body: OffsetFetchRequest) -> None:
    """Say how far groups have come."""
    groups = body.groups
    several = request.version >= FIRST_FETCH_OF_SEVERAL_GROUPS
    if not several:
        groups = [_as_group(body)]

    def done(answers: list[_Fetched]) -> None:
        response = _several_fetched(answers) if several else _one_fetched(request, body, answers[0])
        request.reply(response)

    gather = Gather(len(groups), done)
    for place, group in enumerate(groups):
        _fetch_group(context, request, group, gather.slot(place))


def _as_group(body: OffsetFetchRequest) -> OffsetFetchRequest.OffsetFetchRequestGroup:
    topics = None
    if body.topics is not None:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=topic.name, partition_indexes=topic.partition_indexes
            )
            for topic in body.topics
        ]
    return OffsetFetchRequest.OffsetFetchRequestGroup(group_id=body.group_id, topics=topics)


def _fetch_group(
    context: Context,
    request: Request,
    group: OffsetFetchRequest.OffsetFetchRequestGroup,
    done: Callable[[_Fetched], None],
) -> None:
    if not context.authorize(request, Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        done(_Fetched(group.group_id, E.GROUP_AUTHORIZATION_FAILED, []))
        return
    topics = _Topics(context, request, Operation.DESCRIBE)
    wanted: tuple[WantedTopic, ...] | None = None
    refused: list[OffsetFetchResponse.OffsetFetchResponseTopics] = []
    if group.topics is not None:
        wanted, refused = _wanted(topics, group.topics)

    def found(answer: list[FetchedTopic] | E) -> None:
        if isinstance(answer, E):
            done(_Fetched(group.group_id, answer, []))
            return
        shown = answer if wanted is not None else _visible(context, request, answer)
        done(_Fetched(group.group_id, E.NONE, [_fetched_topic(it) for it in shown] + refused))

    command = FetchOffsets(group.group_id, wanted)
    ask(context, group.group_id, GroupShard.fetch_offsets, command, lambda error: error, found)


def _wanted(
    topics: _Topics, asked: Sequence[OffsetFetchRequest.OffsetFetchRequestTopics]
) -> tuple[tuple[WantedTopic, ...], list[OffsetFetchResponse.OffsetFetchResponseTopics]]:
    """What the shard is to look up, and the answers for what the client may not see."""
    wanted: list[WantedTopic] = []
    refused: list[OffsetFetchResponse.OffsetFetchResponseTopics] = []
    for topic in asked:
        found = topics.find(topic.name, topic.topic_id)
        if found.error is E.NONE:
            partitions = tuple(topic.partition_indexes)
            wanted.append(WantedTopic(found.name, found.topic_id, partitions))
        else:
            nothing = tuple((index, None) for index in topic.partition_indexes)
            hidden = FetchedTopic(topic.name, topic.topic_id, nothing)
            refused.append(_fetched_topic(hidden, found.error))
    return tuple(wanted), refused


def _visible(
    context: Context, request: Request, topics: Sequence[FetchedTopic]
) -> list[FetchedTopic]:
    """Of all offsets of a group those of topics that the client may see, with their ids."""
    by_id = request.version >= FIRST_WITH_TOPIC_ID
    shown: list[FetchedTopic] = []
    for topic in topics:
        topic_id = context.metadata.topic_id(topic.topic)
        if not context.authorize(request, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic):
            continue
        if not by_id:
            shown.append(topic)
        elif topic_id is not None:
            kept = tuple(it for it in topic.partitions if same_topic(it[1], topic_id) is not None)
            shown.append(FetchedTopic(topic.topic, topic_id, kept))
    return shown


def _fetched_topic(
    topic: FetchedTopic, error: E = E.NONE
) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    return OffsetFetchResponse.OffsetFetchResponseTopics(
        name=topic.topic,
        topic_id=topic.topic_id,
        partitions=[
            _fetched_partition(index, committed or NO_OFFSET, error)
            for index, committed in topic.partitions
        ],
    )


def _fetched_partition(
    index: int, committed: CommittedOffset, error: E
) -> OffsetFetchResponse.OffsetFetchResponsePartitions:
    return OffsetFetchResponse.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )


def _several_fetched(answers: Sequence[_Fetched]) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponse.OffsetFetchResponseGroup(
                group_id=group.group_id, topics=group.topics, error_code=group.error
            )
            for group in answers
        ]
    )


def _one_fetched(
    request: Request, body: OffsetFetchRequest, answer: _Fetched
) -> OffsetFetchResponse:
    """The form of versions 1 to 7; the first had no place for an error of the whole group."""
    topics = answer.topics
    if answer.error is not E.NONE and request.version < FIRST_FETCH_WITH_GROUP_ERROR:
        topics = [_refused_topic(topic, answer.error) for topic in body.topics or ()]
    return OffsetFetchResponse(
        error_code=answer.error,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[_older(partition) for partition in topic.partitions],
            )
            for topic in topics
        ],
    )


def _refused_topic(
    topic: OffsetFetchRequest.OffsetFetchRequestTopic, error: E
) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    nothing = tuple((index, None) for index in topic.partition_indexes)
    return _fetched_topic(FetchedTopic(topic.name, ZERO_UUID, nothing), error)


def _older(
    partition: OffsetFetchResponse.OffsetFetchResponsePartitions,
) -> OffsetFetchResponse.OffsetFetchResponsePartition:
    return OffsetFetchResponse.OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


# -- delete


def handle_offset_delete(
    context: Context, request: Request, body: OffsetDeleteRequest
) -> OffsetDeleteResponse | None:
    """Forget offsets of topics that nobody in the group reads."""
    if not context.authorize(request, Operation.DELETE, ResourceType.GROUP, body.group_id):
        return OffsetDeleteResponse(error_code=E.GROUP_AUTHORIZATION_FAILED)
    topics = _Topics(context, request, Operation.READ)
    places = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in body.topics
        for partition in topic.partitions
    ]
    errors = [topics.refuse_partition(topics.find(it.topic), it.partition) for it in places]
    allowed = [it for it, error in zip(places, errors, strict=True) if error is E.NONE]

    def done(answer: OffsetsDeleted) -> None:
        if answer.error is not E.NONE:
            request.reply(OffsetDeleteResponse(error_code=answer.error))
            return
        rest = iter(answer.partitions)
        merged = [next(rest) if error is E.NONE else error for error in errors]
        request.reply(_delete_response(body, merged))

    command = DeleteOffsets(body.group_id, tuple(allowed))
    ask(context, body.group_id, GroupShard.delete_offsets, command, OffsetsDeleted, done)
    return None


def _delete_response(body: OffsetDeleteRequest, errors: Sequence[E]) -> OffsetDeleteResponse:
    rest = iter(errors)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index, error_code=next(rest)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )

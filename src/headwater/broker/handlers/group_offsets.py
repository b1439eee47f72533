"""The offsets of groups on the wire: OffsetCommit, OffsetFetch, OffsetDelete.

Each partition has its own error. The handler refuses partitions that do not exist or that the client
has no right to; the shard of the group handles the rest.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple

from headwater.broker.context import Context
from headwater.broker.handlers.named_once import once
from headwater.broker.handlers.shard_calls import Gather, call_shard
from headwater.broker.request import Request
from headwater.broker.turns import Steps, each
from headwater.coordination.groups.offsets import (
    UNSTABLE,
    CommitOffsets,
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
from headwater.security.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_TOPIC, Right
from headwater.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from headwater.wire.messages.transactions import TxnOffsetCommitRequest

FIRST_COMMIT_WITH_GROUP_NOT_FOUND = 9
FIRST_WITH_TOPIC_ID = 10
FIRST_FETCH_WITH_GROUP_ERROR = 2
FIRST_FETCH_OF_SEVERAL_GROUPS = 8
NOTHING_COMMITTED = CommittedOffset(-1)
PIECE = 500
"""The most offsets in one call to a shard."""


class OffsetTopic(NamedTuple):
    """A topic of a request, by name or id, and the error if it cannot be used."""

    name: str
    topic_id: Uuid
    error: E


class OffsetTopics:
    """Looks up the topics of one request."""

    def __init__(
        self, context: Context, request: Request, right: Right, *, by_id: bool = False
    ) -> None:
        self._context = context
        self._request = request
        self._right = right
        self._by_id = by_id

    def find(self, name: str, topic_id: Uuid = ZERO_UUID) -> OffsetTopic:
        """Return the topic, with an error if it cannot be used."""
        metadata = self._context.metadata
        if self._by_id:
            known = metadata.name_of.get(topic_id)
            if known is None:
                return OffsetTopic("", topic_id, E.UNKNOWN_TOPIC_ID)
            name = known
        else:
            topic_id = metadata.topic_id(name) or ZERO_UUID
        allowed = self._context.permits(self._request, self._right, name)
        return OffsetTopic(name, topic_id, E.NONE if allowed else self._right.refusal)

    def refuse_partition(self, topic: OffsetTopic, partition: int) -> E:
        """Return the error for a partition, or NONE."""
        if topic.error is not E.NONE:
            return topic.error
        known = self._context.metadata.partition(topic.name, partition)
        return E.UNKNOWN_TOPIC_OR_PARTITION if known is None else E.NONE


# -- commit


def handle_offset_commit(
    context: Context, request: Request, body: OffsetCommitRequest
) -> Steps[OffsetCommitResponse | None]:
    """Commit offsets; the shard gets them in pieces."""
    by_id = request.version >= FIRST_WITH_TOPIC_ID
    topics = OffsetTopics(context, request, READ_TOPIC, by_id=by_id)
    offsets: list[NewOffset] = []
    errors: list[E] = []
    for topic in body.topics:
        found = topics.find(topic.name, topic.topic_id)
        yield
        for partition in topic.partitions:
            error = topics.refuse_partition(found, partition.partition_index)
            errors.append(error)
            if error is E.NONE:
                offsets.append(new_offset(found, partition))
            yield
    if not offsets:
        return _commit_response(body, errors)

    def done(answers: list[list[E]]) -> None:
        rest = chain.from_iterable(answers)
        merged = [next(rest) if error is E.NONE else error for error in errors]
        request.reply_in_turns(_commit_response(body, merged))

    def refuse(count: int, error: E) -> list[E]:
        return [error] * count

    gather = Gather(len(range(0, len(offsets), PIECE)), done)
    for place, start in enumerate(range(0, len(offsets), PIECE)):
        piece = tuple(offsets[start : start + PIECE])
        command = _commit_command(request, body, piece)
        refused = partial(refuse, len(piece))
        call_shard(context, body.group_id, GroupShard.commit, command, refused, gather.slot(place))
        for _ in piece:
            yield
    return None


def refuse_commit(request: Request, body: OffsetCommitRequest, error: E) -> OffsetCommitResponse:
    """Return the response for a client without the right to the group."""
    return _commit_response(body, repeat(error))


def new_offset(
    topic: OffsetTopic,
    partition: OffsetCommitRequest.OffsetCommitRequestPartition
    | TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
) -> NewOffset:
    """Return one partition of a commit."""
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
) -> CommitOffsets:
    says_not_found = request.version >= FIRST_COMMIT_WITH_GROUP_NOT_FOUND
    return CommitOffsets(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        offsets,
        body.retention_time_ms,
        E.GROUP_ID_NOT_FOUND if says_not_found else E.ILLEGAL_GENERATION,
    )


def _commit_response(body: OffsetCommitRequest, errors: Iterable[E]) -> OffsetCommitResponse:
    topics = partition_errors(
        body.topics,
        errors,
        OffsetCommitResponse.OffsetCommitResponseTopic,
        OffsetCommitResponse.OffsetCommitResponsePartition,
    )
    return OffsetCommitResponse(topics=topics)


def partition_errors(topics: list[Any], errors: Iterable[E], topic_row: Any, row: Any) -> list[Any]:
    """Return the rows of a commit's response; they take the errors one by one while they are encoded."""
    rest = iter(errors)

    def of_partition(partition: Any) -> Any:
        return row(partition_index=partition.partition_index, error_code=next(rest))

    def of_topic(topic: Any) -> Any:
        partitions = each(topic.partitions, of_partition)
        return topic_row(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

    return each(topics, of_topic)


# -- fetch


class _Fetched:
    """The response for one group under construction."""

    __slots__ = ("error", "group_id", "topics")

    def __init__(self, group_id: str, error: E = E.NONE) -> None:
        self.group_id = group_id
        self.error = error
        self.topics: list[tuple[FetchedTopic, E]] = []


def handle_offset_fetch(
    context: Context, request: Request, body: OffsetFetchRequest
) -> Steps[None]:
    """Return committed offsets of groups; shards are called in pieces."""
    several = request.version >= FIRST_FETCH_OF_SEVERAL_GROUPS
    groups = body.groups if several else [_as_group(body)]
    groups = yield from once(groups, lambda one: one.group_id if one.topics is None else None)

    def done() -> None:
        if several:
            response = OffsetFetchResponse(groups=each(call.answers, _fetched_group))
        else:
            response = _one_fetched(request, body, call.answers[0])
        request.reply_in_turns(response)

    call = _OffsetFetch(context, request, done, require_stable=body.require_stable)
    for group in groups:
        yield from call.add(group)
    call.all_asked()


class _OffsetFetch:
    """A pending OffsetFetch: replies when the shards have answered every piece."""

    def __init__(
        self,
        context: Context,
        request: Request,
        done: Callable[[], None],
        *,
        require_stable: bool,
    ) -> None:
        self.answers: list[_Fetched] = []
        self._context = context
        self._request = request
        by_id = request.version >= FIRST_WITH_TOPIC_ID
        self._topics = OffsetTopics(context, request, DESCRIBE_TOPIC, by_id=by_id)
        self._require_stable = require_stable
        self._done = done
        self._missing = 1  # the request itself, until all pieces are submitted

    def add(self, group: OffsetFetchRequest.OffsetFetchRequestGroup) -> Steps[None]:
        """Submit the lookups of one group."""
        group_id = group.group_id
        answer = _Fetched(group_id)
        self.answers.append(answer)
        yield
        if not self._context.permits(self._request, DESCRIBE_GROUP, group_id):
            answer.error = DESCRIBE_GROUP.refusal
        elif group.topics is None:
            self._ask(answer, None, partial(self._store_all, answer))
        else:
            yield from self._ask_some(answer, group.topics)

    def _ask_some(
        self, answer: _Fetched, topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopics]
    ) -> Steps[None]:
        refused = []
        asked = False
        for topic in topics:
            found = self._topics.find(topic.name, topic.topic_id)
            indexes = topic.partition_indexes
            offsets: list[CommittedOffset | None] = [None] * len(indexes)
            yield
            if found.error is not E.NONE:
                hidden = FetchedTopic(topic.name, topic.topic_id, indexes, offsets)
                refused.append((hidden, found.error))
                continue
            answer.topics.append(
                (FetchedTopic(found.name, found.topic_id, indexes, offsets), E.NONE)
            )
            asked = True
            for start in range(0, max(len(indexes), 1), PIECE):
                piece = WantedTopic(found.name, found.topic_id, indexes[start : start + PIECE])
                self._ask(answer, (piece,), partial(_store_piece, offsets, start))
                for _ in piece.partitions:
                    yield
        answer.topics += refused
        if not asked:
            self._ask(
                answer, (), lambda found: None
            )  # checks whether this broker coordinates the group

    def _ask(
        self,
        answer: _Fetched,
        topics: tuple[WantedTopic, ...] | None,
        store: Callable[[list[FetchedTopic]], None],
    ) -> None:
        def found(result: list[FetchedTopic] | E) -> None:
            if isinstance(result, E):
                answer.error = result
                answer.topics = []
            elif answer.error is E.NONE:
                store(result)
            self._answered()

        self._missing += 1
        command = FetchOffsets(answer.group_id, topics, self._require_stable)
        call_shard(
            self._context,
            answer.group_id,
            GroupShard.fetch_offsets,
            command,
            lambda error: error,
            found,
        )

    def _store_all(self, answer: _Fetched, found: list[FetchedTopic]) -> None:
        shown = _visible(self._context, self._request, found)
        answer.topics = [(topic, E.NONE) for topic in shown]

    def all_asked(self) -> None:
        """Reply once the pending pieces are answered: all are submitted."""
        self._answered()

    def _answered(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._done()


def _store_piece(
    offsets: list[CommittedOffset | None], start: int, found: list[FetchedTopic]
) -> None:
    (topic,) = found
    offsets[start : start + len(topic.offsets)] = topic.offsets


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


def _visible(
    context: Context, request: Request, topics: Sequence[FetchedTopic]
) -> list[FetchedTopic]:
    """Return the offsets of topics that the client may see, with their topic ids."""
    by_id = request.version >= FIRST_WITH_TOPIC_ID
    shown: list[FetchedTopic] = []
    for topic in topics:
        if not context.sees(request, DESCRIBE_TOPIC, topic.topic):
            continue
        if not by_id:
            shown.append(topic)
        elif topic.topic_id != ZERO_UUID:
            kept = [
                (index, offset)
                for index, offset in zip(topic.partitions, topic.offsets, strict=True)
                if same_topic(offset, topic.topic_id) is not None
            ]
            indexes, offsets = [it[0] for it in kept], [it[1] for it in kept]
            shown.append(FetchedTopic(topic.topic, topic.topic_id, indexes, offsets))
    return shown


def _fetched_group(answer: _Fetched) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    return OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=answer.group_id,
        topics=each(answer.topics, _fetched_topic),
        error_code=answer.error,
    )


def _fetched_topic(
    topic: tuple[FetchedTopic, E],
) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    found, error = topic

    def of_partition(place: int) -> OffsetFetchResponse.OffsetFetchResponsePartitions:
        committed = found.offsets[place] or NOTHING_COMMITTED
        return OffsetFetchResponse.OffsetFetchResponsePartitions(
            partition_index=found.partitions[place],
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=E.UNSTABLE_OFFSET_COMMIT if committed is UNSTABLE else error,
        )

    return OffsetFetchResponse.OffsetFetchResponseTopics(
        name=found.topic,
        topic_id=found.topic_id,
        partitions=each(range(len(found.partitions)), of_partition),
    )


def _one_fetched(
    request: Request, body: OffsetFetchRequest, answer: _Fetched
) -> OffsetFetchResponse:
    """Return the response of versions 1 to 7; version 1 has no error for the whole group."""
    topics = answer.topics
    if answer.error is not E.NONE and request.version < FIRST_FETCH_WITH_GROUP_ERROR:
        topics = [
            (
                FetchedTopic(
                    topic.name,
                    ZERO_UUID,
                    topic.partition_indexes,
                    [None] * len(topic.partition_indexes),
                ),
                answer.error,
            )
            for topic in body.topics or ()
        ]
    return OffsetFetchResponse(error_code=answer.error, topics=each(topics, _older_topic))


def _older_topic(topic: tuple[FetchedTopic, E]) -> OffsetFetchResponse.OffsetFetchResponseTopic:
    found, error = topic

    def of_partition(place: int) -> OffsetFetchResponse.OffsetFetchResponsePartition:
        committed = found.offsets[place] or NOTHING_COMMITTED
        return OffsetFetchResponse.OffsetFetchResponsePartition(
            partition_index=found.partitions[place],
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=E.UNSTABLE_OFFSET_COMMIT if committed is UNSTABLE else error,
        )

    return OffsetFetchResponse.OffsetFetchResponseTopic(
        name=found.topic, partitions=each(range(len(found.partitions)), of_partition)
    )


# -- delete


def handle_offset_delete(
    context: Context, request: Request, body: OffsetDeleteRequest
) -> Steps[OffsetDeleteResponse | None]:
    """Delete offsets of topics that no member of the group reads."""
    topics = OffsetTopics(context, request, READ_TOPIC)
    allowed: list[TopicPartition] = []
    errors: list[E] = []
    for topic in body.topics:
        found = topics.find(topic.name)
        yield
        for partition in topic.partitions:
            error = topics.refuse_partition(found, partition.partition_index)
            errors.append(error)
            if error is E.NONE:
                allowed.append(TopicPartition(topic.name, partition.partition_index))
            yield

    def done(answers: list[OffsetsDeleted]) -> None:
        refused = next((it.error for it in answers if it.error is not E.NONE), E.NONE)
        if refused is not E.NONE:
            request.reply(OffsetDeleteResponse(error_code=refused))
            return
        rest = chain.from_iterable(it.partitions for it in answers)
        merged = [next(rest) if error is E.NONE else error for error in errors]
        request.reply_in_turns(_delete_response(body, merged))

    starts = range(0, max(len(allowed), 1), PIECE)
    gather = Gather(len(starts), done)
    for place, start in enumerate(starts):
        piece = tuple(allowed[start : start + PIECE])
        command = DeleteOffsets(body.group_id, piece)
        slot = gather.slot(place)
        call_shard(context, body.group_id, GroupShard.delete_offsets, command, OffsetsDeleted, slot)
        for _ in piece:
            yield
    return None


def _delete_response(body: OffsetDeleteRequest, errors: Iterable[E]) -> OffsetDeleteResponse:
    """Return the response; it consumes the errors one by one while it is encoded."""
    rest = iter(errors)

    def of_partition(
        partition: OffsetDeleteRequest.OffsetDeleteRequestPartition,
    ) -> OffsetDeleteResponse.OffsetDeleteResponsePartition:
        return OffsetDeleteResponse.OffsetDeleteResponsePartition(
            partition_index=partition.partition_index, error_code=next(rest)
        )

    def of_topic(
        topic: OffsetDeleteRequest.OffsetDeleteRequestTopic,
    ) -> OffsetDeleteResponse.OffsetDeleteResponseTopic:
        return OffsetDeleteResponse.OffsetDeleteResponseTopic(
            name=topic.name, partitions=each(topic.partitions, of_partition)
        )

    return OffsetDeleteResponse(topics=each(body.topics, of_topic))

"""CreateTopics, DeleteTopics, CreatePartitions: checks rights and passes commands to the controller."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from headwater.broker.context import Context
from headwater.broker.handlers.coordinators import internal_topic
from headwater.broker.request import Request
from headwater.broker.turns import Steps, drained, each
from headwater.config.resolve import topic_rows
from headwater.controller.commands import (
    BROKER_DEFAULT,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    TopicCreation,
    TopicOutcome,
)
from headwater.controller.topic_rules import duplicates
from headwater.errors import E, KafkaError
from headwater.model import ZERO_UUID, Uuid
from headwater.security.principals import BROKER
from headwater.security.rights import (
    ALTER_TOPIC,
    CREATE_ON_CLUSTER,
    CREATE_TOPIC,
    DELETE_ON_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
)
from headwater.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

FIRST_WITH_DELETION_DISABLED = 3
CREATE_KNOWS_QUOTAS, DELETE_KNOWS_QUOTAS, GROW_KNOWS_QUOTAS = 6, 5, 3
"""The first versions of CreateTopics, DeleteTopics and CreatePartitions that may be refused because
of a quota (KIP-599); clients of older ones are throttled."""
FIRST_WITH_IDS = 6

NO_CONFIGS: Mapping[str, str | None] = MappingProxyType({})

_Created = CreateTopicsResponse.CreatableTopicResult
_Config = CreateTopicsResponse.CreatableTopicConfigs
_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Grown = CreatePartitionsResponse.CreatePartitionsTopicResult


def _count_mutations(context: Context, request: Request, partitions: int, *, strict: bool) -> None:
    """Count partitions against the quota of the client; KafkaError if it is used up."""
    if context.quotas is not None:
        context.quotas.change_topics(request, partitions, strict=strict)


# CreateTopics


def handle_create_topics(
    context: Context, request: Request, body: CreateTopicsRequest
) -> Steps[None]:
    """Create topics, and reply once this broker serves them.

    2-3: as later. 5: the topic's counts and configs come back. 7: its id, too.
    """
    everywhere = context.sees(request, CREATE_ON_CLUSTER)
    strict = request.version >= CREATE_KNOWS_QUOTAS
    allowed, refused = [], []
    for topic in drained(body.topics):
        try:
            if not (everywhere or context.permits(request, CREATE_TOPIC, topic.name)):
                raise context.refusal(request, CREATE_TOPIC, topic.name)
            new = _new_topic(context, request, topic)
            if not body.validate_only:
                _count_mutations(context, request, _partitions(context, new), strict=strict)
            allowed.append(new)
        except KafkaError as refusal:
            refused.append(TopicOutcome.refused(topic.name, refusal))
        yield
    configs = {
        new.name: {key: value for key, value in new.configs.items() if value is not None}
        for new in allowed
        if new.configs
    }

    def reply(outcomes: list[TopicOutcome]) -> None:
        def created(outcome: TopicOutcome) -> _Created:
            return _created(context, request, outcome, configs.get(outcome.name or "", {}))

        response = CreateTopicsResponse(topics=each([*outcomes, *refused], created))
        request.reply_in_turns(response)

    context.controller.submit(CreateTopics(allowed, body.timeout_ms, body.validate_only), reply)


def _partitions(context: Context, new: TopicCreation) -> int:
    """Return how many partitions a new topic gets."""
    if new.partitions != BROKER_DEFAULT:
        return max(1, new.partitions)
    return len(new.assignments) or context.settings.num_partitions


def _new_topic(
    context: Context, request: Request, topic: CreateTopicsRequest.CreatableTopic
) -> TopicCreation:
    if request.connection.principal.kind == BROKER:
        internal = context.coordinators.internal_topic(topic.name)
        if internal is not None:
            return internal_topic(internal)
    return TopicCreation(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(one.partition_index, one.broker_ids) for one in topic.assignments] or (),
        {config.name: config.value for config in topic.configs} or NO_CONFIGS,
    )


def _created(
    context: Context,
    request: Request,
    outcome: TopicOutcome,
    overrides: dict[str, str],
) -> _Created:
    name = outcome.name or ""
    result = _Created(name=name, error_code=outcome.error, error_message=outcome.message)
    if outcome.error:
        return result
    result.topic_id = outcome.topic_id
    if not context.sees(request, DESCRIBE_TOPIC_CONFIGS, name):
        result.topic_config_error_code = DESCRIBE_TOPIC_CONFIGS.refusal
        return result
    result.num_partitions = outcome.partitions
    result.replication_factor = outcome.replication_factor
    result.configs = [
        _Config(
            name=row.name,
            value=overrides.get(row.name, row.value),
            read_only=row.read_only,
            config_source=row.source,
            is_sensitive=row.sensitive,
        )
        for row in topic_rows(context.settings, overrides)
    ]
    return result


# DeleteTopics

_Named: TypeAlias = str | Uuid | tuple[str, Uuid]
"""The name and id of a topic in a request; setting both is an error."""


def handle_delete_topics(
    context: Context, request: Request, body: DeleteTopicsRequest
) -> Steps[None]:
    """Delete topics by name, from version 6 also by id."""
    times: Counter[_Named] = Counter()
    if request.version >= FIRST_WITH_IDS:
        times.update(_named(state) for state in drained(body.topics))
    else:
        times.update(iter(body.topic_names))
        body.topic_names = []
    names: list[str] = []
    ids: dict[str, Uuid] = {}
    refused: list[TopicOutcome] = []
    for named, count in times.items():
        yield
        name, topic_id = _name_and_id(named)
        try:
            _refuse_ambiguous(name, topic_id, count)
            deletable = _deletable(context, request, name, topic_id)
            partitions = max(1, context.metadata.partition_count(deletable))
            _count_mutations(
                context, request, partitions, strict=request.version >= DELETE_KNOWS_QUOTAS
            )
            names.append(deletable)
            if name is None:
                ids[names[-1]] = topic_id
        except KafkaError as refusal:
            shown = _shown_name(context, request, topic_id) if name is None else name
            refused.append(TopicOutcome.refused(shown, refusal, topic_id))

    del times
    twice = duplicates(names)
    for name in twice:
        why = KafkaError(
            E.INVALID_REQUEST, f"topic {name!r} appears in the request by name and by id"
        )
        info = context.metadata.topics.get(name)
        refused.append(TopicOutcome.refused(name, why, info.topic_id if info else ZERO_UUID))
    once = [name for name in names if name not in twice] if twice else names

    def reply(outcomes: list[TopicOutcome]) -> None:
        results = each([*outcomes, *refused], partial(_deleted, request))
        request.reply_in_turns(DeleteTopicsResponse(responses=results))

    context.controller.submit(DeleteTopics(once, body.timeout_ms, ids), reply)


def _named(state: DeleteTopicsRequest.DeleteTopicState) -> _Named:
    name, topic_id = state.name, state.topic_id
    if name is None:
        return topic_id
    return name if topic_id == ZERO_UUID else (name, topic_id)


def _name_and_id(named: _Named) -> tuple[str | None, Uuid]:
    if isinstance(named, str):
        return named, ZERO_UUID
    return named if isinstance(named, tuple) else (None, named)


def _refuse_ambiguous(name: str | None, topic_id: Uuid, times: int) -> None:
    if (name is None) == (topic_id == ZERO_UUID):
        raise KafkaError(E.INVALID_REQUEST, "a topic is named either by name or by id")
    if times > 1:
        raise KafkaError(E.INVALID_REQUEST, "the topic appears twice in the request")


def _deletable(context: Context, request: Request, name: str | None, topic_id: Uuid) -> str:
    """Return the name of the topic, if the client may delete it."""
    resolved = context.controller.name_of(topic_id) if name is None else name
    if resolved is None and not context.controller.active:
        raise KafkaError(E.NOT_CONTROLLER)
    if resolved is None:
        raise KafkaError(E.UNKNOWN_TOPIC_ID, "no topic has this id")
    if not _may_delete(context, request, resolved):
        if name is None:  # an id does not tell its name
            raise KafkaError(DELETE_TOPIC.refusal)
        raise context.refusal(request, DELETE_TOPIC, resolved)
    return resolved


def _shown_name(context: Context, request: Request, topic_id: Uuid) -> str | None:
    """Return the name that belongs to an id, for a client that may see it."""
    name = context.controller.name_of(topic_id)
    return name if name is not None and context.permits(request, DESCRIBE_TOPIC, name) else None


def _may_delete(context: Context, request: Request, name: str) -> bool:
    return context.sees(request, DELETE_ON_CLUSTER) or context.permits(request, DELETE_TOPIC, name)


def _deleted(request: Request, outcome: TopicOutcome) -> _Deleted:
    error = outcome.error
    if error is E.TOPIC_DELETION_DISABLED and request.version < FIRST_WITH_DELETION_DISABLED:
        error = E.INVALID_REQUEST
    return _Deleted(
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=error,
        error_message=outcome.message,
    )


# CreatePartitions


def handle_create_partitions(
    context: Context, request: Request, body: CreatePartitionsRequest
) -> Steps[None]:
    """Add partitions to topics."""
    allowed: list[MorePartitions] = []
    refused: list[TopicOutcome] = []
    for topic in body.topics:
        try:
            if not context.permits(request, ALTER_TOPIC, topic.name):
                raise context.refusal(request, ALTER_TOPIC, topic.name)
            if not body.validate_only:
                more = max(0, topic.count - context.metadata.partition_count(topic.name))
                strict = request.version >= GROW_KNOWS_QUOTAS
                _count_mutations(context, request, more, strict=strict)
            assigned = topic.assignments
            brokers = None if assigned is None else [one.broker_ids for one in assigned]
            allowed.append(MorePartitions(topic.name, topic.count, brokers))
        except KafkaError as refusal:
            refused.append(TopicOutcome.refused(topic.name, refusal))
        yield

    def reply(outcomes: list[TopicOutcome]) -> None:
        results = each([*outcomes, *refused], _grown)
        request.reply_in_turns(CreatePartitionsResponse(results=results))

    context.controller.submit(CreatePartitions(allowed, body.timeout_ms, body.validate_only), reply)


def _grown(outcome: TopicOutcome) -> _Grown:
    return _Grown(name=outcome.name or "", error_code=outcome.error, error_message=outcome.message)

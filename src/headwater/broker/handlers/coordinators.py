"""FindCoordinator: finds the coordinator of a group or of a transactional id.

The first request creates the coordinator's topic and is answered when it has leaders. If that fails,
the response is COORDINATOR_NOT_AVAILABLE, and clients retry.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.broker.turns import each
from headwater.controller.commands import TopicCreation, TopicOutcome
from headwater.coordination.runtime_loop import CoordinatorRuntime
from headwater.coordination.shard import InternalTopic
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from headwater.security.rights import DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse

FIRST_WITH_SEVERAL_KEYS = 4

_Coordinator = FindCoordinatorResponse.Coordinator


class KeyType(IntEnum):
    """The kind of key that a coordinator manages."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


def handle_find_coordinator(
    context: Context, request: Request, body: FindCoordinatorRequest
) -> None:
    """Return the coordinator of each key."""
    runtime = _coordinator(context, body.key_type)
    if runtime is None or context.metadata.partition_count(runtime.topic.name):
        _answer(context, request, body)
    else:
        _create_topic(
            context, runtime.topic, lambda problem: _answer(context, request, body, problem)
        )


def _coordinator(context: Context, key_type: int) -> CoordinatorRuntime[Any, Any] | None:
    if key_type == KeyType.GROUP:
        return context.groups
    return context.transactions if key_type == KeyType.TRANSACTION else None


def _answer(
    context: Context,
    request: Request,
    body: FindCoordinatorRequest,
    problem: str | None = None,
) -> None:
    """Reply with the coordinators; `problem` says why there are none."""
    if request.version >= FIRST_WITH_SEVERAL_KEYS:
        find = partial(_find, context, request, body.key_type, problem)
        found = FindCoordinatorResponse(coordinators=each(body.coordinator_keys, find))
        request.reply_in_turns(found)
    else:
        request.reply(_one_answer(context, request, body, problem))


def _one_answer(
    context: Context, request: Request, body: FindCoordinatorRequest, problem: str | None
) -> FindCoordinatorResponse:
    one = _find(context, request, body.key_type, problem, body.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or E.NONE.name,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(
    context: Context, request: Request, key_type: int, problem: str | None, key: str
) -> _Coordinator:
    try:
        node_id, host, port = _locate(context, request, key_type, key)
    except KafkaError as refusal:
        return _Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=refusal.code,
            error_message=problem or refusal.message,
        )
    return _Coordinator(key=key, node_id=node_id, host=host, port=port)


def _locate(context: Context, request: Request, key_type: int, key: str) -> tuple[int, str, int]:
    runtime = _coordinator(context, key_type)
    if runtime is None:
        raise KafkaError(E.INVALID_REQUEST, f"this broker has no coordinator of type {key_type}")
    right = DESCRIBE_GROUP if key_type == KeyType.GROUP else DESCRIBE_TRANSACTIONAL_ID
    if not context.permits(request, right, key):
        raise context.refusal(request, right, key)
    partition = runtime.partition_of(key)
    if partition is None:
        raise KafkaError(E.COORDINATOR_NOT_AVAILABLE)
    return _leader(context, request, TopicPartition(runtime.topic.name, partition))


def _leader(context: Context, request: Request, at: TopicPartition) -> tuple[int, str, int]:
    info = context.metadata.partition(*at)
    if info is None:
        raise KafkaError(E.COORDINATOR_NOT_AVAILABLE)
    endpoint = context.metadata.endpoint(info.leader, request.connection.listener)
    if endpoint is None:
        raise KafkaError(E.COORDINATOR_NOT_AVAILABLE)
    return info.leader, *endpoint


def _create_topic(
    context: Context, topic: InternalTopic, then: Callable[[str | None], None]
) -> None:
    """Create the topic with the first request, so that its client need not retry."""

    def created(outcomes: list[TopicOutcome]) -> None:
        problem = None
        for outcome in outcomes:
            if outcome.error not in (E.NONE, E.TOPIC_ALREADY_EXISTS):
                problem = f"topic {topic.name!r} cannot be created: {outcome.message}"
                context.peer_log.warning("coordinators", topic.name, problem)
        then(problem)

    context.create_topics([internal_topic(topic)], created)


def internal_topic(topic: InternalTopic) -> TopicCreation:
    """How the controller creates a topic of the brokers."""
    return TopicCreation(
        topic.name,
        topic.partitions,
        topic.replication_factor,
        configs=dict(topic.configs),
        internal=True,
        clamped=topic.clamped,
    )

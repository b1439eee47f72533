"""Metadata: the brokers, the topics, and the leaders of their partitions."""

from functools import partial
from typing import TypeAlias

from headwater.broker.context import Context
from headwater.broker.handlers.cluster import cluster_operations
from headwater.broker.metadata_cache import PartitionInfo, TopicInfo
from headwater.broker.request import Request
from headwater.broker.turns import Steps, drained, each
from headwater.errors import E, KafkaError
from headwater.model import INTERNAL_TOPICS, NO_LEADER, ZERO_UUID, Uuid, topic_name_problem
from headwater.security.acls import AclResourceType
from headwater.security.rights import CREATE_ON_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC
from headwater.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)

FIRST_WITH_NULL_FOR_ALL = 1
FIRST_WITH_LISTENER_NOT_FOUND = 6
FIRST_WITH_TOPIC_ID = 12

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = MetadataResponse.MetadataResponsePartition
_Wanted: TypeAlias = dict[str | Uuid, Uuid | None]
"""Topics by name, or by an unknown id, and the ids in the request."""


# -- Metadata


def handle_metadata(context: Context, request: Request, body: MetadataRequest) -> None:
    """Describe the cluster with the addresses of the client's listener."""
    if request.version < FIRST_WITH_TOPIC_ID and any(map(_is_by_id, body.topics or ())):
        request.reply_in_turns(_refuse_ids(body))
    else:
        request.reply_in_turns(_described(context, request, body))


def _described(
    context: Context, request: Request, body: MetadataRequest
) -> Steps[MetadataResponse]:
    response = _cluster(context, request, body)
    wanted = yield from _wanted(context, request, body)
    response.topics = each(wanted.items(), partial(_topic, context, request, body))
    return response


def _cluster(context: Context, request: Request, body: MetadataRequest) -> MetadataResponse:
    """Name this broker as the controller, because it forwards what only the controller can answer.

    Some clients send such a request to the controller named here alone, for as long as it takes, and
    the last known controller may be dead. DescribeCluster names the controller.
    """
    response = MetadataResponse(
        cluster_id=context.metadata.cluster_id,
        controller_id=context.node_id,
        brokers=_brokers(context, request),
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context, request)
    return response


def _is_by_id(wanted: MetadataRequest.MetadataRequestTopic) -> bool:
    return wanted.name is None or wanted.topic_id != ZERO_UUID


def _refuse_ids(body: MetadataRequest) -> MetadataResponse:
    """Refuse ids in versions 10 and 11, which have the field but do not support lookups by id."""
    return MetadataResponse(
        topics=each(
            body.topics or (),
            lambda it: _Topic(
                error_code=E.INVALID_REQUEST, name=it.name or "", topic_id=it.topic_id
            ),
        )
    )


def _brokers(context: Context, request: Request) -> list[MetadataResponse.MetadataResponseBroker]:
    listener = request.connection.listener
    return [
        MetadataResponse.MetadataResponseBroker(
            node_id=broker.id, host=host, port=port, rack=broker.rack
        )
        for broker in context.metadata.brokers.values()
        if listener in broker.endpoints
        for host, port in [broker.endpoints[listener]]
    ]


def _wanted(context: Context, request: Request, body: MetadataRequest) -> Steps[_Wanted]:
    everything = body.topics is None or (
        request.version < FIRST_WITH_NULL_FOR_ALL and not body.topics
    )
    if not everything:
        return (yield from _distinct(context, body.topics or []))
    visible: _Wanted = {}
    for name in list(context.metadata.topics):
        if context.sees(request, DESCRIBE_TOPIC, name):
            visible[name] = None
        yield
    return visible


def _distinct(
    context: Context, topics: list[MetadataRequest.MetadataRequestTopic]
) -> Steps[_Wanted]:
    """De-duplicate topics requested several times, by name or by id."""
    name_of = context.metadata.name_of
    found: _Wanted = {}
    for it in drained(topics):
        if it.name is None:
            found[name_of.get(it.topic_id, it.topic_id)] = it.topic_id
        else:
            found[it.name] = None if it.topic_id == ZERO_UUID else it.topic_id
        yield
    return found


def _topic(
    context: Context,
    request: Request,
    body: MetadataRequest,
    wanted: tuple[str | Uuid, Uuid | None],
) -> _Topic:
    key, topic_id = wanted
    name = key if isinstance(key, str) else None
    if topic_id == ZERO_UUID:
        return _Topic(error_code=E.INVALID_REQUEST, name="")
    if topic_id is not None:
        name = context.metadata.name_of.get(topic_id)
    if name is None:
        return _Topic(error_code=E.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id or ZERO_UUID)
    if not context.permits(request, DESCRIBE_TOPIC, name):
        if topic_id is not None:  # an id does not tell its name
            return _Topic(error_code=DESCRIBE_TOPIC.refusal, name=None, topic_id=topic_id)
        return _Topic(error_code=DESCRIBE_TOPIC.refusal, name=name)
    info = context.metadata.topics.get(name)
    topic = (
        _missing(context, request, body, name)
        if info is None
        else _Topic(
            name=name,
            topic_id=info.topic_id,
            is_internal=info.internal,
            partitions=each(
                sorted(info.partitions.items()), partial(_partition, context, request, name)
            ),
        )
    )
    if body.include_topic_authorized_operations:
        topic.topic_authorized_operations = context.authorized_operations(
            request, AclResourceType.TOPIC, name
        )
    return topic


def _missing(context: Context, request: Request, body: MetadataRequest, name: str) -> _Topic:
    """Return the error for a missing topic; create the topic if allowed, so that a retry finds it."""
    if topic_name_problem(name) is not None:
        return _Topic(error_code=E.INVALID_TOPIC_EXCEPTION, name=name)
    if body.allow_auto_topic_creation and context.settings.auto_create_topics_enable:
        may_create = context.sees(request, CREATE_ON_CLUSTER) or context.permits(
            request, CREATE_TOPIC, name
        )
        if not may_create:
            return _Topic(
                error_code=CREATE_TOPIC.refusal, name=name, is_internal=name in INTERNAL_TOPICS
            )
        if _quota_allows_one_more(context, request):
            context.create_topic_on_demand(name)
    return _Topic(
        error_code=E.UNKNOWN_TOPIC_OR_PARTITION, name=name, is_internal=name in INTERNAL_TOPICS
    )


def _quota_allows_one_more(context: Context, request: Request) -> bool:
    """Count a topic that is about to be created; False if the client has to ask again later."""
    if context.quotas is None:
        return True
    try:
        context.quotas.change_topics(request, context.settings.num_partitions, strict=True)
    except KafkaError:
        return False
    return True


def _partition(
    context: Context, request: Request, topic: str, row: tuple[int, PartitionInfo]
) -> _Partition:
    index, info = row
    partition = _Partition(
        partition_index=index,
        leader_id=info.leader,
        leader_epoch=info.leader_epoch,
        replica_nodes=list(info.replicas),
        isr_nodes=list(info.isr),
        offline_replicas=list(info.offline),
    )
    if info.leader == context.node_id and context.replicas.is_offline(topic, index):
        partition.leader_id, partition.error_code = NO_LEADER, E.LEADER_NOT_AVAILABLE
        partition.offline_replicas.append(context.node_id)
    elif info.leader == NO_LEADER or info.leader not in context.metadata.brokers:
        partition.leader_id, partition.error_code = NO_LEADER, E.LEADER_NOT_AVAILABLE
    elif context.metadata.endpoint(info.leader, request.connection.listener) is None:
        named = request.version >= FIRST_WITH_LISTENER_NOT_FOUND
        partition.leader_id = NO_LEADER
        partition.error_code = E.LISTENER_NOT_FOUND if named else E.LEADER_NOT_AVAILABLE
    return partition


# -- DescribeTopicPartitions


def handle_describe_topic_partitions(
    context: Context, request: Request, body: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    """Describe topics in pages of a limited number of partitions, with a cursor (KIP-966)."""
    if body.cursor is not None and not _is_in_place(body.cursor, body.topics):
        refused = [_PageTopic(error_code=E.INVALID_REQUEST, name=it.name) for it in body.topics]
        return DescribeTopicPartitionsResponse(topics=refused)
    response = DescribeTopicPartitionsResponse()
    left = max(
        1, min(body.response_partition_limit, context.settings.max_request_partition_size_limit)
    )
    for name in _page_names(context, body):
        yield
        start = body.cursor.partition_index if body.cursor and body.cursor.topic_name == name else 0
        if left <= 0:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                topic_name=name, partition_index=0
            )
            break
        if not body.topics and not context.sees(request, DESCRIBE_TOPIC, name):
            continue
        topic, following = _page(context, request, name, start, left)
        response.topics.append(topic)
        left -= len(topic.partitions)
        if following is not None:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                topic_name=name, partition_index=following
            )
            break
    return response


def _is_in_place(
    cursor: DescribeTopicPartitionsRequest.Cursor,
    topics: list[DescribeTopicPartitionsRequest.TopicRequest],
) -> bool:
    """Return whether the cursor is valid: its topic must be in the list, if there is a list."""
    return cursor.partition_index >= 0 and (
        not topics or any(topic.name == cursor.topic_name for topic in topics)
    )


def _page_names(context: Context, body: DescribeTopicPartitionsRequest) -> list[str]:
    names = {topic.name for topic in body.topics} or set(context.metadata.topics)
    first = body.cursor.topic_name if body.cursor else ""
    return sorted(name for name in names if name >= first)


_PageTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_PagePartition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


def _page(
    context: Context, request: Request, name: str, start: int, limit: int
) -> tuple[_PageTopic, int | None]:
    """Return some partitions of one topic, and the first partition that did not fit."""
    if not context.permits(request, DESCRIBE_TOPIC, name):
        return _PageTopic(error_code=DESCRIBE_TOPIC.refusal, name=name), None
    info: TopicInfo | None = context.metadata.topics.get(name)
    if info is None:
        bad = topic_name_problem(name) is not None
        code = E.INVALID_TOPIC_EXCEPTION if bad else E.UNKNOWN_TOPIC_OR_PARTITION
        return _PageTopic(
            error_code=code,
            name=name,
            topic_authorized_operations=context.authorized_operations(
                request, AclResourceType.TOPIC, name
            ),
        ), None
    rows = [row for row in sorted(info.partitions.items()) if row[0] >= start]
    topic = _PageTopic(
        name=name,
        topic_id=info.topic_id,
        is_internal=info.internal,
        partitions=[_page_partition(context, request, name, row) for row in rows[:limit]],
        topic_authorized_operations=context.authorized_operations(
            request, AclResourceType.TOPIC, name
        ),
    )
    return topic, rows[limit][0] if len(rows) > limit else None


def _page_partition(
    context: Context, request: Request, topic: str, row: tuple[int, PartitionInfo]
) -> _PagePartition:
    told, info = _partition(context, request, topic, row), row[1]
    return _PagePartition(
        error_code=told.error_code,
        partition_index=told.partition_index,
        leader_id=told.leader_id,
        leader_epoch=told.leader_epoch,
        replica_nodes=told.replica_nodes,
        isr_nodes=told.isr_nodes,
        eligible_leader_replicas=list(info.elr),
        last_known_elr=[info.last_known_leader] * (info.last_known_leader != NO_LEADER),
        offline_replicas=told.offline_replicas,
    )

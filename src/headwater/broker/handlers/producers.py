"""Producer ids, and the producer states of partitions."""

from functools import partial

from headwater.broker.context import Context
from headwater.broker.handlers.transactions import init_transactional_producer
from headwater.broker.request import Request
from headwater.broker.turns import Steps, drained, each
from headwater.errors import E, KafkaError
from headwater.log.producers import ProducerStateEntry
from headwater.model import NO_EPOCH, NO_PRODUCER_ID, topic_name_problem
from headwater.security.rights import IDEMPOTENT_WRITE, READ_TOPIC, WRITE_TOPIC
from headwater.wire.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

MAX_EXPLAINED = 500
"""Errors of more partitions than this have no message, which would be most of the response."""


def handle_init_producer_id(
    context: Context, request: Request, body: InitProducerIdRequest
) -> InitProducerIdResponse | None:
    """Return a new producer id, or the next epoch of a transactional one."""
    if body.transactional_id is not None:
        init_transactional_producer(context, request, body.transactional_id, body)
        return None
    problem = _problem(context, request, body)
    if problem is not E.NONE:
        return refuse_producer_id(request, body, problem)

    def reply(producer_id: int | KafkaError) -> None:
        if isinstance(producer_id, KafkaError):
            request.reply(refuse_producer_id(request, body, producer_id.code))
        else:
            request.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    context.producer_ids.next(reply)
    return None


def _problem(context: Context, request: Request, body: InitProducerIdRequest) -> E:
    """Clients that may write to some topic may use idempotence (KIP-679)."""
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_EPOCH):
        return E.INVALID_REQUEST
    if context.permits_any(request, WRITE_TOPIC) or context.permits(request, IDEMPOTENT_WRITE):
        return E.NONE
    return IDEMPOTENT_WRITE.refusal


def refuse_producer_id(
    request: Request, body: InitProducerIdRequest, error: E
) -> InitProducerIdResponse:
    """Return a response without an id."""
    return InitProducerIdResponse(error_code=error, producer_epoch=NO_EPOCH)


def handle_describe_producers(
    context: Context, request: Request, body: DescribeProducersRequest
) -> Steps[DescribeProducersResponse]:
    """Return the producer states of partitions, of each once (KIP-664)."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in drained(body.topics):
        indexes = wanted.setdefault(topic.name, {})
        yield
        for index in topic.partition_indexes:
            indexes[index] = None
            yield
    explained = sum(map(len, wanted.values())) <= MAX_EXPLAINED

    def of_topic(name: str) -> DescribeProducersResponse.TopicResponse:
        of_partition = partial(_described, context, request, name, explained)
        return DescribeProducersResponse.TopicResponse(
            name=name, partitions=each(wanted[name], of_partition)
        )

    return DescribeProducersResponse(topics=each(wanted, of_topic))


def _described(
    context: Context, request: Request, topic: str, explained: bool, index: int
) -> DescribeProducersResponse.PartitionResponse:
    partition = DescribeProducersResponse.PartitionResponse(partition_index=index)
    try:
        if not context.permits(request, READ_TOPIC, topic):
            raise context.refusal(request, READ_TOPIC, topic)
        problem = topic_name_problem(topic)
        if problem is not None:
            raise KafkaError(E.INVALID_TOPIC_EXCEPTION, problem)
        replica = context.replicas.get(topic, index)  # a follower knows its producers too
        if replica is None:
            raise context.replicas.absence(topic, index)
        if replica.offline is not None:
            raise replica.offline
        known = replica.upkeep.active_producers()
        partition.active_producers = each(known, _producer)
    except KafkaError as refused:
        partition.error_code = refused.code
        partition.error_message = refused.message if explained else None
    return partition


def _producer(producer: ProducerStateEntry) -> DescribeProducersResponse.ProducerState:
    return DescribeProducersResponse.ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_start,
    )

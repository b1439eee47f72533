"""Transactions on the wire, as their coordinator serves them."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import TypeAlias, cast

from headwater.broker.context import Context
from headwater.broker.handlers.named_once import once
from headwater.broker.handlers.shard_calls import Gather, call_coordinator
from headwater.broker.request import Request
from headwater.broker.turns import Steps, each
from headwater.coordination.transaction_coordinator import TransactionCommand
from headwater.coordination.transactions.commands import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    ListedTransaction,
    ListTransactions,
    ProducerAnswer,
    ProducerIdentity,
    VerifyPartitions,
)
from headwater.coordination.transactions.metadata import EPOCH_BUMPS_AT_END, TransactionMetadata
from headwater.coordination.transactions.patterns import IdPattern, PatternError
from headwater.coordination.transactions.shard import TransactionShard
from headwater.coordination.transactions.states import TransactionState
from headwater.errors import E, KafkaError
from headwater.model import (
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    coordinator_partition,
)
from headwater.security.acls import CLUSTER_NAME
from headwater.security.rights import (
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    READ_GROUP,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

FIRST_INIT_WITH_FENCED = 4
FIRST_WITH_FENCED = 2
"""Older clients know only INVALID_PRODUCER_EPOCH."""
FIRST_ADD_OF_BROKERS = 4
FIRST_END_WITH_BUMPS = 5

_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
_Errors: TypeAlias = dict[TopicPartition, E]


def _known_to(version: int, first: int, error: E) -> E:
    """Return the error as a client of this version knows it."""
    fenced = error is E.PRODUCER_FENCED and version < first
    return E.INVALID_PRODUCER_EPOCH if fenced else error


# -- InitProducerId


def init_transactional_producer(
    context: Context, request: Request, transactional_id: str, body: InitProducerIdRequest
) -> None:
    """Give the producer of a transactional id its next epoch, which fences all earlier ones."""

    def reply(answer: ProducerAnswer) -> None:
        request.reply(
            InitProducerIdResponse(
                error_code=_known_to(request.version, FIRST_INIT_WITH_FENCED, answer.error),
                producer_id=answer.producer.producer_id,
                producer_epoch=answer.producer.epoch,
            )
        )

    half_known = (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_EPOCH)
    if not context.permits(request, WRITE_TRANSACTIONAL_ID, transactional_id):
        reply(ProducerAnswer(WRITE_TRANSACTIONAL_ID.refusal))
    elif half_known or not transactional_id:
        reply(ProducerAnswer(E.INVALID_REQUEST))
    elif not 0 < body.transaction_timeout_ms <= context.settings.transaction_max_timeout_ms:
        reply(ProducerAnswer(E.INVALID_TRANSACTION_TIMEOUT))
    else:
        expected = None
        if body.producer_id != NO_PRODUCER_ID:
            expected = ProducerIdentity(body.producer_id, body.producer_epoch)
        command = InitProducer(transactional_id, body.transaction_timeout_ms, expected)
        _call_with_new_id(context, TransactionShard.init, command, reply)


def _call_with_new_id(
    context: Context,
    run: TransactionCommand[InitProducer] | TransactionCommand[EndTransaction],
    command: InitProducer | EndTransaction,
    reply: Callable[[ProducerAnswer], None],
) -> None:
    """Run a command, and repeat it with a new producer id if it needs one."""

    def call(argument: InitProducer | EndTransaction) -> None:
        call_coordinator(
            context.transactions,
            argument.transactional_id,
            cast("TransactionCommand[InitProducer | EndTransaction]", run),
            argument,
            ProducerAnswer,
            answered,
        )

    def answered(answer: ProducerAnswer) -> None:
        if answer.needs_producer_id:
            context.producer_ids.next(with_id)
        else:
            reply(answer)

    def with_id(producer_id: int | KafkaError) -> None:
        if isinstance(producer_id, KafkaError):
            reply(ProducerAnswer(producer_id.code))
        else:
            call(command._replace(new_producer_id=producer_id))

    call(command)


# -- AddPartitionsToTxn


def cluster_of_adding_broker(request: Request, body: AddPartitionsToTxnRequest) -> str | None:
    """Return the resource to check: newer versions are for brokers alone."""
    return CLUSTER_NAME if request.version >= FIRST_ADD_OF_BROKERS else None


def handle_add_partitions_to_txn(
    context: Context, request: Request, body: AddPartitionsToTxnRequest
) -> Steps[None]:
    """Add partitions to transactions; a leader asks whether they were added."""
    transactions = body.transactions
    if request.version < FIRST_ADD_OF_BROKERS:
        transactions = [
            _Transaction(
                transactional_id=body.v3_and_below_transactional_id,
                producer_id=body.v3_and_below_producer_id,
                producer_epoch=body.v3_and_below_producer_epoch,
                topics=body.v3_and_below_topics,
            )
        ]

    def done(answers: list[_Errors]) -> None:
        request.reply_in_turns(_added(request.version, transactions, answers))

    gather = Gather(len(transactions), done)
    for place, transaction in enumerate(transactions):
        errors: _Errors = {}
        for topic in transaction.topics:
            for index in topic.partitions:
                errors[TopicPartition(topic.name, index)] = E.NONE
                yield
        put = gather.slot(place)
        if request.version < FIRST_ADD_OF_BROKERS:
            refusal = _refuse_client(context, request, transaction.transactional_id)
            yield from _check_topics(context, request, errors)
        else:
            refusal = E.NONE if transaction.transactional_id else E.INVALID_REQUEST
            yield from _check_existence(context, errors)
        if refusal is not E.NONE:
            put(dict.fromkeys(errors, refusal))
        elif any(error is not E.NONE for error in errors.values()):
            put(
                {
                    at: E.OPERATION_NOT_ATTEMPTED if error is E.NONE else error
                    for at, error in errors.items()
                }
            )
        else:
            add_or_verify(context, transaction, frozenset(errors), put, request.version)
    return None


def _refuse_client(context: Context, request: Request, transactional_id: str) -> E:
    if not context.permits(request, WRITE_TRANSACTIONAL_ID, transactional_id):
        return WRITE_TRANSACTIONAL_ID.refusal
    return E.NONE if transactional_id else E.INVALID_REQUEST


def _check_topics(context: Context, request: Request, errors: _Errors) -> Steps[None]:
    allowed: dict[str, bool] = {}
    for at in errors:
        if at.topic not in allowed:
            allowed[at.topic] = at.topic not in INTERNAL_TOPICS and context.permits(
                request, WRITE_TOPIC, at.topic
            )
        if not allowed[at.topic]:
            errors[at] = WRITE_TOPIC.refusal
        elif context.metadata.partition(*at) is None:
            errors[at] = E.UNKNOWN_TOPIC_OR_PARTITION
        yield


def _check_existence(context: Context, errors: _Errors) -> Steps[None]:
    for at in errors:
        if context.metadata.partition(*at) is None:
            errors[at] = E.UNKNOWN_TOPIC_OR_PARTITION
        yield


def add_or_verify(
    context: Context,
    transaction: _Transaction,
    partitions: frozenset[TopicPartition],
    put: Callable[[_Errors], None],
    version: int = FIRST_ADD_OF_BROKERS,
) -> None:
    """Add partitions to a transaction of a coordinator here, or verify that they were added."""
    transactional_id = transaction.transactional_id
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)

    def refused(error: E) -> _Errors:
        return dict.fromkeys(partitions, error)

    def added(error: E) -> None:
        put(refused(_known_to(version, FIRST_WITH_FENCED, error)))

    if transaction.verify_only:
        verify = VerifyPartitions(transactional_id, producer, partitions)
        call_coordinator(
            context.transactions,
            transactional_id,
            TransactionShard.verify_partitions,
            verify,
            refused,
            put,
        )
        return
    client_version = EPOCH_BUMPS_AT_END if version >= FIRST_ADD_OF_BROKERS else 0
    call_coordinator(
        context.transactions,
        transactional_id,
        TransactionShard.add_partitions,
        AddPartitions(transactional_id, producer, partitions, client_version),
        lambda error: error,
        added,
    )


def _added(
    version: int, transactions: list[_Transaction], answers: list[_Errors]
) -> AddPartitionsToTxnResponse:
    def of_topic(
        errors: _Errors, topic: AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    ) -> _TopicResult:
        def of_partition(index: int) -> _PartitionResult:
            error = errors[TopicPartition(topic.name, index)]
            return _PartitionResult(partition_index=index, partition_error_code=error)

        return _TopicResult(
            name=topic.name, results_by_partition=each(topic.partitions, of_partition)
        )

    def of_transaction(place: int) -> AddPartitionsToTxnResponse.AddPartitionsToTxnResult:
        transaction = transactions[place]
        return AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=each(transaction.topics, partial(of_topic, answers[place])),
        )

    if version < FIRST_ADD_OF_BROKERS:
        results = each(transactions[0].topics, partial(of_topic, answers[0]))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    return AddPartitionsToTxnResponse(
        results_by_transaction=each(range(len(transactions)), of_transaction)
    )


# -- AddOffsetsToTxn


def handle_add_offsets_to_txn(
    context: Context, request: Request, body: AddOffsetsToTxnRequest
) -> None:
    """Add the partition with a group's offsets to a transaction."""

    def done(error: E) -> None:
        code = _known_to(request.version, FIRST_WITH_FENCED, error)
        request.reply(AddOffsetsToTxnResponse(error_code=code))

    transactional_id = body.transactional_id
    partition = context.groups.partition_of(body.group_id)
    if partition is None:
        # The producer looks for the group's coordinator after this, which creates the topic.
        partition = coordinator_partition(body.group_id, context.groups.topic.partitions)
    if not context.permits(request, WRITE_TRANSACTIONAL_ID, transactional_id):
        done(WRITE_TRANSACTIONAL_ID.refusal)
    elif not context.permits(request, READ_GROUP, body.group_id):
        done(READ_GROUP.refusal)
    elif not transactional_id:
        done(E.INVALID_REQUEST)
    else:
        call_coordinator(
            context.transactions,
            transactional_id,
            TransactionShard.add_partitions,
            AddPartitions(
                transactional_id,
                ProducerIdentity(body.producer_id, body.producer_epoch),
                frozenset({TopicPartition(CONSUMER_OFFSETS, partition)}),
            ),
            lambda error: error,
            done,
        )


# -- EndTxn


def handle_end_txn(context: Context, request: Request, body: EndTxnRequest) -> None:
    """Commit or abort; answered once the outcome is certain, before the markers are written."""

    def reply(answer: ProducerAnswer) -> None:
        request.reply(
            EndTxnResponse(
                error_code=_known_to(request.version, FIRST_WITH_FENCED, answer.error),
                producer_id=answer.producer.producer_id,
                producer_epoch=answer.producer.epoch,
            )
        )

    if not body.transactional_id:
        reply(ProducerAnswer(E.INVALID_REQUEST))
        return
    command = EndTransaction(
        body.transactional_id,
        ProducerIdentity(body.producer_id, body.producer_epoch),
        body.committed,
        EPOCH_BUMPS_AT_END if request.version >= FIRST_END_WITH_BUMPS else 0,
    )
    _call_with_new_id(context, TransactionShard.end, command, reply)


def transactional_id_of(request: Request, body: EndTxnRequest) -> str:
    """Return the resource to check."""
    return body.transactional_id


# -- DescribeTransactions


def handle_describe_transactions(
    context: Context, request: Request, body: DescribeTransactionsRequest
) -> Steps[None]:
    """Describe transactions, each with its own result."""
    described = DescribeTransactionsResponse.TransactionState

    def done(answers: list[TransactionMetadata | E]) -> None:
        def of_id(place: int) -> DescribeTransactionsResponse.TransactionState:
            name, answer = body.transactional_ids[place], answers[place]
            if isinstance(answer, E):
                return described(transactional_id=name, error_code=answer)
            return _described(context, request, name, answer)

        states = each(range(len(answers)), of_id)
        request.reply_in_turns(DescribeTransactionsResponse(transaction_states=states))

    body.transactional_ids = yield from once(body.transactional_ids, str)
    gather: Gather[TransactionMetadata | E] = Gather(len(body.transactional_ids), done)
    for place, name in enumerate(body.transactional_ids):
        _describe(context, request, name, gather.slot(place))
        yield
    return None


def _describe(
    context: Context, request: Request, name: str, put: Callable[[TransactionMetadata | E], None]
) -> None:
    def found(answer: TransactionMetadata | E | None) -> None:
        put(E.TRANSACTIONAL_ID_NOT_FOUND if answer is None else answer)

    def refused(error: E) -> TransactionMetadata | E | None:
        return error

    if not context.permits(request, DESCRIBE_TRANSACTIONAL_ID, name):
        put(DESCRIBE_TRANSACTIONAL_ID.refusal)
    elif not name:
        put(E.INVALID_REQUEST)
    else:
        describe = TransactionShard.describe
        call_coordinator(context.transactions, name, describe, name, refused, found)


def _described(
    context: Context, request: Request, name: str, known: TransactionMetadata
) -> DescribeTransactionsResponse.TransactionState:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(known.partitions):
        topics.setdefault(topic, []).append(index)
    return DescribeTransactionsResponse.TransactionState(
        transactional_id=name,
        transaction_state=known.state.value,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_timestamp,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=indexes)
            for topic, indexes in topics.items()
            if context.sees(request, DESCRIBE_TOPIC, topic)
        ],
    )


# -- ListTransactions


def handle_list_transactions(
    context: Context, request: Request, body: ListTransactionsRequest
) -> ListTransactionsResponse | None:
    """List the transactional ids of this broker that the client may see."""
    states = {state.value for state in TransactionState}
    try:
        pattern = IdPattern(body.transactional_id_pattern or ".*")
    except PatternError:
        return ListTransactionsResponse(error_code=E.INVALID_REGULAR_EXPRESSION)

    def done(answers: list[object]) -> None:
        failures = [answer.code for answer in answers if isinstance(answer, KafkaError)]
        if failures:
            request.reply(ListTransactionsResponse(error_code=failures[0]))
        else:
            found = chain.from_iterable(cast("list[list[ListedTransaction]]", answers))
            request.reply_in_turns(listed(found))

    def listed(found: Iterable[ListedTransaction]) -> Steps[ListTransactionsResponse]:
        visible = []
        for one in found:
            name = one.transactional_id
            # The rights come first: the ids of others may take long to match.
            if context.sees(request, DESCRIBE_TRANSACTIONAL_ID, name) and (
                not body.transactional_id_pattern or (yield from pattern.match_in_turns(name))
            ):
                visible.append(one)
            yield
        return ListTransactionsResponse(
            unknown_state_filters=[name for name in body.state_filters if name not in states],
            transaction_states=each(visible, _listed),
        )

    filters = ListTransactions(
        frozenset(body.state_filters), frozenset(body.producer_id_filters), body.duration_filter
    )
    try:
        context.transactions.submit_to_all(TransactionShard.list, filters, done)
    except KafkaError as loading:
        return ListTransactionsResponse(error_code=loading.code)
    return None


def _listed(one: ListedTransaction) -> ListTransactionsResponse.TransactionState:
    return ListTransactionsResponse.TransactionState(
        transactional_id=one.transactional_id,
        producer_id=one.producer_id,
        transaction_state=one.state.value,
    )

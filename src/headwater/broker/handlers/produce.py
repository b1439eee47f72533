"""Produce: batches from clients into logs.

Two paths lead to the same `Replica.append`. This one, the slow path, decodes the request. Most
producers send the same request again and again with other records: a request that was not refused
leaves a route on its connection, and the next one like it takes the fast path
(`broker/produce_routes.py`).
"""

from headwater.broker.context import Context
from headwater.broker.fast_produce import remember_route
from headwater.broker.produce_routes import (
    FIRST_WITH_LEADER_HINT,
    FIRST_WITH_ZSTD,
    fill_failure,
    hint_leaders,
)
from headwater.broker.request import Request
from headwater.broker.turns import ELEMENTS_A_TURN, Steps, drained, finish
from headwater.errors import E, KafkaError
from headwater.model import INTERNAL_TOPICS, NO_TIMESTAMP
from headwater.replication.replica import ACKS_ALL, ACKS_NONE, Replica
from headwater.replication.replica_host import TransactionalWrite
from headwater.security.rights import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from headwater.wire.apis import PRODUCE
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse

FIRST_WITH_ABORTABLE = 11
FIRST_THAT_ADDS = 12
"""The first version in which the broker adds the partition to the transaction (KIP-890)."""
FIRST_WITH_TOPIC_ID = 13
MANY = ELEMENTS_A_TURN
"""A request of this many topics and partitions, or more, is handled in turns."""
ADMIN_CLIENT = "__admin_client"
"""The client id with which Kafka's own tools may write to internal topics."""

_PartitionAnswer = ProduceResponse.PartitionProduceResponse
_TopicAnswer = ProduceResponse.TopicProduceResponse


def handle_produce(context: Context, request: Request, body: ProduceRequest) -> Steps[None] | None:
    """Append every batch of the request; answer when the last one is durable.

    A request of many partitions is handled in turns, and leaves no route.
    """
    request.connection.route = None
    elements = 0
    for topic in body.topic_data:
        elements += 1 + len(topic.partition_data)
    call = _Call(context, request, body, in_turns=elements >= MANY)
    if call.in_turns:
        return call.start_in_turns(body)
    for topic in body.topic_data:
        call.add_topic(topic)
    call.started()
    if not call.failures:
        remember_route(context, request, body, call.transaction)
    return None


def _transaction(
    context: Context, request: Request, body: ProduceRequest
) -> TransactionalWrite | None:
    """Return the transaction that the request names, if the client may write to it."""
    transactional_id = body.transactional_id
    if transactional_id is None or not context.permits(
        request, WRITE_TRANSACTIONAL_ID, transactional_id
    ):
        return None
    version = request.version
    return TransactionalWrite(
        transactional_id, version >= FIRST_THAT_ADDS, version >= FIRST_WITH_ABORTABLE
    )


class _Call:
    """One pending produce request."""

    def __init__(
        self, context: Context, request: Request, body: ProduceRequest, *, in_turns: bool
    ) -> None:
        self.in_turns = in_turns
        self.context = context
        self.request = request
        self.acks = body.acks
        self.timeout_ms = body.timeout_ms
        self.refusal: KafkaError | None = None
        if body.acks not in (ACKS_ALL, ACKS_NONE, 1):
            self.refusal = KafkaError(E.INVALID_REQUIRED_ACKS)
        self.transaction = _transaction(context, request, body)
        self.answers: list[_TopicAnswer] = []
        self.left = 1
        self.failures = 0
        self.now_ms = context.clock.wall_ms()

    def add_topic(self, topic: ProduceRequest.TopicProduceData) -> None:
        """Append the batches of one topic."""
        answer = self._topic_answer(topic)
        name, refusal = self._resolve(topic)
        for partition in topic.partition_data:
            self._add_partition(name, refusal, partition, answer)

    def start_in_turns(self, body: ProduceRequest) -> Steps[None]:
        """Append the batches of many partitions; they stay where they were received until then."""
        connection = self.request.connection
        size = connection.give_up_buffer()
        connection.hold_bytes(size)
        try:
            for topic in drained(body.topic_data):
                yield
                yield from self._add_topic_in_turns(topic)
        finally:
            connection.hold_bytes(-size)
        self.started()

    def _add_topic_in_turns(self, topic: ProduceRequest.TopicProduceData) -> Steps[None]:
        """Append the batches of one topic; metadata and rights may change between two of them."""
        answer = self._topic_answer(topic)
        (name, refusal), generation = self._resolve(topic), self.context.generation
        for partition in drained(topic.partition_data):
            if self.context.generation != generation:
                (name, refusal), generation = self._resolve(topic), self.context.generation
            self.now_ms = self.context.clock.wall_ms()
            self._add_partition(name, refusal, partition, answer)
            yield
            if refusal is None:
                yield  # an append is followed by a write at the end of the tick
                yield

    def _topic_answer(self, topic: ProduceRequest.TopicProduceData) -> _TopicAnswer:
        answer = _TopicAnswer(name=topic.name, topic_id=topic.topic_id)
        if topic.partition_data:
            self.answers.append(answer)
        return answer

    def _add_partition(
        self,
        topic: str,
        refusal: KafkaError | None,
        partition: ProduceRequest.PartitionProduceData,
        answer: _TopicAnswer,
    ) -> None:
        append = _Append(self, _PartitionAnswer(index=partition.index))
        answer.partition_responses.append(append.answer)
        self.left += 1
        if refusal is not None:
            append.fail(refusal)
            return
        try:
            self._append(topic, partition, append)
        except KafkaError as refused:
            append.fail(refused)

    def _resolve(self, topic: ProduceRequest.TopicProduceData) -> tuple[str, KafkaError | None]:
        name, by_id = topic.name, self.request.version >= FIRST_WITH_TOPIC_ID
        if by_id:
            name = self.context.metadata.name_of.get(topic.topic_id, "")
            if not name:
                return name, KafkaError(E.UNKNOWN_TOPIC_ID)
        if not self.context.permits(self.request, WRITE_TOPIC, name):
            return name, self.context.refusal(self.request, WRITE_TOPIC, name, by_id=by_id)
        if name in INTERNAL_TOPICS and self.request.client_id != ADMIN_CLIENT:
            return name, KafkaError(
                E.INVALID_TOPIC_EXCEPTION, f"{name} is internal: only brokers write to it"
            )
        return name, None

    def _append(
        self,
        topic: str,
        data: ProduceRequest.PartitionProduceData,
        append: "_Append",
    ) -> None:
        replica = self.context.replicas.leader(topic, data.index)
        append.replica = replica
        if self.refusal is not None:
            raise self.refusal
        if data.records is None:
            raise KafkaError(E.INVALID_RECORD, "the request has no records for this partition")
        zstd_known = self.request.version >= FIRST_WITH_ZSTD
        replica.append(data.records, append, self.acks, self.now_ms, zstd_known)
        self.context.metrics.topic(topic).bytes_in += len(data.records)

    def started(self) -> None:
        """Every batch is appended or refused."""
        if self.acks == ACKS_NONE:
            self.request.reply_nothing()
        self.batch_done()

    def batch_done(self) -> None:
        """One batch is complete."""
        self.left -= 1
        if self.left or self.acks != ACKS_NONE:
            if not self.left:
                self._reply()
            return
        if self.failures:
            # With acks=0 there is no answer: a closed connection makes the client refresh its metadata.
            self.request.connection.dismiss()

    def _reply(self) -> None:
        if self.in_turns:
            self.request.reply_in_turns(self._response_in_turns())
            return
        response = ProduceResponse(responses=self.answers)
        if self.failures and self.request.version >= FIRST_WITH_LEADER_HINT:
            finish(hint_leaders(self.context, self.request.connection, response))
        self.request.reply(response)

    def _response_in_turns(self) -> Steps[ProduceResponse]:
        response = ProduceResponse(responses=self.answers)
        if self.failures and self.request.version >= FIRST_WITH_LEADER_HINT:
            yield from hint_leaders(self.context, self.request.connection, response)
        return response


class _Append:
    """One batch of a request; the replica reports its result, which goes into the answer."""

    __slots__ = (
        "answer",
        "answered",
        "append_time",
        "base_offset",
        "call",
        "last_offset",
        "parked",
        "replica",
    )

    def __init__(self, call: _Call, answer: _PartitionAnswer) -> None:
        self.call = call
        self.answer = answer
        self.base_offset = self.last_offset = -1
        self.append_time = NO_TIMESTAMP
        self.answered = False
        self.parked = False
        self.replica: Replica | None = None

    @property
    def transaction(self) -> TransactionalWrite | None:
        return self.call.transaction

    def holding(self, size: int) -> None:
        self.call.request.connection.hold_bytes(size)

    def complete(self) -> None:
        if self.answered:
            return
        self.answered = True
        self.answer.base_offset = self.base_offset
        self.answer.log_append_time_ms = self.append_time
        if self.replica is not None:
            self.answer.log_start_offset = self.replica.log_start_offset
        self.call.batch_done()

    def fail(self, failure: KafkaError) -> None:
        if self.answered:
            return
        self.answered = True
        self.call.failures += 1
        self.call.context.metrics.error(PRODUCE, failure.code)
        fill_failure(self.answer, failure, self.replica)
        self.call.batch_done()

    def park(self) -> None:
        self.parked = True
        context = self.call.context
        context.park(context.clock.monotonic_ms() + max(0, self.call.timeout_ms), self)

    def expired(self) -> None:
        self.fail(KafkaError(E.REQUEST_TIMED_OUT))

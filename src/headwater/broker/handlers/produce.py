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
ADMIN_CLIENT = "__admin_client"
"""The client id with which Kafka's own tools may write to internal topics."""

_PartitionAnswer = ProduceResponse.PartitionProduceResponse
_TopicAnswer = ProduceResponse.TopicProduceResponse


def handle_produce(context: Context, request: Request, body: ProduceRequest) -> None:
    """Append every batch of the request; answer when the last one is durable."""
    call = _Call(context, request, body)
    for topic in body.topic_data:
        call.add_topic(topic)
    call.started()
    request.connection.route = None
    if not call.failures:
        remember_route(context, request, body, call.transaction)


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

    def __init__(self, context: Context, request: Request, body: ProduceRequest) -> None:
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
        answer = _TopicAnswer(name=topic.name, topic_id=topic.topic_id)
        if topic.partition_data:
            self.answers.append(answer)
        name, refusal = self._resolve(topic)
        for partition in topic.partition_data:
            append = _Append(self, _PartitionAnswer(index=partition.index))
            answer.partition_responses.append(append.answer)
            self.left += 1
            try:
                if refusal is not None:
                    raise refusal
                self._append(name, partition, append)
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
                self.request.reply(self._response())
            return
        if self.failures:
            # With acks=0 there is no answer: a closed connection makes the client refresh its metadata.
            self.request.connection.dismiss()

    def _response(self) -> ProduceResponse:
        response = ProduceResponse(responses=self.answers)
        if self.failures and self.request.version >= FIRST_WITH_LEADER_HINT:
            hint_leaders(self.context, self.request.connection, response)
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

"""Produce: batches from clients into logs.

Two paths lead to the same `Replica.append`. The slow path decodes the request. Most producers send
the same request again and again with other records: the fast path recognizes such a request by its
bytes, finds the records without decoding, and answers from a template. A route is valid for one
generation of metadata, settings and access rules.
"""

from struct import Struct as Packer

from headwater.broker.context import Context
from headwater.broker.handlers.leader_hints import leader_endpoints
from headwater.broker.request import Request
from headwater.broker.server_connection import PendingResponse, ServerConnection
from headwater.errors import E, KafkaError
from headwater.model import INTERNAL_TOPICS, NO_TIMESTAMP, ZERO_UUID
from headwater.replication.replica import ACKS_ALL, ACKS_NONE, Replica
from headwater.security.rights import WRITE_TOPIC
from headwater.wire import codec
from headwater.wire.apis import PRODUCE
from headwater.wire.framing import response_frame
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse

FIRST_FLEXIBLE = 9
FIRST_WITH_ZSTD = 7
FIRST_WITH_LEADER_HINT = 10
FIRST_WITH_TOPIC_ID = 13
UNTIMED = 127
"""Of requests on the fast path, one in 128 is timed."""
ADMIN_CLIENT = "__admin_client"
"""The client id with which Kafka's own tools may write to internal topics."""

_PartitionAnswer = ProduceResponse.PartitionProduceResponse
_TopicAnswer = ProduceResponse.TopicProduceResponse
_BEFORE_THE_LOG = frozenset(
    {
        E.CORRUPT_MESSAGE,
        E.NOT_LEADER_OR_FOLLOWER,
        E.MESSAGE_TOO_LARGE,
        E.RECORD_LIST_TOO_LARGE,
        E.INVALID_REQUIRED_ACKS,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        E.KAFKA_STORAGE_ERROR,
        E.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Refusals that say nothing of the log: they carry no start of it."""
_read_length = Packer(">i").unpack_from
_read_head = Packer(">ii").unpack_from
"""API key and version in one number, and the correlation id."""


# -- the slow path


def handle_produce(context: Context, request: Request, body: ProduceRequest) -> None:
    """Append every batch of the request; the answer comes when the last one is durable."""
    call = _Call(context, request, body)
    for topic in body.topic_data:
        call.add_topic(topic)
    call.started()
    request.connection.route = None
    if not call.failures:
        _remember_route(context, request, body)


class _Call:
    """One produce request under way."""

    def __init__(self, context: Context, request: Request, body: ProduceRequest) -> None:
        self.context = context
        self.request = request
        self.acks = body.acks
        self.timeout_ms = body.timeout_ms
        self.refusal: KafkaError | None = None
        if body.acks not in (ACKS_ALL, ACKS_NONE, 1):
            self.refusal = KafkaError(E.INVALID_REQUIRED_ACKS)
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
        name = topic.name
        if self.request.version >= FIRST_WITH_TOPIC_ID:
            name = self.context.metadata.name_of.get(topic.topic_id, "")
            if not name:
                return name, KafkaError(E.UNKNOWN_TOPIC_ID)
        if not self.context.permits(self.request, WRITE_TOPIC, name):
            return name, KafkaError(WRITE_TOPIC.refusal)
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
        """Every batch is on its way, or refused."""
        if self.acks == ACKS_NONE:
            self.request.reply_nothing()
        self.batch_done()

    def batch_done(self) -> None:
        """One less to wait for."""
        self.left -= 1
        if self.left or self.acks != ACKS_NONE:
            if not self.left:
                self.request.reply(self._response())
            return
        if self.failures:
            # The only way to tell a client that wants no answers (KIP-62 era clients reconnect).
            self.request.connection.dismiss()

    def _response(self) -> ProduceResponse:
        response = ProduceResponse(responses=self.answers)
        if self.failures and self.request.version >= FIRST_WITH_LEADER_HINT:
            _hint_leaders(self.context, self.request, response)
        return response


class _Append:
    """One batch of a request: what the replica tells about it goes into the answer."""

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
        _fill_failure(self.answer, failure, self.replica)
        self.call.batch_done()

    def park(self) -> None:
        self.parked = True
        context = self.call.context
        context.park(context.clock.monotonic_ms() + max(0, self.call.timeout_ms), self)

    def expired(self) -> None:
        self.fail(KafkaError(E.REQUEST_TIMED_OUT))


def _fill_failure(answer: _PartitionAnswer, failure: KafkaError, replica: Replica | None) -> None:
    answer.error_code = failure.code
    answer.base_offset = -1
    if replica is not None and failure.code not in _BEFORE_THE_LOG:
        answer.log_start_offset = replica.log_start_offset
    answer.error_message = failure.message
    for index, message in getattr(failure, "record_errors", ()):
        answer.record_errors.append(
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=index, batch_index_error_message=message
            )
        )


def _hint_leaders(context: Context, request: Request, response: ProduceResponse) -> None:
    """Tell a client that came to the wrong broker where to go (KIP-951)."""
    nodes: set[int] = set()
    for topic in response.responses:
        name = topic.name or context.metadata.name_of.get(topic.topic_id, "")
        for partition in topic.partition_responses:
            info = context.metadata.partition(name, partition.index)
            if partition.error_code == E.NOT_LEADER_OR_FOLLOWER and info is not None:
                partition.current_leader = ProduceResponse.LeaderIdAndEpoch(
                    leader_id=info.leader, leader_epoch=info.leader_epoch
                )
                nodes.add(info.leader)
    response.node_endpoints = leader_endpoints(
        context, request, nodes, ProduceResponse.NodeEndpoint
    )


# -- the fast path


class Route:
    """A produce request that is known but for its records: one topic, one partition."""

    __slots__ = (
        "acks",
        "append",
        "counters",
        "flexible",
        "generation",
        "head",
        "length_at",
        "name",
        "pack",
        "partition",
        "prefix",
        "replica",
        "size",
        "start",
        "tail",
        "timeout_ms",
        "topic_id",
        "version",
        "wall_ms",
        "zstd_known",
    )

    def __init__(
        self,
        context: Context,
        request: Request,
        body: ProduceRequest,
        replica: Replica,
        prefix: bytes,
    ) -> None:
        topic = body.topic_data[0]
        self.prefix = prefix
        """The request's bytes between the correlation id and the length of the records."""
        self.version = request.version
        self.head = PRODUCE << 16 | request.version
        # Where the length of the records is, counted from the frame's start.
        self.length_at = 8 + len(prefix)
        self.generation = context.generation
        self.replica = replica
        self.append = replica.append
        self.wall_ms = context.clock.wall_ms
        self.counters = context.metrics.topic(replica.topic_partition.topic)
        self.acks = body.acks
        self.timeout_ms = body.timeout_ms
        self.flexible = request.version >= FIRST_FLEXIBLE
        self.zstd_known = request.version >= FIRST_WITH_ZSTD
        self.name, self.topic_id = topic.name, topic.topic_id
        self.partition = topic.partition_data[0].index
        self._make_template()

    def _make_template(self) -> None:
        """Cut the encoded answer around the three numbers that differ each time."""
        base, time, start = 0x0101010101010101, 0x0202020202020202, 0x0303030303030303
        answer = _PartitionAnswer(
            index=self.partition, base_offset=base, log_append_time_ms=time, log_start_offset=start
        )
        frame = b"".join(
            response_frame(0, 0, self.version, codec.encode(self.response(answer), self.version))
        )
        numbers = base.to_bytes(8, "big") + time.to_bytes(8, "big")
        if self.version >= 5:
            numbers += start.to_bytes(8, "big")
        head, self.tail = frame.split(numbers)
        self.size, self.start = len(frame) - 4, head[8:]
        fields = "qqq" if self.version >= 5 else "qq"
        self.pack = Packer(f">ii{len(self.start)}s{fields}{len(self.tail)}s").pack

    def response(self, answer: _PartitionAnswer) -> ProduceResponse:
        """The response around one partition's answer."""
        topic = _TopicAnswer(name=self.name, topic_id=self.topic_id, partition_responses=[answer])
        return ProduceResponse(responses=[topic])


def _remember_route(context: Context, request: Request, body: ProduceRequest) -> None:
    """Keep the way of a request that was not refused, if the next one could take it.

    What refused a request (its acks, an access rule) is not looked at again on the fast path.
    """
    connection = request.connection
    if context.quotas is not None:
        return  # the template has no room for a throttle time
    if len(body.topic_data) != 1 or body.acks == ACKS_NONE or body.transactional_id is not None:
        return
    topic = body.topic_data[0]
    if len(topic.partition_data) != 1 or topic.partition_data[0].records is None:
        return
    name = (
        topic.name
        if topic.topic_id == ZERO_UUID
        else context.metadata.name_of.get(topic.topic_id, "")
    )
    replica = context.replicas.get(name, topic.partition_data[0].index)
    if replica is None or name in INTERNAL_TOPICS:
        return
    prefix = _prefix(connection, request.version, len(topic.partition_data[0].records))
    if prefix is not None:
        connection.route = Route(context, request, body, replica, prefix)


def _prefix(connection: ServerConnection, version: int, records: int) -> bytes | None:
    """The bytes before the records of the frame just taken, or None if it ends unusually."""
    start, end = connection.frame
    if version < FIRST_FLEXIBLE:
        length_at = end - records - 4
        return bytes(connection.view[start + 8 : length_at])
    length_bytes = max(1, -(-(records + 1).bit_length() // 7))
    length_at = end - 3 - records - length_bytes
    if connection.buffer[end - 3 : end] != b"\0\0\0":
        return None
    return bytes(connection.view[start + 8 : length_at])


class _FastAppend(PendingResponse):
    """One batch that took the fast path: the answer's slot and the replica's pending in one."""

    __slots__ = ("append_time", "base_offset", "correlation_id", "last_offset", "parked", "route")
    # The replica sets both when it stages the batch.
    base_offset: int
    last_offset: int

    def __init__(self, connection: ServerConnection, route: Route, correlation_id: int) -> None:
        self.connection = connection
        self.buffers = None
        connection.pending.append(self)
        self.route = route
        self.correlation_id = correlation_id
        self.append_time = NO_TIMESTAMP
        self.parked = False

    def holding(self, size: int) -> None:
        self.connection.hold_bytes(size)

    def complete(self) -> None:
        if self.buffers is not None:
            return
        route = self.route
        if route.version >= 5:
            answer = route.pack(
                route.size,
                self.correlation_id,
                route.start,
                self.base_offset,
                self.append_time,
                route.replica.log_start_offset,
                route.tail,
            )
        else:
            answer = route.pack(
                route.size,
                self.correlation_id,
                route.start,
                self.base_offset,
                self.append_time,
                route.tail,
            )
        self.buffers = [answer]
        self.connection.response_ready(self)

    def fail(self, failure: KafkaError) -> None:
        if self.buffers is not None:
            return
        route, connection = self.route, self.connection
        connection.context.metrics.error(PRODUCE, failure.code)
        answer = _PartitionAnswer(index=route.partition)
        _fill_failure(answer, failure, route.replica)
        parts = codec.encode(route.response(answer), route.version)
        connection.route = None
        self.fill(response_frame(self.correlation_id, 0, route.version, parts))

    def park(self) -> None:
        self.parked = True
        context = self.connection.context
        context.park(context.clock.monotonic_ms() + max(0, self.route.timeout_ms), self)

    def expired(self) -> None:
        self.fail(KafkaError(E.REQUEST_TIMED_OUT))


class _TimedAppend(_FastAppend):
    """One of the few whose time is measured."""

    __slots__ = ("started_us",)

    def __init__(self, connection: ServerConnection, route: Route, correlation_id: int) -> None:
        super().__init__(connection, route, correlation_id)
        self.started_us = connection.context.clock.monotonic_us()

    def complete(self) -> None:
        if self.buffers is None:
            context = self.connection.context
            took_us = context.clock.monotonic_us() - self.started_us
            context.metrics.apis[PRODUCE].time_ms.observe(took_us / 1000)
        super().complete()


def try_fast_path(
    context: Context, connection: ServerConnection, route: Route, start: int, end: int
) -> bool:
    """Append if the frame is the route's request again; False if it must be decoded."""
    buffer = connection.buffer
    head, correlation_id = _read_head(buffer, start)
    if (
        head != route.head
        or context.generation != route.generation
        or not buffer.startswith(route.prefix, start + 8)
    ):
        return False
    at = start + route.length_at
    if at + 5 > end:  # no length, of whichever form, reaches past the frame
        return False
    if route.flexible:
        length = buffer[at]
        at += 1
        shift = 7
        if length >= 0x80:
            length &= 0x7F
            while True:
                byte = buffer[at]
                at += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 28:
                    return False
        records_end = at + length - 1
        if records_end != end - 3 or buffer[records_end:end] != b"\0\0\0":
            return False
    else:
        records_end = at + 4 + _read_length(buffer, at)[0]
        at += 4
        if records_end != end:
            return False
    counters = route.counters
    count = counters.fast_requests = counters.fast_requests + 1
    counters.bytes_in += records_end - at
    if count & UNTIMED:
        append = _FastAppend(connection, route, correlation_id)
    else:
        append = _TimedAppend(connection, route, correlation_id)
    try:
        route.append(
            connection.view[at:records_end],
            append,
            route.acks,
            route.wall_ms(),
            route.zstd_known,
        )
    except KafkaError as refused:
        append.fail(refused)
    return True

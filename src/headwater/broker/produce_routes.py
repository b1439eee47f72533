"""Routes: templates of produce requests and their answers.

A route is built from a request that was accepted. It holds the bytes around the records, the replicas
that the records go to, and the answer with holes for its numbers. It is valid for one generation of
metadata, settings and access rules.
"""

from collections.abc import Iterable, Sequence

from headwater.broker.context import Context
from headwater.broker.handlers.leader_hints import leader_endpoints, newest_leader
from headwater.broker.metrics import TopicCounters
from headwater.broker.request import Request
from headwater.broker.server_connection import ServerConnection
from headwater.broker.turns import Steps, finish
from headwater.errors import E, KafkaError
from headwater.model import INTERNAL_TOPICS, ZERO_UUID, Uuid
from headwater.replication.replica import ACKS_NONE, Replica
from headwater.replication.replica_host import TransactionalWrite
from headwater.replication.verifications import VerificationRefused
from headwater.seams.files import Buffer
from headwater.transport.frame_protocol import starts_with
from headwater.wire import codec
from headwater.wire.apis import PRODUCE
from headwater.wire.framing import response_frame
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse

FIRST_FLEXIBLE = 9
FIRST_WITH_ZSTD = 7
FIRST_WITH_LOG_START = 5
FIRST_WITH_LEADER_HINT = 10

_HOLE = b"\xfe\xff" * 12
"""A placeholder for records: no name or id has these bytes."""
_NUMBERS = b"".join(bytes([digit]) * 8 for digit in (1, 2, 3))
"""Placeholders for the base offset, append time and log start offset of an answer."""
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
"""Errors whose answer has no log start offset."""

_PartitionAnswer = ProduceResponse.PartitionProduceResponse
_TopicAnswer = ProduceResponse.TopicProduceResponse
_Shape = tuple[int, int, int, tuple[tuple[str, Uuid, tuple[int, ...]], ...]]
"""Version, acks, timeout, and the partitions by topic."""


class RoutedPartition:
    """One partition of a route."""

    __slots__ = ("counters", "index", "replica")

    def __init__(self, replica: Replica, index: int, counters: TopicCounters) -> None:
        self.replica = replica
        self.index = index
        self.counters = counters


class Route:
    """A produce request and its answer, with holes for records and numbers."""

    __slots__ = (
        "acks",
        "answer_gaps",
        "flexible",
        "gaps",
        "generation",
        "head",
        "numbers",
        "targets",
        "timeout_ms",
        "topics",
        "transaction",
        "version",
        "zstd_known",
    )

    def __init__(
        self,
        version: int,
        generation: int,
        body: ProduceRequest,
        gaps: list[bytes],
        targets: list[RoutedPartition],
        transaction: TransactionalWrite | None,
    ) -> None:
        self.gaps = gaps
        """The bytes around the records: from the end of the correlation id to the length of the first
        batch, from each batch to the length of the next, and after the last batch."""
        self.targets = targets
        self.transaction = transaction
        self.version = version
        self.generation = generation
        self.head = PRODUCE << 16 | version
        self.acks = body.acks
        self.timeout_ms = body.timeout_ms
        self.flexible = version >= FIRST_FLEXIBLE
        self.zstd_known = version >= FIRST_WITH_ZSTD
        self.topics = [
            (topic.name, topic.topic_id, [data.index for data in topic.partition_data])
            for topic in body.topic_data
        ]
        self.numbers = 3 if version >= FIRST_WITH_LOG_START else 2
        """How many numbers an answer has for each partition."""
        unknown = [int.from_bytes(_NUMBERS[at : at + 8], "big") for at in (0, 8, 16)]
        answers = [
            _PartitionAnswer(
                index=target.index,
                base_offset=unknown[0],
                log_append_time_ms=unknown[1],
                log_start_offset=unknown[2],
            )
            for target in targets
        ]
        frame = b"".join(self._frame(0, self._response(answers)))
        self.answer_gaps = frame.split(_NUMBERS[: 8 * self.numbers])
        """The bytes around the numbers of an answer, with its size and correlation id."""

    def failure_frame(
        self, connection: ServerConnection, correlation_id: int, answers: Iterable[_PartitionAnswer]
    ) -> list[Buffer]:
        """Encode the answers of all partitions if some of them are errors."""
        response = self._response(answers)
        if self.version >= FIRST_WITH_LEADER_HINT:
            finish(hint_leaders(connection.context, connection, response))
        return self._frame(correlation_id, response)

    def _frame(self, correlation_id: int, response: ProduceResponse) -> list[Buffer]:
        parts = codec.encode(response, self.version)
        return response_frame(correlation_id, PRODUCE, self.version, parts)

    def _response(self, answers: Iterable[_PartitionAnswer]) -> ProduceResponse:
        """Group the answers of the partitions by topic, in the order of the request."""
        rest = iter(answers)
        return ProduceResponse(
            responses=[
                _TopicAnswer(
                    name=name,
                    topic_id=topic_id,
                    partition_responses=[next(rest) for _ in indexes],
                )
                for name, topic_id, indexes in self.topics
            ]
        )


def route_of(
    context: Context,
    request: Request,
    body: ProduceRequest,
    transaction: TransactionalWrite | None,
) -> Route | None:
    """Build the route of an accepted request; None if later requests cannot use it.

    The checks that could refuse a request (acks, access rules) are not repeated on the fast path.
    """
    if body.acks == ACKS_NONE or (body.transactional_id is not None and transaction is None):
        return None
    targets = _targets(context, body)
    if targets is None or not _seen_before(request.connection, request.version, body, len(targets)):
        return None
    gaps = _gaps(request.connection, request.version, body)
    if gaps is None:
        return None
    route = Route(request.version, context.generation, body, gaps, targets, transaction)
    return route if len(route.answer_gaps) == len(targets) + 1 else None


def _targets(context: Context, body: ProduceRequest) -> list[RoutedPartition] | None:
    targets: list[RoutedPartition] = []
    for topic in body.topic_data:
        name = topic.name
        if topic.topic_id != ZERO_UUID:
            name = context.metadata.name_of.get(topic.topic_id, "")
        if name in INTERNAL_TOPICS:
            return None
        counters = context.metrics.topic(name)
        for data in topic.partition_data:
            replica = context.replicas.get(name, data.index)
            if replica is None or data.records is None:
                return None
            targets.append(RoutedPartition(replica, data.index, counters))
    return targets or None


def _seen_before(
    connection: ServerConnection, version: int, body: ProduceRequest, partitions: int
) -> bool:
    """Whether the previous request had the same shape: a route for several partitions costs more."""
    if partitions == 1:
        return True
    shape: _Shape = (
        version,
        body.acks,
        body.timeout_ms,
        tuple(
            (topic.name, topic.topic_id, tuple([data.index for data in topic.partition_data]))
            for topic in body.topic_data
        ),
    )
    seen = connection.last_shape == shape
    connection.last_shape = shape
    return seen


def _gaps(connection: ServerConnection, version: int, body: ProduceRequest) -> list[bytes] | None:
    """The bytes around the records of the current frame; None if its encoding is unusual."""
    shape = ProduceRequest(
        transactional_id=body.transactional_id,
        acks=body.acks,
        timeout_ms=body.timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=data.index, records=_HOLE)
                    for data in topic.partition_data
                ],
            )
            for topic in body.topic_data
        ],
    )
    gaps = codec.encode_bytes(shape, version).split(_length(len(_HOLE), version) + _HOLE)
    sizes = [len(data.records or b"") for topic in body.topic_data for data in topic.partition_data]
    if len(gaps) != len(sizes) + 1:
        return None
    lengths = [_length(size, version) for size in sizes]
    return _behind_header(connection, gaps, sizes, lengths)


def _behind_header(
    connection: ServerConnection, gaps: list[bytes], sizes: Sequence[int], lengths: Sequence[bytes]
) -> list[bytes] | None:
    """Prepend the frame's own header to the gaps, and check that all of them match the frame."""
    start, end = connection.frame
    at = end - sum(map(len, gaps)) - sum(sizes) - sum(map(len, lengths))
    if at < start + 8:
        return None
    header, buffer = bytes(connection.view[start + 8 : at]), connection.buffer
    for gap, size, length in zip(gaps, sizes, lengths, strict=False):
        if not starts_with(buffer, gap + length, at):
            return None
        at += len(gap) + len(length) + size
    if not starts_with(buffer, gaps[-1], at):
        return None
    return [header + gaps[0], *gaps[1:]]


def _length(size: int, version: int) -> bytes:
    """The length field in front of `size` bytes of records."""
    if version < FIRST_FLEXIBLE:
        return size.to_bytes(4, "big")
    size += 1
    encoded = bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


def fill_failure(answer: _PartitionAnswer, failure: KafkaError, replica: Replica | None) -> None:
    """Set the error in the answer of a partition."""
    answer.error_code = failure.code
    answer.base_offset = -1
    before_the_log = failure.code in _BEFORE_THE_LOG or isinstance(failure, VerificationRefused)
    if replica is not None and not before_the_log:
        answer.log_start_offset = replica.log_start_offset
    answer.error_message = failure.message
    for index, message in getattr(failure, "record_errors", ()):
        answer.record_errors.append(
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=index, batch_index_error_message=message
            )
        )


def hint_leaders(
    context: Context, connection: ServerConnection, response: ProduceResponse
) -> Steps[None]:
    """Add the current leader for a client that asked the wrong broker (KIP-951)."""
    nodes: set[int] = set()
    for topic in response.responses:
        name = topic.name or context.metadata.name_of.get(topic.topic_id, "")
        for partition in topic.partition_responses:
            yield
            if partition.error_code == E.NOT_LEADER_OR_FOLLOWER:
                leader, epoch = newest_leader(context, name, partition.index)
                partition.current_leader = ProduceResponse.LeaderIdAndEpoch(
                    leader_id=leader, leader_epoch=epoch
                )
                nodes.add(leader)
    response.node_endpoints = leader_endpoints(
        context, connection, nodes, ProduceResponse.NodeEndpoint
    )

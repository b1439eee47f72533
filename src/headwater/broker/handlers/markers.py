"""WriteTxnMarkers: the ends of transactions, written to the partitions that this broker leads.

A coordinator sends them to leaders, to its own broker without a request. An administrator may end a
transaction that hangs. A marker for a group's offsets goes to the shard of the group, which makes the
offsets visible or drops them.
"""

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import NamedTuple

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.broker.turns import Steps, each
from headwater.errors import E, KafkaError
from headwater.model import CONSUMER_OFFSETS
from headwater.records.control import Marker, build_marker
from headwater.security.rights import ALTER_CLUSTER, CLUSTER_ACTION
from headwater.wire.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse

_Result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
_TopicResult = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
_OF_THE_SHARD = frozenset(
    {E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE}
)
"""Errors of a group's shard, which a coordinator of transactions does not expect."""


def handle_write_txn_markers(
    context: Context, request: Request, body: WriteTxnMarkersRequest
) -> Steps[WriteTxnMarkersResponse | None]:
    """Write markers for a broker, or for an administrator who may alter the cluster."""
    if not (context.sees(request, ALTER_CLUSTER) or context.permits(request, CLUSTER_ACTION)):
        return _refused(body)
    call = _Call(context, request.reply_in_turns)
    yield from call.append_all(body)
    return None


def write_markers(
    context: Context,
    body: WriteTxnMarkersRequest,
    done: Callable[[WriteTxnMarkersResponse], None],
) -> None:
    """Append the markers of a coordinator on this broker; `done` gets the result of each."""
    call = _Call(context, done)
    context.turns.start(call.append_all(body), _LocalCoordinator())


def _refused(body: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    def row(index: int) -> _Result:
        return _Result(partition_index=index, error_code=CLUSTER_ACTION.refusal)

    def of_topic(topic: WriteTxnMarkersRequest.WritableTxnMarkerTopic) -> _TopicResult:
        return _TopicResult(name=topic.name, partitions=each(topic.partition_indexes, row))

    def of_marker(marker: WriteTxnMarkersRequest.WritableTxnMarker) -> _MarkerResult:
        return _MarkerResult(producer_id=marker.producer_id, topics=each(marker.topics, of_topic))

    return WriteTxnMarkersResponse(markers=each(body.markers, of_marker))


class _LocalCoordinator:
    """The requester of markers within this broker: it never disconnects, and holds no bytes."""

    gone = False

    def hold_bytes(self, size: int) -> None:
        """Do nothing."""


class _Ending(NamedTuple):
    marker: Marker
    batch: bytearray
    transaction_version: int


class _Call:
    """A pending request; it replies when every marker is committed or refused.

    Markers that take too long are answered with REQUEST_TIMED_OUT before the coordinator gives up
    the whole request: one slow partition must not hold up the others. A marker that is sent again
    changes nothing.
    """

    def __init__(self, context: Context, done: Callable[[WriteTxnMarkersResponse], None]) -> None:
        self._context = context
        self._done = done
        self._response = WriteTxnMarkersResponse()
        self.answered = False
        self._missing = 1  # the request itself, until all markers are appended

    def append_all(self, body: WriteTxnMarkersRequest) -> Steps[None]:
        """Append the markers one by one."""
        results: dict[int, _MarkerResult] = {}
        for one in body.markers:
            # A producer appears once in the response, whatever its number of markers.
            result = results.get(one.producer_id)
            if result is None:
                result = results[one.producer_id] = _MarkerResult(producer_id=one.producer_id)
                self._response.markers.append(result)
            marker = Marker(
                one.producer_id, one.producer_epoch, one.transaction_result, one.coordinator_epoch
            )
            batch = build_marker(marker, self._context.clock.wall_ms())
            ending = _Ending(marker, batch, one.transaction_version)
            yield from repeat(None, STEPS_PER_MARKER)
            for topic in one.topics:
                rows = _TopicResult(name=topic.name)
                result.topics.append(rows)
                yield
                for index in topic.partition_indexes:
                    row = _Result(partition_index=index, error_code=E.REQUEST_TIMED_OUT)
                    rows.partitions.append(row)
                    self._missing += 1
                    self._append(ending, topic.name, index, partial(self._ended, row))
                    yield from repeat(None, STEPS_PER_MARKER)
        self._ended(_Result(), E.NONE)
        if not self.answered:
            context = self._context
            wait_ms = context.settings.request_timeout_ms // 2
            context.park(context.clock.monotonic_ms() + wait_ms, self)

    def expired(self) -> None:
        """Answer without the markers that are not committed yet."""
        self._reply()

    def _append(self, ending: _Ending, topic: str, index: int, ended: Callable[[E], None]) -> None:
        context = self._context
        try:
            replica = context.replicas.leader(topic, index)
            if topic == CONSUMER_OFFSETS:
                context.groups.end_transaction(
                    index, ending.marker, ending.transaction_version, partial(_replied, ended)
                )
            else:
                replica.built.append_marker(
                    ending.batch.copy(), _PendingMarker(ended), ending.transaction_version
                )
        except KafkaError as refused:
            ended(_of_a_leader(refused.code))

    def _ended(self, row: _Result, error: E) -> None:
        if self.answered:
            return
        row.error_code = error
        self._missing -= 1
        if not self._missing:
            self._reply()

    def _reply(self) -> None:
        self.answered = True
        self._done(self._response)


STEPS_PER_MARKER = 8
"""To build a marker, and to append it, takes as long as this many elements of other requests."""


def _replied(ended: Callable[[E], None], answer: object) -> None:
    ended(_of_a_leader(answer.code) if isinstance(answer, KafkaError) else E.NONE)


def _of_a_leader(error: E) -> E:
    return E.NOT_LEADER_OR_FOLLOWER if error in _OF_THE_SHARD else error


class _PendingMarker:
    """A marker that waits to be committed."""

    __slots__ = ("_ended", "append_time", "base_offset", "last_offset", "parked")
    transaction = None

    def __init__(self, ended: Callable[[E], None]) -> None:
        self._ended = ended
        self.base_offset = self.last_offset = self.append_time = -1
        self.parked = False

    def park(self) -> None:
        """Do nothing: the whole request has a deadline."""
        self.parked = True

    def holding(self, size: int) -> None:
        """Never called: a batch that the broker builds is staged at once."""

    def complete(self) -> None:
        self._ended(E.NONE)

    def fail(self, failure: KafkaError) -> None:
        self._ended(failure.code)

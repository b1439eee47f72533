"""WriteTxnMarkers: the ends of transactions, written to the partitions that this broker leads."""

from collections.abc import Callable

from headwater.broker.context import Context
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from headwater.records.control import Marker, build_marker
from headwater.wire.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse

_Result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


def write_markers(
    context: Context,
    body: WriteTxnMarkersRequest,
    done: Callable[[WriteTxnMarkersResponse], None],
) -> None:
    """Append every marker, and answer when all are committed or refused."""
    response = WriteTxnMarkersResponse()
    pending: list[tuple[Marker, TopicPartition, _Result]] = []
    for one in body.markers:
        marker = Marker(
            one.producer_id, one.producer_epoch, one.transaction_result, one.coordinator_epoch
        )
        result = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=one.producer_id)
        response.markers.append(result)
        for topic in one.topics:
            rows = [_Result(partition_index=index) for index in topic.partition_indexes]
            result.topics.append(
                WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                    name=topic.name, partitions=rows
                )
            )
            pending += [
                (marker, TopicPartition(topic.name, row.partition_index), row) for row in rows
            ]
    if not pending:
        done(response)
    missing = len(pending)

    def ended(row: _Result, error: E) -> None:
        nonlocal missing
        row.error_code = error
        missing -= 1
        if not missing:
            done(response)

    for marker, at, row in pending:
        _append(context, marker, at, lambda error, row=row: ended(row, error))  # type: ignore[misc]


def _append(
    context: Context, marker: Marker, at: TopicPartition, ended: Callable[[E], None]
) -> None:
    try:
        replica = context.replicas.leader(*at)
        batch = build_marker(marker, context.clock.wall_ms())
        replica.append_marker(batch, _PendingMarker(ended))
    except KafkaError as refused:
        ended(refused.code)


class _PendingMarker:
    """A marker that waits to be committed."""

    __slots__ = ("_ended", "append_time", "base_offset", "last_offset", "parked")

    def __init__(self, ended: Callable[[E], None]) -> None:
        self._ended = ended
        self.base_offset = self.last_offset = self.append_time = -1
        self.parked = False

    def park(self) -> None:
        """Do nothing: the coordinator waits without a deadline."""
        self.parked = True

    def holding(self, size: int) -> None:
        """Never called: a batch that the broker builds is staged at once."""

    def complete(self) -> None:
        self._ended(E.NONE)

    def fail(self, failure: KafkaError) -> None:
        self._ended(failure.code)

"""Writes the markers that end transactions, on this broker and on others.

A coordinator hands over each transaction once its outcome is committed. Its markers go to the leaders
of its partitions, the markers of all transactions for one broker in common requests. A marker that
could not be written is sent again, to the leader of that time. When all are written, the coordinator
stores that the transaction is complete. A coordinator that moves away takes its transactions along:
the next one sends all their markers again, and a marker that is written twice changes nothing.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from headwater.broker.context import Context
from headwater.coordination.transactions.commands import PreparedTransaction
from headwater.coordination.transactions.shard import TransactionShard
from headwater.errors import E, KafkaError, error_of
from headwater.model import TopicPartition
from headwater.seams.timers import CallLater
from headwater.wire.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse

log = logging.getLogger("headwater.server")

RETRY_S = 0.1
FENCED_RETRY_S = 10.0
"""A partition that has a marker of a newer coordinator takes none of this one, until metadata say who
coordinates."""
MARKERS_PER_REQUEST = 1000
REQUESTS_IN_FLIGHT = 5
"""The most requests to one broker that wait for an answer; later markers share the next one."""
RESULTS_PER_TURN = 100
"""How many results of an answer are handled in one round of the event loop."""

_WRITTEN = frozenset({E.NONE, E.INVALID_PRODUCER_EPOCH})
"""A newer epoch has written to the partition after the transaction ended there."""

OnWritten: TypeAlias = Callable[[WriteTxnMarkersResponse | KafkaError], None]
WriteHere: TypeAlias = Callable[
    [WriteTxnMarkersRequest, Callable[[WriteTxnMarkersResponse], None]], None
]
"""Writes markers to partitions that this broker leads."""


class MarkerConnection(Protocol):
    """A connection to another broker."""

    def send(
        self,
        request: WriteTxnMarkersRequest,
        answer: type[WriteTxnMarkersResponse],
        on_reply: OnWritten,
    ) -> None:
        """Send a request; `on_reply` is called once."""

    def close(self) -> None:
        """Fail the pending requests."""


class _Ending:
    """A transaction whose markers are being written."""

    __slots__ = ("missing", "prepared")

    def __init__(self, prepared: PreparedTransaction) -> None:
        self.prepared = prepared
        self.missing = set(prepared.partitions)


class _Unwritten(NamedTuple):
    ending: _Ending
    at: TopicPartition


class MarkerLoop:
    """The transactions of this broker's coordinators between their prepare and complete records."""

    def __init__(
        self,
        context: Context,
        connect: Callable[[int, str], MarkerConnection],
        write_here: WriteHere,
        call_later: CallLater,
    ) -> None:
        self._context = context
        self._connect = connect
        self._write_here = write_here
        self._call_later = call_later
        self._endings: dict[str, _Ending] = {}
        self._queues: dict[int, list[_Unwritten]] = {}
        self._in_flight: dict[int, int] = {}
        self._connections: dict[int, MarkerConnection] = {}
        self._refused: list[_Unwritten] = []
        self._send_scheduled = False
        self._retry_scheduled = False
        self._closed = False

    def prepared(self, transaction: object) -> None:
        """Take over a transaction; a KafkaError means that its outcome was not committed after all."""
        if isinstance(transaction, PreparedTransaction) and not self._closed:
            ending = _Ending(transaction)
            self._endings[transaction.transactional_id] = ending
            self._queue(_Unwritten(ending, at) for at in sorted(transaction.partitions))
            self._complete_if_written(ending)

    def close(self) -> None:
        """Send nothing more: the broker stops."""
        self._closed = True
        self._endings.clear()
        self._queues.clear()
        self._refused.clear()

    def brokers_changed(self) -> None:
        """Send again what waits for brokers that are gone: a machine without power never answers."""
        live = self._context.metadata.brokers
        for broker in [one for one in self._connections if one not in live]:
            self._connections.pop(broker).close()

    # -- sending

    def _queue(self, markers: Iterable[_Unwritten]) -> None:
        """Queue markers for the leaders of their partitions."""
        partition = self._context.metadata.partition
        for marker in markers:
            info = partition(*marker.at)
            if info is not None and info.leader >= 0:
                self._queues.setdefault(info.leader, []).append(marker)
            elif info is None and self._context.serving:
                marker.ending.missing.discard(marker.at)  # the topic was deleted
            else:
                self._retry_later(marker)
        if self._queues and not self._send_scheduled:
            self._send_scheduled = True
            self._call_later(0, self._send_queued)

    def _send_queued(self) -> None:
        self._send_scheduled = False
        for broker in list(self._queues):
            self._send_to(broker)

    def _send_to(self, broker: int) -> None:
        queue = self._queues.pop(broker, [])
        while queue and self._in_flight.get(broker, 0) < REQUESTS_IN_FLIGHT:
            markers, queue = queue[:MARKERS_PER_REQUEST], queue[MARKERS_PER_REQUEST:]
            self._send(broker, markers)
        if queue:
            self._queues[broker] = queue + self._queues.get(broker, [])

    def _send(self, broker: int, markers: list[_Unwritten]) -> None:
        self._in_flight[broker] = self._in_flight.get(broker, 0) + 1
        request, answered = _request(markers), partial(self._answered, broker, markers)
        if broker == self._context.node_id:
            self._write_here(request, answered)
            return
        if broker not in self._connections:
            self._connections[broker] = self._connect(broker, "markers")
        self._connections[broker].send(request, WriteTxnMarkersResponse, answered)

    # -- answers

    def _answered(
        self,
        broker: int,
        markers: list[_Unwritten],
        result: WriteTxnMarkersResponse | KafkaError,
    ) -> None:
        self._in_flight[broker] -= 1
        if self._closed:
            return
        errors: dict[tuple[int, TopicPartition], E]
        if isinstance(result, KafkaError):
            log.debug("markers are sent again: %s", result.message)
            errors = dict.fromkeys(
                ((it.ending.prepared.producer.producer_id, it.at) for it in markers), result.code
            )
        else:
            errors = _errors(result)
        self._take_results(markers, errors)
        if broker in self._queues:
            self._send_to(broker)

    def _take_results(
        self, markers: list[_Unwritten], errors: dict[tuple[int, TopicPartition], E]
    ) -> None:
        """Handle some results: each may complete a transaction. The others follow in later rounds."""
        if self._closed:
            return
        for marker in markers[:RESULTS_PER_TURN]:
            key = marker.ending.prepared.producer.producer_id, marker.at
            self._written(marker, errors.get(key, E.UNKNOWN_SERVER_ERROR))
        if rest := markers[RESULTS_PER_TURN:]:
            self._call_later(0, partial(self._take_results, rest, errors))

    def _written(self, marker: _Unwritten, error: E) -> None:
        ending = marker.ending
        if error in _WRITTEN:
            ending.missing.discard(marker.at)
            self._complete_if_written(ending)
        elif error is E.TRANSACTION_COORDINATOR_FENCED:
            log.warning(
                "%s refuses the marker of %s: it has one of a coordinator with an epoch above %d. "
                "If __transaction_state was deleted and created again, end the transaction with "
                "`headwater transactions abort`",
                marker.at,
                ending.prepared.transactional_id,
                ending.prepared.coordinator_epoch,
            )
            self._call_later(FENCED_RETRY_S, partial(self._retry_later, marker))
        else:
            log.debug(
                "the marker of %s for %s: %s",
                ending.prepared.transactional_id,
                marker.at,
                error.name,
            )
            self._retry_later(marker)

    def _retry_later(self, marker: _Unwritten) -> None:
        if not self._closed:
            self._refused.append(marker)
            self._schedule_retry()

    def _schedule_retry(self) -> None:
        if not self._retry_scheduled:
            self._retry_scheduled = True
            self._call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        """Send again what was refused, for transactions that this broker still coordinates."""
        self._retry_scheduled = False
        refused, self._refused = self._refused, []
        current = [marker for marker in refused if self._coordinates(marker.ending)]
        self._queue(current)
        for ending in {id(marker.ending): marker.ending for marker in current}.values():
            self._complete_if_written(ending)

    def _coordinates(self, ending: _Ending) -> bool:
        prepared = ending.prepared
        here = self._endings.get(prepared.transactional_id) is ending and (
            self._context.transactions.coordinates(
                prepared.transactional_id, prepared.coordinator_epoch
            )
        )
        if not here:
            self._forget(ending)
        return here

    # -- completing

    def _complete_if_written(self, ending: _Ending) -> None:
        if ending.missing or self._endings.get(ending.prepared.transactional_id) is not ending:
            return
        prepared = ending.prepared

        def stored(answer: object) -> None:
            if not isinstance(answer, KafkaError):
                self._forget(ending)
            elif self._coordinates(ending) and not self._closed:
                self._call_later(RETRY_S, partial(self._complete_if_written, ending))

        try:
            self._context.transactions.submit(
                prepared.transactional_id, TransactionShard.complete, prepared, stored
            )
        except KafkaError:
            self._forget(ending)  # the next coordinator writes the markers again

    def _forget(self, ending: _Ending) -> None:
        if self._endings.get(ending.prepared.transactional_id) is ending:
            del self._endings[ending.prepared.transactional_id]


def _request(markers: list[_Unwritten]) -> WriteTxnMarkersRequest:
    by_ending: dict[int, tuple[PreparedTransaction, dict[str, list[int]]]] = {}
    for ending, (topic, index) in markers:
        _, topics = by_ending.setdefault(id(ending), (ending.prepared, {}))
        topics.setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=prepared.producer.producer_id,
                producer_epoch=prepared.producer.epoch,
                transaction_result=prepared.commit,
                topics=[
                    WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=ids)
                    for name, ids in topics.items()
                ],
                coordinator_epoch=prepared.coordinator_epoch,
                transaction_version=prepared.transaction_version,
            )
            for prepared, topics in by_ending.values()
        ]
    )


def _errors(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], E]:
    return {
        (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): error_of(
            partition.error_code
        )
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }

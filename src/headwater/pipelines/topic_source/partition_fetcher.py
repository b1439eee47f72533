"""The bytes of one partition, answer by answer, in the thread of whoever wants them.

A task of Spark reads one partition from front to back, and nothing else happens in its process: a
plain stream to the leader costs less than a loop in a second thread. The next answer is asked for
before the last one is worked on, so it is on its way meanwhile. A broker that moves, restarts or
stays away for a while is asked again, until the time is over.
"""

from typing import Final, NamedTuple, Protocol

from headwater.client.backoff import Backoff
from headwater.client.consumer import blocking_stream
from headwater.client.consumer.blocking_stream import Stream
from headwater.client.consumer.fetching.completed_fetch import Aborted, aborted_in
from headwater.client.errors import NetworkError, TimedOutError, failure
from headwater.config.client import ConsumerSettings
from headwater.errors import E, KafkaError, error_of
from headwater.model import ZERO_UUID, TopicPartition, Uuid
from headwater.seams.clock import Clock
from headwater.wire.messages.fetch import FetchRequest, FetchResponse

_NAMES_UP_TO: Final = 12
"""Versions of Fetch above it know topics by their ids only."""
_NO_SESSION: Final = -1
_FINAL: Final = frozenset(
    {E.TOPIC_AUTHORIZATION_FAILED, E.INVALID_TOPIC_EXCEPTION, E.CORRUPT_MESSAGE}
)


class FetchedBatches(NamedTuple):
    """Batches of one partition, from the one that has the offset asked for."""

    records: memoryview
    """Memory that the next answer uses again."""
    aborted: list[Aborted] | None
    """What read_committed must leave out; None where everything is shown."""


class OutOfRange(NamedTuple):
    """There is no such offset: the partition has these ends now, 0 and 0 if its topic is gone."""

    earliest: int
    latest: int


class Leader(NamedTuple):
    """Where a partition is read, and under which id its topic is known there."""

    host: str
    port: int
    topic_id: Uuid


class PartitionLocator(Protocol):
    """What the reader of a partition must be told by others."""

    settings: ConsumerSettings
    clock: Clock

    def leader(self, where: TopicPartition) -> Leader | None:
        """Who leads a partition; None where there is no such topic."""

    def ends(self, where: TopicPartition) -> OutOfRange:
        """Where a partition begins and ends."""

    def refresh_metadata(self, limit_ms: int) -> None:
        """Find out anew who leads what."""

    def pause(self, interval_ms: float) -> None:
        """Wait a little before brokers are asked again."""

    def backoff(self) -> Backoff:
        """How long, each time."""


class PartitionFetcher:
    """One partition; a single request is under way at most."""

    def __init__(self, locator: PartitionLocator, where: TopicPartition, timeout_ms: int) -> None:
        self._locator = locator
        self._settings = locator.settings
        self._where = where
        self._timeout_ms = timeout_ms
        self._committed_only = self._settings.isolation_level == "read_committed"
        self._offset = self._max_bytes = 0
        self._leader: Leader | None = None
        self._stream: Stream | None = None
        self._version = 0

    def request(self, offset: int, max_bytes: int) -> None:
        """Want the records from `offset` on; trouble shows when they are taken."""
        self._offset, self._max_bytes = offset, max_bytes
        if self._leader is not None and self._stream is not None:
            try:
                self._send(self._leader, self._stream)
            except OSError:
                self._give_up()

    def receive(self) -> FetchedBatches | OutOfRange:
        """What was asked for, once it is there; the piece before it is gone then."""
        clock, backoff = self._locator.clock, self._locator.backoff()
        deadline = clock.monotonic_ms() + self._timeout_ms
        while True:
            try:
                found = self._attempt()
                if found is not None:
                    return found
                problem = "the broker sent no records"
            except (KafkaError, OSError) as failed:
                self._give_up()
                if isinstance(failed, KafkaError) and failed.code in _FINAL:
                    raise
                problem = str(failed)
            left_ms = deadline - clock.monotonic_ms()
            if left_ms <= 0:
                raise self._late(problem)
            self._locator.pause(min(backoff.next_ms(), left_ms))
            if self._stream is None:
                self._locator.refresh_metadata(left_ms)

    def close(self) -> None:
        """Leave the stream to the next reader of this process."""
        if self._stream is not None:
            blocking_stream.give_back(self._stream)
            self._stream = None

    def _attempt(self) -> FetchedBatches | OutOfRange | None:
        if self._stream is None:
            self._leader = self._locator.leader(self._where)
            if self._leader is None:
                return OutOfRange(0, 0)
            self._stream = self._connect(self._leader)
        if self._leader is not None and not self._stream.waiting:
            self._send(self._leader, self._stream)
        limit_ms = self._settings.fetch_max_wait_ms + self._settings.request_timeout_ms
        answer = self._stream.receive(FetchResponse, self._version, limit_ms / 1000)
        if answer.error_code:
            raise failure(answer.error_code)
        rows = [row for topic in answer.responses for row in topic.partitions]
        if len(rows) != 1 or rows[0].partition_index != self._where.partition:
            raise NetworkError("the broker answered for another partition than it was asked for")
        return self._batches_of(rows[0])

    def _batches_of(self, row: FetchResponse.PartitionData) -> FetchedBatches | OutOfRange | None:
        if row.error_code == E.OFFSET_OUT_OF_RANGE:
            return self._locator.ends(self._where)
        if row.error_code:
            raise failure(row.error_code, f"{self._where}: {error_of(row.error_code).text}")
        if not row.records:
            return None
        return FetchedBatches(
            memoryview(row.records), aborted_in(row) if self._committed_only else None
        )

    def _connect(self, leader: Leader) -> Stream:
        limit_s = self._settings.socket_connection_setup_timeout_ms / 1000
        return blocking_stream.borrow(leader.host, leader.port, self._settings.client_id, limit_s)

    def _send(self, leader: Leader, stream: Stream) -> None:
        request = self._build_request(leader.topic_id)
        newest = _NAMES_UP_TO if leader.topic_id == ZERO_UUID else None
        self._version = stream.version_for(request, newest)
        stream.send(request, self._version)

    def _build_request(self, topic_id: Uuid) -> FetchRequest:
        wanted = FetchRequest.FetchPartition(
            partition=self._where.partition,
            current_leader_epoch=-1,
            fetch_offset=self._offset,
            last_fetched_epoch=-1,
            partition_max_bytes=self._max_bytes,
        )
        topic = FetchRequest.FetchTopic(
            topic=self._where.topic, topic_id=topic_id, partitions=[wanted]
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self._settings.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=1 if self._committed_only else 0,
            session_id=0,
            session_epoch=_NO_SESSION,
            rack_id=self._settings.client_rack,
            topics=[topic],
        )

    def _give_up(self) -> None:
        if self._stream is not None:
            blocking_stream.give_up(self._stream)
            self._stream = None

    def _late(self, problem: str) -> TimedOutError:
        return TimedOutError(
            f"{self._where}: the records from offset {self._offset} on did not come within "
            f"{self._timeout_ms} ms (kafkaConsumer.pollTimeoutMs): {problem}"
        )

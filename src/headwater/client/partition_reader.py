"""Reads one partition, response by response, in the caller's own thread.

For readers that go through one partition from front to back, such as a Spark task: a plain
connection to the leader costs less than an event loop in a second thread. The next response is
requested before the last one is decoded. If the leader moves, restarts or is away for a while, the
reader retries until its timeout.
"""

from typing import Final, NamedTuple, Protocol

from headwater.client import blocking_connection
from headwater.client.backoff import Backoff
from headwater.client.blocking_connection import BlockingConnection
from headwater.client.connecting import login_of
from headwater.client.consumer.fetching.completed_fetch import Aborted as Aborted
from headwater.client.consumer.fetching.completed_fetch import CompletedFetch as CompletedFetch
from headwater.client.consumer.fetching.completed_fetch import aborted_in
from headwater.client.consumer.partition_state import PartitionState
from headwater.client.errors import CorruptRecordError, NetworkError, TimedOutError, failure
from headwater.client.refusals import refused
from headwater.config.client import ConsumerSettings
from headwater.errors import E, KafkaError
from headwater.model import ZERO_UUID, TopicPartition, Uuid
from headwater.seams.clock import Clock
from headwater.seams.randomness import SystemRandomness
from headwater.wire.messages.fetch import FetchRequest, FetchResponse

_NAMES_UP_TO: Final = 12
"""The newest version of Fetch with topic names; later ones have only ids."""
_NO_SESSION: Final = -1
_FINAL: Final = frozenset(
    {
        E.TOPIC_AUTHORIZATION_FAILED,
        E.INVALID_TOPIC_EXCEPTION,
        E.CORRUPT_MESSAGE,
        E.SASL_AUTHENTICATION_FAILED,
    }
)


class FetchedBatches(NamedTuple):
    """Batches of one partition; the first contains the requested offset."""

    records: memoryview
    """Memory that the next answer reuses."""
    aborted: list[Aborted] | None
    """Aborted transactions, which read_committed must skip; None if nothing is filtered."""

    def decode(self, where: TopicPartition, position: int, *, check_crcs: bool) -> CompletedFetch:
        """Return the records from `position` on; raise CorruptRecordError without a whole batch."""
        state = PartitionState(where)
        state.seek(position)
        fetched = CompletedFetch(state, self.records, aborted=self.aborted, check_crcs=check_crcs)
        if fetched.end_offset <= position:
            raise CorruptRecordError(
                f"{where}: the broker sent {fetched.size} bytes for offset {position} that hold no "
                f"whole batch; see its log"
            )
        return fetched


class OutOfRange(NamedTuple):
    """The offset does not exist; has the ends of the partition, 0 and 0 if its topic is gone."""

    earliest: int
    latest: int


class Leader(NamedTuple):
    """The leader of a partition, and the id of its topic."""

    host: str
    port: int
    topic_id: Uuid


class PartitionLocator(Protocol):
    """Finds partitions for a reader."""

    settings: ConsumerSettings
    clock: Clock

    def leader(self, where: TopicPartition) -> Leader | None:
        """Return the leader of a partition; None if the topic does not exist."""

    def ends(self, where: TopicPartition) -> OutOfRange:
        """Return the first and the end offset of a partition."""

    def refresh_metadata(self, limit_ms: int) -> None:
        """Refresh the metadata."""

    def pause(self, interval_ms: float) -> None:
        """Wait before a retry."""

    def backoff(self) -> Backoff:
        """Return the delays between retries."""


class PartitionReader:
    """Reads one partition, with at most one request in flight."""

    def __init__(
        self,
        locator: PartitionLocator,
        where: TopicPartition,
        timeout_ms: int,
        *,
        timeout_name: str = "timeout_ms",
    ) -> None:
        self._locator = locator
        self._settings = locator.settings
        self._where = where
        self._timeout_ms = timeout_ms
        self._timeout_name = timeout_name
        self._committed_only = self._settings.isolation_level == "read_committed"
        self._offset = self._max_bytes = 0
        self._leader: Leader | None = None
        self._connection: BlockingConnection | None = None
        self._version = 0
        self._login = login_of(self._settings, SystemRandomness())

    def request(self, offset: int, max_bytes: int) -> None:
        """Request the records from `offset` on; `receive` raises any error."""
        self._offset, self._max_bytes = offset, max_bytes
        if self._leader is not None and self._connection is not None:
            try:
                self._send(self._leader, self._connection)
            except OSError:
                self._give_up()

    def receive(self) -> FetchedBatches | OutOfRange:
        """Wait for the response to `request`; it overwrites the memory of the one before."""
        clock, backoff = self._locator.clock, self._locator.backoff()
        deadline = clock.monotonic_ms() + self._timeout_ms
        while True:
            try:
                found = self._attempt()
                if found is not None:
                    return found
                problem = "the broker sent no records"
                if self._committed_only:
                    problem += "; a transaction may be open (headwater transactions find-hanging)"
            except (KafkaError, OSError) as failed:
                self._give_up()
                if isinstance(failed, KafkaError) and failed.code in _FINAL:
                    raise
                problem = str(failed)
            left_ms = deadline - clock.monotonic_ms()
            if left_ms <= 0:
                raise self._late(problem)
            self._locator.pause(min(backoff.next_ms(), left_ms))
            if self._connection is None:
                self._locator.refresh_metadata(left_ms)

    def close(self) -> None:
        """Release the connection to the next reader of this process."""
        if self._connection is not None:
            blocking_connection.release(self._connection)
            self._connection = None

    def _attempt(self) -> FetchedBatches | OutOfRange | None:
        if self._connection is None:
            self._leader = self._locator.leader(self._where)
            if self._leader is None:
                return OutOfRange(0, 0)
            self._connection = self._connect(self._leader)
        if self._leader is not None and not self._connection.waiting:
            self._send(self._leader, self._connection)
        limit_ms = self._settings.fetch_max_wait_ms + self._settings.request_timeout_ms
        answer = self._connection.receive(FetchResponse, self._version, limit_ms / 1000)
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
            where = self._where
            raise refused(self._settings, row.error_code, where.topic, str(where))
        if not row.records:
            return None
        return FetchedBatches(
            memoryview(row.records), aborted_in(row) if self._committed_only else None
        )

    def _connect(self, leader: Leader) -> BlockingConnection:
        limit_s = self._settings.socket_connection_setup_timeout_ms / 1000
        return blocking_connection.acquire(
            leader.host,
            leader.port,
            self._settings.client_id,
            limit_s,
            self._settings.tls,
            self._login,
        )

    def _send(self, leader: Leader, connection: BlockingConnection) -> None:
        request = self._build_request(leader.topic_id)
        newest = _NAMES_UP_TO if leader.topic_id == ZERO_UUID else None
        self._version = connection.version_for(request, newest)
        connection.send(request, self._version)

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
        if self._connection is not None:
            blocking_connection.discard(self._connection)
            self._connection = None

    def _late(self, problem: str) -> TimedOutError:
        return TimedOutError(
            f"{self._where}: timed out after {self._timeout_ms} ms ({self._timeout_name}) waiting "
            f"for the records from offset {self._offset} on: {problem}"
        )

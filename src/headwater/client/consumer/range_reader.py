"""One partition's records from one offset to another, straight to Arrow: no group, no loop, no thread.

    for batch in read_range("localhost:9092", "orders", 0, 1_000, 50_000):
        ...  # a pyarrow.RecordBatch with the columns of `poll_arrow`

Made for workers of a larger plan, such as the tasks of a Spark source, which know the offsets they
are to read. While the caller works on a batch the next answer is already on its way. A leader that
moved and a broker that restarts are waited for; what cannot be waited for ends in a typed error:

- OffsetOutOfRangeError: records of the range were deleted.
- LogTruncationError: the log was cut back behind what was read already.
- CorruptRecordError: a batch does not match its checksum, or cannot be read.
- ForkedError: the reading was begun in a parent process.
- TimedOutError: nothing came for `default_api_timeout_ms`; it tells the last trouble, or where the
  partition ends if the range goes further.
- ConfigError, ValueError: an option or a range that cannot be.

Every offset below `end` is looked at once and in order, and none at or above it is handed out.
Offsets may be missing: compaction removes records, transactions leave markers. Connections are kept
for later calls in the same process; a child process makes its own.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headwater.client.backoff import Backoff
from headwater.client.blocking import forked_error
from headwater.client.cluster import bootstrap_nodes
from headwater.client.consumer import blocking_stream
from headwater.client.consumer.arrow import RecordBatch, record_batch
from headwater.client.consumer.blocking_stream import Stream
from headwater.client.consumer.fetched import Fetched, aborted_in
from headwater.client.consumer.places import Place
from headwater.client.errors import (
    STALE_METADATA,
    CorruptRecordError,
    LogTruncationError,
    NetworkError,
    OffsetOutOfRangeError,
    TimedOutError,
    UnknownTopicOrPartitionError,
    failure,
)
from headwater.config.client import ConsumerSettings
from headwater.errors import E, KafkaError, error_of
from headwater.model import ZERO_UUID, TopicPartition, Uuid
from headwater.records.codec import ColumnReader
from headwater.seams.clock import SystemClock
from headwater.seams.randomness import SystemRandomness
from headwater.wire.messages.fetch import FetchRequest, FetchResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse

FETCH_BYTES = 4 * 1024 * 1024
"""What is asked for at once, unless `max_partition_fetch_bytes` says otherwise."""
_LEAST_FETCH_BYTES = 64 * 1024
_FIRST_GUESS = 1024
"""Bytes of a record, before any was seen."""
_ROWS = 65_536
_NAMES_UP_TO = 12


class _Home(NamedTuple):
    """Who leads the partition."""

    host: str
    port: int
    topic_id: Uuid
    leader_epoch: int


_homes: dict[tuple[tuple[str, ...], TopicPartition], _Home] = {}
"""As last told; whoever finds an entry wrong removes it."""


def read_range(
    bootstrap_servers: str | Sequence[str],
    topic: str,
    partition: int,
    start: int,
    end: int,
    isolation_level: str = "read_uncommitted",
    options: Mapping[str, Any] | None = None,
) -> Iterator[RecordBatch]:
    """The records from `start` up to, but without, `end`, as batches of up to 65,536 rows.

    Args:
        bootstrap_servers: Brokers to ask for the leader.
        topic: The topic's name.
        partition: The partition's number.
        start: The first offset wanted.
        end: The offset after the last one wanted.
        isolation_level: "read_committed" leaves out aborted transactions and waits for open ones.
        options: Settings of a consumer, such as `request_timeout_ms` or `check_crcs`.
    """
    told = {"bootstrap_servers": bootstrap_servers, "isolation_level": isolation_level}
    settings = ConsumerSettings.of(
        {"max_partition_fetch_bytes": FETCH_BYTES, **(options or {}), **told}
    )
    if not 0 <= start <= end:
        raise ValueError(f"no range of offsets goes from {start} to {end}")
    return _RangeReader(settings, TopicPartition(topic, partition), start, end).batches()


class _RangeReader:
    """One range under way."""

    def __init__(
        self, settings: ConsumerSettings, what: TopicPartition, start: int, end: int
    ) -> None:
        self._settings = settings
        self._what = what
        self._end = end
        self._place = Place(what)
        self._place.jump(start)
        self._started_at = start
        self._bytes = 0
        self._stream: Stream | None = None
        self._version = 0
        self._clock = SystemClock()
        self._committed_only = settings.isolation_level == "read_committed"
        self._servers = tuple(settings.bootstrap_servers)

    def batches(self) -> Iterator[RecordBatch]:
        try:
            while self._position < self._end:
                fetched = self._next()
                if fetched.end_offset < self._end:
                    self._ask_ahead()
                yield from self._columns(fetched)
        finally:
            if self._stream is not None:
                blocking_stream.give_back(self._stream)
                self._stream = None

    @property
    def _position(self) -> int:
        return self._place.position or 0

    def _columns(self, fetched: Fetched) -> Iterator[RecordBatch]:
        while True:
            reader = ColumnReader()
            fetched.take_columns(reader, _ROWS, last=self._end - 1)
            count = reader.count
            if not count:
                return
            yield record_batch(reader.finish(), [(*self._what, count)])

    # -- asking

    def _next(self) -> Fetched:
        """The next answer that brings something; waits out what passes."""
        settings = self._settings
        rests = Backoff(
            settings.retry_backoff_ms, settings.retry_backoff_max_ms, SystemRandomness()
        )
        until_ms = self._clock.monotonic_ms() + settings.default_api_timeout_ms
        while True:
            try:
                fetched = self._answer()
            except (NetworkError, TimedOutError, OSError) as trouble:
                problem: Exception = trouble
            except KafkaError as refused:
                if refused.code not in STALE_METADATA:
                    raise
                problem = refused
            else:
                if fetched is not None:
                    return fetched
                if self._clock.monotonic_ms() < until_ms:
                    continue  # the broker has waited for data already
                raise self._nothing_came()
            self._start_over()
            rest_ms = rests.next_ms()
            if self._clock.monotonic_ms() + rest_ms > until_ms:
                raise self._gave_up(problem) from problem
            threading.Event().wait(rest_ms / 1000)

    def _answer(self) -> Fetched | None:
        stream = self._stream if self._stream and self._stream.waiting else self._ask()
        if stream.inherited:
            raise forked_error("range reader")
        wait_s = (self._settings.fetch_max_wait_ms + self._settings.request_timeout_ms) / 1000
        answer = stream.receive(FetchResponse, self._version, wait_s)
        if answer.error_code:
            raise failure(answer.error_code)
        rows = [row for topic in answer.responses for row in topic.partitions]
        if len(rows) != 1 or rows[0].partition_index != self._what.partition:
            raise NetworkError("the broker answered for another partition than it was asked for")
        return self._accepted(rows[0])

    def _accepted(self, row: FetchResponse.PartitionData) -> Fetched | None:
        place = self._place
        if row.error_code == E.OFFSET_OUT_OF_RANGE:
            raise self._out_of_range(row)
        if row.error_code:
            raise failure(row.error_code, f"{self._what}: {error_of(row.error_code).text}")
        place.ends(row.high_watermark, row.last_stable_offset, row.log_start_offset)
        if row.diverging_epoch.end_offset >= 0:
            raise LogTruncationError(
                f"{self._what}: the log was cut back to offset {row.diverging_epoch.end_offset}, "
                f"before offset {place.fetch_offset}: records read since then are gone"
            )
        if not row.records:
            return None
        fetched = Fetched(
            place,
            memoryview(row.records),
            aborted=aborted_in(row) if self._committed_only else None,
            check_crcs=self._settings.check_crcs,
        )
        if fetched.end_offset <= place.fetch_offset:
            raise CorruptRecordError(
                f"{self._what}: the broker sent {fetched.size} bytes for offset "
                f"{place.fetch_offset} that hold no whole batch; see its log",
            )
        self._bytes += fetched.size
        place.fetch_offset, place.fetch_epoch = fetched.end_offset, fetched.end_epoch
        return fetched

    def _ask_ahead(self) -> None:
        """Ask for what follows; trouble shows when the answer is wanted."""
        try:
            self._ask()
        except (KafkaError, OSError):
            self._start_over()

    def _ask(self) -> Stream:
        home = _homes.get((self._servers, self._what)) or self._look_up()
        settings, place = self._settings, self._place
        if self._stream is None:
            self._stream = self._connect(home.host, home.port)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=1 if self._committed_only else 0,
            session_epoch=-1,
        )
        wanted = FetchRequest.FetchPartition(
            partition=place.partition,
            current_leader_epoch=home.leader_epoch,
            fetch_offset=place.fetch_offset,
            last_fetched_epoch=place.fetch_epoch,
            partition_max_bytes=self._fitting_bytes(),
        )
        request.topics = [
            FetchRequest.FetchTopic(topic=place.topic, topic_id=home.topic_id, partitions=[wanted])
        ]
        by_name = home.topic_id == ZERO_UUID
        self._version = self._stream.version_for(request, _NAMES_UP_TO if by_name else None)
        self._stream.send(request, self._version)
        return self._stream

    def _fitting_bytes(self) -> int:
        """About what is left of the range takes: a short one should not move megabytes."""
        seen = self._place.fetch_offset - self._started_at
        each = self._bytes / seen if seen else _FIRST_GUESS
        left = int((self._end - self._place.fetch_offset) * each * 1.25) + _LEAST_FETCH_BYTES
        return min(left, self._settings.max_partition_fetch_bytes)

    def _start_over(self) -> None:
        """Another connection, and another look at who leads; from what was handed out on."""
        if self._stream is not None:
            blocking_stream.give_up(self._stream)
            self._stream = None
        _homes.pop((self._servers, self._what), None)

    # -- finding the leader

    def _connect(self, host: str, port: int) -> Stream:
        limit_s = self._settings.socket_connection_setup_timeout_ms / 1000
        return blocking_stream.borrow(host, port, self._settings.client_id, limit_s)

    def _look_up(self) -> _Home:
        problem: Exception | None = None
        for node in bootstrap_nodes(self._servers):
            try:
                home = self._told_by(node.host, node.port)
            except (NetworkError, TimedOutError, OSError) as trouble:
                problem = trouble
                continue
            _homes[self._servers, self._what] = home
            return home
        raise NetworkError(f"none of {', '.join(self._servers)} answers: {problem}") from problem

    def _told_by(self, host: str, port: int) -> _Home:
        """What one broker says of the leader."""
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=self._what.topic)],
            allow_auto_topic_creation=False,
        )
        stream = self._connect(host, port)
        try:
            told = stream.call(request, MetadataResponse, self._settings.request_timeout_ms / 1000)
        except BaseException:
            stream.close()
            raise
        blocking_stream.give_back(stream)
        return self._home_in(told)

    def _home_in(self, told: MetadataResponse) -> _Home:
        for topic in told.topics:
            if topic.error_code:
                raise failure(
                    topic.error_code, f"{self._what.topic}: {error_of(topic.error_code).text}"
                )
            for row in topic.partitions:
                if row.partition_index == self._what.partition:
                    return self._leader(told, row, topic.topic_id)
        raise UnknownTopicOrPartitionError(f"there is no {self._what}")

    def _leader(
        self,
        told: MetadataResponse,
        row: MetadataResponse.MetadataResponsePartition,
        topic_id: Uuid,
    ) -> _Home:
        for broker in told.brokers:
            if broker.node_id == row.leader_id:
                return _Home(broker.host, broker.port, topic_id, row.leader_epoch)
        raise failure(E.LEADER_NOT_AVAILABLE, f"{self._what} has no leader at the moment")

    # -- words

    def _out_of_range(self, row: FetchResponse.PartitionData) -> OffsetOutOfRangeError:
        there = "" if row.log_start_offset < 0 else f": the log begins at {row.log_start_offset}"
        return OffsetOutOfRangeError(
            f"{self._what}: offset {self._place.fetch_offset} of the range up to {self._end} is "
            f"outside the log{there}; retention may have deleted it"
        )

    def _nothing_came(self) -> TimedOutError:
        place = self._place
        end = place.last_stable if self._committed_only else place.high_watermark
        return TimedOutError(
            f"{self._what}: nothing came from offset {place.fetch_offset} on within "
            f"default_api_timeout_ms={self._settings.default_api_timeout_ms}; the partition ends "
            f"at {end}, the range at {self._end}"
        )

    def _gave_up(self, problem: Exception) -> Exception:
        if isinstance(problem, KafkaError) and problem.code in STALE_METADATA:
            return problem
        return TimedOutError(
            f"{self._what}: no answer for offset {self._place.fetch_offset} within "
            f"default_api_timeout_ms={self._settings.default_api_timeout_ms}: {problem}"
        )

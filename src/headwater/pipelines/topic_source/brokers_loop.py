"""What a Spark process asks brokers: which partitions there are, where they begin and end, records.

One `Brokers` serves a process and its settings for as long as the process lives: Spark uses its
Python workers again, and a connection that is open already makes a small batch cheap. Calls block
and have a deadline; a broker that moves, restarts or stays away for a while is asked again.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from headwater.client.blocking import LoopThread, loop_thread
from headwater.client.cluster import Cluster, TopicView
from headwater.client.consumer.fetched import Aborted
from headwater.client.consumer.lookups import OffsetLookups
from headwater.client.errors import TimedOutError, failure
from headwater.config.client import ConsumerSettings
from headwater.errors import E, KafkaError, error_of
from headwater.model import ZERO_UUID, TopicPartition, Uuid
from headwater.pipelines.topic_source.offsets import EARLIEST, LATEST, Offsets
from headwater.seams.clock import SystemClock
from headwater.seams.network import TcpNetwork
from headwater.seams.randomness import SystemRandomness
from headwater.seams.tasks import LoopTasks
from headwater.wire.messages.fetch import FetchRequest, FetchResponse

T = TypeVar("T")

_NAMES_UP_TO: Final = 12
"""Versions of Fetch above it know topics by their ids only."""
_NO_SESSION: Final = -1
_TOPIC_WAIT_MS: Final = 5000
_FINAL: Final = frozenset(
    {E.TOPIC_AUTHORIZATION_FAILED, E.INVALID_TOPIC_EXCEPTION, E.CORRUPT_MESSAGE}
)


class Piece(NamedTuple):
    """Batches of one partition, from the one that has the offset asked for."""

    records: memoryview
    aborted: list[Aborted] | None
    """What read_committed must leave out; None where everything is shown."""


class OutOfRange(NamedTuple):
    """There is no such offset: the partition has these ends now, 0 and 0 if its topic is gone."""

    earliest: int
    latest: int


class Brokers:
    """The brokers of one cluster, for one process."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self.settings = settings
        self._clock = SystemClock()
        self._thread: LoopThread = loop_thread()
        self._committed_only = settings.isolation_level == "read_committed"
        self._cluster: Cluster = self._thread.call(self._made())
        self._lookups = OffsetLookups(self._cluster, committed_only=self._committed_only)

    async def _made(self) -> Cluster:
        return Cluster(
            self.settings,
            TcpNetwork(),
            self._clock,
            SystemRandomness(),
            LoopTasks(),
            auto_create=False,
        )

    def rest(self, interval_ms: int) -> None:
        """Wait a little before brokers are asked again."""
        self._thread.call(asyncio.sleep(interval_ms / 1000))

    # -- topics and their ends

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicView]:
        """The topics whose names are `wanted`, as they are at this moment."""
        views = self._call(self._cluster.all_topics(), "the list of topics")
        return {name: view for name, view in views.items() if wanted(name)}

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The first offset of each partition."""
        return self._ends(partitions, EARLIEST)

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The offset after the last record that may be seen."""
        return self._ends(partitions, LATEST)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time; None where no record is that new."""
        if not times:
            return {}
        found = self._call(self._lookups.find(times), "offsets by time")
        return {where: row.offset if row else None for where, row in found.items()}

    def committed(self, group: str) -> Offsets:
        """What a group has committed."""
        from headwater.client.admin import BlockingAdmin  # only here, and slow to import

        known = {
            name: value
            for name in ("bootstrap_servers", "client_id", "request_timeout_ms")
            if (value := getattr(self.settings, name)) is not None
        }
        with BlockingAdmin(**known) as admin:
            return {where: row.offset for where, row in admin.group_offsets(group).items()}

    def _ends(self, partitions: Collection[TopicPartition], which: int) -> Offsets:
        if not partitions:
            return {}
        return self._call(self._lookups.ends(partitions, which), "the ends of partitions")

    def _call(self, work: Coroutine[Any, Any, T], what: str) -> T:
        limit = self.settings.default_api_timeout_ms / 1000
        try:
            return self._thread.call(work, limit)
        except TimedOutError as late:
            servers = ", ".join(self.settings.bootstrap_servers)
            raise TimedOutError(f"{servers} did not tell {what} in time: {late.message}") from late

    # -- records

    def fetch(
        self, where: TopicPartition, offset: int, max_bytes: int, timeout_ms: int
    ) -> "Future[Piece | OutOfRange]":
        """Ask for records; the caller works on while they come."""
        deadline = self._clock.monotonic_ms() + timeout_ms
        work = self._fetched(where, offset, max_bytes, deadline, timeout_ms)
        return asyncio.run_coroutine_threadsafe(work, self._thread.loop)

    async def _fetched(
        self, where: TopicPartition, offset: int, max_bytes: int, deadline: int, timeout_ms: int
    ) -> Piece | OutOfRange:
        """Repeat until records come; what went wrong last is told when the time is over."""
        backoff = self._cluster.backoff()
        problem = "the broker sent no records"
        while self._clock.monotonic_ms() < deadline:
            try:
                found = await self._attempt(where, offset, max_bytes)
                if found is not None:
                    return found
            except (KafkaError, OSError) as failed:
                if isinstance(failed, KafkaError) and failed.code in _FINAL:
                    raise
                problem = str(failed)
            await asyncio.sleep(backoff.next_ms() / 1000)
            await self._refresh(deadline)
        raise TimedOutError(
            f"{where}: the records from offset {offset} on did not come within {timeout_ms} ms "
            f"(kafkaConsumer.pollTimeoutMs): {problem}"
        )

    async def _refresh(self, deadline: int) -> None:
        left = max(1, deadline - self._clock.monotonic_ms()) / 1000
        try:
            async with asyncio.timeout(left):
                await self._cluster.refresh()
        except TimeoutError:
            return

    async def _attempt(
        self, where: TopicPartition, offset: int, max_bytes: int
    ) -> Piece | OutOfRange | None:
        if not await self._exists(where.topic):
            return OutOfRange(0, 0)
        leader = self._cluster.leader(where)
        if leader is None:
            raise failure(E.LEADER_NOT_AVAILABLE, f"{where} has no leader at the moment")
        topic_id = self._cluster.topics[where.topic].topic_id
        request = self._request(where, topic_id, offset, max_bytes)
        connection = await self._cluster.connection(leader)
        version = connection.version_for(request, _NAMES_UP_TO if topic_id == ZERO_UUID else None)
        limit = (self.settings.fetch_max_wait_ms + self.settings.request_timeout_ms) / 1000
        async with asyncio.timeout(limit):
            frame = await connection.start(request, version)
        answer = connection.decode(frame, FetchResponse, version)
        if answer.error_code:
            raise failure(answer.error_code)
        return await self._taken(where, answer.responses[0].partitions[0])

    async def _exists(self, topic: str) -> bool:
        """Whether brokers know the topic; one that was just made may take a moment."""
        if topic in self._cluster.topics:
            return True
        limit = min(_TOPIC_WAIT_MS, self.settings.request_timeout_ms)
        try:
            await self._cluster.metadata([topic], timeout_ms=limit)
        except KafkaError as problem:
            if problem.code != E.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return False
        return True

    async def _taken(
        self, where: TopicPartition, row: FetchResponse.PartitionData
    ) -> Piece | OutOfRange | None:
        if row.error_code == E.OFFSET_OUT_OF_RANGE:
            earliest = await self._lookups.ends([where], EARLIEST)
            latest = await self._lookups.ends([where], LATEST)
            return OutOfRange(earliest[where], latest[where])
        if row.error_code:
            raise failure(row.error_code, f"{where}: {error_of(row.error_code).text}")
        if not row.records:
            return None
        aborted = [
            Aborted(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()
        ]
        return Piece(memoryview(row.records), aborted if self._committed_only else None)

    def _request(
        self, where: TopicPartition, topic_id: Uuid, offset: int, max_bytes: int
    ) -> FetchRequest:
        partition = FetchRequest.FetchPartition(
            partition=where.partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            partition_max_bytes=max_bytes,
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self.settings.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=1 if self._committed_only else 0,
            session_id=0,
            session_epoch=_NO_SESSION,
            rack_id=self.settings.client_rack,
            topics=[
                FetchRequest.FetchTopic(
                    topic=where.topic, topic_id=topic_id, partitions=[partition]
                )
            ],
        )


_open: dict[tuple[int, frozenset[tuple[str, str]]], Brokers] = {}


def brokers(client: Mapping[str, str]) -> Brokers:
    """The brokers that these settings of a consumer mean; asked for again, the same ones."""
    key = (os.getpid(), frozenset(client.items()))
    found = _open.get(key)
    if found is None:
        found = _open[key] = Brokers(ConsumerSettings.of(client))
    return found


def partitions_of(views: Iterable[TopicView]) -> list[TopicPartition]:
    """Every partition of some topics."""
    return [TopicPartition(view.name, row.partition) for view in views for row in view.partitions]

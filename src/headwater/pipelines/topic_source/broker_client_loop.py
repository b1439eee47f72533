"""What a Spark process asks brokers: which partitions there are, where they begin and end, records.

One `BrokerClient` serves a process and its settings for as long as the process lives: Spark uses its
Python workers again, and a connection that is open already makes a small batch cheap. Calls block
and have a deadline; a broker that moves, restarts or stays away for a while is asked again.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from headwater.client.backoff import Backoff
from headwater.client.blocking import LoopThread, loop_thread
from headwater.client.cluster import Cluster, TopicView
from headwater.client.consumer.offset_lookups import OffsetLookups
from headwater.client.errors import TimedOutError, failure
from headwater.client.partition_reader import Leader, OutOfRange, PartitionReader
from headwater.config.client import ConsumerSettings
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from headwater.pipelines.topic_source.offsets import EARLIEST, LATEST, Offsets
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.network import TcpNetwork
from headwater.seams.randomness import SystemRandomness
from headwater.seams.tasks import LoopTasks

T = TypeVar("T")

_TOPIC_WAIT_MS: Final = 5000


class BrokerClient:
    """The brokers of one cluster, for one process."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.clock: Clock = SystemClock()
        self._thread: LoopThread = loop_thread()
        self._cluster: Cluster = self._thread.call(self._made())
        committed_only = settings.isolation_level == "read_committed"
        self._lookups = OffsetLookups(self._cluster, committed_only=committed_only)

    async def _made(self) -> Cluster:
        return Cluster(
            self.settings,
            TcpNetwork(),
            self.clock,
            SystemRandomness(),
            LoopTasks(),
            auto_create=False,
        )

    def pause(self, interval_ms: float) -> None:
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

    def fetcher(self, where: TopicPartition, timeout_ms: int) -> PartitionReader:
        """A reader of one partition; each of its answers is waited for this long."""
        return PartitionReader(self, where, timeout_ms, timeout_name="kafkaConsumer.pollTimeoutMs")

    def leader(self, where: TopicPartition) -> Leader | None:
        """Who leads a partition; None where there is no such topic."""
        return self._call(self._found_leader(where), f"who leads {where}")

    def ends(self, where: TopicPartition) -> OutOfRange:
        """Where a partition begins and ends."""
        return OutOfRange(self.earliest([where])[where], self.latest([where])[where])

    def backoff(self) -> Backoff:
        """How long to rest, each time."""
        return self._cluster.backoff()

    def refresh_metadata(self, limit_ms: int) -> None:
        """Find out anew who leads what, or give up in silence: whoever asks tries again."""
        self._thread.call(self._refreshed(limit_ms))

    async def _refreshed(self, limit_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_ms / 1000):
                await self._cluster.refresh()

    async def _found_leader(self, where: TopicPartition) -> Leader | None:
        if not await self._exists(where.topic):
            return None
        leader = self._cluster.leader(where)
        if leader is None:
            raise failure(E.LEADER_NOT_AVAILABLE, f"{where} has no leader at the moment")
        topic_id = self._cluster.topics[where.topic].topic_id
        return Leader(leader.host, leader.port, topic_id)

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


_open: dict[tuple[int, frozenset[tuple[str, str]]], BrokerClient] = {}


def broker_client(client: Mapping[str, str]) -> BrokerClient:
    """The brokers that these settings of a consumer mean; asked for again, the same ones."""
    key = (os.getpid(), frozenset(client.items()))
    found = _open.get(key)
    if found is None:
        found = _open[key] = BrokerClient(ConsumerSettings.of(client))
    return found


def partitions_of(views: Iterable[TopicView]) -> list[TopicPartition]:
    """Every partition of some topics."""
    return [TopicPartition(view.name, row.partition) for view in views for row in view.partitions]

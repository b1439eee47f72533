"""The broker requests of a Spark process: partitions, their offsets, and records.

One `BrokerClient` per process and settings lives as long as the process: Spark reuses its Python
workers, and an open connection makes small batches cheap. Calls block and have a deadline; requests
are retried while a broker moves, restarts or is unavailable.
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
from headwater.config.client import AdminSettings, ConsumerSettings
from headwater.errors import E, KafkaError
from headwater.model import EARLIEST, LATEST, TopicPartition
from headwater.pipelines.topic_source.offsets import Offsets
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.network import TcpNetwork
from headwater.seams.randomness import SystemRandomness
from headwater.seams.tasks import LoopTasks

T = TypeVar("T")

_TOPIC_WAIT_MS: Final = 5000


class BrokerClient:
    """A blocking client of one cluster, for one process."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.clock: Clock = SystemClock()
        self._thread: LoopThread = loop_thread()
        self._cluster: Cluster = self._thread.call(self._made())
        committed_only = settings.isolation_level == "read_committed"
        self._lookups = OffsetLookups(self._cluster, committed_only=committed_only)
        self._all_lookups = OffsetLookups(self._cluster)

    async def _made(self) -> Cluster:
        return Cluster(
            self.settings,
            TcpNetwork(),
            self.clock,
            SystemRandomness(),
            LoopTasks(),
            auto_create=False,
        )

    @property
    def alive(self) -> bool:
        """Whether its loop runs; a client whose loop has ended fails every call."""
        return self._thread.alive

    def pause(self, interval_ms: float) -> None:
        """Wait before a request is retried."""
        self._thread.call(asyncio.sleep(interval_ms / 1000))

    # -- topics and their ends

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicView]:
        """Return the current topics with names that are `wanted`."""
        views = self._call(self._cluster.all_topics(), "the list of topics")
        return {name: view for name, view in views.items() if wanted(name)}

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the first offset of each partition."""
        return self._ends(partitions, EARLIEST)

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the offset after the last visible record of each partition."""
        return self._ends(partitions, LATEST)

    def log_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the offset after the last record of each partition, visible or not.

        With read_committed, records of an open transaction and all after them are not visible.
        """
        if not partitions:
            return {}
        return self._call(self._all_lookups.ends(partitions, LATEST), "the ends of partitions")

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a time; None if no record is that new."""
        if not times:
            return {}
        found = self._call(self._lookups.find(times), "offsets by time")
        return {where: row.offset if row else None for where, row in found.items()}

    def committed(self, group: str) -> Offsets:
        """Return the committed offsets of a group."""
        from headwater.client.admin import BlockingAdmin  # only here, and slow to import

        with BlockingAdmin(**self._for_admin()) as admin:
            return {where: row.offset for where, row in admin.group_offsets(group).items()}

    def _for_admin(self) -> dict[str, Any]:
        """Return the chosen settings that an admin has as well, as text."""
        rows = (
            AdminSettings.KEYS[name] for name in self.settings.chosen & AdminSettings.KEYS.keys()
        )
        return {row.name: row.text(getattr(self.settings, row.attribute)) for row in rows}

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
            raise TimedOutError(
                f"timed out waiting for {what} from {servers}: {late.message}"
            ) from late

    # -- records

    def fetcher(self, where: TopicPartition, timeout_ms: int) -> PartitionReader:
        """Return a reader of one partition with a timeout for each response."""
        return PartitionReader(self, where, timeout_ms, timeout_name="kafkaConsumer.pollTimeoutMs")

    def leader(self, where: TopicPartition) -> Leader | None:
        """Return the leader of a partition; None if the topic does not exist."""
        return self._call(self._found_leader(where), f"the leader of {where}")

    def ends(self, where: TopicPartition) -> OutOfRange:
        """Return the first offset and the end of a partition."""
        return OutOfRange(self.earliest([where])[where], self.latest([where])[where])

    def backoff(self) -> Backoff:
        """Return a new sequence of retry delays."""
        return self._cluster.backoff()

    def refresh_metadata(self, limit_ms: int) -> None:
        """Refresh the metadata; a timeout is ignored, because callers retry."""
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
        """Whether the topic exists; a new topic may take a moment to appear."""
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
    """Return the client for these consumer settings; the same one while its loop runs."""
    key = (os.getpid(), frozenset(client.items()))
    found = _open.get(key)
    if found is None or not found.alive:
        found = _open[key] = BrokerClient(ConsumerSettings.of(client))
    return found


def partitions_of(views: Iterable[TopicView]) -> list[TopicPartition]:
    """Return every partition of some topics."""
    return [TopicPartition(view.name, row.partition) for view in views for row in view.partitions]

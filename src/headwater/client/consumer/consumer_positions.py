"""The positions of a consumer: queries and seeks. On the event loop."""

import asyncio
from collections.abc import Callable, Mapping

from headwater.client.cluster import Cluster
from headwater.client.consumer.api_timeout import ApiTimeout
from headwater.client.consumer.fetching.fetcher_loop import Fetcher
from headwater.client.consumer.offset_lookups import OffsetLookups
from headwater.client.consumer.partition_state import PartitionState
from headwater.client.consumer.positions_loop import PositionResolver
from headwater.client.consumer.record import (
    OffsetAndTimestamp,
    Partition,
    Partitions,
    topic_partition,
    topic_partitions,
    whole_offset,
)
from headwater.client.consumer.subscription import Subscription
from headwater.config.client import ConsumerSettings
from headwater.model import TopicPartition


class ConsumerPositions:
    """The positions of one consumer."""

    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: Cluster,
        subscription: Subscription,
        fetcher: Fetcher,
        lookups: OffsetLookups,
        resolver: PositionResolver,
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._fetcher = fetcher
        self._lookups = lookups
        self._resolver = resolver
        self._limit_ms = settings.default_api_timeout_ms
        self._committed_only = settings.isolation_level == "read_committed"

    def seek(self, partition: Partition, offset: int) -> None:
        name = topic_partition(partition)
        self._subscription.state_of(name).seek(whole_offset(name, offset))
        self._fetcher.changed(at_once=True)

    def seek_to_timestamp(self, partitions: Partitions | None, timestamp: int) -> None:
        """Move these partitions, or all, to the record at `timestamp`, EARLIEST or LATEST."""
        names = (
            self._subscription.partitions if partitions is None else topic_partitions(partitions)
        )
        for name in names:
            self._subscription.state_of(TopicPartition(*name)).seek_to_timestamp(timestamp)
        self._resolver.start()

    async def position(self, partition: Partition, raise_pending: Callable[[], None]) -> int:
        """Return the offset of the next record; wait until it is known or poll() would raise."""
        name = topic_partition(partition)
        state = self._subscription.state_of(name)
        async with ApiTimeout(self._limit_ms, f"the position of {name}", self._cluster):
            backoff = self._cluster.backoff()
            while state.position is None:
                await self._resolver.resolve()
                raise_pending()
                if state.position is None:
                    await asyncio.sleep(backoff.next_ms() / 1000)
        return state.position

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        wanted = {TopicPartition(*name): time for name, time in times.items()}
        if any(time < 0 for time in wanted.values()):
            raise ValueError("a time is in milliseconds since 1970, 0 or more")
        return await self._lookups.find(wanted, self._limit_ms)

    async def end_offsets(
        self, partitions: Partitions, timestamp: int
    ) -> dict[TopicPartition, int]:
        """Return the first (EARLIEST) or next (LATEST) offset of each partition."""
        return await self._lookups.ends(topic_partitions(partitions), timestamp, self._limit_ms)

    def lag(self, partition: Partition) -> int | None:
        return self.lag_of(self._subscription.state_of(topic_partition(partition)))

    def lead(self, partition: Partition) -> int | None:
        return self._subscription.state_of(topic_partition(partition)).lead()

    def lag_of(self, state: PartitionState) -> int | None:
        """Return the number of records between the position and the visible end."""
        return state.lag(self._committed_only)

    async def partitions_for(self, topic: str) -> list[int]:
        views = await self._cluster.metadata([topic], timeout_ms=self._limit_ms, fresh=True)
        return [row.partition for row in views[topic].partitions]

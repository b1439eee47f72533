"""Where a consumer is in its partitions, where it goes on, and how far the ends are."""

import asyncio
from collections.abc import Mapping

from headwater.client.consumer.api_timeout import ApiTimeout
from headwater.client.consumer.assembly import Assembly, Partitions
from headwater.client.consumer.partition_state import EARLIEST, LATEST
from headwater.client.consumer.record import (
    OffsetAndTimestamp,
    topic_partition,
    topic_partitions,
    whole_offset,
)
from headwater.model import TopicPartition


class Whereabouts(Assembly):
    """The part of a consumer that knows and moves its positions."""

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> None:
        """Go on at `offset`."""
        name = topic_partition(partition)
        self.subscription.state_of(name).seek(whole_offset(name, offset))
        self._fetcher.changed(at_once=True)

    def seek_to_time(self, partitions: Partitions | None, timestamp: int) -> None:
        """Go on where a time is, or one of the ends."""
        names = self.subscription.partitions if partitions is None else topic_partitions(partitions)
        for name in names:
            self.subscription.state_of(TopicPartition(*name)).seek_to_timestamp(timestamp)
        self._positions.start()

    async def position(self, partition: TopicPartition | tuple[str, int]) -> int:
        """The offset of the next record to be handed out."""
        (name,) = topic_partitions([partition])
        state = self.subscription.state_of(name)
        self._undo_interrupted()
        async with self._within_api_timeout(f"the position of {name}"):
            backoff = self._cluster.backoff()
            while state.position is None:
                await self._positions.resolve()
                self._raise_pending()
                if state.position is None:
                    await asyncio.sleep(backoff.next_ms() / 1000)
        return state.position

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time."""
        wanted = {TopicPartition(*name): time for name, time in times.items()}
        if any(time < 0 for time in wanted.values()):
            raise ValueError("a time is in milliseconds since 1970, 0 or more")
        return await self._lookups.find(wanted, self.settings.default_api_timeout_ms)

    async def ends(self, partitions: Partitions, timestamp: int) -> dict[TopicPartition, int]:
        """The offsets at one end of each partition."""
        limit = self.settings.default_api_timeout_ms
        return await self._lookups.ends(topic_partitions(partitions), timestamp, limit)

    async def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return await self.ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The offset that the next record of each will get, as far as this consumer may see."""
        return await self.ends(partitions, LATEST)

    def lag(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Records between the position and the end."""
        (name,) = topic_partitions([partition])
        return self._lag_of(self.subscription.state_of(name))

    def lead(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Records between the beginning and the position."""
        (name,) = topic_partitions([partition])
        return self.subscription.state_of(name).lead()

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        limit = self.settings.default_api_timeout_ms
        views = await self._cluster.metadata([topic], timeout_ms=limit, fresh=True)
        return [row.partition for row in views[topic].partitions]

    def _within_api_timeout(self, what: str) -> ApiTimeout:
        return ApiTimeout(self.settings.default_api_timeout_ms, what, self._cluster)

"""The audit: after the troubles, everything is read back and compared with the promises."""

from collections.abc import Awaitable, Callable
from functools import partial

from headwater.errors import E
from headwater.model import EARLIEST, LATEST, TopicPartition
from headwater.records.record import Record
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.offsets import OffsetFetchRequest, OffsetFetchResponse
from simulator.invariants import PartitionPromises
from simulator.workload.client import Client, Disturbed
from simulator.workload.reading import end_of, fetch

NEWEST_FETCH = 12
TRIES = 50
GROUP_TOPIC = "commits"


class Auditor(Client):
    """Reads everything; the broker must be up and no client may be writing."""

    kept_out = False

    async def run(self, *, after_power_cut: bool = False) -> None:
        """Check every promise."""
        await self._insist(self._check_topics)
        for name in self.promises.names:
            await self._insist(partial(self._check_name, name, after_power_cut))
        for group, partition in self.promises.commits:
            await self._insist(partial(self._check_commit, group, partition, after_power_cut))
        self.disconnect()

    async def _insist(self, check: Callable[[], Awaitable[None]]) -> None:
        why: object = None
        for _ in range(TRIES):
            try:
                await check()
            except Disturbed as disturbance:
                why = disturbance.__cause__ or disturbance
                await self.back_off()
            else:
                return
        self.promises.complain(f"L4: the audit cannot read what it should: {why!r}")

    async def _check_topics(self) -> None:
        answer = await self.call(MetadataRequest(topics=None), MetadataResponse)
        counts = {topic.name: len(topic.partitions) for topic in answer.topics}
        for name, partitions in self.promises.topics.items():
            if counts.get(name, 0) < partitions:
                self.promises.complain(
                    f"I10: topic {name} has {counts.get(name, 0)} of {partitions} partitions"
                )

    async def _check_name(self, name: str, after_power_cut: bool) -> None:
        """Check the current topic of this name, unless it is being deleted."""
        self.topic_ids = {}
        if name not in self.promises.topics and not await self._exists(name):
            return
        topic = self.promises.names[name].with_id(await self.topic_id(name))
        if topic is None or topic.gone_us is not None:
            self.promises.complain(f"I18: {name} has the id of a topic that was deleted")
            return
        for books in topic.partitions:
            if not topic.doomed:
                await self._check_partition(books, after_power_cut)
            elif after_power_cut:
                books.forgive(0)

    async def _exists(self, name: str) -> bool:
        answer = await self.call(MetadataRequest(topics=None), MetadataResponse)
        return any(topic.name == name for topic in answer.topics)

    async def _check_partition(self, books: PartitionPromises, after_power_cut: bool) -> None:
        at = books.at
        start, end = await end_of(self, at, EARLIEST), await end_of(self, at, LATEST)
        records: list[Record] = []
        offset = start
        while offset < end:
            found = await fetch(self, at, offset, newest=NEWEST_FETCH, max_bytes=1 << 20, wait_ms=0)
            if self.check(found.error_code, E.OFFSET_OUT_OF_RANGE) is not E.NONE:
                await self._excuse_retention(at, offset)
            records += found.records
            if not found.records:
                self.promises.complain(f"I10: {at} gives nothing at {offset}, ends at {end}")
                return
            offset = found.records[-1].offset + 1
        if after_power_cut:
            books.forgive(end)
        books.audit(start, end, {record.offset: record.value or b"" for record in records})
        if records:
            await self._check_time(at, records)

    async def _excuse_retention(self, at: TopicPartition, offset: int) -> None:
        """Start again if retention deletes records while they are read."""
        if await end_of(self, at, EARLIEST) <= offset:
            self.promises.complain(f"I1: {at} refuses {offset}, which it should have")
        raise Disturbed

    async def _check_time(self, at: TopicPartition, records: list[Record]) -> None:
        """Check that a lookup by time finds the same as a scan of every record."""
        timestamp = self.chance.choice(records).timestamp
        expected = next(one.offset for one in records if one.timestamp >= timestamp)
        found = await end_of(self, at, timestamp)
        if found != expected and await end_of(self, at, EARLIEST) <= expected:
            self.promises.complain(f"I17: {at} has {found}, not {expected}, for {timestamp}")

    async def _check_commit(self, group: str, partition: int, after_power_cut: bool) -> None:
        books = self.promises.commits_of(group, partition)
        if books.asked < 0:
            return
        if after_power_cut:
            books.forgive()
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(
            name=GROUP_TOPIC, partition_indexes=[partition]
        )
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[topic])
        answer = await self.call(OffsetFetchRequest(groups=[wanted]), OffsetFetchResponse, newest=9)
        found = answer.groups[0]
        self.check(found.error_code)
        offset = -1
        for row in found.topics:
            for one in row.partitions:
                if self.check(one.error_code) is E.NONE:
                    offset = one.committed_offset
        books.audit(offset)

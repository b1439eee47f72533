"""Questions to the leaders of partitions: where a log begins, ends, or was at a time."""

import asyncio
from collections.abc import Iterable, Mapping

from headwater.client.cluster import Cluster, Node
from headwater.client.consumer.record import NO_OFFSET, OffsetAndTimestamp
from headwater.client.errors import TimedOutError, UnknownTopicOrPartitionError, failure
from headwater.errors import KafkaError, error_of
from headwater.model import TopicPartition
from headwater.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse

Found = dict[TopicPartition, OffsetAndTimestamp | None]


class OffsetLookups:
    """Asks each leader once, and again where it was not the leader after all."""

    def __init__(self, cluster: Cluster, *, committed_only: bool = False) -> None:
        self._cluster = cluster
        self._isolation = 1 if committed_only else 0

    async def find(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> Found:
        """The offset for each timestamp; None where nothing is that new.

        Repeats what may be repeated until `timeout_ms` is over, then raises for what is missing.
        """
        limit = self._cluster.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        found: Found = {}
        problems: dict[TopicPartition, KafkaError] = {}
        try:
            async with asyncio.timeout(limit / 1000):
                await self._until_found(dict(wanted), found, problems)
        except TimeoutError:
            missing = [name for name in wanted if name not in found]
            for name in missing:
                if name in problems:
                    raise problems[name] from None
            raise TimedOutError(
                f"no leader told the offsets of {', '.join(map(str, missing))} within {limit} ms"
            ) from None
        return found

    async def _until_found(
        self,
        missing: dict[TopicPartition, int],
        found: Found,
        problems: dict[TopicPartition, KafkaError],
    ) -> None:
        backoff = self._cluster.backoff()
        await self._cluster.metadata({name.topic for name in missing}, timeout_ms=2**31)
        while missing:
            by_leader = self._by_leader(missing, problems)
            asked = [self._ask(node, rows, found, problems) for node, rows in by_leader.items()]
            await asyncio.gather(*asked)
            missing = {name: time for name, time in missing.items() if name not in found}
            if missing:
                await asyncio.sleep(backoff.next_ms() / 1000)
                await self._cluster.refresh()

    def _by_leader(
        self, missing: Mapping[TopicPartition, int], problems: dict[TopicPartition, KafkaError]
    ) -> dict[Node, dict[TopicPartition, int]]:
        grouped: dict[Node, dict[TopicPartition, int]] = {}
        for name, timestamp in missing.items():
            topic = self._cluster.topics.get(name.topic)
            leader = self._cluster.leader(name)
            if leader is not None:
                grouped.setdefault(leader, {})[name] = timestamp
            elif topic is not None and name.partition >= len(topic.partitions):
                problems[name] = UnknownTopicOrPartitionError(
                    f"{name.topic} has {len(topic.partitions)} partitions; there is no {name}"
                )
        return grouped

    async def _ask(
        self,
        node: Node,
        rows: Mapping[TopicPartition, int],
        found: Found,
        problems: dict[TopicPartition, KafkaError],
    ) -> None:
        try:
            answer = await self._cluster.ask(node, self._request(rows), ListOffsetsResponse)
        except (KafkaError, OSError):
            return  # the broker is gone: metadata will tell where its partitions went
        for topic in answer.topics:
            for row in topic.partitions:
                name = TopicPartition(topic.name, row.partition_index)
                if not row.error_code:
                    found[name] = (
                        None
                        if row.offset == NO_OFFSET
                        else OffsetAndTimestamp(row.offset, row.timestamp, row.leader_epoch)
                    )
                    continue
                problem = error_of(row.error_code)
                problems[name] = failure(problem, f"{name}: {problem.text}")
                if not problem.retriable:
                    raise problems[name]

    def _request(self, rows: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for name, timestamp in rows.items():
            topic = topics.setdefault(
                name.topic, ListOffsetsRequest.ListOffsetsTopic(name=name.topic, partitions=[])
            )
            epoch = self._cluster.topics[name.topic].partitions[name.partition].leader_epoch
            topic.partitions.append(
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=name.partition,
                    current_leader_epoch=epoch,
                    timestamp=timestamp,
                )
            )
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self._isolation,
            topics=list(topics.values()),
            timeout_ms=self._cluster.settings.request_timeout_ms,
        )

    async def ends(
        self, partitions: Iterable[TopicPartition], timestamp: int, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """One end of each log: EARLIEST or LATEST."""
        found = await self.find(dict.fromkeys(partitions, timestamp), timeout_ms)
        return {name: row.offset if row else 0 for name, row in found.items()}

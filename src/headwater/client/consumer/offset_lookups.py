"""Asks the leaders of partitions for the start, the end, or the offset at a time."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from headwater.client.cluster import Cluster, Node
from headwater.client.consumer.record import OffsetAndTimestamp
from headwater.client.errors import TimedOutError, failure
from headwater.client.refusals import refused
from headwater.errors import E, KafkaError, error_of
from headwater.model import NO_OFFSET, TopicPartition
from headwater.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse

Found = dict[TopicPartition, OffsetAndTimestamp | None]


class OffsetLookups:
    """Sends ListOffsets to leaders, and retries where the leader has moved."""

    def __init__(self, cluster: Cluster, *, committed_only: bool = False) -> None:
        self._cluster = cluster
        self._isolation = 1 if committed_only else 0

    async def find(
        self,
        wanted: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        on_found: Callable[[Found], None] | None = None,
    ) -> Found:
        """Return the offset for each timestamp; None if no record is that new.

        Retries until `timeout_ms` is over, then raises for the partitions that are missing.
        `on_found` gets the offsets of each round as they arrive: a partition without a leader, or
        on a broken disk, does not delay the others.
        """
        limit = self._cluster.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        found: Found = {}
        problems: dict[TopicPartition, KafkaError] = {}
        names = ", ".join(map(str, wanted))
        try:
            async with asyncio.timeout(limit / 1000):
                with self._cluster.waiting(
                    f"the offsets of {names}", lambda: next(iter(problems.values()), None)
                ):
                    await self._until_found(dict(wanted), found, problems, on_found)
        except TimeoutError:
            missing = [name for name in wanted if name not in found]
            for name in missing:
                if name in problems:
                    raise problems[name] from None
            raise TimedOutError(
                f"timed out after {limit} ms waiting for the offsets of "
                f"{', '.join(map(str, missing))}: {self._cluster.trouble}"
            ) from None
        return found

    async def _until_found(
        self,
        missing: dict[TopicPartition, int],
        found: Found,
        problems: dict[TopicPartition, KafkaError],
        on_found: Callable[[Found], None] | None,
    ) -> None:
        backoff = self._cluster.backoff()
        topics = {name.topic for name in missing}
        while missing:
            await self._cluster.metadata(topics, timeout_ms=2**31)
            await self._cluster.check_exist(missing)
            by_leader = self._by_leader(missing, problems)
            asked = [self._ask(node, rows, found, problems) for node, rows in by_leader.items()]
            await asyncio.gather(*asked)
            if on_found is not None:
                on_found({name: found[name] for name in missing if name in found})
            missing = {name: time for name, time in missing.items() if name not in found}
            if missing:
                await asyncio.sleep(backoff.next_ms() / 1000)
                await self._cluster.refresh()

    def _by_leader(
        self, missing: Mapping[TopicPartition, int], problems: dict[TopicPartition, KafkaError]
    ) -> dict[Node, dict[TopicPartition, int]]:
        grouped: dict[Node, dict[TopicPartition, int]] = {}
        for name, timestamp in missing.items():
            leader = self._cluster.leader(name)
            if leader is not None:
                grouped.setdefault(leader, {})[name] = timestamp
            else:
                problems[name] = failure(
                    E.LEADER_NOT_AVAILABLE, f"{name}: {E.LEADER_NOT_AVAILABLE.text}"
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
        except (
            KafkaError,
            OSError,
        ) as gone:  # a refresh shows where its partitions are now
            for name in rows:
                problems[name] = failure(E.NETWORK_EXCEPTION, f"{name}: {gone}")
            return
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
                problems[name] = refused(self._cluster.settings, problem, name.topic, str(name))
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
        """Return the start (EARLIEST) or end (LATEST) of each partition."""
        found = await self.find(dict.fromkeys(partitions, timestamp), timeout_ms)
        return {name: row.offset if row else 0 for name, row in found.items()}

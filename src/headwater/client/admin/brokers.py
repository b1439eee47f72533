"""The cluster itself: its brokers and what lies on their disks."""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.client.admin.arguments import as_list
from headwater.client.admin.calls import AdminCalls
from headwater.client.cluster import Node
from headwater.client.errors import failure
from headwater.errors import E, KafkaError, error_of
from headwater.model import TopicPartition
from headwater.wire.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


class ClusterDescription(NamedTuple):
    """A cluster and its brokers."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Node, ...]


class LogDirDescription(NamedTuple):
    """A folder of a broker and the bytes of each replica in it."""

    broker_id: int
    path: str
    error: E
    sizes: dict[TopicPartition, int]
    total_bytes: int
    usable_bytes: int


class BrokerAdmin:
    """Describes the cluster and the log directories of its brokers."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def describe_cluster(self) -> ClusterDescription:
        return await self._calls.retry("the description of the cluster", self._describe_cluster)

    async def _describe_cluster(self) -> ClusterDescription:
        """Ask DescribeCluster for the controller: metadata may name any broker that forwards to it."""
        cluster = self._calls.cluster
        await cluster.refresh()
        try:
            told = await self._calls.ask_controller(
                DescribeClusterRequest(), DescribeClusterResponse
            )
        except KafkaError as problem:
            if problem.code is not E.UNSUPPORTED_VERSION:
                raise
            brokers = tuple(sorted(cluster.nodes.values()))
            return ClusterDescription(cluster.cluster_id, cluster.controller_id, brokers)
        if told.error_code:
            raise failure(told.error_code, told.error_message)
        brokers = tuple(
            sorted(Node(row.broker_id, row.host, row.port, row.rack) for row in told.brokers)
        )
        return ClusterDescription(told.cluster_id, told.controller_id, brokers)

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None
    ) -> list[LogDirDescription]:
        chosen = None if broker_ids is None else as_list("describe_log_dirs", broker_ids)

        async def attempt() -> list[LogDirDescription]:
            await self._calls.cluster.refresh()
            found: list[LogDirDescription] = []
            for broker_id in sorted(self._calls.cluster.nodes) if chosen is None else chosen:
                found += await self._log_dirs_of(broker_id)
            return found

        return await self._calls.retry("the description of log folders", attempt)

    async def _log_dirs_of(self, broker_id: int) -> list[LogDirDescription]:
        node = self._calls.cluster.nodes.get(broker_id)
        if node is None:
            raise failure(E.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")
        request = DescribeLogDirsRequest(topics=None)
        answer = await self._calls.cluster.ask(node, request, DescribeLogDirsResponse)
        await self._calls.raise_refusals([(f"broker {broker_id}", answer.error_code, None)])
        return [
            LogDirDescription(
                broker_id,
                row.log_dir,
                error_of(row.error_code),
                {
                    TopicPartition(topic.name, part.partition_index): part.partition_size
                    for topic in row.topics
                    for part in topic.partitions
                },
                row.total_bytes,
                row.usable_bytes,
            )
            for row in answer.results
        ]

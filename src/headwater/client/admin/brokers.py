"""The brokers of the cluster and their log directories."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.client.admin.arguments import as_list, as_mapping, whole_number
from headwater.client.admin.calls import AdminCalls
from headwater.client.cluster import Node
from headwater.client.consumer.group.consumer_protocol import by_topic
from headwater.client.consumer.record import topic_partition
from headwater.client.errors import failure
from headwater.client.refusals import refused
from headwater.errors import E, KafkaError, error_of
from headwater.model import TopicPartition
from headwater.security.acls import CLUSTER_NAME
from headwater.wire.messages.cluster import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

_LOG_DIRS = "{broker: {(topic, partition): path}}"


class ClusterDescription(NamedTuple):
    """A cluster and its brokers."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Node, ...]


class LogDirDescription(NamedTuple):
    """A folder of a broker and the bytes of each replica in it.

    `future_lags` has the replicas that are being moved here, with the records that are not copied yet.
    """

    broker_id: int
    path: str
    error: E
    sizes: dict[TopicPartition, int]
    total_bytes: int
    usable_bytes: int
    future_lags: dict[TopicPartition, int]


class BrokerAdmin:
    """Describes the cluster and the log directories of its brokers; moves replicas between these."""

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
        request = DescribeLogDirsRequest(topics=None)
        node = self._node(broker_id)
        answer = await self._calls.cluster.ask(node, request, DescribeLogDirsResponse)
        if answer.error_code:
            about = f"broker {broker_id}"
            raise refused(self._calls.settings, answer.error_code, CLUSTER_NAME, about)
        return [_described(broker_id, row) for row in answer.results]

    async def alter_replica_log_dirs(
        self, targets: Mapping[int, Mapping[TopicPartition, str]]
    ) -> None:
        requests = {
            whole_number("a broker", broker): _move_request(
                as_mapping("alter_replica_log_dirs", paths, _LOG_DIRS)
            )
            for broker, paths in as_mapping("alter_replica_log_dirs", targets, _LOG_DIRS).items()
        }

        async def attempt() -> None:
            await self._calls.cluster.refresh()
            nodes = {broker: self._node(broker) for broker in requests}
            for broker, request in requests.items():
                answer = await self._calls.cluster.ask(
                    nodes[broker], request, AlterReplicaLogDirsResponse
                )
                await self._calls.raise_refusals(
                    (
                        f"broker {broker}, {topic.topic_name}-{row.partition_index}",
                        row.error_code,
                        None,
                    )
                    for topic in answer.results
                    for row in topic.partitions
                    if row.error_code != E.REPLICA_NOT_AVAILABLE  # it will be created there
                )

        await self._calls.retry("moves between log dirs", attempt)

    def _node(self, broker_id: int) -> Node:
        node = self._calls.cluster.nodes.get(broker_id)
        if node is None:
            raise failure(E.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")
        return node


def _described(
    broker_id: int, row: DescribeLogDirsResponse.DescribeLogDirsResult
) -> LogDirDescription:
    parts = [
        (TopicPartition(topic.name, part.partition_index), part)
        for topic in row.topics
        for part in topic.partitions
    ]
    return LogDirDescription(
        broker_id,
        row.log_dir,
        error_of(row.error_code),
        {at: part.partition_size for at, part in parts if not part.is_future_key},
        row.total_bytes,
        row.usable_bytes,
        {at: part.offset_lag for at, part in parts if part.is_future_key},
    )


def _move_request(paths: Mapping[TopicPartition, str]) -> AlterReplicaLogDirsRequest:
    by_path: dict[str, list[TopicPartition]] = {}
    for name, path in paths.items():
        by_path.setdefault(path, []).append(topic_partition(name))
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(
                        name=topic, partitions=partitions
                    )
                    for topic, partitions in by_topic(replicas).items()
                ],
            )
            for path, replicas in by_path.items()
        ]
    )

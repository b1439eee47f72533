"""Leader elections, and moves of replicas to other brokers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headwater.client.admin.arguments import as_list, as_mapping, whole_number
from headwater.client.admin.calls import AdminCalls
from headwater.client.consumer.group.consumer_protocol import by_topic
from headwater.client.consumer.record import topic_partition, topic_partitions
from headwater.client.refusals import told
from headwater.errors import E, error_of
from headwater.model import TopicPartition
from headwater.security.acls import AclOperation
from headwater.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

PREFERRED, UNCLEAN = 0, 1
_TARGETS = "{(topic, partition): [broker, ...] or None}"


class PartitionReassignment(NamedTuple):
    """A move in progress; `replicas` includes those being added and those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReplicaAdmin:
    """Elects leaders; moves replicas, lists and cancels moves."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]] | None = None,
        *,
        unclean: bool = False,
    ) -> dict[TopicPartition, E]:
        wanted = None
        if partitions is not None:
            grouped = by_topic(topic_partitions(as_list("elect_leaders", partitions)))
            wanted = [
                ElectLeadersRequest.ElectedTopic(topic=name, partitions=list(indexes))
                for name, indexes in grouped.items()
            ]
        request = ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED,
            topic_partitions=wanted,
            timeout_ms=self._calls.timeout_ms,
        )

        async def attempt() -> dict[TopicPartition, E]:
            answer = await self._calls.ask_controller(request, ElectLeadersResponse)
            said = told(self._calls.settings, answer.error_code, AclOperation.ALTER)
            await self._calls.raise_refusals([("the election", answer.error_code, said)])
            return {
                TopicPartition(topic.topic, row.partition_id): error_of(row.error_code)
                for topic in answer.replica_election_results
                for row in topic.partition_result
            }

        return await self._calls.retry("the election of leaders", attempt)

    async def reassign_partitions(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> None:
        topics: dict[str, AlterPartitionReassignmentsRequest.ReassignableTopic] = {}
        for name, replicas in as_mapping("reassign_partitions", targets, _TARGETS).items():
            at = topic_partition(name)
            topic = topics.setdefault(
                at.topic, AlterPartitionReassignmentsRequest.ReassignableTopic(name=at.topic)
            )
            topic.partitions.append(
                AlterPartitionReassignmentsRequest.ReassignablePartition(
                    partition_index=at.partition,
                    replicas=None
                    if replicas is None
                    else [whole_number(f"a broker of {at}", one) for one in replicas],
                )
            )
        request = AlterPartitionReassignmentsRequest(
            topics=list(topics.values()), timeout_ms=self._calls.timeout_ms
        )

        async def attempt() -> None:
            answer = await self._calls.ask_controller(request, AlterPartitionReassignmentsResponse)
            await self._calls.raise_refusals(
                [("the reassignment", answer.error_code, answer.error_message)]
            )
            await self._calls.raise_refusals(
                (f"{topic.name}-{row.partition_index}", row.error_code, row.error_message)
                for topic in answer.responses
                for row in topic.partitions
                if row.error_code != E.OPERATION_NOT_ATTEMPTED
            )

        await self._calls.retry("the reassignment of partitions", attempt)

    async def list_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=self._calls.timeout_ms)

        async def attempt() -> dict[TopicPartition, PartitionReassignment]:
            answer = await self._calls.ask_controller(request, ListPartitionReassignmentsResponse)
            await self._calls.raise_refusals(
                [("the list", answer.error_code, answer.error_message)]
            )
            return {
                TopicPartition(topic.name, row.partition_index): PartitionReassignment(
                    tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
                )
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self._calls.retry("the list of reassignments", attempt)

"""Topics: create, list, describe, delete, grow; and deletion of their records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headwater.client.admin.arguments import (
    ConfigValue,
    as_list,
    as_mapping,
    as_names,
    checked_text,
    config_text,
    whole_number,
)
from headwater.client.admin.calls import AdminCalls
from headwater.client.cluster import TopicView
from headwater.client.consumer.group.consumer_protocol import by_topic
from headwater.client.consumer.offset_lookups import OffsetLookups
from headwater.client.consumer.record import OffsetAndTimestamp, topic_partition, topic_partitions
from headwater.client.errors import no_such_topic
from headwater.client.refusals import refused, told
from headwater.client.topology import topics_and_problems
from headwater.errors import E
from headwater.model import EARLIEST, LATEST, TopicPartition
from headwater.security.acls import AclOperation
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

_BROKERS_CHOICE = -1
_NAMES_UP_TO = 5
_BY_PARTITION = "{(topic, partition): number}"


class NewTopic(NamedTuple):
    """A topic to create; the broker's defaults apply to omitted fields."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, ConfigValue] = {}
    replicas: Mapping[int, Sequence[int]] | None = None
    """For each partition the brokers that hold it, the preferred leader first."""


class TopicAdmin:
    """Creates, describes, grows and deletes topics; deletes records; looks up offsets."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> None:
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in as_list("create_topics", topics)],
            timeout_ms=self._calls.timeout_ms,
            validate_only=validate_only,
        )

        async def attempt() -> None:
            answer = await self._calls.ask_controller(request, CreateTopicsResponse)
            await self._calls.raise_refusals(
                (row.name, row.error_code, row.error_message) for row in answer.topics
            )

        await self._calls.retry("the creation of topics", attempt)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        views = await self._calls.retry("the list of topics", self._calls.cluster.all_topics)
        return sorted(name for name, view in views.items() if internal or not view.internal)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicView]:
        wanted = as_names("describe_topics", names)
        await self._calls.retry("the description of topics", self._calls.cluster.all_topics)
        missing = [name for name in wanted if name not in self._calls.cluster.topics]
        if missing:
            await self._raise_if_hidden(missing)
            raise no_such_topic(*missing)
        return {name: self._calls.cluster.topics[name] for name in wanted}

    async def _raise_if_hidden(self, names: Sequence[str]) -> None:
        """Raise the missing right, if topics are missing because this user may not see them."""
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        connection = await self._calls.cluster.connection(await self._calls.cluster.any_node())
        _, problems = topics_and_problems(await connection.call(asked, MetadataResponse))
        for name, problem in problems.items():
            if problem is E.TOPIC_AUTHORIZATION_FAILED:
                raise refused(self._calls.settings, problem, name)

    async def delete_topics(self, names: Iterable[str]) -> None:
        request = DeleteTopicsRequest(
            topic_names=as_names("delete_topics", names), timeout_ms=self._calls.timeout_ms
        )

        async def attempt() -> None:
            answer = await self._calls.ask_controller(request, DeleteTopicsResponse, _NAMES_UP_TO)
            await self._calls.raise_refusals(
                (row.name or "", row.error_code, row.error_message) for row in answer.responses
            )

        await self._calls.retry("the deletion of topics", attempt)

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False
    ) -> None:
        wanted = as_mapping("create_partitions", counts, "{topic: partitions}")
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(
                    name=checked_text("a topic name", name),
                    count=whole_number(f"the number of partitions of {name}", count),
                    assignments=None,
                )
                for name, count in wanted.items()
            ],
            timeout_ms=self._calls.timeout_ms,
            validate_only=validate_only,
        )

        async def attempt() -> None:
            answer = await self._calls.ask_controller(request, CreatePartitionsResponse)
            await self._calls.raise_refusals(
                (row.name, row.error_code, row.error_message) for row in answer.results
            )

        await self._calls.retry("the new partitions", attempt)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        wanted = {
            topic_partition(name): whole_number(f"the offset of {name}", offset, 64)
            for name, offset in as_mapping("delete_records", before, _BY_PARTITION).items()
        }
        low: dict[TopicPartition, int] = {}

        async def attempt() -> None:
            await self._calls.cluster.metadata({name.topic for name in wanted}, fresh=True)
            await self._calls.cluster.check_exist(wanted)
            by_leader: dict[int, list[TopicPartition]] = {}
            for name in wanted.keys() - low.keys():
                leader = self._calls.cluster.leader(name)
                by_leader.setdefault(leader.id if leader else -1, []).append(name)
            for leader_id, names in by_leader.items():
                await self._delete_at(leader_id, {name: wanted[name] for name in names}, low)

        await self._calls.retry("the deletion of records", attempt)
        return low

    async def _delete_at(
        self, leader_id: int, wanted: dict[TopicPartition, int], low: dict[TopicPartition, int]
    ) -> None:
        node = self._calls.cluster.nodes.get(leader_id)
        if node is None:
            await self._calls.raise_refusals(
                (str(name), E.LEADER_NOT_AVAILABLE, None) for name in wanted
            )
            return
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsRequest.DeleteRecordsPartition(
                            partition_index=number, offset=wanted[TopicPartition(topic, number)]
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(wanted).items()
            ],
            timeout_ms=self._calls.settings.request_timeout_ms,
        )
        answer = await self._calls.cluster.ask(node, request, DeleteRecordsResponse)
        refusals = []
        for topic in answer.topics:
            for row in topic.partitions:
                name = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    said = told(
                        self._calls.settings, row.error_code, AclOperation.DELETE, topic.name
                    )
                    refusals.append((str(name), row.error_code, said))
                else:
                    low[name] = row.low_watermark
        await self._calls.raise_refusals(refusals)

    async def list_offsets(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        wanted = {
            topic_partition(name): whole_number(f"the time of {name}", time, 64)
            for name, time in as_mapping("list_offsets", times, _BY_PARTITION).items()
        }
        return await OffsetLookups(self._calls.cluster).find(wanted, self._calls.timeout_ms)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        lookups = OffsetLookups(self._calls.cluster)
        return await lookups.ends(topic_partitions(partitions), EARLIEST, self._calls.timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        lookups = OffsetLookups(self._calls.cluster)
        return await lookups.ends(topic_partitions(partitions), LATEST, self._calls.timeout_ms)


def _given(what: str, number: int | None, bits: int) -> int:
    """Check a count; 0 passes, for the broker to refuse."""
    return _BROKERS_CHOICE if number is None else whole_number(what, number, bits)


def _creatable(given: NewTopic | str) -> CreateTopicsRequest.CreatableTopic:
    if not isinstance(given, NewTopic | str):
        raise TypeError(f"create_topics takes names and NewTopics, not {given!r}")
    topic = given if isinstance(given, NewTopic) else NewTopic(given)
    partitions = _given("the number of partitions", topic.partitions, 32)
    factor = _given("the replication factor", topic.replication_factor, 16)
    chosen = topic.replicas is not None
    return CreateTopicsRequest.CreatableTopic(
        name=checked_text("a topic name", topic.name),
        num_partitions=_BROKERS_CHOICE if chosen else partitions,
        replication_factor=_BROKERS_CHOICE if chosen else factor,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(
                partition_index=number, broker_ids=list(brokers)
            )
            for number, brokers in (topic.replicas or {}).items()
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=config_text(name, value))
            for name, value in topic.configs.items()
        ],
    )

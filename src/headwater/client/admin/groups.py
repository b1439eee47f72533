"""Groups: list, describe, delete; their offsets: read, set, reset, delete."""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from headwater.client.admin.arguments import as_list, as_mapping, as_names
from headwater.client.admin.calls import AdminCalls
from headwater.client.admin.offset_resets import OffsetChange, ResetTo
from headwater.client.admin.topics import TopicAdmin
from headwater.client.consumer.group.consumer_protocol import by_topic, decode_assignment
from headwater.client.consumer.offset_lookups import OffsetLookups
from headwater.client.consumer.record import (
    OffsetAndMetadata,
    checked_offsets,
    topic_partition,
    topic_partitions,
)
from headwater.client.errors import ClientError, failure
from headwater.client.refusals import told
from headwater.errors import E, KafkaError
from headwater.model import EARLIEST, LATEST, NO_OFFSET, TopicPartition
from headwater.security.acls import AclOperation
from headwater.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headwater.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

_CONSUMER = "consumer"
_DEAD, _EMPTY = "Dead", "Empty"
_ONE_GROUP_UP_TO = 7
_TOPICS_BY_NAME_UP_TO = 9


class GroupListing(NamedTuple):
    """A group in a list."""

    group_id: str
    state: str
    protocol_type: str
    type: str


class MemberDescription(NamedTuple):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group with its members."""

    group_id: str
    state: str
    protocol_type: str
    strategy: str
    members: tuple[MemberDescription, ...]


class PartitionLag(NamedTuple):
    """Where a group is in a partition."""

    committed: int | None
    """The next offset to read; None without a commit."""
    end: int
    lag: int | None
    """Records between the two; None without a commit."""


class GroupNotEmptyError(ClientError):
    """The group has members; offsets can be set only while the group is empty."""

    CODE = E.NON_EMPTY_GROUP


class GroupAdmin:
    """Describes and deletes groups; reads, sets, resets and deletes their offsets."""

    def __init__(self, calls: AdminCalls, topics: TopicAdmin) -> None:
        self._calls = calls
        self._topics = topics

    async def list_groups(self, states: Iterable[str] = ()) -> list[GroupListing]:
        wanted = {state.lower() for state in as_names("list_groups", states)}

        async def attempt() -> list[GroupListing]:
            await self._calls.cluster.refresh()
            asked = [self._groups_at(node_id) for node_id in list(self._calls.cluster.nodes)]
            return [row for rows in await asyncio.gather(*asked) for row in rows]

        found = await self._calls.retry("the list of groups", attempt)
        return sorted(row for row in found if not wanted or row.state.lower() in wanted)

    async def _groups_at(self, node_id: int) -> list[GroupListing]:
        node = self._calls.cluster.nodes[node_id]
        answer = await self._calls.cluster.ask(node, ListGroupsRequest(), ListGroupsResponse)
        await self._calls.raise_refusals([(f"broker {node_id}", answer.error_code, None)])
        return [
            GroupListing(row.group_id, row.group_state, row.protocol_type, row.group_type or "")
            for row in answer.groups
        ]

    async def describe_group(self, group_id: str) -> GroupDescription:
        async def attempt() -> GroupDescription:
            request = DescribeGroupsRequest(groups=[group_id])
            answer = await self._calls.ask_coordinator(group_id, request, DescribeGroupsResponse)
            row = answer.groups[0]
            await self._calls.raise_refusals(
                [(group_id, row.error_code, row.error_message)], group_id
            )
            if row.group_state == _DEAD:
                raise failure(E.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
            return _description(row)

        return await self._calls.retry(f"the description of group {group_id}", attempt)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        wanted = dict.fromkeys(as_names("describe_groups", group_ids))
        found = await asyncio.gather(*(self.describe_group(group_id) for group_id in wanted))
        return dict(zip(wanted, found, strict=True))

    async def lag(self, group_id: str) -> dict[TopicPartition, PartitionLag]:
        group = await self.describe_group(group_id)
        committed = await self.group_offsets(group_id)
        read = {name for member in group.members for name in member.assignment}
        names = sorted(read | set(committed))
        ends = await OffsetLookups(self._calls.cluster).ends(names, LATEST, self._calls.timeout_ms)
        return {
            name: _lag(committed[name].offset if name in committed else None, ends[name])
            for name in names
        }

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        for group_id in as_names("delete_groups", group_ids):
            deletion = partial(self._delete, group_id)
            await self._calls.retry(f"the deletion of group {group_id}", deletion)

    async def _delete(self, group_id: str) -> None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        answer = await self._calls.ask_coordinator(group_id, request, DeleteGroupsResponse)
        await self._calls.raise_refusals(
            (
                (row.group_id, row.error_code, row.error_message or self._told(row))
                for row in answer.results
            ),
            group_id,
        )

    def _told(self, row: DeleteGroupsResponse.DeletableGroupResult) -> str:
        return told(self._calls.settings, row.error_code, AclOperation.DELETE, row.group_id)

    # -- offsets

    async def group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition | tuple[str, int]] | None = None,
        *,
        stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        request = OffsetFetchRequest(group_id=group_id, topics=None, require_stable=stable)
        if partitions is not None:
            request.topics = [
                OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(topic_partitions(partitions)).items()
            ]

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
            answer = await self._calls.ask_coordinator(
                group_id, request, OffsetFetchResponse, _ONE_GROUP_UP_TO
            )
            await self._calls.raise_refusals([(group_id, answer.error_code, None)], group_id)
            await self._calls.raise_refusals(
                (f"{topic.name}-{row.partition_index}", row.error_code, None)
                for topic in answer.topics
                for row in topic.partitions
                if row.error_code == E.UNSTABLE_OFFSET_COMMIT
            )
            return {
                TopicPartition(topic.name, row.partition_index): OffsetAndMetadata(
                    row.committed_offset, row.metadata or "", row.committed_leader_epoch
                )
                for topic in answer.topics
                for row in topic.partitions
                if row.committed_offset != NO_OFFSET
            }

        return await self._calls.retry(f"the offsets of group {group_id}", attempt)

    async def set_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        as_mapping("set_group_offsets", offsets, "{(topic, partition): offset}")
        rows = checked_offsets(offsets)
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[_committed(topic, number, rows) for number in numbers],
                )
                for topic, numbers in by_topic(rows).items()
            ],
        )

        async def attempt() -> None:
            answer = await self._calls.ask_coordinator(
                group_id, request, OffsetCommitResponse, _TOPICS_BY_NAME_UP_TO
            )
            refusals = [
                (f"{topic.name}-{row.partition_index}", row.error_code, None)
                for topic in answer.topics
                for row in topic.partitions
            ]
            if any(code == E.UNKNOWN_MEMBER_ID for _, code, _ in refusals):
                raise _not_empty(group_id)
            await self._calls.raise_refusals(refusals, group_id)

        if rows:
            await self._calls.retry(f"the offsets of group {group_id}", attempt)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> None:
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=number)
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(topic_partitions(partitions)).items()
            ],
        )

        async def attempt() -> None:
            answer = await self._calls.ask_coordinator(group_id, request, OffsetDeleteResponse)
            await self._calls.raise_refusals([(group_id, answer.error_code, None)], group_id)
            await self._calls.raise_refusals(
                (f"{topic.name}-{row.partition_index}", row.error_code, None)
                for topic in answer.topics
                for row in topic.partitions
            )

        await self._calls.retry(f"the deletion of offsets of group {group_id}", attempt)

    async def reset_group_offsets(
        self,
        group_id: str,
        to: ResetTo,
        topics: Iterable[str | tuple[str, int]] | None = None,
        *,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        if not isinstance(to, ResetTo):
            raise TypeError(f"{to!r} is not a ResetTo: write ResetTo.earliest(), for example")
        await self._check_empty(group_id)
        committed = {name: row.offset for name, row in (await self.group_offsets(group_id)).items()}
        names = await self._chosen(topics, committed)
        lookups = OffsetLookups(self._calls.cluster)
        limit = self._calls.timeout_ms
        first = await lookups.ends(names, EARLIEST, limit)
        end = await lookups.ends(names, LATEST, limit)
        timestamp = to.timestamp(self._calls.clock.wall_ms())
        times = (
            await lookups.find(dict.fromkeys(names, timestamp), limit)
            if timestamp is not None
            else {}
        )
        changes = []
        for name in names:
            found = times.get(name)
            after = to.offset_in(
                committed.get(name), first[name], end[name], found.offset if found else None
            )
            changes.append(OffsetChange(name, committed.get(name), after))
        if not dry_run:
            await self.set_group_offsets(
                group_id, {row.partition: row.after for row in changes if row.after is not None}
            )
        return changes

    async def _check_empty(self, group_id: str) -> None:
        try:
            state = (await self.describe_group(group_id)).state
        except KafkaError as problem:
            if problem.code is not E.GROUP_ID_NOT_FOUND:
                raise
            return
        if state not in (_EMPTY, _DEAD):
            raise _not_empty(group_id)

    async def _chosen(
        self,
        topics: Iterable[str | tuple[str, int]] | None,
        committed: Mapping[TopicPartition, int],
    ) -> list[TopicPartition]:
        if topics is None:
            return sorted(committed)
        wanted = as_list("reset_group_offsets", topics)
        views = await self._topics.describe_topics(
            {one if isinstance(one, str) else one[0] for one in wanted}
        )
        found: set[TopicPartition] = set()
        for one in wanted:
            if isinstance(one, str):
                found |= {TopicPartition(one, row.partition) for row in views[one].partitions}
            else:
                found.add(topic_partition(one))
        await self._calls.cluster.check_exist(found)
        return sorted(found)


def _lag(committed: int | None, end: int) -> PartitionLag:
    return PartitionLag(committed, end, None if committed is None else max(end - committed, 0))


def _not_empty(group_id: str) -> GroupNotEmptyError:
    return GroupNotEmptyError(
        f"group {group_id} has members, which would overwrite the offsets: stop them first"
    )


def _description(row: DescribeGroupsResponse.DescribedGroup) -> GroupDescription:
    members = []
    for member in row.members:
        try:
            assigned = (
                decode_assignment(member.member_assignment)
                if row.protocol_type == _CONSUMER
                else []
            )
        except KafkaError:
            assigned = []  # written by something other than a consumer
        members.append(
            MemberDescription(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                tuple(assigned),
            )
        )
    return GroupDescription(
        row.group_id, row.group_state, row.protocol_type, row.protocol_data, tuple(members)
    )


def _committed(
    topic: str, number: int, rows: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest.OffsetCommitRequestPartition:
    row = rows[TopicPartition(topic, number)]
    return OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=row.offset,
        committed_leader_epoch=row.leader_epoch,
        committed_metadata=row.metadata,
    )

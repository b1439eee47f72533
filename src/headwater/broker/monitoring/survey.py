"""One pass over the partitions, groups and connections of a broker, for metrics that are sums of them.

It pauses after each of them: ten thousand partitions must not hold the event loop.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from heapq import nlargest
from typing import NamedTuple, TypeAlias

from headwater.broker.context import Context
from headwater.broker.monitoring.end_offsets import EndOffsets
from headwater.broker.server_connection import ServerConnection
from headwater.broker.turns import Steps
from headwater.coordination.groups.rebalances import LONGEST_NAME
from headwater.coordination.groups.shard import GroupShard
from headwater.model import NO_LEADER, TopicPartition
from headwater.replication.replica import Replica

MOST_TOPICS = 1000
MOST_GROUPS = 1000
MOST_CLIENTS = 100
OTHER = "(other)"
"""Replaces the names of rare client libraries, because peers choose these names."""


class PartitionRow(NamedTuple):
    """One log, for a reader that asked for its topic."""

    topic: str
    partition: str
    size: int
    start_offset: int
    end_offset: int


@dataclass(slots=True)
class TopicTotals:
    """Sums over the replicas of a topic on this broker."""

    size: int = 0
    segments: int = 0
    end_offset: int = 0
    """Over the partitions that this broker leads."""


class GroupPosition(NamedTuple):
    """How far a group has read a topic."""

    group: str
    topic: str
    lag: int
    lead: int


_GroupLag: TypeAlias = tuple[int, list[GroupPosition]]


@dataclass(slots=True)
class Survey:
    """What the walk found."""

    partitions: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    offline_replicas: int = 0
    topics: dict[str, TopicTotals] = field(default_factory=dict)
    asked: list[PartitionRow] = field(default_factory=list)
    cluster_topics: int = 0
    cluster_partitions: int = 0
    offline_partitions: int = 0
    imbalance: int = 0
    group_states: Counter[str] = field(default_factory=Counter)
    positions: list[GroupPosition] = field(default_factory=list)
    left_out_groups: int = 0
    clients: Counter[tuple[str, str]] = field(default_factory=Counter)
    bytes_in: int = 0
    bytes_out: int = 0


def take_survey(context: Context, ends: EndOffsets, asked: Collection[str]) -> Steps[Survey]:
    """Walk over everything; rows for single partitions are made for the topics in `asked`."""
    found = Survey()
    for _ in _walk(context, ends, found, asked):
        yield
    return found


def _walk(
    context: Context, ends: EndOffsets, found: Survey, asked: Collection[str]
) -> Iterator[None]:
    for replica in list(context.replicas):
        _add_replica(found, replica, replica.topic_partition.topic in asked)
        yield
    found.offline_replicas += context.replicas.unopened
    if context.controller.active:
        yield from _walk_cluster(context, found)
    lags: list[_GroupLag] = []
    for shard in context.groups.active_shards():
        yield from _walk_groups(ends, shard, found, lags)
    _choose_groups(found, lags)
    for connection in list(context.connection_quotas.open):
        found.bytes_in += connection.bytes_in
        found.bytes_out += connection.bytes_out
        if isinstance(connection, ServerConnection):
            found.clients[connection.client_software] += 1
        yield


def _add_replica(found: Survey, replica: Replica, asked: bool) -> None:
    at = replica.topic_partition
    totals = found.topics.get(at.topic)
    if totals is None:
        totals = found.topics[at.topic] = TopicTotals()
    found.partitions += 1
    totals.size += replica.upkeep.size
    totals.segments += replica.upkeep.segment_count
    if replica.offline is not None:
        found.offline_replicas += 1
    if replica.is_leader:
        found.leaders += 1
        totals.end_offset += replica.log_end_offset
        state = replica.leading.isr_state
        found.under_replicated += state.under_replicated
        found.under_min_isr += state.under_min
        found.at_min_isr += state.at_min
    if asked:
        found.asked.append(
            PartitionRow(
                at.topic,
                str(at.partition),
                replica.upkeep.size,
                replica.log_start_offset,
                replica.log_end_offset,
            )
        )


def _walk_cluster(context: Context, found: Survey) -> Iterator[None]:
    """What only the controller counts, so that a sum over brokers counts it once."""
    for topic in list(context.metadata.topics.values()):
        found.cluster_topics += 1
        for info in list(topic.partitions.values()):
            found.cluster_partitions += 1
            if info.leader == NO_LEADER:
                found.offline_partitions += 1
            elif info.leader != info.replicas[0]:
                found.imbalance += 1
            yield


def _walk_groups(
    ends: EndOffsets, shard: GroupShard, found: Survey, lags: list[_GroupLag]
) -> Iterator[None]:
    for group in list(shard.groups.values()):
        found.group_states[group.state.value] += 1
        yield
    for group_id in shard.offsets.groups():
        positions: list[GroupPosition] = []
        for topic, offsets in shard.offsets.positions(group_id):
            lag, leads = 0, []
            for partition, offset in offsets:
                start, end = ends.of(TopicPartition(topic, partition))
                if start is not None and end is not None:
                    lag += max(0, end - offset)
                    leads.append(max(0, offset - start))
                yield
            if leads:
                positions.append(GroupPosition(group_id[:LONGEST_NAME], topic, lag, min(leads)))
        if positions:
            lags.append((sum(row.lag for row in positions), positions))


def _choose_groups(found: Survey, lags: list[_GroupLag]) -> None:
    """Keep the groups with the largest lag; a client can invent any number of groups."""
    found.left_out_groups = max(0, len(lags) - MOST_GROUPS)
    if found.left_out_groups:
        lags = nlargest(MOST_GROUPS, lags, key=lambda row: row[0])
    for _, positions in lags:
        found.positions += positions

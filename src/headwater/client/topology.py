"""Brokers, topics and partitions, as metadata describes them."""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from headwater.errors import E, error_of
from headwater.model import NO_EPOCH, NO_LEADER, ZERO_UUID, TopicPartition, Uuid
from headwater.wire.messages.metadata import MetadataResponse


class Node(NamedTuple):
    """A broker and its address; a bootstrap address has a negative id."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """A partition in the last metadata; `leader` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicView(NamedTuple):
    """A topic in the last metadata; `partitions` are in the order of their numbers."""

    name: str
    topic_id: Uuid
    internal: bool
    partitions: tuple[PartitionView, ...]


def bootstrap_nodes(addresses: Iterable[str]) -> Iterable[Node]:
    """Return nodes for bootstrap addresses."""
    for number, address in enumerate(addresses, start=1):
        host, _, port = address.rpartition(":")
        yield Node(-number, host.strip("[]"), int(port))


def topic_view(name: str, row: MetadataResponse.MetadataResponseTopic) -> TopicView:
    """Return the topic of one row of a response."""
    partitions = tuple(
        PartitionView(
            part.partition_index,
            NO_LEADER if part.error_code == E.LEADER_NOT_AVAILABLE else part.leader_id,
            part.leader_epoch,
            tuple(part.replica_nodes),
            tuple(part.isr_nodes),
            tuple(part.offline_replicas),
        )
        for part in sorted(row.partitions, key=lambda part: part.partition_index)
    )
    return TopicView(name, row.topic_id or ZERO_UUID, row.is_internal, partitions)


def partition_view(
    topics: Mapping[str, TopicView], partition: TopicPartition
) -> PartitionView | None:
    """The partition as last told; None if it is not known."""
    topic = topics.get(partition.topic)
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return None
    return topic.partitions[partition.partition]


def without_older_leaders(told: TopicView, known: TopicView | None) -> TopicView:
    """Return the topic of a response, with known leaders in place of older ones (KIP-320).

    A broker that was down for a while reports outdated leaders, possibly itself.
    """
    if known is None or told.topic_id != known.topic_id:
        return told
    partitions = tuple(
        known.partitions[index]
        if index < len(known.partitions)
        and NO_EPOCH < row.leader_epoch < known.partitions[index].leader_epoch
        else row
        for index, row in enumerate(told.partitions)
    )
    return told._replace(partitions=partitions)


def with_leader(topic: TopicView, partition: int, leader: int, epoch: int) -> TopicView:
    """Return the topic with another leader of one partition."""
    rows = list(topic.partitions)
    rows[partition] = rows[partition]._replace(leader=leader, leader_epoch=epoch)
    return topic._replace(partitions=tuple(rows))


def lacks_leaders(topics: Mapping[str, TopicView], reachable: Container[int]) -> bool:
    """Return whether a partition has no reachable leader: its election must be noticed soon."""
    return any(row.leader not in reachable for topic in topics.values() for row in topic.partitions)


def topics_and_problems(
    answer: MetadataResponse,
) -> tuple[dict[str, TopicView], dict[str, E]]:
    """Return the topics of a response, and the errors of the others."""
    topics, problems = {}, {}
    for row in answer.topics:
        if row.name is None:
            continue
        if row.error_code and not row.partitions:
            problems[row.name] = error_of(row.error_code)
        else:
            topics[row.name] = topic_view(row.name, row)
    return topics, problems

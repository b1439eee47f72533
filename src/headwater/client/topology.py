"""What metadata says of brokers, topics and partitions."""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from headwater.errors import E, error_of
from headwater.model import NO_EPOCH, NO_LEADER, ZERO_UUID, TopicPartition, Uuid
from headwater.wire.messages.metadata import MetadataResponse


class Node(NamedTuple):
    """A broker and where it is; a bootstrap address has a negative id."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """A partition as last told; `leader` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicView(NamedTuple):
    """A topic as last told; `partitions` are in the order of their numbers."""

    name: str
    topic_id: Uuid
    internal: bool
    partitions: tuple[PartitionView, ...]


def bootstrap_nodes(addresses: Iterable[str]) -> Iterable[Node]:
    """Brokers of which no more than the address is known."""
    for number, address in enumerate(addresses, start=1):
        host, _, port = address.rpartition(":")
        yield Node(-number, host.strip("[]"), int(port))


def topic_view(name: str, row: MetadataResponse.MetadataResponseTopic) -> TopicView:
    """The topic of one row of an answer."""
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
    """The topic as told, with what is known of leaders that the answer has not heard of (KIP-320).

    A broker that did not run for a while names the leaders of its past, itself among them.
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
    """The topic with another leader of one partition."""
    rows = list(topic.partitions)
    rows[partition] = rows[partition]._replace(leader=leader, leader_epoch=epoch)
    return topic._replace(partitions=tuple(rows))


def lacks_leaders(topics: Mapping[str, TopicView], reachable: Container[int]) -> bool:
    """Whether some partition has no leader that can be reached.

    The end of its election must be noticed soon.
    """
    return any(row.leader not in reachable for topic in topics.values() for row in topic.partitions)


def topics_and_problems(
    answer: MetadataResponse,
) -> tuple[dict[str, TopicView], dict[str, E]]:
    """The topics of an answer, and why it says nothing about the others."""
    topics, problems = {}, {}
    for row in answer.topics:
        if row.name is None:
            continue
        if row.error_code and not row.partitions:
            problems[row.name] = error_of(row.error_code)
        else:
            topics[row.name] = topic_view(row.name, row)
    return topics, problems

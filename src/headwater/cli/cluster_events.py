"""Describes the changes between two views of a cluster, in lines for a terminal."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.client.admin import BlockingAdmin
from headwater.client.topology import PartitionView
from headwater.model import NO_LEADER

_MAX_PARTITION_LINES = 10


@dataclass(frozen=True)
class ClusterView:
    """A cluster at one moment: its live brokers, its controller, the state of each partition."""

    brokers: frozenset[int] = frozenset()
    controller: int = -1
    partitions: dict[tuple[str, int], PartitionView] = field(default_factory=dict)

    @staticmethod
    def of(admin: BlockingAdmin) -> "ClusterView":
        """Ask the cluster."""
        described = admin.describe_cluster()
        topics = admin.describe_topics(admin.list_topics(internal=True))
        return ClusterView(
            frozenset(node.id for node in described.brokers),
            described.controller_id,
            {
                (name, partition.partition): partition
                for name, topic in topics.items()
                for partition in topic.partitions
            },
        )


def changes(before: ClusterView, now: ClusterView) -> Iterator[str]:
    """Describe what is different, brokers first; a long list of partitions is counted instead."""
    if now.brokers != before.brokers:
        for broker in sorted(now.brokers - before.brokers):
            yield f"broker {broker} joined"
        for broker in sorted(before.brokers - now.brokers):
            yield f"broker {broker} left"
    if now.controller != before.controller and now.controller >= 0:
        yield f"broker {now.controller} is the controller"
    lines = list(_partition_changes(before, now))
    yield from lines[:_MAX_PARTITION_LINES]
    if len(lines) > _MAX_PARTITION_LINES:
        yield f"and {len(lines) - _MAX_PARTITION_LINES} more partitions changed"


def _partition_changes(before: ClusterView, now: ClusterView) -> Iterator[str]:
    for at, partition in sorted(now.partitions.items()):
        known = before.partitions.get(at)
        state = _state(partition)
        if known is None or _state(known) != state:
            yield f"{at[0]}-{at[1]}: {state}"


def _state(partition: PartitionView) -> str:
    leads = "no leader" if partition.leader == NO_LEADER else f"leader {partition.leader}"
    behind = sorted(set(partition.replicas) - set(partition.isr))
    in_sync = ", ".join(map(str, sorted(partition.isr)))
    late = f"; not in sync: {', '.join(map(str, behind))}" if behind else ""
    return f"{leads}, in sync {in_sync}{late}"

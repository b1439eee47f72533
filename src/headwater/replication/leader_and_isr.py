"""The controller's decision for one partition."""

from typing import NamedTuple

from headwater.model import TopicPartition, Uuid


class LeaderAndIsr(NamedTuple):
    """One partition of a LeaderAndIsr request."""

    topic_partition: TopicPartition
    topic_id: Uuid
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_new: bool = True
    """Whether the partition was just created; the log of an older one may be on an offline disk."""
    elr: tuple[int, ...] = ()
    """The eligible leader replicas (KIP-966)."""

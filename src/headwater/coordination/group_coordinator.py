"""The group coordinator: group shards on the partitions of `__consumer_offsets`."""

import uuid
from typing import TypeAlias, TypeVar

from headwater.config.broker import BrokerSettings
from headwater.coordination.coordinator_log import CoordinatorLog
from headwater.coordination.groups import records
from headwater.coordination.groups.rebalances import Rebalances
from headwater.coordination.groups.records import CoordinatorRecord
from headwater.coordination.groups.settings import GroupSettings
from headwater.coordination.groups.shard import GroupShard
from headwater.coordination.runtime_loop import Command, CoordinatorRuntime
from headwater.coordination.shard import InternalTopic, TopicImage
from headwater.model import CONSUMER_OFFSETS
from headwater.seams.clock import Clock
from headwater.seams.randomness import Randomness
from headwater.seams.timers import CallLater

C = TypeVar("C")
GroupCoordinator: TypeAlias = CoordinatorRuntime[GroupShard, CoordinatorRecord]
GroupCommand: TypeAlias = Command[GroupShard, C, CoordinatorRecord]


def offsets_topic(settings: BrokerSettings) -> InternalTopic:
    """Return `__consumer_offsets` with the broker's settings."""
    return InternalTopic(
        CONSUMER_OFFSETS,
        settings.offsets_topic_num_partitions,
        settings.offsets_topic_replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
        },
        clamped=not settings.is_set("offsets.topic.replication.factor"),
    )


def group_coordinator(
    topic: InternalTopic,
    settings: GroupSettings,
    *,
    log: CoordinatorLog,
    topics: TopicImage,
    clock: Clock,
    randomness: Randomness,
    call_later: CallLater,
    rebalances: Rebalances,
) -> GroupCoordinator:
    """Return the runtime of all group shards on this broker."""

    def new_member_id(prefix: str) -> str:
        return f"{prefix}-{uuid.UUID(bytes=randomness.uuid())}"

    return CoordinatorRuntime(
        topic,
        lambda leader_epoch: GroupShard(settings, topics, new_member_id),
        records,
        log=log,
        topics=topics,
        clock=clock,
        call_later=call_later,
        on_effect=rebalances.note,
        transactional=lambda shard: shard,
    )

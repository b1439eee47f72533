"""The transaction coordinator: transaction shards on the partitions of `__transaction_state`."""

from typing import TypeAlias, TypeVar

from headwater.config.broker import BrokerSettings
from headwater.coordination.coordinator_log import CoordinatorLog
from headwater.coordination.runtime_loop import Command, CoordinatorRuntime, Reply
from headwater.coordination.shard import InternalTopic, TopicImage
from headwater.coordination.transactions import records
from headwater.coordination.transactions.records import TransactionRecord
from headwater.coordination.transactions.settings import TransactionSettings
from headwater.coordination.transactions.shard import TransactionShard
from headwater.model import TRANSACTION_STATE
from headwater.seams.clock import Clock
from headwater.seams.timers import CallLater

C = TypeVar("C")
TransactionCoordinator: TypeAlias = CoordinatorRuntime[TransactionShard, TransactionRecord]
TransactionCommand: TypeAlias = Command[TransactionShard, C, TransactionRecord]


def transaction_topic(settings: BrokerSettings) -> InternalTopic:
    """Return `__transaction_state` with the broker's settings."""
    return InternalTopic(
        TRANSACTION_STATE,
        settings.transaction_state_log_num_partitions,
        settings.transaction_state_log_replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(settings.transaction_state_log_min_isr),
            "segment.bytes": str(settings.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
        clamped=not settings.is_set("transaction.state.log.replication.factor"),
    )


def transaction_coordinator(
    topic: InternalTopic,
    settings: TransactionSettings,
    *,
    on_prepared: Reply,
    log: CoordinatorLog,
    topics: TopicImage,
    clock: Clock,
    call_later: CallLater,
) -> TransactionCoordinator:
    """Return the runtime of all transaction shards on this broker."""
    return CoordinatorRuntime(
        topic,
        lambda leader_epoch: TransactionShard(settings, leader_epoch, on_prepared),
        records,
        log=log,
        topics=topics,
        clock=clock,
        call_later=call_later,
    )

"""Defaults of topics. A topic key that is not set on the topic comes from here."""

from typing import Any

from headwater.config.keys import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    INT64_MAX,
    LONG,
    Key,
    SettingsBase,
    key,
)
from headwater.config.topic import TopicSettings


def _for_topics(name: str, topic_key: str) -> Any:
    """The broker's row that gives topics their default: same type, bounds and default."""
    row = TopicSettings.KEYS[topic_key]
    twin = Key(name, row.type, row.default, f"The default of the topic key {topic_key}: {row.doc}")
    twin.at_least, twin.at_most, twin.one_of, twin.check = (
        row.at_least, row.at_most, row.one_of, row.check,
    )  # fmt: skip
    twin.mode, twin.idle = CLUSTER_WIDE, row.idle
    return twin


class TopicDefaultKeys(SettingsBase):
    """How topics are created, and their defaults."""

    # fmt: off
    num_partitions: int = key(
        "num.partitions", INT, default=1, at_least=1,
        doc="The default number of partitions of a new topic.",
    )
    default_replication_factor: int = key(
        "default.replication.factor", INT, default=1, at_least=1, at_most=32767,
        doc="The default replication factor of a new topic.",
    )
    auto_create_topics_enable: bool = key(
        "auto.create.topics.enable", BOOLEAN, default=False,
        doc="Create a missing topic when a client asks for it.",
        differs="Kafka gives true; a mistyped name should be an error and not a new topic.",
    )
    delete_topic_enable: bool = key(
        "delete.topic.enable", BOOLEAN, default=True,
        doc="Whether topics can be deleted.",
    )
    log_cleanup_policy: tuple[str, ...] = _for_topics("log.cleanup.policy", "cleanup.policy")
    compression_type: str = _for_topics("compression.type", "compression.type")
    compression_gzip_level: int = _for_topics("compression.gzip.level", "compression.gzip.level")
    compression_lz4_level: int = _for_topics("compression.lz4.level", "compression.lz4.level")
    compression_zstd_level: int = _for_topics("compression.zstd.level", "compression.zstd.level")
    log_cleaner_delete_retention_ms: int = _for_topics("log.cleaner.delete.retention.ms", "delete.retention.ms")
    log_cleaner_max_compaction_lag_ms: int = _for_topics("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms")
    log_cleaner_min_cleanable_ratio: float = _for_topics("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio")
    log_cleaner_min_compaction_lag_ms: int = _for_topics("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms")
    log_flush_interval_messages: int = _for_topics("log.flush.interval.messages", "flush.messages")
    log_index_interval_bytes: int = _for_topics("log.index.interval.bytes", "index.interval.bytes")
    log_index_size_max_bytes: int = _for_topics("log.index.size.max.bytes", "segment.index.bytes")
    log_message_timestamp_after_max_ms: int = _for_topics("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms")
    log_message_timestamp_before_max_ms: int = _for_topics("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms")
    log_message_timestamp_type: str = _for_topics("log.message.timestamp.type", "message.timestamp.type")
    log_preallocate: bool = _for_topics("log.preallocate", "preallocate")
    log_retention_bytes: int = _for_topics("log.retention.bytes", "retention.bytes")
    log_segment_bytes: int = _for_topics("log.segment.bytes", "segment.bytes")
    log_segment_delete_delay_ms: int = _for_topics("log.segment.delete.delay.ms", "file.delete.delay.ms")
    message_max_bytes: int = _for_topics("message.max.bytes", "max.message.bytes")
    min_insync_replicas: int = _for_topics("min.insync.replicas", "min.insync.replicas")
    unclean_leader_election_enable: bool = _for_topics("unclean.leader.election.enable", "unclean.leader.election.enable")

    # The same defaults in coarser units: the finest one that is set wins.
    log_retention_ms: int | None = key(
        "log.retention.ms", LONG, default=None, at_least=-1, mode=CLUSTER_WIDE,
        doc="The default of the topic key retention.ms; overrides .minutes and .hours. -1 for no "
            "limit.",
    )
    log_retention_minutes: int | None = key(
        "log.retention.minutes", INT, default=None, at_least=-1,
        doc="retention.ms in minutes, used if log.retention.ms is not set.",
    )
    log_retention_hours: int = key(
        "log.retention.hours", INT, default=168, at_least=-1,
        doc="retention.ms in hours, used if neither log.retention.ms nor .minutes is set.",
    )
    log_roll_ms: int | None = key(
        "log.roll.ms", LONG, default=None, at_least=1, mode=CLUSTER_WIDE,
        doc="The default of the topic key segment.ms; overrides log.roll.hours.",
    )
    log_roll_hours: int = key(
        "log.roll.hours", INT, default=168, at_least=1,
        doc="segment.ms in hours, used if log.roll.ms is not set.",
    )
    log_roll_jitter_ms: int | None = key(
        "log.roll.jitter.ms", LONG, default=None, at_least=0, mode=CLUSTER_WIDE,
        doc="The default of the topic key segment.jitter.ms; overrides log.roll.jitter.hours.",
    )
    log_roll_jitter_hours: int = key(
        "log.roll.jitter.hours", INT, default=0, at_least=0,
        doc="segment.jitter.ms in hours, used if log.roll.jitter.ms is not set.",
    )
    log_flush_interval_ms: int | None = key(
        "log.flush.interval.ms", LONG, default=None, at_least=0, mode=CLUSTER_WIDE,
        doc="The default of the topic key flush.ms; overrides log.flush.scheduler.interval.ms.",
    )
    log_flush_scheduler_interval_ms: int = key(
        "log.flush.scheduler.interval.ms", LONG, default=INT64_MAX,
        doc="How often logs are checked for records due to be flushed.",
    )
    # fmt: on

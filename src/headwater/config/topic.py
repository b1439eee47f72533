"""The keys of a topic. A key that a topic does not set comes from the broker's settings."""

import re
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING

from headwater.config.keys import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT64_MAX,
    LIST,
    LONG,
    STRING,
    ConfigError,
    SettingsBase,
    key,
)

if TYPE_CHECKING:
    from headwater.config.broker import BrokerSettings

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_REPLICA = re.compile(r"[0-9]+:[0-9]+\Z")


def _gzip_level(level: int) -> str | None:
    return None if level == -1 or 1 <= level <= 9 else "it must be -1 (zlib's own choice) or 1 to 9"


def _throttled(replicas: tuple[str, ...]) -> str | None:
    if replicas == ("*",) or all(_REPLICA.match(replica) for replica in replicas):
        return None
    return "it takes * or a list of partition:broker"


class TopicSettings(SettingsBase):
    """The resolved settings of one topic."""

    # fmt: off
    cleanup_policy: tuple[str, ...] = key(
        "cleanup.policy", LIST, default=("delete",), one_of=("compact", "delete"),
        synonyms=("log.cleanup.policy",),
        doc="delete: remove old segments by time and size. compact: keep the last value of each "
            "key. An empty list keeps everything.",
    )
    compression_type: str = key(
        "compression.type", STRING, default="producer", one_of=CODECS,
        synonyms=("compression.type",),
        doc="The codec of stored batches. producer keeps each batch as it was sent; any other "
            "value recompresses batches that use another codec.",
    )
    compression_gzip_level: int = key(
        "compression.gzip.level", INT, default=-1, check=_gzip_level,
        synonyms=("compression.gzip.level",),
        doc="The gzip level for batches the broker recompresses; -1 leaves it to zlib.",
    )
    compression_lz4_level: int = key(
        "compression.lz4.level", INT, default=9, at_least=1, at_most=17,
        synonyms=("compression.lz4.level",),
        doc="The lz4 level for batches the broker recompresses.",
    )
    compression_zstd_level: int = key(
        "compression.zstd.level", INT, default=3, at_least=-131072, at_most=22,
        synonyms=("compression.zstd.level",),
        doc="The zstd level for batches the broker recompresses.",
    )
    delete_retention_ms: int = key(
        "delete.retention.ms", LONG, default=86_400_000, at_least=0,
        synonyms=("log.cleaner.delete.retention.ms",),
        doc="How long compaction keeps a tombstone. A consumer that reads the log from its start "
            "within that time sees the deletion.",
    )
    file_delete_delay_ms: int = key(
        "file.delete.delay.ms", LONG, default=60_000, at_least=0,
        synonyms=("log.segment.delete.delay.ms",),
        doc="How long a deleted segment stays on disk with the suffix .deleted, for reads that are "
            "still in progress.",
    )
    flush_messages: int = key(
        "flush.messages", LONG, default=INT64_MAX, at_least=1,
        synonyms=("log.flush.interval.messages",),
        doc="Flush to disk after this many records; 1 flushes after every append. Replication is a "
            "cheaper way to durability.",
    )
    flush_ms: int = key(
        "flush.ms", LONG, default=INT64_MAX, at_least=0,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="Flush to disk when the oldest unflushed record is this old.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = key(
        "follower.replication.throttled.replicas", LIST, default=(), check=_throttled,
        doc="Replicas that follower.replication.throttled.rate slows while they are not in sync, as "
            "partition:broker pairs, or * for all.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = key(
        "leader.replication.throttled.replicas", LIST, default=(), check=_throttled,
        doc="Replicas whose leader sends at most leader.replication.throttled.rate to followers that "
            "are not in sync, as partition:broker pairs (the leader's broker), or * for all.",
    )
    index_interval_bytes: int = key(
        "index.interval.bytes", INT, default=4096, at_least=0,
        synonyms=("log.index.interval.bytes",),
        doc="The bytes of log per index entry: smaller values make lookups more precise and the "
            "index larger.",
    )
    max_compaction_lag_ms: int = key(
        "max.compaction.lag.ms", LONG, default=INT64_MAX, at_least=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
        doc="The longest time a record may stay uncompacted, however clean the log is. The active "
            "segment rolls by then.",
    )
    max_message_bytes: int = key(
        "max.message.bytes", INT, default=1_048_588, at_least=0,
        synonyms=("message.max.bytes",),
        doc="The maximum size of a batch, after compression and including headers. No batch may have "
            "more than 64 MiB when decompressed.",
    )
    message_timestamp_after_max_ms: int = key(
        "message.timestamp.after.max.ms", LONG, default=3_600_000, at_least=0,
        synonyms=("log.message.timestamp.after.max.ms",),
        doc="How far a record's timestamp may be in the future; ignored with LogAppendTime.",
    )
    message_timestamp_before_max_ms: int = key(
        "message.timestamp.before.max.ms", LONG, default=INT64_MAX, at_least=0,
        synonyms=("log.message.timestamp.before.max.ms",),
        doc="How far a record's timestamp may be in the past; ignored with LogAppendTime.",
    )
    message_timestamp_type: str = key(
        "message.timestamp.type", STRING, default="CreateTime",
        one_of=("CreateTime", "LogAppendTime"), synonyms=("log.message.timestamp.type",),
        doc="Whether records keep the producer's timestamp or get the broker's.",
    )
    min_cleanable_dirty_ratio: float = key(
        "min.cleanable.dirty.ratio", DOUBLE, default=0.5, at_least=0, at_most=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
        doc="Compact once this share of the log is new since the last compaction.",
    )
    min_compaction_lag_ms: int = key(
        "min.compaction.lag.ms", LONG, default=0, at_least=0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
        doc="The minimum time before compaction may remove a record.",
    )
    min_insync_replicas: int = key(
        "min.insync.replicas", INT, default=1, at_least=1, synonyms=("min.insync.replicas",),
        doc="With fewer in-sync replicas, writes with acks=all are refused.",
    )
    preallocate: bool = key(
        "preallocate", BOOLEAN, default=False, synonyms=("log.preallocate",),
        doc="Reserve a segment's full size on disk when it is created.",
        idle="segments grow as they are written",
    )
    retention_bytes: int = key(
        "retention.bytes", LONG, default=-1, synonyms=("log.retention.bytes",),
        doc="The size of a partition beyond which its oldest segments are deleted; -1 for no limit.",
    )
    retention_ms: int = key(
        "retention.ms", LONG, default=604_800_000, at_least=-1,
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        doc="The age at which a segment is deleted; -1 for no limit.",
    )
    segment_bytes: int = key(
        "segment.bytes", INT, default=1_073_741_824, at_least=14,
        synonyms=("log.segment.bytes",),
        doc="The size at which a new segment starts; whole segments are deleted.",
        differs="Kafka 4 refuses segments below 1 MiB, Kafka 3.9 below 14 bytes; the older bound "
                "is used, because small segments make retention and compaction easy to try out.",
    )
    segment_index_bytes: int = key(
        "segment.index.bytes", INT, default=10_485_760, at_least=4,
        synonyms=("log.index.size.max.bytes",),
        doc="The maximum size of a segment's index; a full index starts a new segment.",
    )
    segment_jitter_ms: int = key(
        "segment.jitter.ms", LONG, default=0, at_least=0,
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        doc="A random amount of up to this is subtracted from segment.ms, so that many partitions "
            "do not roll at once.",
    )
    segment_ms: int = key(
        "segment.ms", LONG, default=604_800_000, at_least=1,
        synonyms=("log.roll.ms", "log.roll.hours"),
        doc="The age at which a new segment starts even if the old one is not full.",
    )
    unclean_leader_election_enable: bool = key(
        "unclean.leader.election.enable", BOOLEAN, default=False,
        synonyms=("unclean.leader.election.enable",),
        doc="Let a replica outside the in-sync set become leader if no other is left, at the cost of "
            "losing records.",
    )
    # fmt: on

    @property
    def compacted(self) -> bool:
        """Whether the topic keeps the last value of each key."""
        return "compact" in self.cleanup_policy

    @classmethod
    def check(cls, overrides: Mapping[str, str]) -> ConfigError | None:
        """Why `overrides` cannot be a topic's settings, or None."""
        defaults = {row.name: row.default for row in cls.KEYS.values()}
        try:
            cls({**defaults, **cls.parse(overrides)}).refuse_contradictions()
        except ConfigError as problem:
            return problem
        return None

    def refuse_contradictions(self) -> None:
        """Raise ConfigError if two valid keys contradict each other."""
        low, high = self.min_compaction_lag_ms, self.max_compaction_lag_ms
        if low > high:
            raise ConfigError(
                f"min.compaction.lag.ms ({low}) is greater than max.compaction.lag.ms ({high})"
            )

    @classmethod
    def resolve(cls, broker: "BrokerSettings", overrides: Mapping[str, str]) -> "TopicSettings":
        """Apply the topic's overrides to the broker's defaults.

        A stored override that no longer parses is skipped: the topic must stay readable.
        """
        if not overrides:
            return broker.topic_defaults
        resolved = copy(broker.topic_defaults)
        for name, text in overrides.items():
            with suppress(ConfigError):
                row = cls.key(name)
                vars(resolved)[row.attribute] = row.parse(text)
        return resolved

"""The keys of a topic. What a topic does not set it takes from the broker's keys."""

import re
from collections.abc import Mapping
from contextlib import suppress
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
ALONE = "a broker alone copies to and from nobody"
NO_COMPACTION = "compaction is not there yet"
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
        doc="delete drops old segments by time and size, compact keeps the last value of each "
            "key, both do both; an empty list keeps everything.",
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
        doc="How long compaction keeps a tombstone, so that a reader starting at the beginning "
            "within that time learns of the removal.",
        idle=NO_COMPACTION,
    )
    file_delete_delay_ms: int = key(
        "file.delete.delay.ms", LONG, default=60_000, at_least=0,
        synonyms=("log.segment.delete.delay.ms",),
        doc="How long a removed segment stays on disk under the suffix .deleted, for reads that "
            "are still under way.",
    )
    flush_messages: int = key(
        "flush.messages", LONG, default=INT64_MAX, at_least=1,
        synonyms=("log.flush.interval.messages",),
        doc="Flush to the disk after this many records; 1 flushes after every append. Replication "
            "is the cheaper way to durability.",
    )
    flush_ms: int = key(
        "flush.ms", LONG, default=INT64_MAX, at_least=0,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="Flush to the disk when the oldest unflushed record is this old.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = key(
        "follower.replication.throttled.replicas", LIST, default=(), check=_throttled,
        doc="Replicas whose fetching is throttled, as partition:broker pairs, or * for all.",
        idle=ALONE,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = key(
        "leader.replication.throttled.replicas", LIST, default=(), check=_throttled,
        doc="Replicas whose serving of followers is throttled, as partition:broker pairs, or *.",
        idle=ALONE,
    )
    index_interval_bytes: int = key(
        "index.interval.bytes", INT, default=4096, at_least=0,
        synonyms=("log.index.interval.bytes",),
        doc="One index entry per this many bytes of log: smaller makes lookups closer and the "
            "index larger.",
    )
    max_compaction_lag_ms: int = key(
        "max.compaction.lag.ms", LONG, default=INT64_MAX, at_least=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
        doc="The longest a record may wait for compaction, however clean the log is.",
        idle=NO_COMPACTION,
    )
    max_message_bytes: int = key(
        "max.message.bytes", INT, default=1_048_588, at_least=0,
        synonyms=("message.max.bytes",),
        doc="The largest batch the topic takes, after compression, headers included.",
    )
    message_timestamp_after_max_ms: int = key(
        "message.timestamp.after.max.ms", LONG, default=3_600_000, at_least=0,
        synonyms=("log.message.timestamp.after.max.ms",),
        doc="How far a record's timestamp may lie in the future; ignored with LogAppendTime.",
    )
    message_timestamp_before_max_ms: int = key(
        "message.timestamp.before.max.ms", LONG, default=INT64_MAX, at_least=0,
        synonyms=("log.message.timestamp.before.max.ms",),
        doc="How far a record's timestamp may lie in the past; ignored with LogAppendTime.",
    )
    message_timestamp_type: str = key(
        "message.timestamp.type", STRING, default="CreateTime",
        one_of=("CreateTime", "LogAppendTime"), synonyms=("log.message.timestamp.type",),
        doc="Whether a record keeps the producer's time or gets the broker's.",
    )
    min_cleanable_dirty_ratio: float = key(
        "min.cleanable.dirty.ratio", DOUBLE, default=0.5, at_least=0, at_most=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
        doc="Compact once this share of the log is new since the last time.",
        idle=NO_COMPACTION,
    )
    min_compaction_lag_ms: int = key(
        "min.compaction.lag.ms", LONG, default=0, at_least=0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
        doc="The least time a record stays as it is before compaction may remove it.",
        idle=NO_COMPACTION,
    )
    min_insync_replicas: int = key(
        "min.insync.replicas", INT, default=1, at_least=1, synonyms=("min.insync.replicas",),
        doc="With fewer replicas in sync than this, a write with acks=all is refused.",
    )
    preallocate: bool = key(
        "preallocate", BOOLEAN, default=False, synonyms=("log.preallocate",),
        doc="Reserve a segment's full size on the disk when it is made.",
        idle="segments grow as they are written",
    )
    retention_bytes: int = key(
        "retention.bytes", LONG, default=-1, synonyms=("log.retention.bytes",),
        doc="The size past which a partition drops its oldest segments; -1 for no limit.",
    )
    retention_ms: int = key(
        "retention.ms", LONG, default=604_800_000, at_least=-1,
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        doc="The age past which a segment is dropped; -1 for no limit.",
    )
    segment_bytes: int = key(
        "segment.bytes", INT, default=1_073_741_824, at_least=14,
        synonyms=("log.segment.bytes",),
        doc="The size at which a new segment is begun; removal works on whole segments.",
        differs="Kafka 4 refuses segments below 1 MiB, Kafka 3.9 below 14 bytes; the older bound "
                "is kept, because small segments make retention and compaction easy to try out.",
    )
    segment_index_bytes: int = key(
        "segment.index.bytes", INT, default=10_485_760, at_least=4,
        synonyms=("log.index.size.max.bytes",),
        doc="The largest an index of a segment may become; a full index begins a new segment.",
    )
    segment_jitter_ms: int = key(
        "segment.jitter.ms", LONG, default=0, at_least=0,
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        doc="Up to this much is taken off segment.ms at random, so that many partitions do not "
            "roll at once.",
    )
    segment_ms: int = key(
        "segment.ms", LONG, default=604_800_000, at_least=1,
        synonyms=("log.roll.ms", "log.roll.hours"),
        doc="The age at which a new segment is begun even if the old one is not full.",
    )
    unclean_leader_election_enable: bool = key(
        "unclean.leader.election.enable", BOOLEAN, default=False,
        synonyms=("unclean.leader.election.enable",),
        doc="Let a replica outside the in-sync set become leader when nobody else is left, at "
            "the price of losing records.",
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
        """ConfigError where two keys, each good by itself, cannot stand together."""
        low, high = self.min_compaction_lag_ms, self.max_compaction_lag_ms
        if low > high:
            raise ConfigError(
                f"min.compaction.lag.ms ({low}) is greater than max.compaction.lag.ms ({high})"
            )

    @classmethod
    def resolve(cls, broker: "BrokerSettings", overrides: Mapping[str, str]) -> "TopicSettings":
        """The topic's own values over the broker's.

        A stored override that no longer parses is passed over: the topic must stay readable.
        """
        if not overrides:
            return broker.topic_defaults
        values = {
            row.name: getattr(broker.topic_defaults, row.attribute) for row in cls.KEYS.values()
        }
        for name, text in overrides.items():
            with suppress(ConfigError):
                values[name] = cls.key(name).parse(text)
        return cls(values)

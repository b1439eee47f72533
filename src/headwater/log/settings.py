"""The part of a topic's configuration that a log needs, with Kafka's defaults."""

from dataclasses import dataclass

NO_LIMIT = -1


@dataclass(frozen=True, slots=True)
class LogSettings:
    """An immutable set of limits; a config change makes a new one."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = NO_LIMIT
    flush_messages: int = (1 << 63) - 1
    flush_ms: int = (1 << 63) - 1
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    compression_type: str = "producer"
    cleanup_policy: str = "delete"
    delete_retention_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    producer_id_expiration_ms: int = 24 * 3600 * 1000

    @property
    def compacted(self) -> bool:
        """Whether compaction may leave gaps between offsets."""
        return "compact" in self.cleanup_policy

    @property
    def expires(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

"""A topic's settings in the form that the hot path uses; built once per change of settings."""

from dataclasses import dataclass

from headwater.config.topic import TopicSettings
from headwater.log.settings import LogSettings
from headwater.records.compression import Codec
from headwater.records.rules import BatchRules


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The resolved settings of a topic."""

    rules: BatchRules
    log_settings: LogSettings
    sync_acks: bool
    """flush.messages is set: a write that completes as many records is acknowledged after their flush."""

    @classmethod
    def of(cls, settings: TopicSettings, validate_records: bool = False) -> "TopicPolicy":
        """Resolve the settings of a topic."""
        codec = _codec(settings.compression_type)
        return cls(
            BatchRules(
                max_message_bytes=settings.max_message_bytes,
                segment_bytes=settings.segment_bytes,
                timestamp_before_max_ms=settings.message_timestamp_before_max_ms,
                timestamp_after_max_ms=settings.message_timestamp_after_max_ms,
                log_append_time=settings.message_timestamp_type == "LogAppendTime",
                keys_required=settings.compacted,
                validate_records=validate_records,
                codec=codec,
                level=_level(settings, codec),
            ),
            LogSettings(
                segment_bytes=settings.segment_bytes,
                segment_ms=_segment_ms(settings),
                segment_jitter_ms=settings.segment_jitter_ms,
                index_interval_bytes=settings.index_interval_bytes,
                segment_index_bytes=settings.segment_index_bytes,
                retention_ms=settings.retention_ms,
                retention_bytes=settings.retention_bytes,
                flush_messages=settings.flush_messages,
                flush_ms=settings.flush_ms,
                file_delete_delay_ms=settings.file_delete_delay_ms,
                cleanup_policy=",".join(settings.cleanup_policy),
                delete_retention_ms=settings.delete_retention_ms,
                min_cleanable_dirty_ratio=settings.min_cleanable_dirty_ratio,
                min_compaction_lag_ms=settings.min_compaction_lag_ms,
                max_compaction_lag_ms=settings.max_compaction_lag_ms,
            ),
            sync_acks=settings.flush_messages < LogSettings().flush_messages,
        )


def _segment_ms(settings: TopicSettings) -> int:
    """Return when a segment rolls: only sealed ones are compacted, and a lag limits their wait."""
    if settings.compacted:
        return min(settings.segment_ms, settings.max_compaction_lag_ms)
    return settings.segment_ms


def _codec(compression_type: str) -> Codec | None:
    if compression_type == "producer":
        return None
    return Codec.NONE if compression_type == "uncompressed" else Codec[compression_type.upper()]


def _level(settings: TopicSettings, codec: Codec | None) -> int | None:
    match codec:
        case Codec.GZIP:
            return settings.compression_gzip_level
        case Codec.LZ4:
            return settings.compression_lz4_level
        case Codec.ZSTD:
            return settings.compression_zstd_level
        case _:
            return None

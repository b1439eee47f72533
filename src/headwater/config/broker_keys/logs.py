"""Validation, housekeeping and compaction of logs."""

from headwater.config.keys import BOOLEAN, CLUSTER_WIDE, DOUBLE, INT, LONG, SettingsBase, key

_CHECKPOINTS = "all are written together, every replica.high.watermark.checkpoint.interval.ms"


class LogKeys(SettingsBase):
    """The logs of a broker as a whole."""

    # fmt: off
    log_validate_records: bool = key(
        "log.validate.records", BOOLEAN, default=False, mode=CLUSTER_WIDE,
        doc="Validate every record of a produced batch, not only its header, checksum and counts. "
            "Compacted topics are always validated this way.",
        differs="Kafka has no such key and always validates; the checksum finds damage in transit, "
                "and validating every record costs most of the speed.",
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        "log.flush.offset.checkpoint.interval.ms", INT, default=60_000, at_least=0,
        doc="How often the recovery points of logs are written; a restart after a crash reads "
            "from there.",
        idle=_CHECKPOINTS,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = key(
        "log.flush.start.offset.checkpoint.interval.ms", INT, default=60_000, at_least=0,
        doc="How often the start offsets of logs are written.",
        idle=_CHECKPOINTS,
    )
    log_retention_check_interval_ms: int = key(
        "log.retention.check.interval.ms", LONG, default=300_000, at_least=1,
        doc="How often logs are checked for segments to delete.",
    )
    log_initial_task_delay_ms: int = key(
        "log.initial.task.delay.ms", LONG, default=30_000, at_least=0,
        doc="How long after the start the first housekeeping runs.",
        idle="each job first runs one interval after the start",
    )
    log_cleaner_enable: bool = key(
        "log.cleaner.enable", BOOLEAN, default=True,
        doc="Whether compacted topics, among them the internal ones, are compacted. Otherwise they "
            "grow without end.",
    )
    log_cleaner_threads: int = key(
        "log.cleaner.threads", INT, default=1, at_least=0, mode=CLUSTER_WIDE,
        doc="How many logs may be compacted at once, each by a process of its own; at most 32.",
    )
    log_cleaner_backoff_ms: int = key(
        "log.cleaner.backoff.ms", LONG, default=15_000, at_least=0, mode=CLUSTER_WIDE,
        doc="How long compaction pauses when no log needs it.",
    )
    log_cleaner_dedupe_buffer_size: int = key(
        "log.cleaner.dedupe.buffer.size", LONG, default=134_217_728, mode=CLUSTER_WIDE,
        doc="Memory for the keys of the logs under compaction, at 24 bytes a key, shared by all "
            "workers. A log with more keys is cleaned in several passes.",
    )
    log_cleaner_io_buffer_size: int = key(
        "log.cleaner.io.buffer.size", INT, default=524_288, at_least=0, mode=CLUSTER_WIDE,
        doc="Memory for reading and writing during compaction, shared by all workers.",
    )
    log_cleaner_io_buffer_load_factor: float = key(
        "log.cleaner.io.buffer.load.factor", DOUBLE, default=0.9, mode=CLUSTER_WIDE,
        doc="How full the key map may become.",
    )
    log_cleaner_io_max_bytes_per_second: float = key(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, default=1.7976931348623157e308,
        mode=CLUSTER_WIDE,
        doc="The maximum bytes per second that compaction reads and writes. Each worker has an equal "
            "share.",
    )
    log_scrub_bytes_per_second: int = key(
        "log.scrub.bytes.per.second", LONG, default=0, at_least=0,
        doc="How many bytes of sealed segments are read again per second and compared with their "
            "checksums. Damage is logged, counted and not served. 0: a segment is compared only when "
            "it is read for the first time after a start.",
        differs="Kafka has no such key, and no checksums of segments.",
    )
    producer_id_expiration_ms: int = key(
        "producer.id.expiration.ms", INT, default=86_400_000, at_least=1, mode=CLUSTER_WIDE,
        doc="How long a partition remembers an idle producer's sequence numbers.",
    )
    producer_id_expiration_check_interval_ms: int = key(
        "producer.id.expiration.check.interval.ms", INT, default=600_000, at_least=1,
        doc="How often partitions are checked for idle producers.",
    )
    # fmt: on

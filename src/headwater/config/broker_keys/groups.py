"""The group coordinator and its offsets topic."""

from headwater.config.keys import INT, INT32_MAX, LONG, SHORT, SettingsBase, key


class GroupKeys(SettingsBase):
    """Consumer groups and their offsets."""

    # fmt: off
    group_min_session_timeout_ms: int = key(
        "group.min.session.timeout.ms", INT, default=6000,
        doc="The minimum session timeout of a member.",
    )
    group_max_session_timeout_ms: int = key(
        "group.max.session.timeout.ms", INT, default=1_800_000,
        doc="The maximum session timeout of a member.",
    )
    group_initial_rebalance_delay_ms: int = key(
        "group.initial.rebalance.delay.ms", INT, default=3000,
        doc="How long a new group waits for more members before its first assignment; use 0 in "
            "tests.",
    )
    group_max_size: int = key(
        "group.max.size", INT, default=INT32_MAX, at_least=1,
        doc="The maximum number of members of a group.",
    )
    offset_metadata_max_bytes: int = key(
        "offset.metadata.max.bytes", INT, default=4096,
        doc="The maximum length of the metadata committed with an offset.",
    )
    offsets_commit_timeout_ms: int = key(
        "offsets.commit.timeout.ms", INT, default=5000, at_least=1,
        doc="How long a commit may wait for its replicas.",
        idle="a commit waits until its replicas have it or another broker coordinates the group",
    )
    offsets_load_buffer_size: int = key(
        "offsets.load.buffer.size", INT, default=5_242_880, at_least=1,
        doc="How many bytes of the offsets topic a coordinator reads at a time when it loads groups.",
        idle="groups load in small steps, so that other requests are served in between",
    )
    offsets_retention_minutes: int = key(
        "offsets.retention.minutes", INT, default=10_080, at_least=1,
        doc="How long offsets are kept after their group has become empty.",
    )
    offsets_retention_check_interval_ms: int = key(
        "offsets.retention.check.interval.ms", LONG, default=600_000, at_least=1,
        doc="How often expired offsets are deleted.",
    )
    offsets_topic_compression_codec: int = key(
        "offsets.topic.compression.codec", INT, default=0, at_least=0, at_most=4,
        doc="The codec of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        idle="the topic is stored uncompressed",
    )
    offsets_topic_num_partitions: int = key(
        "offsets.topic.num.partitions", INT, default=50, at_least=1,
        doc="The number of partitions of __consumer_offsets. Never change it once groups exist.",
    )
    offsets_topic_replication_factor: int = key(
        "offsets.topic.replication.factor", SHORT, default=3, at_least=1,
        doc="The replication factor of __consumer_offsets.",
        differs="If it is not set, the topic is created with min(3, live brokers) replicas, so that "
                "a single broker serves groups; Kafka waits for three brokers. A value that is set "
                "is obeyed.",
    )
    offsets_topic_segment_bytes: int = key(
        "offsets.topic.segment.bytes", INT, default=104_857_600, at_least=1,
        doc="The segment size of __consumer_offsets; small segments load and compact faster.",
    )
    # fmt: on

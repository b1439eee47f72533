"""The rows of a broker. What a single broker has no use for yet says so in its own row."""

from typing import Any

from headwater.config.keys import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT32_MAX,
    INT64_MAX,
    LIST,
    LONG,
    SHORT,
    STRING,
    Key,
    Mode,
    SettingsBase,
    key,
)
from headwater.config.topic import ALONE, NO_COMPACTION, TopicSettings

CLUSTER_WIDE = Mode.CLUSTER_WIDE
_BOUNDED = "each connection is bounded by itself: 64 requests or 1 MiB a turn, then the next one's"
_SELECTORS = "org.apache.kafka.common.replica."
RACK_AWARE_SELECTOR = _SELECTORS + "RackAwareReplicaSelector"
REPLICA_SELECTORS = (RACK_AWARE_SELECTOR, _SELECTORS + "LeaderSelector")
_CHECKPOINTS = "all are written together, every replica.high.watermark.checkpoint.interval.ms"
_ONE_LOOP = "one event loop and two file threads do all the work"


def _address_limits(text: str) -> str | None:
    limits = [pair.strip().rpartition(":") for pair in text.split(",") if pair.strip()]
    if all(address and limit.isascii() and limit.isdigit() for address, _, limit in limits):
        return None
    return "it takes ADDRESS:LIMIT pairs"


def _zookeeper_address(text: str) -> str | None:
    hosts, slash, path = text.partition("/")
    for pair in hosts.split(","):
        host, _, port = pair.strip().rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            return "it takes HOST:PORT pairs separated by commas, and a path behind the last one"
    if slash and (not path or "//" in text):
        return "the path behind the servers has an empty name"
    return None


def _for_topics(name: str, topic_key: str) -> Any:
    """The broker's row that gives topics their default: same type, bounds and default."""
    row = TopicSettings.KEYS[topic_key]
    twin = Key(name, row.type, row.default, f"The default of the topic key {topic_key}: {row.doc}")
    twin.at_least, twin.at_most, twin.one_of, twin.check = (
        row.at_least, row.at_most, row.one_of, row.check,
    )  # fmt: skip
    twin.mode, twin.idle = CLUSTER_WIDE, row.idle
    return twin


class BrokerKeys(SettingsBase):
    """One row per key; `BrokerSettings` adds where the values come from."""

    # fmt: off
    # Who this broker is and where its data lies.
    node_id: int = key(
        "node.id", INT, default=1, at_least=0,
        doc="This broker's number, unique in its cluster. It is written into the data folder and "
            "must stay the same.",
        differs="Kafka has no default; a single broker should start without a file.",
    )
    broker_id: int = key(
        "broker.id", INT, default=1, at_least=0,
        doc="The older name of node.id.",
        differs="Kafka gives -1; here it always equals node.id.",
    )
    broker_rack: str | None = key(
        "broker.rack", STRING, default=None,
        doc="The rack or zone of this broker: replicas of a partition are spread over racks.",
    )
    log_dirs: tuple[str, ...] = key(
        "log.dirs", LIST, default=None,
        doc="The data folders, separated by commas. Overrides log.dir.",
    )
    log_dir: str = key(
        "log.dir", STRING, default="headwater-data",
        doc="The data folder if log.dirs is not set.",
        differs="Kafka writes to /tmp/kafka-logs, which many systems empty at boot.",
    )
    log_dirs_abandoned: tuple[str, ...] = key(
        "log.dirs.abandoned", LIST, default=(),
        doc="Directory ids (directory.id in meta.properties) of folders that are gone for good. While "
            "a folder is missing, its partitions stay offline; if its id is listed here, they start "
            "again, empty.",
        differs="Kafka has no such key: it makes empty logs in place of those that are missing.",
    )
    log_dir_failure_timeout_ms: int = key(
        "log.dir.failure.timeout.ms", LONG, default=30_000, at_least=1,
        doc="How long the broker keeps running when it cannot report a failed folder to the "
            "controller.",
        idle=ALONE,
    )

    # Addresses.
    listeners: tuple[str, ...] = key(
        "listeners", LIST, default=("PLAINTEXT://127.0.0.1:9092",),
        doc="Where to listen: NAME://HOST:PORT, separated by commas. An empty host means every "
            "network of the machine, port 0 a free port.",
        differs="Kafka listens on every network; a broker without authentication should be asked "
                "to do that.",
    )
    advertised_listeners: tuple[str, ...] = key(
        "advertised.listeners", LIST, default=None,
        doc="The addresses that clients connect to, if they differ from listeners (containers, "
            "NAT).",
    )
    listener_security_protocol_map: str = key(
        "listener.security.protocol.map", STRING,
        default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="The security protocol of each listener name, as NAME:PROTOCOL pairs.",
    )
    inter_broker_listener_name: str | None = key(
        "inter.broker.listener.name", STRING, default=None,
        doc="The listener for traffic between brokers. Default: the listener named like "
            "security.inter.broker.protocol.",
    )
    control_plane_listener_name: str | None = key(
        "control.plane.listener.name", STRING, default=None,
        doc="A listener for requests of the controller alone, so that neither clients nor "
            "replication can delay them. Default: the inter-broker listener.",
    )
    security_inter_broker_protocol: str = key(
        "security.inter.broker.protocol", STRING, default="PLAINTEXT",
        one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="The protocol between brokers if inter.broker.listener.name is not set.",
    )

    # ZooKeeper.
    zookeeper_connect: str | None = key(
        "zookeeper.connect", STRING, default=None, check=_zookeeper_address,
        doc="The ZooKeeper servers of a cluster with several brokers, as HOST:PORT pairs separated "
            "by commas, with a path behind the last one to keep the cluster below: "
            "zk1:2181,zk2:2181/kafka. Without it the broker is alone and keeps its metadata itself.",
    )
    zookeeper_session_timeout_ms: int = key(
        "zookeeper.session.timeout.ms", INT, default=18_000, at_least=100,
        doc="How long ZooKeeper hears nothing of a broker before it counts as dead.",
    )
    zookeeper_connection_timeout_ms: int | None = key(
        "zookeeper.connection.timeout.ms", INT, default=None, at_least=1,
        doc="How long a start waits for a ZooKeeper server. Default: the session timeout.",
    )

    # Connections and requests.
    num_network_threads: int = key(
        "num.network.threads", INT, default=3, at_least=1, mode=CLUSTER_WIDE, doc="Threads for the network.",
        idle=_ONE_LOOP,
    )
    num_io_threads: int = key(
        "num.io.threads", INT, default=8, at_least=1, mode=CLUSTER_WIDE, doc="Threads for requests.",
        idle=_ONE_LOOP,
    )
    background_threads: int = key(
        "background.threads", INT, default=10, at_least=1, mode=CLUSTER_WIDE, doc="Threads for housekeeping.",
        idle=_ONE_LOOP,
    )
    num_recovery_threads_per_data_dir: int = key(
        "num.recovery.threads.per.data.dir", INT, default=2, at_least=1, mode=CLUSTER_WIDE,
        doc="Threads for loading each data folder.",
        idle=_ONE_LOOP,
    )
    queued_max_requests: int = key(
        "queued.max.requests", INT, default=500, at_least=1,
        doc="How many requests may wait for an answer before the broker stops reading more.",
        idle=_BOUNDED,
    )
    queued_max_request_bytes: int = key(
        "queued.max.request.bytes", LONG, default=-1,
        doc="The memory that all connections may hold together: partly received requests, batches "
            "that wait for a codec, answers that clients do not read. At the limit, requests of "
            "more than 64 KiB wait, and stalled connections that hold much are closed. -1 (in "
            "Kafka: no limit) means 256 MiB, or twice socket.request.max.bytes if that is more.",
    )
    socket_request_max_bytes: int = key(
        "socket.request.max.bytes", INT, default=104_857_600, at_least=1,
        doc="The largest request the broker reads; a longer one closes the connection.",
    )
    socket_send_buffer_bytes: int = key(
        "socket.send.buffer.bytes", INT, default=102_400, at_least=-1,
        doc="SO_SNDBUF of a client connection; -1 leaves it to the system.",
        idle="the kernel sizes the buffers better by itself",
    )
    socket_receive_buffer_bytes: int = key(
        "socket.receive.buffer.bytes", INT, default=102_400, at_least=-1,
        doc="SO_RCVBUF of a client connection; -1 leaves it to the system.",
        idle="the kernel sizes the buffers better by itself",
    )
    socket_listen_backlog_size: int = key(
        "socket.listen.backlog.size", INT, default=1024, at_least=1,
        doc="How many connections the system holds until the broker accepts them; fewer if the "
            "limit of open files is low. Kafka's default is 50: in a larger burst, each connection "
            "beyond it waits a second.",
    )
    connections_max_idle_ms: int = key(
        "connections.max.idle.ms", LONG, default=600_000,
        doc="Close a connection without requests after this time; negative for never.",
    )
    max_connections: int = key(
        "max.connections", INT, default=INT32_MAX, at_least=0, mode=CLUSTER_WIDE,
        doc="The maximum number of client connections; further ones are closed. Never more than "
            "the limit of open files (ulimit -n, raised to its hard limit at the start) leaves "
            "beside the logs.",
    )
    max_connections_per_ip: int = key(
        "max.connections.per.ip", INT, default=INT32_MAX, at_least=0, mode=CLUSTER_WIDE,
        doc="The maximum number of connections from one address.",
    )
    max_connections_per_ip_overrides: str = key(
        "max.connections.per.ip.overrides", STRING, default="", mode=CLUSTER_WIDE,
        check=_address_limits,
        doc="Other limits for single addresses, as ADDRESS:LIMIT pairs.",
    )
    max_connection_creation_rate: int = key(
        "max.connection.creation.rate", INT, default=INT32_MAX, at_least=0, mode=CLUSTER_WIDE,
        doc="The maximum number of new connections per second.",
        idle="only the number of connections is limited",
    )
    request_timeout_ms: int = key(
        "request.timeout.ms", INT, default=30_000,
        doc="How long the broker waits for the answer to a request of its own.",
    )
    fetch_max_bytes: int = key(
        "fetch.max.bytes", INT, default=57_671_680, at_least=1024,
        doc="The maximum size of a fetch response; one batch is always returned.",
    )
    max_incremental_fetch_session_cache_slots: int = key(
        "max.incremental.fetch.session.cache.slots", INT, default=1000, at_least=0,
        doc="How many fetch sessions are cached, with 100 partitions each on average.",
    )
    max_request_partition_size_limit: int = key(
        "max.request.partition.size.limit", INT, default=2000, at_least=1,
        doc="The maximum number of partitions in one DescribeTopicPartitions response.",
    )
    max_request_elements: int = key(
        "max.request.elements", INT, default=100_000, at_least=1000,
        doc="The maximum number of array items (topics, partitions, groups, members and so on) in one "
            "request; a connection that sends more is closed. Requests that change topics or "
            "configs may have at most 10,000.",
        differs="Kafka has no such key: there, socket.request.max.bytes is the only limit.",
    )
    producer_purgatory_purge_interval_requests: int = key(
        "producer.purgatory.purge.interval.requests", INT, default=1000, doc="How often completed produce requests are purged.",
        idle=_ONE_LOOP,
    )
    fetch_purgatory_purge_interval_requests: int = key(
        "fetch.purgatory.purge.interval.requests", INT, default=1000, doc="How often completed fetches are purged.",
        idle=_ONE_LOOP,
    )

    # Topics and their defaults.
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

    # The log as a whole.
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
        doc="Whether compaction runs.",
        idle=NO_COMPACTION,
    )
    log_cleaner_threads: int = key(
        "log.cleaner.threads", INT, default=1, at_least=0, mode=CLUSTER_WIDE,
        doc="How many logs may be compacted at once.",
        idle=NO_COMPACTION,
    )
    log_cleaner_backoff_ms: int = key(
        "log.cleaner.backoff.ms", LONG, default=15_000, at_least=0, mode=CLUSTER_WIDE,
        doc="How long compaction pauses when no log needs it.",
        idle=NO_COMPACTION,
    )
    log_cleaner_dedupe_buffer_size: int = key(
        "log.cleaner.dedupe.buffer.size", LONG, default=134_217_728, mode=CLUSTER_WIDE,
        doc="Memory for the keys of the logs under compaction, at 24 bytes a key.",
        idle=NO_COMPACTION,
    )
    log_cleaner_io_buffer_size: int = key(
        "log.cleaner.io.buffer.size", INT, default=524_288, at_least=0, mode=CLUSTER_WIDE,
        doc="Memory for reading and writing during compaction.",
        idle=NO_COMPACTION,
    )
    log_cleaner_io_buffer_load_factor: float = key(
        "log.cleaner.io.buffer.load.factor", DOUBLE, default=0.9, mode=CLUSTER_WIDE,
        doc="How full the key map may become.",
        idle=NO_COMPACTION,
    )
    log_cleaner_io_max_bytes_per_second: float = key(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, default=1.7976931348623157e308,
        mode=CLUSTER_WIDE,
        doc="The maximum bytes per second that compaction reads and writes.",
        idle=NO_COMPACTION,
    )
    producer_id_expiration_ms: int = key(
        "producer.id.expiration.ms", INT, default=86_400_000, at_least=1, mode=CLUSTER_WIDE,
        doc="How long a partition remembers an idle producer's sequence numbers.",
    )
    producer_id_expiration_check_interval_ms: int = key(
        "producer.id.expiration.check.interval.ms", INT, default=600_000, at_least=1,
        doc="How often partitions are checked for idle producers.",
    )

    # Replication and control.
    num_replica_fetchers: int = key(
        "num.replica.fetchers", INT, default=1, at_least=1, mode=CLUSTER_WIDE,
        doc="The number of connections to each leader that this broker fetches from.",
    )
    replica_fetch_min_bytes: int = key(
        "replica.fetch.min.bytes", INT, default=1,
        doc="The minimum bytes that a follower's fetch waits for.",
    )
    replica_fetch_max_bytes: int = key(
        "replica.fetch.max.bytes", INT, default=1_048_576, at_least=0,
        doc="The maximum bytes per partition in a follower's fetch.",
    )
    replica_fetch_response_max_bytes: int = key(
        "replica.fetch.response.max.bytes", INT, default=10_485_760, at_least=0,
        doc="The maximum bytes in a follower's fetch.",
    )
    replica_fetch_wait_max_ms: int = key(
        "replica.fetch.wait.max.ms", INT, default=500,
        doc="How long a follower's fetch waits when there is nothing new.",
    )
    replica_fetch_backoff_ms: int = key(
        "replica.fetch.backoff.ms", INT, default=1000, at_least=0,
        doc="How long a follower pauses after a failed fetch.",
    )
    replica_lag_time_max_ms: int = key(
        "replica.lag.time.max.ms", LONG, default=30_000,
        doc="A follower that has not caught up for this long leaves the in-sync set.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        "replica.high.watermark.checkpoint.interval.ms", LONG, default=5000,
        doc="How often high watermarks are written to disk.",
    )
    replica_socket_timeout_ms: int = key(
        "replica.socket.timeout.ms", INT, default=30_000,
        doc="How long a follower waits for a leader's answer.",
    )
    replica_socket_receive_buffer_bytes: int = key(
        "replica.socket.receive.buffer.bytes", INT, default=65_536,
        doc="SO_RCVBUF of a follower's connection.",
        idle=ALONE,
    )
    replica_selector_class: str | None = key(
        "replica.selector.class", STRING, default=None, one_of=REPLICA_SELECTORS,
        doc="How consumers are assigned to replicas. By default the leader serves them; "
        "RackAwareReplicaSelector sends those with client.rack to an in-sync replica of that rack.",
    )
    auto_leader_rebalance_enable: bool = key(
        "auto.leader.rebalance.enable", BOOLEAN, default=True,
        doc="Periodically return leadership to the preferred replicas.",
    )
    leader_imbalance_check_interval_seconds: int = key(
        "leader.imbalance.check.interval.seconds", LONG, default=300, at_least=1,
        doc="How often leadership is checked against the preferred replicas.",
    )
    leader_imbalance_per_broker_percentage: int = key(
        "leader.imbalance.per.broker.percentage", INT, default=10,
        doc="The percentage of a broker's preferred partitions that may be led elsewhere.",
    )
    controlled_shutdown_enable: bool = key(
        "controlled.shutdown.enable", BOOLEAN, default=True,
        doc="Hand over leadership before stopping.",
    )
    controller_socket_timeout_ms: int = key(
        "controller.socket.timeout.ms", INT, default=30_000,
        doc="How long the controller waits for a broker's answer.",
    )

    # Consumer groups.
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
        idle=ALONE,
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

    # Shown to tools.
    unstable_api_versions_enable: bool = key(
        "unstable.api.versions.enable", BOOLEAN, default=False,
        doc="Offer versions of APIs that are not finished.",
        idle="only finished versions are served",
    )
    # fmt: on

"""Replication between brokers, and leadership."""

from headwater.config.keys import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    INT64_MAX,
    LONG,
    STRING,
    SettingsBase,
    key,
)

_SELECTORS = "org.apache.kafka.common.replica."
RACK_AWARE_SELECTOR = _SELECTORS + "RackAwareReplicaSelector"
REPLICA_SELECTORS = (RACK_AWARE_SELECTOR, _SELECTORS + "LeaderSelector")


class ReplicationKeys(SettingsBase):
    """Followers, in-sync replicas, leaders, and the controller."""

    # fmt: off
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
        idle="the kernel chooses better buffer sizes",
    )
    replica_selector_class: str | None = key(
        "replica.selector.class", STRING, default=None, one_of=REPLICA_SELECTORS,
        doc="How consumers are assigned to replicas. By default the leader serves them; "
        "RackAwareReplicaSelector sends those with client.rack to an in-sync replica of that rack.",
    )
    leader_replication_throttled_rate: int = key(
        "leader.replication.throttled.rate", LONG, default=INT64_MAX, at_least=0, mode=CLUSTER_WIDE,
        doc="The most bytes per second that this broker sends to followers that are not in sync, of "
            "the replicas in leader.replication.throttled.replicas of their topics.",
    )
    follower_replication_throttled_rate: int = key(
        "follower.replication.throttled.rate", LONG, default=INT64_MAX, at_least=0,
        mode=CLUSTER_WIDE,
        doc="The most bytes per second that this broker fetches for replicas that are not in sync, of "
            "those in follower.replication.throttled.replicas of their topics.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = key(
        "replica.alter.log.dirs.io.max.bytes.per.second", LONG, default=INT64_MAX, at_least=0,
        mode=CLUSTER_WIDE,
        doc="The most bytes per second that are copied between the log dirs of this broker.",
    )
    alter_log_dirs_replication_quota_window_num: int = key(
        "alter.log.dirs.replication.quota.window.num", INT, default=11, at_least=1,
        doc="How many windows of time the rate of copies between log dirs is the mean of.",
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = key(
        "alter.log.dirs.replication.quota.window.size.seconds", INT, default=1, at_least=1,
        doc="The length of each of these windows.",
    )
    replication_quota_window_num: int = key(
        "replication.quota.window.num", INT, default=11, at_least=1,
        doc="How many windows of time the rate of throttled replication is the mean of.",
    )
    replication_quota_window_size_seconds: int = key(
        "replication.quota.window.size.seconds", INT, default=1, at_least=1,
        doc="The length of each of these windows.",
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
    # fmt: on

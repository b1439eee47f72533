"""Limits of connections and requests."""

from headwater.config.keys import CLUSTER_WIDE, INT, INT32_MAX, LONG, STRING, SettingsBase, key

_BOUNDED = "each connection is bounded by itself: 64 requests or 1 MiB a turn, then the next one's"
_ONE_LOOP = "one event loop and a fixed number of threads do all the work"


def _address_limits(text: str) -> str | None:
    limits = [pair.strip().rpartition(":") for pair in text.split(",") if pair.strip()]
    if all(address and limit.isascii() and limit.isdigit() for address, _, limit in limits):
        return None
    return "it takes ADDRESS:LIMIT pairs"


class ConnectionKeys(SettingsBase):
    """Connections and requests."""

    # fmt: off
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
        idle="the kernel chooses better buffer sizes",
    )
    socket_receive_buffer_bytes: int = key(
        "socket.receive.buffer.bytes", INT, default=102_400, at_least=-1,
        doc="SO_RCVBUF of a client connection; -1 leaves it to the system.",
        idle="the kernel chooses better buffer sizes",
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
        per_listener=True,
        doc="The maximum number of client connections; further ones are closed. Never more than "
            "the limit of open files (ulimit -n, raised to its hard limit at the start) leaves "
            "beside the logs. listener.name.NAME.max.connections limits one listener. Connections on a "
            "listener that is for brokers only are not refused because of others.",
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
        per_listener=True,
        doc="The maximum number of new connections per second; further ones wait to be accepted. "
            "Connections of brokers to a listener of their own do not count. "
            "listener.name.NAME.max.connection.creation.rate limits one listener.",
    )
    max_connection_creation_rate_per_ip: int = key(
        "max.connection.creation.rate.per.ip", INT, default=INT32_MAX, at_least=1,
        doc="The maximum number of new connections per second from one address without a quota "
            "of its own (connection_creation_rate); further ones are closed. The addresses of "
            "this machine are not limited.",
        differs="Kafka has no such key: there, only quotas limit single addresses.",
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
    # fmt: on

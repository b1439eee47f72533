"""How clients reach brokers."""

from headwater.config.addresses import addresses_problem
from headwater.config.keys import INT, LIST, LONG, STRING, SettingsBase, key
from headwater.config.listeners import PROTOCOLS

_KERNEL = "the kernel chooses better buffer sizes"


class ConnectingKeys(SettingsBase):
    """Addresses, protocol, timeouts and pauses."""

    # fmt: off
    bootstrap_servers: tuple[str, ...] = key(
        "bootstrap.servers", LIST, default=(), check=addresses_problem,
        doc="One or more HOST:PORT of brokers, from which the others are discovered.",
    )
    client_id: str = key(
        "client.id", STRING, default="headwater",
        doc="A name for this client in the broker's log, metrics and quotas.",
    )
    security_protocol: str = key(
        "security.protocol", STRING, default="PLAINTEXT", one_of=PROTOCOLS,
        doc="The protocol of connections to brokers: with SSL for TLS, with SASL to log in.",
    )
    request_timeout_ms: int = key(
        "request.timeout.ms", INT, default=30_000, at_least=1,
        doc="How long to wait for the answer to one request before it counts as lost.",
    )
    retry_backoff_ms: int = key(
        "retry.backoff.ms", LONG, default=100, at_least=0,
        doc="The pause before a failed request is retried; it doubles with each failure.",
    )
    retry_backoff_max_ms: int = key(
        "retry.backoff.max.ms", LONG, default=1000, at_least=0,
        doc="The longest pause before a retry.",
    )
    reconnect_backoff_ms: int = key(
        "reconnect.backoff.ms", LONG, default=50, at_least=0,
        doc="The pause before reconnecting to a broker that did not answer; it doubles.",
    )
    reconnect_backoff_max_ms: int = key(
        "reconnect.backoff.max.ms", LONG, default=1000, at_least=0,
        doc="The longest pause before reconnecting.",
    )
    socket_connection_setup_timeout_ms: int = key(
        "socket.connection.setup.timeout.ms", LONG, default=10_000, at_least=1,
        doc="How long a connection may take to be set up.",
    )
    connections_max_idle_ms: int = key(
        "connections.max.idle.ms", LONG, default=540_000, at_least=-1,
        doc="A connection unused for this long is closed; -1 for never.",
        idle="brokers close connections that nobody uses, and a closed one is opened when needed",
    )
    metadata_max_age_ms: int = key(
        "metadata.max.age.ms", LONG, default=300_000, at_least=0,
        doc="The age at which cached metadata is refreshed.",
    )
    metadata_recovery_strategy: str = key(
        "metadata.recovery.strategy", STRING, default="rebootstrap", one_of=("none", "rebootstrap"),
        doc="What to do when no known broker answers: start again from bootstrap.servers, or not.",
    )
    send_buffer_bytes: int = key(
        "send.buffer.bytes", INT, default=131_072, at_least=-1, doc="SO_SNDBUF.", idle=_KERNEL,
    )
    receive_buffer_bytes: int = key(
        "receive.buffer.bytes", INT, default=65_536, at_least=-1, doc="SO_RCVBUF.", idle=_KERNEL,
    )
    # fmt: on

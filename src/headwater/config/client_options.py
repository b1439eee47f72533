"""The settings of clients as keyword arguments, for editors and type checkers.

Written from the tables in `config/client.py` by `python -m tools.client_options`; do not edit.
"""

from collections.abc import Sequence
from typing import Literal, Required, TypedDict

from headwater.config.client_oauth import TokenProvider


class ClientOptions(TypedDict, total=False):
    """Settings of every client."""

    profile: Literal["durable", "throughput", "latency"]
    """A set of values that suits one purpose; settings given beside it win."""
    sasl_oauth_token_provider: TokenProvider
    """A callable that returns a token for sasl_mechanism=OAUTHBEARER, or a tuple of the token
    and the time when it expires, in seconds since 1970; or an object with token() and
    extensions(), as for kafka-python. It may be async, and may block."""
    oauth_cb: TokenProvider
    """The same, as for confluent-kafka: it is called with sasl_oauthbearer_config."""
    bootstrap_servers: Required[str | Sequence[str]]
    """One or more HOST:PORT of brokers, from which the others are discovered."""
    client_id: str
    """A name for this client in the broker's log, metrics and quotas."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """The protocol of connections to brokers: with SSL for TLS, with SASL to log in."""
    request_timeout_ms: int
    """How long to wait for the answer to one request before it counts as lost."""
    retry_backoff_ms: int
    """The pause before a failed request is retried; it doubles with each failure."""
    retry_backoff_max_ms: int
    """The longest pause before a retry."""
    reconnect_backoff_ms: int
    """The pause before reconnecting to a broker that did not answer; it doubles."""
    reconnect_backoff_max_ms: int
    """The longest pause before reconnecting."""
    socket_connection_setup_timeout_ms: int
    """How long a connection may take to be set up."""
    connections_max_idle_ms: int
    """A connection unused for this long is closed; -1 for never. Has no effect here: brokers
    close connections that nobody uses, and a closed one is opened when needed."""
    metadata_max_age_ms: int
    """The age at which cached metadata is refreshed."""
    metadata_recovery_strategy: Literal["none", "rebootstrap"]
    """What to do when no known broker answers: start again from bootstrap.servers, or not."""
    send_buffer_bytes: int
    """SO_SNDBUF. Has no effect here: the kernel chooses better buffer sizes."""
    receive_buffer_bytes: int
    """SO_RCVBUF. Has no effect here: the kernel chooses better buffer sizes."""
    ssl_enabled_protocols: str | Sequence[str]
    """The versions of TLS. TLSv1.2 is used with AEAD cipher suites only."""
    ssl_protocol: Literal["TLSv1.2", "TLSv1.3", "TLS"]
    """The TLS version of Java's SSLContext. Has no effect here: ssl.enabled.protocols names the
    versions."""
    ssl_cipher_suites: str | Sequence[str]
    """The cipher suites of TLSv1.2, by their standard names. Those of TLSv1.3 are always
    offered."""
    ssl_keystore_type: str
    """The format of ssl.keystore.location: PEM. Default: recognized by the file name."""
    ssl_keystore_location: str
    """A PEM file with the private key and its certificate chain, the broker's or client's own
    certificate first."""
    ssl_keystore_password: str
    """The password of a key store of Java. Has no effect here: the private key of a PEM file
    has ssl.key.password."""
    ssl_keystore_key: str
    """The private key as PEM text, instead of ssl.keystore.location."""
    ssl_keystore_certificate_chain: str
    """The certificate chain of ssl.keystore.key as PEM text, the own certificate first."""
    ssl_key_password: str
    """The password of the private key, if it is encrypted."""
    ssl_truststore_type: str
    """The format of ssl.truststore.location: PEM. Default: recognized by the file name."""
    ssl_truststore_location: str
    """A PEM file with the certificates of the authorities whose signatures are trusted.
    Default: those that the system trusts."""
    ssl_truststore_password: str
    """The password of a trust store of Java. Has no effect here: certificates in a PEM file are
    not encrypted."""
    ssl_truststore_certificates: str
    """The certificates of the trusted authorities as PEM text, instead of
    ssl.truststore.location."""
    ssl_endpoint_identification_algorithm: Literal["https", "HTTPS", ""]
    """https: the certificate of a server must contain the name or address to which the client
    connects. Empty: any name is accepted."""
    ssl_provider: str
    """The provider of TLS in Java. Has no effect here: OpenSSL provides TLS, not Java."""
    ssl_secure_random_implementation: str
    """The source of random numbers in Java. Has no effect here: OpenSSL provides TLS, not
    Java."""
    ssl_keymanager_algorithm: str
    """The algorithm of Java's key manager. Has no effect here: OpenSSL provides TLS, not
    Java."""
    ssl_trustmanager_algorithm: str
    """The algorithm of Java's trust manager. Has no effect here: OpenSSL provides TLS, not
    Java."""
    ssl_certificate_location: str
    """A PEM file with the client's certificate, if ssl.key.location has the private key
    alone."""
    ssl_key_location: str
    """A PEM file with the client's private key, beside ssl.certificate.location."""
    sasl_oauthbearer_token_endpoint_url: str
    """Where the client gets a token for its id and secret: an https: URL. Or file:///PATH of a
    file with a token, which something else renews."""
    sasl_oauthbearer_client_credentials_client_id: str
    """The id of the client at the identity provider."""
    sasl_oauthbearer_client_credentials_client_secret: str
    """The secret of the client at the identity provider."""
    sasl_oauthbearer_scope: str
    """The scope that the client asks for; scopes are separated by spaces."""
    sasl_oauthbearer_header_urlencode: bool
    """Encode id and secret as in URLs before they are sent, as RFC 6749 says."""
    sasl_oauthbearer_config: str
    """What oauth_cb is called with."""
    https_ca_location: str
    """A PEM file with the authorities that the token endpoint's certificate may be signed by.
    Default: those that the system trusts."""
    sasl_login_connect_timeout_ms: int
    """How long to wait for the next part of the token endpoint's answer."""
    sasl_login_read_timeout_ms: int
    """The time limit for the complete answer of the token endpoint."""
    sasl_login_retry_backoff_ms: int
    """The pause after a failed attempt to get a token; it doubles with each failure."""
    sasl_login_retry_backoff_max_ms: int
    """The longest pause after a failed attempt to get a token."""
    sasl_login_refresh_window_factor: float
    """The part of a token's lifetime after which it is replaced."""
    sasl_login_refresh_window_jitter: float
    """The random part of that moment, as a share of the lifetime."""
    sasl_login_refresh_min_period_seconds: int
    """The minimum time between two tokens, if the lifetime allows it."""
    sasl_login_refresh_buffer_seconds: int
    """How long before its expiry a token is replaced, if the lifetime allows it."""
    sasl_login_callback_handler_class: str
    """The class of Java that gets tokens. Has no effect here: tokens are always taken as this
    class does."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    """How the client proves who it is, where security.protocol begins with SASL."""
    sasl_username: str
    """The user."""
    sasl_password: str
    """The password of the user."""
    sasl_jaas_config: str
    """User and password as Kafka writes them:
    org.apache.kafka.common.security.scram.ScramLoginModule required username="USER"
    password="PASSWORD"; With tokenauth="true" before the semicolon, they are the id and the
    HMAC of a delegation token."""
    java_security_auth_login_config: str
    """A JAAS file with a section KafkaClient, where no other key names the user."""
    ssl_ca_location: str
    """A PEM file with the certificates of the authorities whose signatures are trusted.
    Default: those that the system trusts."""
    ssl_ca_pem: str
    """The certificates of the trusted authorities as PEM text, instead of
    ssl.truststore.location."""
    ssl_certificate_pem: str
    """The certificate chain of ssl.keystore.key as PEM text, the own certificate first."""
    ssl_key_pem: str
    """The private key as PEM text, instead of ssl.keystore.location."""
    sasl_oauthbearer_client_id: str
    """The id of the client at the identity provider."""
    sasl_oauthbearer_client_secret: str
    """The secret of the client at the identity provider."""
    ssl_cafile: str
    """A PEM file with the certificates of the authorities whose signatures are trusted.
    Default: those that the system trusts."""
    ssl_certfile: str
    """A PEM file with the client's certificate, if ssl.key.location has the private key
    alone."""
    ssl_keyfile: str
    """A PEM file with the client's private key, beside ssl.certificate.location."""
    ssl_password: str
    """The password of the private key, if it is encrypted."""


class AdminOptions(ClientOptions, total=False):
    """Settings of an admin."""

    default_api_timeout_ms: int
    """How long a call may take in all, repetitions included."""
    retries: int
    """How often a failed call is repeated."""


class ProducerOptions(ClientOptions, total=False):
    """Settings of a producer."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    """Who must have a record before it counts as sent: all in-sync replicas, the leader alone
    (1), nobody (0)."""
    enable_idempotence: bool
    """Number the batches, so that a retried batch is stored once and in order."""
    transactional_id: str
    """A lasting name that makes the producer transactional: a new producer with this name
    fences the one before it and aborts what that one left open."""
    transaction_timeout_ms: int
    """How long a transaction may be open before its coordinator aborts it; at most
    transaction.max.timeout.ms of the brokers."""
    batch_size: int
    """The size at which a batch of one partition is full, in bytes before compression."""
    linger_ms: int
    """How long a batch that is not full waits for more records."""
    buffer_memory: int
    """How many bytes may wait to be sent; past it send() blocks for max.block.ms."""
    max_block_ms: int
    """How long send() may wait for metadata or for room in the buffer."""
    max_request_size: int
    """The largest request, and so the largest record, in bytes."""
    max_in_flight_requests_per_connection: int
    """How many requests to one broker may wait for their answers."""
    delivery_timeout_ms: int
    """How long after send() a record is either acknowledged or reported as failed."""
    retries: int
    """How many times a batch is retried; delivery.timeout.ms is the better limit."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """How batches are compressed."""
    compression_gzip_level: int
    """1 is fast, 9 is small, -1 is the library's choice."""
    compression_lz4_level: int
    """1 is fast, 17 is small; 9 is the fast compressor, as in Kafka."""
    compression_zstd_level: int
    """Negative is fast, 22 is small."""
    partitioner_adaptive_partitioning_enable: bool
    """Send records without a key more often to partitions whose broker is fast."""
    partitioner_availability_timeout_ms: int
    """Pass over partitions whose broker has taken nothing for this long; 0 for never. Has no
    effect here: adaptive partitioning passes over long queues already."""
    partitioner_ignore_keys: bool
    """Choose partitions without regard to the key."""
    metadata_max_idle_ms: int
    """How long the metadata of a topic without new records is kept."""


class ConsumerOptions(ClientOptions, total=False):
    """Settings of a consumer."""

    group_id: str
    """The group whose members share the partitions; without it partitions are assigned by hand
    and no offsets are committed."""
    group_instance_id: str
    """A lasting name of this member: a restart within the session keeps its partitions."""
    auto_offset_reset: Literal["latest", "earliest", "none"]
    """Where to start without a committed offset, or if that offset is out of range."""
    enable_auto_commit: bool
    """Commit the position periodically, inside poll()."""
    auto_commit_interval_ms: int
    """How often auto-commit commits."""
    max_poll_records: int
    """The most records one poll() returns."""
    max_poll_interval_ms: int
    """The longest time between two calls of poll() before the member leaves its group."""
    session_timeout_ms: int
    """How long the group waits for a heartbeat before it gives the partitions to others."""
    heartbeat_interval_ms: int
    """How often a member sends a heartbeat to its coordinator."""
    partition_assignment_strategy: str | Sequence[str]
    """How the group assigns partitions, in order of preference."""
    fetch_min_bytes: int
    """The bytes that a broker waits for before it answers a fetch."""
    fetch_max_wait_ms: int
    """The longest time that a broker waits for fetch.min.bytes."""
    fetch_max_bytes: int
    """The most bytes of one answer."""
    max_partition_fetch_bytes: int
    """The most bytes of one partition in one answer. Unless set, up to 2 MiB while few
    partitions are read."""
    isolation_level: Literal["read_uncommitted", "read_committed"]
    """Whether records of open and aborted transactions are shown."""
    check_crcs: bool
    """Verify the checksum of every batch."""
    allow_auto_create_topics: bool
    """Let the broker create subscribed topics that do not exist."""
    exclude_internal_topics: bool
    """Exclude internal topics from the matches of a pattern."""
    default_api_timeout_ms: int
    """How long a call may take in all, repetitions included."""
    client_rack: str
    """The rack of this consumer, for reads from the nearest replica."""

"""The metadata store of a cluster: where it is, the login of the brokers, TLS and ACLs."""

from typing import NamedTuple

from headwater.config.keys import BOOLEAN, INT, PASSWORD, STRING, ConfigError, SettingsBase, key

PEM = "PEM"
ONLY_PEM = (
    "only PEM files are read; convert the store (keytool -importkeystore to PKCS12, then "
    "openssl pkcs12 -nodes), and set the type to PEM"
)


def _zookeeper_address(text: str) -> str | None:
    hosts, slash, path = text.partition("/")
    for pair in hosts.split(","):
        host, _, port = pair.strip().rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            return "it takes HOST:PORT pairs separated by commas, and a path behind the last one"
    if slash and (not path or "//" in text):
        return "the path behind the servers has an empty name"
    return None


def _store_type(text: str) -> str | None:
    return None if text.upper() == PEM else ONLY_PEM


def require_pem(name: str, location: str, store_type: str | None) -> None:
    """Refuse a store that is not known to be a PEM file; `name` is the key of its location."""
    if store_type is None and not location.endswith(".pem"):
        raise ConfigError(f"{name} cannot be {location!r}: {ONLY_PEM}")


class ZooKeeperTls(NamedTuple):
    """How to connect to ZooKeeper with TLS."""

    keystore: str | None
    keystore_password: str | None
    truststore: str | None
    check_hostname: bool


def _user(name: str) -> str | None:
    return None if name and ":" not in name else "it takes a name without a colon"


class ZooKeeperKeys(SettingsBase):
    """The ZooKeeper of a cluster; without it, the broker is alone."""

    # fmt: off
    zookeeper_connect: str | None = key(
        "zookeeper.connect", STRING, default=None, check=_zookeeper_address,
        doc="The ZooKeeper servers of a cluster with several brokers, as HOST:PORT pairs separated "
            "by commas, with a path behind the last one to keep the cluster below: "
            "zk1:2181,zk2:2181/kafka. Without it the broker is alone and keeps its metadata itself.",
    )
    zookeeper_session_timeout_ms: int = key(
        "zookeeper.session.timeout.ms", INT, default=18_000, at_least=100,
        doc="How long a broker may be silent before ZooKeeper counts it as dead.",
    )
    zookeeper_connection_timeout_ms: int | None = key(
        "zookeeper.connection.timeout.ms", INT, default=None, at_least=1,
        doc="How long a start waits for a ZooKeeper server. Default: the session timeout.",
    )
    zookeeper_max_in_flight_requests: int = key(
        "zookeeper.max.in.flight.requests", INT, default=10, at_least=1,
        doc="How many requests are sent before the first is answered.",
        idle="requests are sent as they come, and answered in order",
    )
    zookeeper_set_acl: bool = key(
        "zookeeper.set.acl", BOOLEAN, default=False,
        doc="Create nodes that only the brokers' login may change. Everyone may read them, except "
            "the cluster's secret and the settings of brokers and users. Needs "
            "zookeeper.digest.username, or TLS with a certificate of the broker.",
    )
    zookeeper_digest_username: str | None = key(
        "zookeeper.digest.username", STRING, default=None, check=_user,
        doc="The brokers' login to ZooKeeper (scheme digest), the same for all of them.",
        differs="Kafka has no such key: it reads a login of another scheme from a JAAS file.",
    )
    zookeeper_digest_password: str | None = key(
        "zookeeper.digest.password", PASSWORD, default=None,
        doc="The password of zookeeper.digest.username. It is sent unencrypted: use TLS on a network "
            "that others can read.",
        differs="Kafka has no such key: it reads a login of another scheme from a JAAS file.",
    )
    zookeeper_ssl_client_enable: bool = key(
        "zookeeper.ssl.client.enable", BOOLEAN, default=False,
        doc="Connect to ZooKeeper with TLS, at its secureClientPort.",
    )
    zookeeper_clientCnxnSocket: str | None = key(  # noqa: N815 - Kafka's name
        "zookeeper.clientCnxnSocket", STRING, default=None,
        doc="The Java class that connects to ZooKeeper; Kafka needs it for TLS.",
        idle="zookeeper.ssl.client.enable alone turns TLS on",
    )
    zookeeper_ssl_keystore_location: str | None = key(
        "zookeeper.ssl.keystore.location", STRING, default=None,
        doc="A PEM file with this broker's private key and certificate for ZooKeeper, if ZooKeeper "
            "asks clients for one (ssl.clientAuth).",
    )
    zookeeper_ssl_keystore_password: str | None = key(
        "zookeeper.ssl.keystore.password", PASSWORD, default=None,
        doc="The password of the private key in zookeeper.ssl.keystore.location.",
    )
    zookeeper_ssl_keystore_type: str | None = key(
        "zookeeper.ssl.keystore.type", STRING, default=None, check=_store_type,
        doc="The format of zookeeper.ssl.keystore.location: PEM. Default: recognized by the file name.",
        differs="Kafka also reads JKS and PKCS12, formats of Java.",
    )
    zookeeper_ssl_truststore_location: str | None = key(
        "zookeeper.ssl.truststore.location", STRING, default=None,
        doc="A PEM file with the certificates of the authorities that sign those of ZooKeeper's "
            "servers. Default: the authorities that the system trusts.",
    )
    zookeeper_ssl_truststore_password: str | None = key(
        "zookeeper.ssl.truststore.password", PASSWORD, default=None,
        doc="The password of zookeeper.ssl.truststore.location.",
        idle="certificates in a PEM file are not encrypted",
    )
    zookeeper_ssl_truststore_type: str | None = key(
        "zookeeper.ssl.truststore.type", STRING, default=None, check=_store_type,
        doc="The format of zookeeper.ssl.truststore.location: PEM. Default: recognized by the file name.",
        differs="Kafka also reads JKS and PKCS12, formats of Java.",
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = key(
        "zookeeper.ssl.endpoint.identification.algorithm", STRING, default="HTTPS",
        one_of=("HTTPS", "https", ""),
        doc="HTTPS: the certificate of a ZooKeeper server must have the name or address that "
            "zookeeper.connect names. Empty: any name is accepted.",
    )
    # fmt: on

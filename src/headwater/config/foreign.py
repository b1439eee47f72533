"""Keys of Kafka that this broker does not use.

In a broker's file they are refused with a reason: a broker must not start without encryption that
its file asks for. On a running broker, keys that Kafka can change are stored and shown without effect.
"""

from headwater.config.keys import PASSWORD, STRING, Key, Mode

_KRAFT = "Kafka's own metadata quorum is not used here, a single broker keeps its metadata itself"
_ZOOKEEPER_TLS = "TLS to ZooKeeper has the protocols and ciphers of this system's OpenSSL"
_SASL = "classes of Java are not loaded, and Kerberos is not supported"
_OLD_FORMAT = "only record format v2 is stored and served, as in Kafka 4"

_PREFIXES = {
    "process.roles": _KRAFT,
    "controller.quorum.": _KRAFT,
    "controller.listener.names": _KRAFT,
    "metadata.log.": _KRAFT,
    "zookeeper.metadata.migration.": _KRAFT,
    "zookeeper.ssl.": _ZOOKEEPER_TLS,
    "ssl.": "TLS is that of OpenSSL; classes of Java are not loaded",
    "sasl.": _SASL,
    "listener.name.": "this setting has no effect here",
    "remote.log.": "tiered storage is not supported",
    "message.format.version": _OLD_FORMAT,
    "log.message.format.version": _OLD_FORMAT,
    "transaction.two.phase.commit.enable": "two-phase commit is not supported",
    "inter.broker.protocol.version": "brokers agree on versions by themselves",
}


def why_not_here(name: str) -> str | None:
    """Why a key of Kafka is not supported; None if Kafka does not have the key."""
    return next((why for prefix, why in _PREFIXES.items() if name.startswith(prefix)), None)


_READ_ONLY = (
    "process.roles",
    "controller.",
    "metadata.log.",
    "zookeeper.",
    "message.format.version",
    "log.message.format.version",
    "inter.broker.protocol.version",
    "transaction.two.phase.commit.enable",
)
_PER_BROKER = ("ssl.", "sasl.", "listener.name.")
_SECRETS = ("password", "jaas", "keystore.key", "secret")


def idle_key(name: str) -> Key | None:
    """A row for a key of Kafka that has no effect here, with Kafka's own update mode."""
    why = why_not_here(name)
    if why is None:
        return None
    secret = any(word in name for word in _SECRETS)
    row = Key(name, PASSWORD if secret else STRING, None, "A key of Apache Kafka.")
    row.idle = why
    if name.startswith(_READ_ONLY):
        row.mode = Mode.READ_ONLY
    else:
        row.mode = Mode.PER_BROKER if name.startswith(_PER_BROKER) else Mode.CLUSTER_WIDE
    return row

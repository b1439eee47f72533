"""Keys that Kafka knows and this broker does not: what to say instead of "unknown"."""

_KRAFT = "Kafka's own metadata quorum is not used here, a single broker keeps its metadata itself"
_ZOOKEEPER = "a single broker keeps its metadata itself; clusters on ZooKeeper are not served yet"
_TLS = "TLS is not served yet; use a PLAINTEXT listener on a network you trust"
_SASL = "SASL is not served yet; use a PLAINTEXT listener on a network you trust"
_OLD_FORMAT = "only record format v2 is stored and served, as in Kafka 4"

_PREFIXES = {
    "process.roles": _KRAFT,
    "controller.quorum.": _KRAFT,
    "controller.listener.names": _KRAFT,
    "metadata.log.": _KRAFT,
    "zookeeper.": _ZOOKEEPER,
    "ssl.": _TLS,
    "sasl.": _SASL,
    "listener.name.": "settings per listener are not served yet",
    "remote.log.": "tiered storage is not served",
    "authorizer.class.name": "there are no Java plug-ins here; every client is allowed for now",
    "message.format.version": _OLD_FORMAT,
    "log.message.format.version": _OLD_FORMAT,
    "transaction.": "transactions are not served yet",
    "transactional.": "transactions are not served yet",
    "inter.broker.protocol.version": "brokers agree on versions by themselves",
}


def why_not_here(name: str) -> str | None:
    """Why a key that Kafka knows has no place here, or None for a key that Kafka lacks too."""
    return next((why for prefix, why in _PREFIXES.items() if name.startswith(prefix)), None)

"""The metadata store of a cluster."""

from headwater.config.keys import INT, STRING, SettingsBase, key


def _zookeeper_address(text: str) -> str | None:
    hosts, slash, path = text.partition("/")
    for pair in hosts.split(","):
        host, _, port = pair.strip().rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            return "it takes HOST:PORT pairs separated by commas, and a path behind the last one"
    if slash and (not path or "//" in text):
        return "the path behind the servers has an empty name"
    return None


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
        doc="How long ZooKeeper hears nothing of a broker before it counts as dead.",
    )
    zookeeper_connection_timeout_ms: int | None = key(
        "zookeeper.connection.timeout.ms", INT, default=None, at_least=1,
        doc="How long a start waits for a ZooKeeper server. Default: the session timeout.",
    )
    # fmt: on

"""Identity of a broker, and its data folders."""

from headwater.config.keys import INT, LIST, LONG, STRING, SettingsBase, key


class NodeKeys(SettingsBase):
    """Who this broker is, and where its data is."""

    # fmt: off
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
        idle="the broker stops only when all its folders have failed",
    )
    # fmt: on

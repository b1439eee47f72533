"""The storage of a broker on a simulated disk: a start as the broker does it, and its logs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.errors import E, KafkaError
from headwater.log.log_dirs import BrokerIdentity, LogDirs
from headwater.log.partition_log import PartitionLog
from headwater.log.settings import LogSettings
from headwater.model import ZERO_UUID, TopicPartition
from simulator.disk import Disk
from simulator.files import FileFaults, SimFiles
from simulator.images.log_model import LogModel
from simulator.randomness import SimRandomness, Stream
from simulator.trace import Trace

DIRS = ("/data", "/data2")
DESCRIPTORS = 6
"""Few, so that files are closed and opened again."""


class PlayClock:
    """Time that moves with the operations of a play."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.now_ms

    def monotonic_ms(self) -> int:
        """The same clock."""
        return self.now_ms

    def monotonic_us(self) -> int:
        """The same clock."""
        return self.now_ms * 1000


@dataclass
class Cluster:
    """What the metadata store knows: it is on another disk and survives everything."""

    topics: dict[TopicPartition, LogModel] = field(default_factory=dict)
    settings: Mapping[str, LogSettings] = field(default_factory=dict)
    directory_ids: dict[str, str] = field(default_factory=dict)


class Storage:
    """One life of the storage of a broker."""

    def __init__(
        self, disk: Disk, cluster: Cluster, clock: PlayClock, chance: Stream, boot: int
    ) -> None:
        self.disk = disk
        self.cluster = cluster
        self.clock = clock
        self.faults = FileFaults()
        self.files = SimFiles(disk, clock, chance, Trace(), self.faults)
        self.files.on_crash = self.files.die
        identity = BrokerIdentity(1, "cluster", f"boot {boot}")
        self.dirs = LogDirs(self.files, SimRandomness(chance), DIRS, identity, DESCRIPTORS)

    def start(self) -> None:
        """Lock the folders and load all logs."""
        self.dirs.open(self.cluster.directory_ids)
        self.dirs.load(self.cluster.settings.__getitem__, self.clock.wall_ms())

    def log_of(self, model: LogModel) -> PartitionLog | None:
        """Return the topic's log, as `Replicas` finds it; None if there is none.

        KafkaError says why it cannot be served.
        """
        at, dirs = model.at, self.dirs
        dirs.choose(at, model.topic_id)
        log = dirs.logs.get(at)
        if log is None:
            dirs.refuse_to_replace()
            return None
        if log.topic_id == model.topic_id:
            return log
        if log.topic_id == ZERO_UUID:
            dirs.name(at, model.topic_id)
            return log
        if at in dirs.unverified:
            raise KafkaError(E.KAFKA_STORAGE_ERROR, "another topic id without a checksum")
        dirs.set_aside(at).free_name()
        dirs.retiring.pop(at, None)
        return None

    def create(self, model: LogModel) -> PartitionLog:
        """Create the topic's log."""
        return self.dirs.create(model.at, model.topic_id, model.settings, self.clock.wall_ms())

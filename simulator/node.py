"""One simulated machine: a disk that lasts, and one life of a broker after another.

A life is a loop, a view of the disk, a pool of "threads" and a broker. It ends cleanly, or at any
file operation, or at any moment; the next life starts with the content of the disk.
"""

import asyncio
from collections.abc import Mapping

from headwater.broker import disk_reserve
from headwater.broker.lifecycle_loop import BrokerServer, OpenStore
from headwater.broker.local_store import LocalStore
from headwater.broker.registration import JoinError
from headwater.config.broker import BrokerSettings
from headwater.controller.store.metadata_store import StoreError
from headwater.log.folders import partition_of
from headwater.log.log_dir import LogDirError
from headwater.log.segment_checksums import CHECKSUMS
from headwater.log.snapshots import SNAPSHOT, WINDOWS
from headwater.log.verify import verify_log
from headwater.seams import Seams
from simulator.clock import SimClock
from simulator.disk import Disk, Folder
from simulator.files import FileFaults, SimFiles
from simulator.loop import Scheduler, SimLoop
from simulator.network import SimNetwork
from simulator.randomness import SimRandomness, stream
from simulator.tasks import SimTasks
from simulator.trace import Trace

PORT = 9092
DATA = "/data"
RESTART_S = 0.5
TORN_BY_POWER_CUTS = (SNAPSHOT, WINDOWS, CHECKSUMS)
"""Files that are written without a sync: a start does without torn ones."""
DIRS = (DATA, "/data2", "/data3")

SETTINGS = {
    "log.dirs": DATA,
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "metrics.listener": "",
}


def host_of(node_id: int) -> str:
    """The host on which a broker runs."""
    return "broker" if node_id == 1 else f"broker-{node_id}"


def rack_of(node_id: int) -> str:
    """The rack of a broker, where brokers have racks."""
    return f"rack-{node_id}"


class Life:
    """One run of the broker's process."""

    def __init__(self, node: "Node", number: int) -> None:
        name = node.own(f"life {number}")
        self.loop = SimLoop(node.scheduler, name, node.host)  # type: ignore[abstract]
        self.clock = SimClock(node.scheduler, lambda: node.skew_ms)
        self.files = SimFiles(
            node.disk, self.clock, stream(node.seed, f"{name} disk"), node.scheduler.trace,
            node.faults,
        )  # fmt: skip
        self.files.on_crash = node.crash
        self.files.homes = node.settings.log_dirs
        self.files.on_outside = lambda path: node.scheduler.complain(
            f"S5: {node.host} touches {path}, which is not in log.dirs"
        )
        threads = stream(node.seed, f"{name} threads")
        self.tasks = SimTasks(self.loop, threads, node.slowest_thread_ms)
        ids = SimRandomness(stream(node.seed, f"{name} ids"))
        boot_id = f"boot {node.power_cuts}"
        seams = Seams(self.clock, ids, self.files, node.network, self.tasks, boot_id=boot_id)
        self.broker = BrokerServer(node.settings, seams, node.open_store)
        self.serving = False
        self.ended = False


class Node:
    """A machine with a broker on it."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: SimNetwork,
        seed: int,
        settings: Mapping[str, str],
        slowest_thread_ms: int = 20,
        node_id: int = 1,
        open_store: OpenStore = LocalStore.open,
        protocol: str = "PLAINTEXT",
    ) -> None:
        self.host = host_of(node_id)
        self.open_store = open_store
        self.scheduler = scheduler
        self.network = network
        self.seed = seed
        self.slowest_thread_ms = slowest_thread_ms
        own = {"node.id": str(node_id), "listeners": f"{protocol}://{self.host}:{PORT}"}
        if "replica.selector.class" in settings:
            own["broker.rack"] = rack_of(node_id)
        self.settings = BrokerSettings.load(None, {**SETTINGS, **own, **settings})
        self.disk = Disk()
        for path in self.settings.log_dirs:
            self.disk.make_folders(path)
        self.disk.sync_all()
        self.faults = FileFaults()
        self.skew_ms = 0
        """The error of the machine's wall clock."""
        self._supervisor = SimLoop(scheduler, self.own("supervisor"))  # type: ignore[abstract]
        self.life: Life | None = None
        self.lives = 0
        self.crashes = 0
        self.power_cuts = 0

    def own(self, name: str) -> str:
        """Return the name of a random stream or a loop; those of the first node have no prefix."""
        return name if self.host == host_of(1) else f"{self.host} {name}"

    @property
    def serving(self) -> bool:
        """Whether clients are served."""
        return self.life is not None and self.life.serving

    @property
    def broker(self) -> BrokerServer:
        """The broker that runs now."""
        assert self.life is not None
        return self.life.broker

    def start(self) -> None:
        """Begin a life; it serves once it has recovered."""
        assert self.life is None
        self.lives += 1
        life = self.life = Life(self, self.lives)
        starting = life.loop.create_task(life.broker.start(), name="start")
        starting.add_done_callback(lambda task: self._started(life, task))

    def _started(self, life: Life, task: "asyncio.Task[None]") -> None:
        failure = task.exception()
        if failure is None:
            life.serving = True
            return
        self._end(life)
        no_room = self.faults.full and self.faults.freed < disk_reserve.SIZE // 2
        if isinstance(failure, StoreError | JoinError) or (
            no_room and isinstance(failure, LogDirError)
        ):
            # Without its metadata store a broker cannot start, nor on a disk that was full before it could
            # reserve space; its supervisor restarts it.
            self._supervisor.call_later(RESTART_S, self._start_again)
        else:
            self.scheduler.complain(f"I10: the broker does not start: {failure!r}")

    def _start_again(self) -> None:
        if self.life is None:
            self.start()

    def stop(self) -> None:
        """Ask for a clean stop; `life` is None once it is done."""
        life = self.life
        assert life is not None
        life.serving = False
        stopping = life.loop.create_task(life.broker.stop(), name="stop")
        stopping.add_done_callback(lambda task: self._stopped(life, task))

    def _stopped(self, life: Life, task: "asyncio.Task[None]") -> None:
        failure = task.exception()
        if failure is not None:
            self.scheduler.complain(f"the broker does not stop: {failure!r}")
        for path in sorted(opened.path for opened in life.files.open_files.values()):
            self.scheduler.complain(f"L5: {path} was left open by a clean stop")
        self._end(life)

    def crash(self, *, silently: bool = False) -> None:
        """Kill the process; the page cache survives. With the machine, peers are not notified."""
        if self.life is not None:
            self.crashes += 1
            self.faults.crash_before = None
            self._end(self.life, silently=silently)

    def lose_power(self) -> None:
        """Lose some or all unsynced data; the process must have ended already."""
        assert self.life is None
        self.power_cuts += 1
        self.scheduler.trace.note(f"{self.scheduler.now_us} power cut {self.power_cuts}")
        self.disk.lose_power(stream(self.seed, self.own(f"power cut {self.power_cuts}")))

    def partitions(self) -> set[str]:
        """Return the names of the folders of partitions on the disk."""
        folders = [self.disk.find(path) for path in self.settings.log_dirs]
        names = {name for one in folders if isinstance(one, Folder) for name in one.entries}
        return {name for name in names if partition_of(name) is not None}

    def verify_logs(self) -> None:
        """Check that every log on the disk is intact; no process may be writing."""
        quiet = SimFiles(
            self.disk, SimClock(self.scheduler), stream(self.seed, "verify"), Trace(), FileFaults()
        )
        for path in self.settings.log_dirs:
            for name in quiet.listdir(path):
                if partition_of(name) is not None:
                    for problem in verify_log(f"{path}/{name}", quiet).problems:
                        if not problem.split()[0].rstrip(":").endswith(TORN_BY_POWER_CUTS):
                            self.scheduler.complain(f"I10: {name}: {problem}")

    def _end(self, life: Life, *, silently: bool = False) -> None:
        self.scheduler.trace.note(f"{self.scheduler.now_us} end of {life.loop.name}")
        life.serving, life.ended = False, True
        life.files.die()
        life.loop.kill()
        self.network.process_died(life.loop, silently=silently)
        self.life = None

"""One replica over a real log, with surroundings that a test moves by hand."""

from collections import deque

from headwater.config.broker import BrokerSettings
from headwater.config.topic import TopicSettings
from headwater.errors import KafkaError
from headwater.log.epochs import EpochSave
from headwater.replication.leader_and_isr import LeaderAndIsr
from headwater.replication.partition import Partition
from headwater.replication.replica import Replica
from headwater.replication.replicas import Replicas
from headwater.replication.topic_policy import TopicPolicy
from tests.unit.log.support import PARTITION, TOPIC_ID, LossyFiles, created, opened

NOW = 1_700_000_000_000


class FakeHost:
    """Time does not pass, slow calls wait in a queue, and every call is recorded.

    Epochs are written at once, unless a test sets `saves_epochs` to False.
    """

    saves_epochs = True
    in_thread = False
    """Whether one of the slow calls runs now."""

    def __init__(self):
        self.now = 0
        self.to_write = []
        self.off = deque()
        self.marks = []
        self.proposals = []
        self.failures = []
        self.roles = []
        self.questions = []
        self.moved_starts = []

    def now_ms(self):
        return self.now

    def wall_ms(self):
        return NOW

    def write_soon(self, replica):
        self.to_write.append(replica)

    def off_loop(self, call, done, lane):
        self.off.append((call, done))
        if self.saves_epochs and isinstance(getattr(call, "__self__", None), EpochSave):
            self.run_off(-1)

    def leads(self, replica):
        self.roles.append("leads")

    def follows(self, replica):
        self.roles.append("follows")

    def stopped(self, replica):
        self.roles.append("stopped")

    def high_watermark_advanced(self, replica):
        self.marks.append(replica.partition.high_watermark)

    def verify_transaction(self, at, producer_id, epoch, write, done):
        self.questions.append((producer_id, epoch, write, done))

    def propose_isr(self, replica, proposal):
        self.proposals.append(proposal)

    def start_moved(self, replica):
        self.moved_starts.append(replica)

    def storage_failed(self, replica, failure, *, flushing):
        self.failures.append((failure.errno, flushing))

    def end_tick(self):
        dirty, self.to_write = self.to_write, []
        for replica in dirty:
            replica.write()

    def run_off(self, rank=0):
        """Do one of the slow calls and tell how it went."""
        call, done = self.off[rank]
        del self.off[rank]
        self.in_thread = True
        try:
            result, failure = call(), None
        except Exception as raised:  # noqa: BLE001 - the caller hears of any
            result, failure = None, raised
        finally:
            self.in_thread = False
        done(result, failure)


class Pending:
    """Counts how often it is told its end."""

    transaction = None

    def __init__(self, name="", order=None):
        self.base_offset = self.last_offset = self.append_time = -1
        self.parked = False
        self.held = 0
        self.ends = []
        self._name, self._order = name, order

    def park(self):
        self.parked = True

    def holding(self, size):
        self.held += size

    def complete(self):
        self._end("done")

    def fail(self, failure: KafkaError):
        self._end(failure.code)

    def _end(self, how):
        self.ends.append(how)
        if self._order is not None:
            self._order.append(self._name)


class ReplicaUnderTest:
    """A leader of one partition, alone or with followers."""

    def __init__(self, path, *, replicas=(1,), isr=None, min_insync=1, **configs):
        self.files = LossyFiles()
        self.host = FakeHost()
        broker = BrokerSettings.load(None, {"log.dirs": str(path)})
        overrides = {name.replace("_", "."): value for name, value in configs.items()}
        policy = TopicPolicy.of(TopicSettings.resolve(broker, overrides))
        self.dirs, log = created(path, policy.log_settings, self.files)
        partition = Partition(1, 30_000, min_insync)
        self.replica = Replica(log, partition, policy, self.host)
        partition.led(0, 0, 0, replicas, replicas if isr is None else isr, 0)
        log.staging.begin_epoch(0)
        log.epochs.save()

    def append(self, records, acks=-1, pending=None):
        pending = pending or Pending()
        self.replica.append(memoryview(bytearray(records)), pending, acks, NOW)
        return pending

    def stored(self):
        log = self.replica.log
        found = log.read(0, log.log_end_offset, 1 << 20, True)
        return b"" if found is None else bytes(found.load())


def _renames(call) -> bool:
    name = getattr(call, "__qualname__", "")
    return "Replicas.stop" in name or name.endswith("free_name")


class ReplicasUnderTest:
    """The replicas of a broker over real folders; one life of it."""

    def __init__(self, path, *, files=None, **configs):
        self.path, self.configs = path, configs
        self.files = files or LossyFiles()
        self.host = FakeHost()
        broker = BrokerSettings.load(None, {"log.dirs": str(path)})
        overrides = {name.replace("_", "."): value for name, value in configs.items()}
        settings = TopicSettings.resolve(broker, overrides)
        policy = TopicPolicy.of(settings)
        self.dirs = opened(path, policy.log_settings, self.files)
        self.replicas = Replicas(
            1, self.dirs, lambda _: settings, lambda _: policy, lambda *_: False, self.host, 30_000
        )

    def lead(self, topic_id=TOPIC_ID, epoch=0, is_new=True, partition=PARTITION, **more):
        decided = LeaderAndIsr(partition, topic_id, 1, epoch, epoch, (1,), (1,), is_new)
        return self.replicas.apply(decided, **more)

    def freed(self):
        """Let file threads rename what was deleted: the names can be used again."""
        for call, _ in [pair for pair in self.host.off if _renames(pair[0])]:
            self.host.run_off([call for call, _ in self.host.off].index(call))

    def replica(self) -> Replica:
        return self.replicas.get(*PARTITION)

    def append(self, records, acks=-1):
        pending = Pending()
        self.replica().append(memoryview(bytearray(records)), pending, acks, NOW)
        return pending

    def written(self, records, acks=-1):
        pending = self.append(records, acks)
        self.host.end_tick()
        return pending

    def killed(self, **changes) -> "ReplicasUnderTest":
        """The next life after kill -9."""
        self.dirs.abandon()
        return ReplicasUnderTest(self.path, **{**self.configs, **changes})

"""A move between log dirs, ended before each of its file operations: by a crash and by a power cut."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from headwater.config.broker import BrokerSettings
from headwater.config.topic import TopicSettings
from headwater.errors import E, KafkaError
from headwater.log.log_dirs import BrokerIdentity, LogDirs
from headwater.replication.leader_and_isr import LeaderAndIsr
from headwater.replication.log_dir_moves import LogDirMoves, MoveHost
from headwater.replication.replicas import Replicas
from headwater.replication.throttles import ReplicationThrottle
from headwater.replication.topic_policy import TopicPolicy
from headwater.seams.randomness import SystemRandomness
from simulator.clock import SimClock
from simulator.disk import Disk
from simulator.files import FileFaults, SimFiles
from simulator.loop import Crashed, Scheduler
from simulator.randomness import stream
from simulator.trace import Trace
from tests.unit.log.support import NOW, PARTITION, TOPIC_ID, batch, stored
from tests.unit.replication.replica_under_test import FakeHost, Pending

PATHS = ["/one", "/two"]
FLUSHED, WRITTEN = 12, 4
PARTS = 4
SEEDS = 6


class Life:
    """One life of a broker with one partition, up to a crash."""

    def __init__(self, disk: Disk, crash_before: int | None = None) -> None:
        trace = Trace()
        clock, chance = SimClock(Scheduler(trace)), stream(1, "disk")
        self.faults = FileFaults()
        self.files = SimFiles(disk, clock, chance, trace, self.faults)
        self.host = FakeHost()
        settings = BrokerSettings.load(None, {"log.segment.bytes": "700"})
        topic = TopicSettings.resolve(settings, {})
        policy = TopicPolicy.of(topic)
        self.dirs = LogDirs(self.files, SystemRandomness(), PATHS, BrokerIdentity(1, "cluster"), 64)
        self.faults.crash_before = crash_before
        self.dirs.open()
        self.dirs.load(lambda _: policy.log_settings, NOW)
        self.replicas = Replicas(
            1, self.dirs, lambda _: topic, lambda _: policy, lambda *_: False, self.host, 30_000
        )
        self.moves = LogDirMoves(
            MoveHost(
                self.replicas,
                ReplicationThrottle(11, 1000),
                SimpleNamespace(monotonic_ms=self.host.now_ms, wall_ms=self.host.wall_ms),
                self.files,
                self._off_loop,
                lambda delay_s, call: asyncio.get_running_loop().call_soon(call),
                self.host.end_tick,
                lambda replica: None,
                lambda at: True,
                lambda log_dir, failure: None,
            )
        )
        self.host.leads = self.moves.resume
        self.acknowledged: list[int] = []
        # Records that come during the move.
        self.extra: list[int] = []

    def _off_loop(self, call, done, lane=None):
        """Do the call between two rounds of the loop; during the move, more records come."""

        def run() -> None:
            try:
                result, failure = call(), None
            except Exception as problem:  # noqa: BLE001 - the mover hears of any
                result, failure = None, problem
            if self.extra:
                self.append(self.extra.pop())
            asyncio.get_running_loop().call_soon(done, result, failure)

        asyncio.get_running_loop().call_soon(run)

    def _run_threads(self) -> None:
        while self.host.off:
            self.host.run_off()

    def lead(self):
        decided = LeaderAndIsr(PARTITION, TOPIC_ID, 1, 0, 0, (1,), (1,), False)
        assert self.replicas.apply(decided) is E.NONE
        self._run_threads()
        return self.replicas.get(*PARTITION)

    def append(self, number: int) -> None:
        pending = Pending()
        self.replicas.get(*PARTITION).append(
            memoryview(bytearray(batch(value=b"%04d" % number * 20))), pending, 1, NOW
        )
        self.host.end_tick()
        if pending.ends == ["done"]:
            self.acknowledged.append(number)

    async def finish_move(self) -> None:
        """Let the loop turn until nothing moves; a crash ends it like everything else."""
        crashed: list[BaseException] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: crashed.append(what["exception"]))
        for _ in range(2000):
            await asyncio.sleep(0)
            self._run_threads()
            if crashed:
                raise crashed[0]
            if not self.moves._moves and not list(self.dirs.futures):
                return
        raise AssertionError("the move does not end")

    def contents(self) -> list[bytes]:
        return [data for _, _, data in stored(self.dirs.logs[PARTITION])]


def begin(disk: Disk) -> tuple[Life, str, str]:
    """Records of which most are flushed, and a move that has not begun."""
    for path in PATHS:
        disk.make_folders(path)
    disk.sync_all()
    life = Life(disk)
    life.dirs.create(PARTITION, TOPIC_ID, life.replicas._policy_of("topic").log_settings, NOW)
    life.lead()
    for number in range(FLUSHED):
        life.append(number)
    log = life.dirs.logs[PARTITION]
    work = log.unflushed()
    work.run()
    log.mark_flushed(work)
    life.dirs.checkpoint({})()
    for number in range(FLUSHED, FLUSHED + WRITTEN):
        life.append(number)
    disk_of = life.dirs.dir_of(PARTITION).path
    return life, disk_of, next(path for path in PATHS if path != disk_of)


def play(crash_before: int | None, power_cut: bool, seed: int = 0) -> int:
    """Move with a crash, then look, and move to the end in the next life."""
    disk = Disk()
    life, here, there = begin(disk)
    life.extra = [100, 101, 102]
    start = life.files.operations

    async def move() -> None:
        life.moves.move(PARTITION, there)
        await life.finish_move()

    if crash_before is not None:
        life.faults.crash_before = start + crash_before
    with contextlib.suppress(Crashed):
        asyncio.run(move())
    operations = life.files.operations - start
    promised = life.acknowledged[:FLUSHED] if power_cut else list(life.acknowledged)
    life.files.die()
    if power_cut:
        disk.lose_power(stream(seed, f"power {crash_before}"))

    again = Life(disk)

    async def go_on() -> None:
        again.lead()
        again.moves.drop_orphans()
        await again.finish_move()
        found = again.contents()
        assert len(found) >= len(promised)
        for number, data in zip(promised, found, strict=False):
            assert b"%04d" % number * 20 in data
        again.moves.move(PARTITION, there)
        await again.finish_move()
        assert again.dirs.dir_of(PARTITION).path == there
        assert again.contents() == found

    asyncio.run(go_on())
    assert again.dirs.dirs[PATHS.index(here)].folders() == []
    again.files.die()
    return operations


def test_the_whole_move_with_records_that_come_meanwhile():
    assert play(None, power_cut=False) > 30


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("power_cut", [False, True], ids=["crash", "power cut"])
def test_a_crash_before_any_operation_loses_nothing(power_cut, part):
    for number in range(part, play(None, power_cut=False), PARTS):
        for seed in range(SEEDS if power_cut else 1):
            try:
                play(number, power_cut, seed)
            except BaseException as problem:
                raise AssertionError(f"crash before operation {number}, seed {seed}") from problem


@pytest.mark.parametrize("rounds", range(0, 40, 2))
def test_an_epoch_that_begins_during_a_move_loses_nothing(rounds):
    """The file of epochs takes a thread longer than the last steps of the move."""
    life, _, there = begin(Disk())
    life.host.saves_epochs = False
    replica, own, sent = life.replicas.get(*PARTITION), Pending(), Pending()

    async def move() -> None:
        life.moves.move(PARTITION, there)
        for _ in range(rounds):
            await asyncio.sleep(0)
        decided = LeaderAndIsr(PARTITION, TOPIC_ID, 1, 1, 1, (1,), (1,), False)
        assert life.replicas.apply(decided) is E.NONE
        replica.built.append(bytearray(batch(value=b"own")), own)
        replica.append(memoryview(bytearray(batch(value=b"sent"))), sent, 1, NOW)
        life.host.end_tick()
        for _ in range(40):
            await asyncio.sleep(0)
        await life.finish_move()

    asyncio.run(move())
    life.host.end_tick()
    assert life.dirs.dir_of(PARTITION).path == there
    assert (own.ends, sent.ends, life.host.failures) == (["done"], ["done"], [])
    assert (own.base_offset, sent.base_offset) == (FLUSHED + WRITTEN, FLUSHED + WRITTEN + 1)
    last = life.contents()[-2:]
    assert b"own" in last[0]
    assert b"sent" in last[1]


def test_a_log_that_went_offline_is_not_replaced_by_its_copy():
    life, here, there = begin(Disk())
    replica, why = life.replicas.get(*PARTITION), KafkaError(E.KAFKA_STORAGE_ERROR)

    async def move() -> None:
        life.moves.move(PARTITION, there)
        for _ in range(40):
            if replica.flushes.held:
                replica.mark_offline(why)
            await asyncio.sleep(0)
        assert replica.offline is why
        for _ in range(40):
            await asyncio.sleep(0)

    asyncio.run(move())
    assert life.dirs.dir_of(PARTITION).path == here
    assert not replica.flushes.held

"""Background jobs at scale: bounded steps, and nothing left behind. Counted, not timed."""

import asyncio
import errno
from types import SimpleNamespace

import pytest

from headwater.broker.disk_reserve import SIZE, DiskReserve
from headwater.broker.housekeeping_loop import (
    AGE_CHECK_MS,
    CHUNK,
    FLUSH_BITE,
    FLUSH_LANES,
    Housekeeping,
)
from headwater.log.settings import LogSettings
from headwater.model import TopicPartition
from headwater.replication.flushes import Flushes
from headwater.replication.upkeep import Upkeep
from headwater.seams.clock import SystemClock
from headwater.seams.files import OsFiles
from headwater.seams.tasks import LoopTasks
from tests.unit.broker.live import Live, batch
from tests.unit.broker.live import until as until_seen
from tests.unit.log.support import NOW, append, opened

PARTITIONS = 300


class FakeWork:
    def __init__(self, failure=None):
        self.failure = failure
        self.runs = 0

    def run(self):
        self.runs += 1
        if self.failure is not None:
            raise self.failure


class FakeFlushes:
    def __init__(self, work):
        self.work = work
        self.flushing = False
        self.ended = []

    def announce(self, now_ms, looked_ms):
        self.flushing = True
        return True

    def begin(self):
        return self.work

    def flushed(self, work):
        self.flushing = False
        self.ended.append("flushed")

    def failed(self, work, failure):
        self.flushing = False
        self.ended.append(failure)


class FakeReplica:
    def __init__(self, number, failure=None):
        self.topic_partition = ("topic", number)
        self.flushes = FakeFlushes(FakeWork(failure))

    @property
    def ended(self):
        return self.flushes.ended


class CountingTasks(LoopTasks):
    """Runs "threads" in the loop; counts how many calls and how many at once."""

    def __init__(self):
        super().__init__()
        self.calls = self.at_once = self.most = 0

    def in_thread(self, call, lane=None):
        async def run():
            self.calls += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await asyncio.sleep(0)
            self.at_once -= 1
            return call()

        return asyncio.ensure_future(run())


def keeper(replicas, tasks):
    hosted = {replica.topic_partition: replica for replica in replicas}
    context = SimpleNamespace(
        clock=SystemClock(),
        wall_clock=None,
        tick=SimpleNamespace(written=dict.fromkeys(replicas)),
        replicas=SimpleNamespace(get=lambda *at: hosted.get(at)),
        files=SimpleNamespace(unlink=lambda path: None),
    )
    return Housekeeping(context, tasks, health=None, reserve=None)


async def until(done):
    for _ in range(10_000):
        if done():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to an end")


def test_many_flushes_run_in_few_calls_and_two_at_a_time():
    replicas = [FakeReplica(number) for number in range(PARTITIONS)]
    tasks = CountingTasks()

    async def run():
        await keeper(replicas, tasks)._flush()
        await until(lambda: all(replica.ended for replica in replicas))

    asyncio.run(run())
    assert all(replica.ended == ["flushed"] for replica in replicas)
    assert tasks.most <= FLUSH_LANES
    assert tasks.calls == -(-PARTITIONS // FLUSH_BITE)


def test_a_stop_between_two_chunks_still_flushes_what_was_announced():
    """Otherwise the stop waits for these flushes forever."""
    replicas = [FakeReplica(number) for number in range(CHUNK + 1)]

    async def run():
        check = asyncio.ensure_future(keeper(replicas, CountingTasks())._flush())
        await asyncio.sleep(0)
        assert not check.done()
        check.cancel()
        await until(lambda: not any(replica.flushes.flushing for replica in replicas))

    asyncio.run(run())
    assert [bool(replica.ended) for replica in replicas] == [True] * (CHUNK - 1) + [False] * 2


class ManualClock:
    now_ms = 0

    def monotonic_ms(self):
        return self.now_ms


@pytest.mark.parametrize(("flush_ms", "checks"), [(1 << 60, 2), (1000, 21)])
def test_unflushed_logs_are_checked_again_only_when_one_may_be_due(tmp_path, flush_ms, checks):
    """Thousands of logs that were written once must not be checked twice a second."""
    dirs = opened(tmp_path)
    log = dirs.create(TopicPartition("t", 0), bytes(16), LogSettings(flush_ms=flush_ms), NOW)
    append(log, 1)
    looked = []

    class NeverDue(Flushes):
        def announce(self, now_ms, looked_ms):
            looked.append(now_ms)
            return False

    replica = FakeReplica(0)
    replica.log = log
    replica.flushes = NeverDue(replica)

    async def run():
        housekeeping = keeper([replica], CountingTasks())
        clock = housekeeping._context.clock = ManualClock()
        housekeeping._ages_checked_ms = 0
        for clock.now_ms in range(0, 9000 + 1, 450):
            await housekeeping._flush()
        begun = len(looked)
        append(log, 1)
        housekeeping._context.tick.written[replica] = None
        await housekeeping._flush()
        assert len(looked) == begun + 1
        log.mark_flushed(log.unflushed())
        housekeeping._context.tick.written[replica] = None
        clock.now_ms += AGE_CHECK_MS
        await housekeeping._flush()
        assert not housekeeping._context.tick.written
        assert not housekeeping._aging
        return begun

    assert asyncio.run(run()) == checks


def test_one_flush_that_fails_does_not_concern_its_neighbors():
    broken = OSError(5, "broken")
    replicas = [FakeReplica(number, broken if number == 3 else None) for number in range(10)]
    tasks = CountingTasks()

    async def run():
        housekeeping = keeper(replicas, tasks)
        await housekeeping._flush()
        await until(lambda: all(replica.ended for replica in replicas))
        return housekeeping

    housekeeping = asyncio.run(run())
    ends = [replica.ended for replica in replicas]
    assert ends == [["flushed"]] * 3 + [[broken]] + [["flushed"]] * 6
    assert list(housekeeping._context.tick.written) == [replicas[3]]


def test_a_mistake_after_one_flush_leaves_no_other_marked_as_flushing():
    replicas = [FakeReplica(number) for number in range(10)]

    def fail(work):
        replicas[3].flushes.flushing = False
        raise ValueError("a bug")

    replicas[3].flushes.flushed = fail

    async def run():
        await keeper(replicas, CountingTasks())._flush()
        await until(lambda: not any(replica.flushes.flushing for replica in replicas))

    asyncio.run(run())


def test_tasks_that_unlinked_dropped_segments_are_forgotten():
    replica = FakeReplica(0)
    replica.upkeep = SimpleNamespace(file_delete_delay_ms=0)

    async def run():
        housekeeping = keeper([replica], CountingTasks())
        for _ in range(20):
            housekeeping.unlink_later(replica, ["a.deleted"])
        assert len(housekeeping._running) == 20
        await until(lambda: not housekeeping._running)

    asyncio.run(run())


def test_the_files_of_dropped_segments_are_unlinked_after_the_delay(tmp_path):
    settings = {"log.retention.check.interval.ms": "20"}
    with Live(tmp_path, settings) as live, live.client() as client:
        live.create("t", segment_bytes="1000", file_delete_delay_ms="20")
        for _ in range(5):
            assert client.produce("t", batch(b"v" * 800)).error_code == 0
        folder = tmp_path / "t-0"
        assert len(list(folder.glob("*.log"))) == 5
        live.on_loop(lambda: live.context.replicas.get("t", 0).log.advance_start(5))
        until_seen(lambda: len(list(folder.glob("*.log"))) == 1)
        until_seen(lambda: not list(folder.glob("*.deleted")))


class FullDisk(OsFiles):
    """Refuses new files on demand."""

    full = False

    def open(self, path, *, create=False, write=True, exclusive=False):
        if self.full and create and exclusive:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().open(path, create=create, write=write, exclusive=exclusive)


class Hosted:
    """Replicas as housekeeping sees them, over real logs."""

    def __init__(self, logs):
        self.rows = {
            log.topic_partition: SimpleNamespace(
                topic_partition=log.topic_partition,
                offline=None,
                following=SimpleNamespace(cutting=False),
                upkeep=Upkeep(log, SimpleNamespace(high_watermark=log.log_end_offset)),
            )
            for log in logs
        }

    def __iter__(self):
        return iter(self.rows.values())

    def get(self, *at):
        return self.rows.get(at)


@pytest.mark.parametrize("names", [("alone", "long"), ("long", "alone")])
def test_retention_goes_on_behind_a_partition_that_cannot_be_cleaned(tmp_path, names):
    files = FullDisk()
    dirs = opened(tmp_path, files=files)
    settings = LogSettings(segment_bytes=150, retention_ms=1000, file_delete_delay_ms=0)
    logs = [dirs.create(TopicPartition(name, 0), bytes(16), settings, NOW) for name in names]
    for log in logs:
        for _ in range(1 if log.topic_partition.topic == "alone" else 5):
            append(log, 1, value=b"v" * 100)
    files.full = True
    failed = []

    async def run():
        housekeeping = keeper([], CountingTasks())
        housekeeping._context.replicas, housekeeping._context.files = Hosted(logs), files
        housekeeping._health = SimpleNamespace(
            failed=lambda replicas, culprit, failure, flushing: failed.append(failure.errno)
        )
        housekeeping._wall = SimpleNamespace(believed_ms=lambda: NOW + 10_000)
        await housekeeping._retain()
        await until(lambda: not housekeeping._running)

    asyncio.run(run())
    long = dirs.logs[TopicPartition("long", 0)]
    assert len(long.segments) == 1
    assert not list(tmp_path.glob("*/*.deleted"))
    assert failed == [errno.ENOSPC] * 2


class Defective:
    """The upkeep of a partition with a defect that nobody foresaw."""

    is_damaged = False

    def retain(self, now_ms, *, may_roll):
        raise ValueError("a defect")

    def pop_garbage(self):
        return []


@pytest.mark.parametrize("cause", ["damaged header", "defect"])
def test_retention_goes_on_behind_a_partition_that_fails_in_any_way(tmp_path, caplog, cause):
    settings = LogSettings(segment_bytes=150, retention_ms=1000, file_delete_delay_ms=0)
    first, second = TopicPartition("first", 0), TopicPartition("second", 0)
    dirs = opened(tmp_path, settings)
    for at in (first, second):
        log = dirs.create(at, bytes([len(at.topic)] * 16), settings, NOW)
        for _ in range(5):
            append(log, 1, value=b"v" * 100)
    dirs.close({})
    if cause == "damaged header":
        with open(tmp_path / "first-0" / f"{0:020}.log", "r+b") as file:
            file.seek(16)
            file.write(b"\3")  # the magic of a batch
    dirs = opened(tmp_path, settings)
    logs = [dirs.logs[at] for at in (first, second)]
    hosted = Hosted(logs)
    if cause == "defect":
        hosted.rows[first].upkeep = Defective()

    async def run():
        housekeeping = keeper([], CountingTasks())
        housekeeping._context.replicas, housekeeping._context.files = hosted, OsFiles()
        housekeeping._wall = SimpleNamespace(believed_ms=lambda: NOW + 10_000)
        for _ in range(3):
            await housekeeping._retain()
        await until(lambda: not housekeeping._running)

    asyncio.run(run())
    assert [len(log.segments) for log in logs] == [5, 1]
    said = [row.message for row in caplog.records if "retention of first-0 failed" in row.message]
    assert len(said) == 1
    assert (logs[0].failure is not None) == (cause == "damaged header")
    dirs.abandon()


def test_the_reserve_is_made_where_there_is_room_and_given_up_where_there_is_none(tmp_path):
    room = 1 << 40
    files = OsFiles()
    files.space = lambda _: (1 << 40, room)
    reserve = DiskReserve(files, str(tmp_path))
    reserve.give_up_if_full()
    reserve.make()
    assert (reserve.given_up, reserve.missing) == (False, False)
    assert (tmp_path / "reserve").stat().st_size == SIZE
    room = SIZE - 1
    again = DiskReserve(files, str(tmp_path))
    again.give_up_if_full()
    again.make()
    assert (again.given_up, again.missing) == (True, True)
    assert not (tmp_path / "reserve").exists()


def test_what_a_start_gave_up_is_not_taken_for_room_by_the_next_start(tmp_path):
    files = OsFiles()
    total, free = 1 << 40, SIZE + 1
    files.space = lambda _: (total, free)
    (tmp_path / "reserve").write_bytes(bytes(SIZE))
    kept = DiskReserve(files, str(tmp_path))
    kept.give_up_if_full()
    assert not kept.given_up
    (tmp_path / "reserve").unlink()
    gone = DiskReserve(files, str(tmp_path))
    gone.give_up_if_full()
    assert gone.given_up


def test_a_small_disk_has_a_reserve_too(tmp_path):
    files = OsFiles()
    files.space = lambda _: (14 * SIZE, 13 * SIZE)
    reserve = DiskReserve(files, str(tmp_path))
    reserve.give_up_if_full()
    reserve.make()
    assert (reserve.given_up, reserve.missing) == (False, False)

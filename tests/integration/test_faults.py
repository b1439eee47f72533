"""Disks that are full or broken: nothing acknowledged is lost, and what can be served is."""

import errno
import threading
from contextlib import closing

import pytest
from tools.cluster_chaos.shim import Disk, preloaded

from headwater import Consumer, KafkaError, Producer
from headwater.errors import E
from headwater.log.verify import verify_log
from headwater.records.batch import batches
from headwater.records.record import decode_records
from headwater.testing import Broker
from headwater.wire.messages.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from headwater.wire.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from tests.integration.disks import FaultyFiles, RealDisk, SmallDisk
from tests.unit.broker.live import Live, batch, produce_request, until

MIB = 1 << 20


def everything(client, topic, partition=0) -> dict[int, bytes]:
    """Every record of a partition by offset."""
    found: dict[int, bytes] = {}
    while True:
        answer = client.fetch(topic, len(found), partition=partition)
        assert answer.error_code == 0
        data = bytes(answer.records)
        if not data:
            return found
        for at, header in batches(data):
            for record in decode_records(data[at : at + header.size]):
                found[record.offset] = record.value


# -- full


@pytest.fixture
def disk(tmp_path):
    small = SmallDisk(tmp_path / "small", 16 * MIB)
    yield small
    small.close()


def produce_until_full(client, topic, acknowledged: dict[int, bytes], partition=0) -> None:
    for number in range(1000):
        value = b"%d:" % len(acknowledged) + b"x" * 100_000
        answer = client.produce(topic, batch(value), partition=partition)
        if answer.error_code:
            assert answer.error_code == E.KAFKA_STORAGE_ERROR
            assert "full" in answer.error_message or "write failed" in answer.error_message
            return
        acknowledged[answer.base_offset] = value
        assert number < 500, "the disk never fills"


def test_an_idempotent_producer_goes_on_where_it_was_before_the_disk_was_full(disk):
    disk.load_ballast(8 * MIB)
    with Live(disk.path, files=disk.files) as live, live.client() as client:
        live.create("t")
        acknowledged: dict[int, bytes] = {}
        sequence = 0
        while True:
            value = b"%d:" % sequence + b"x" * 100_000
            records = batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)
            answer = client.produce("t", records)
            if answer.error_code:
                break
            acknowledged[answer.base_offset] = value
            sequence += 1
        disk.make_room()
        until(lambda: client.produce("t", records).error_code == 0)
        acknowledged[sequence] = value
        assert client.produce("t", records).base_offset == sequence, "a duplicate"
        assert everything(client, "t") == acknowledged


def test_a_broker_stops_cleanly_on_a_full_disk_and_comes_back(disk):
    acknowledged: dict[int, bytes] = {}
    disk.load_ballast(8 * MIB)
    with Live(disk.path, files=disk.files) as live:
        live.create("t")
        with live.client() as client:
            produce_until_full(client, "t", acknowledged)
            disk.fill()
    disk.make_room()
    with Live(disk.path, files=disk.files) as live, live.client() as client:
        assert everything(client, "t") == acknowledged
        assert client.produce("t", batch(b"more")).base_offset == len(acknowledged)


def test_group_commits_are_refused_on_a_full_disk_and_kept_before_it(disk):
    with Live(disk.path, files=disk.files) as live, live.client() as client:
        live.create("t")
        find = FindCoordinatorRequest(key="g")
        until(lambda: client.ask(find, FindCoordinatorResponse, 3).error_code == 0)
        until(lambda: commit(client, 1) == 0)
        disk.load_ballast(9 * MIB)
        produce_until_full(client, "t", {})
        disk.fill()
        codes = {commit(client, number) for number in (2, 3)}
        assert codes != {0}
        disk.make_room()
        until(lambda: committed(client) is not None)
        assert committed(client) in {1, 2, 3}
        until(lambda: commit(client, 4) == 0)
        assert committed(client) == 4


def commit(client, offset) -> int:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    answer = client.ask(request, OffsetCommitResponse, 8)
    return answer.topics[0].partitions[0].error_code


def committed(client) -> int | None:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = client.ask(OffsetFetchRequest(group_id="g", topics=[topic]), OffsetFetchResponse, 7)
    return None if answer.error_code else answer.topics[0].partitions[0].committed_offset


# -- broken


class TwoDirs:
    """A broker with two log dirs; `here` and `there` are partitions in one and the other."""

    def __init__(self, root, files, **settings):
        self.dirs = [root / "a", root / "b"]
        self.files = files
        self.settings = {"log.dirs": ",".join(map(str, self.dirs)), **settings}

    def live(self) -> Live:
        return Live("", self.settings, files=self.files)

    def partitions(self, live, topic) -> tuple[int, int]:
        where = {
            live.replica(topic, index).log.directory.rpartition("/")[0]: index for index in (0, 1)
        }
        return where[str(self.dirs[0])], where[str(self.dirs[1])]


@pytest.fixture
def two(tmp_path):
    return TwoDirs(tmp_path, FaultyFiles())


def dir_errors(client) -> list[int]:
    answer = client.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    return [row.error_code for row in answer.results]


def test_a_full_disk_refuses_writes_while_the_other_serves_and_takes_them_when_there_is_room(
    tmp_path,
):
    with closing(SmallDisk(tmp_path / "b", 16 * MIB)) as small:
        two = TwoDirs(tmp_path, small.files)
        acknowledged: dict[int, bytes] = {}
        small.load_ballast(8 * MIB)
        with two.live() as live:
            live.create("t", 2)
            here, there = two.partitions(live, "t")
            with live.client() as client:
                produce_until_full(client, "t", acknowledged, partition=there)
                assert len(acknowledged) > 10
                refused = client.produce("t", batch(b"small"), partition=there)
                assert refused.error_code == E.KAFKA_STORAGE_ERROR
                assert everything(client, "t", there) == acknowledged, "reads go on"
                for offset in range(100):
                    beside = client.produce("t", batch(b"beside"), partition=here)
                    assert (beside.error_code, beside.base_offset) == (0, offset)
                live.create("later", 2)
                small.make_room()
                until(lambda: client.produce("t", batch(b"back"), partition=there).error_code == 0)
                acknowledged[len(acknowledged)] = b"back"
                assert everything(client, "t", there) == acknowledged
        assert verify_log(str(two.dirs[1] / f"t-{there}")).problems == []
        with two.live() as live, live.client() as client:
            assert everything(client, "t", there) == acknowledged
            assert everything(client, "t", here) == dict.fromkeys(range(100), b"beside")


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EACCES])
def test_a_broken_disk_is_offline_until_restart_and_the_other_serves(two, code):
    with two.live() as live:
        live.create("t", 2)
        here, there = two.partitions(live, "t")
        with live.client() as client:
            for partition in (here, there):
                assert client.produce("t", batch(b"kept"), partition=partition).error_code == 0
            two.files.break_("pwritev", two.dirs[1], code)
            failed = client.produce("t", batch(b"lost"), partition=there)
            assert failed.error_code == E.KAFKA_STORAGE_ERROR
            two.files.repair()
            again = client.produce("t", batch(b"too late"), partition=there)
            assert again.error_code == E.KAFKA_STORAGE_ERROR, "offline until restart"
            assert client.fetch("t", partition=there).error_code == E.KAFKA_STORAGE_ERROR
            assert client.produce("t", batch(b"fine"), partition=here).error_code == 0
            assert dir_errors(client) == [0, E.KAFKA_STORAGE_ERROR]
    with two.live() as live, live.client() as client:
        assert dir_errors(client) == [0, 0]
        assert everything(client, "t", here) == {0: b"kept", 1: b"fine"}
        assert everything(client, "t", there) == {0: b"kept"}
        assert client.produce("t", batch(b"more"), partition=there).base_offset == 1


@pytest.fixture
def real(tmp_path):
    disk = RealDisk(tmp_path / "image", tmp_path / "b")
    yield disk
    disk.close()


@pytest.mark.parametrize("fault", [RealDisk.make_read_only, RealDisk.unmount])
def test_a_disk_that_is_read_only_or_unmounted_goes_offline_alone(real, tmp_path, fault):
    interval = {"replica.high.watermark.checkpoint.interval.ms": "50"}
    two = TwoDirs(tmp_path, FaultyFiles(), **interval)
    with two.live() as live:
        live.create("t", 2, flush_messages="1")
        here, there = two.partitions(live, "t")
        with live.client() as client:
            for partition in (here, there):
                assert client.produce("t", batch(b"kept"), partition=partition).error_code == 0
            fault(real)
            sent = 0
            while dir_errors(client) == [0, 0]:
                assert client.produce("t", batch(b"fine"), partition=here).error_code == 0
                sent += 1
            for lost in (
                client.produce("t", batch(b"lost"), partition=there),
                client.fetch("t", partition=there),
            ):
                assert lost.error_code == E.KAFKA_STORAGE_ERROR
            live.create("later", 2)
            for partition in range(2):
                assert client.produce("later", batch(), partition=partition).error_code == 0
    if fault is RealDisk.unmount:
        assert not any(real.path.iterdir()), "a start would take it for the disk"
        with two.live() as live, live.client() as client:
            assert len(live.broker.parts.log_dirs.missing) == 1
            assert client.fetch("t", partition=there).error_code == E.KAFKA_STORAGE_ERROR
        (real.path / ".lock").unlink()
    real.close()
    real.mount()
    with two.live() as live, live.client() as client:
        assert everything(client, "t", there) == {0: b"kept"}
        kept = everything(client, "t", here)
        assert kept == {0: b"kept", **dict.fromkeys(range(1, sent + 1), b"fine")}


def test_a_failed_sync_acknowledges_nothing_and_takes_the_disk_offline(two):
    with two.live() as live:
        live.create("t", 2, flush_messages="1")
        here, there = two.partitions(live, "t")
        with live.client() as client:
            assert client.produce("t", batch(b"kept"), partition=there).error_code == 0
            two.files.break_("fdatasync", two.dirs[1], errno.EIO)
            failed = client.produce("t", batch(b"unsure"), partition=there)
            assert failed.error_code == E.KAFKA_STORAGE_ERROR
            two.files.repair()
            again = client.produce("t", batch(b"no"), partition=there)
            assert again.error_code == E.KAFKA_STORAGE_ERROR, "a failed sync is never tried again"
            assert client.produce("t", batch(b"fine"), partition=here).error_code == 0
    with two.live() as live, live.client() as client:
        while not (found := everything(client, "t", there)):
            pass  # what the crash left is flushed before it is visible
        assert found[0] == b"kept"
        assert set(found.values()) <= {b"kept", b"unsure"}


def test_a_failed_sync_in_the_background_takes_the_disk_offline(tmp_path):
    two = TwoDirs(tmp_path, FaultyFiles(), **{"log.flush.interval.ms": "50"})
    with two.live() as live:
        live.create("t", 2)
        here, there = two.partitions(live, "t")
        with live.client() as client:
            two.files.break_("fdatasync", two.dirs[1], errno.EIO)
            assert client.produce("t", batch(b"written"), partition=there).error_code == 0
            until(lambda: client.produce("t", batch(), partition=there).error_code)
            assert client.produce("t", batch(), partition=here).error_code == 0
            assert dir_errors(client) == [0, E.KAFKA_STORAGE_ERROR]


def test_a_read_that_fails_is_told_to_the_reader(two):
    with two.live() as live:
        live.create("t", 2)
        here, there = two.partitions(live, "t")
        with live.client() as client:
            for partition in (here, there):
                client.produce("t", batch(b"kept"), partition=partition)
            two.files.break_("pread_now", two.dirs[1], errno.EIO)
            two.files.break_("pread", two.dirs[1], errno.EIO)
            assert client.fetch("t", partition=there).error_code == E.KAFKA_STORAGE_ERROR
            assert everything(client, "t", here) == {0: b"kept"}
            two.files.repair()
            assert dir_errors(client) == [0, E.KAFKA_STORAGE_ERROR]


def test_new_partitions_go_to_the_disks_that_are_left(two):
    with two.live() as live, live.client() as client:
        live.create("t", 2)
        _, there = two.partitions(live, "t")
        two.files.break_("pwritev", two.dirs[1], errno.EIO)
        client.produce("t", batch(), partition=there)
        live.create("later", 2)
        for partition in range(2):
            assert client.produce("later", batch(), partition=partition).error_code == 0


def test_a_dir_that_cannot_be_used_at_the_start_is_left_out(two):
    with two.live() as live:
        live.create("t", 2)
        here, there = two.partitions(live, "t")
        with live.client() as client:
            for partition in (here, there):
                client.produce("t", batch(b"kept"), partition=partition)
    two.files.break_("open", two.dirs[1] / ".lock", errno.EACCES)
    with two.live() as live, live.client() as client:
        assert everything(client, "t", here) == {0: b"kept"}
        assert dir_errors(client) == [0, E.KAFKA_STORAGE_ERROR]
        lost = client.fetch("t", partition=there).error_code
        assert lost == E.KAFKA_STORAGE_ERROR, "an empty log in its place would be a lie"
        assert client.produce("t", batch(), partition=there).error_code == lost
    two.files.repair()
    with two.live() as live, live.client() as client:
        assert everything(client, "t", there) == {0: b"kept"}


def leaders(client) -> dict[int, tuple[int, int, list[int]]]:
    """Leader, error and offline replicas of each partition of t."""
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    rows = client.ask(asked, MetadataResponse, 9).topics[0].partitions
    return {
        row.partition_index: (row.leader_id, row.error_code, row.offline_replicas) for row in rows
    }


def test_a_disk_that_is_not_mounted_is_missed_until_it_is_back_or_given_up(two, tmp_path):
    with two.live() as live:
        live.create("t", 2)
        here, there = two.partitions(live, "t")
        with live.client() as client:
            for partition in (here, there):
                client.produce("t", batch(b"kept"), partition=partition)
    two.dirs[1].rename(tmp_path / "disk")
    two.dirs[1].mkdir()
    with two.live() as live, live.client() as client:
        (missing,) = live.broker.parts.log_dirs.missing
        assert client.produce("t", batch(), partition=here).error_code == 0
        for lost in (
            client.produce("t", batch(), partition=there),
            client.fetch("t", partition=there),
        ):
            assert lost.error_code == E.KAFKA_STORAGE_ERROR
        assert leaders(client) == {
            here: (1, 0, []),
            there: (-1, E.LEADER_NOT_AVAILABLE, [1]),
        }
        live.create("new", 2)
    assert list(two.dirs[1].iterdir()) == [two.dirs[1] / ".lock"]
    (two.dirs[1] / ".lock").unlink()
    two.dirs[1].rmdir()
    (tmp_path / "disk").rename(two.dirs[1])
    with two.live() as live, live.client() as client:
        assert everything(client, "t", there) == {0: b"kept"}
    two.dirs[1].rename(tmp_path / "disk")
    two.settings["log.dirs.abandoned"] = missing
    for _ in range(2):
        with two.live() as live, live.client() as client:
            assert dir_errors(client) == [0, 0]
            assert everything(client, "t", there) == {}


class FailsLate(FaultyFiles):
    """The first sync of a partition waits until it is let go, and then fails; the next would work."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.released = threading.Event(), threading.Event()

    def fdatasync(self, fd):
        if "/t-0/" in self._paths.get(fd, "") and not self.entered.is_set():
            self.entered.set()
            assert self.released.wait(60)
            raise OSError(errno.EIO, "broken")
        super().fdatasync(fd)


def test_a_sync_that_fails_while_the_broker_stops_leaves_no_clean_marker(tmp_path):
    files = FailsLate()
    with Live(tmp_path, files=files) as live, live.client() as client:
        live.create("t", flush_messages="1")
        client.send(produce_request("t", batch()), 9)
        assert files.entered.wait(60)
        withdraw = live.broker.registration.withdraw

        def withdraw_and_let_go_later(done):
            withdraw(lambda: (done(), threading.Timer(0.2, files.released.set).start()))

        live.broker.registration.withdraw = withdraw_and_let_go_later
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_partition_that_found_no_room_is_opened_when_there_is_some(tmp_path):
    files = FaultyFiles()
    with Live(tmp_path, files=files) as live, live.client() as client:
        files.break_("open", tmp_path / "late-0", errno.ENOSPC)
        live.create("late")
        assert client.produce("late", batch()).error_code == E.KAFKA_STORAGE_ERROR
        files.repair()
        until(lambda: client.produce("late", batch(b"kept")).error_code == 0)
        assert everything(client, "late") == {0: b"kept"}


def test_a_dir_that_cannot_be_read_at_the_start_is_left_out(two):
    with two.live() as live:
        live.create("t", 2)
        here, there = two.partitions(live, "t")
        with live.client() as client:
            for partition in (here, there):
                client.produce("t", batch(b"kept"), partition=partition)
    two.files.break_("open", two.dirs[1] / f"t-{there}", errno.EIO)
    with two.live() as live, live.client() as client:
        assert everything(client, "t", here) == {0: b"kept"}
        assert client.fetch("t", partition=there).error_code == E.KAFKA_STORAGE_ERROR
    two.files.repair()
    with two.live() as live, live.client() as client:
        assert everything(client, "t", there) == {0: b"kept"}


def test_a_broker_whose_last_disk_failed_says_so(tmp_path):
    files = FaultyFiles()
    with Live(tmp_path, files=files) as live, live.client() as client:
        live.create("t")
        assert not live.on_loop(live.broker.storage_lost.is_set)
        files.break_("pwritev", tmp_path / "t-0", errno.EIO)
        assert client.produce("t", batch()).error_code == E.KAFKA_STORAGE_ERROR
        assert live.on_loop(live.broker.storage_lost.is_set)


def test_a_broker_whose_metadata_store_failed_says_so(tmp_path):
    """It could create no topic and give no producer an id: it must not stay up like that."""
    files = FaultyFiles()
    with Live(tmp_path, files=files) as live, live.client() as client:
        live.create("t")
        files.break_("fdatasync", tmp_path / "headwater-metadata", errno.EIO)
        assert not live.on_loop(live.broker.storage_lost.is_set)
        topic = CreateTopicsRequest.CreatableTopic(name="u", num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=9000)
        assert client.ask(request, CreateTopicsResponse, 7).topics[0].error_code
        until(lambda: live.on_loop(live.broker.storage_lost.is_set))
        assert client.produce("t", batch()).error_code == 0


# -- a broker in a process of its own


def test_a_disk_that_fails_to_sync_goes_offline_alone_and_keeps_what_was_acknowledged(tmp_path):
    dirs = [tmp_path / "bad", tmp_path / "good"]
    synced = {"flush.messages": 1}
    with preloaded(tmp_path / "shim") as shim:
        broker = Broker(data_dir=",".join(map(str, dirs)), subprocess=True).start()
    soon = {"request_timeout_ms": 2000, "delivery_timeout_ms": 2100}
    with closing(broker), Producer(bootstrap_servers=broker.bootstrap, **soon) as producer:
        for number in range(4):
            broker.create_topic(f"t{number}", configs=synced)
        on_bad = [at.name.rpartition("-")[0] for at in dirs[0].glob("t*-0")]
        on_good = [at.name.rpartition("-")[0] for at in dirs[1].glob("t*-0")]
        assert len(on_bad) == len(on_good) == 2
        for topic in on_bad + on_good:
            producer.send(topic, b"before").result(30)
        shim.set(broker.pid, disk=Disk.FAILS_TO_SYNC, below=str(dirs[0]))
        with pytest.raises(KafkaError):
            producer.send(on_bad[0], b"never synced").result(30)
        for topic in on_good:
            producer.send(topic, b"meanwhile").result(30)
        shim.set(broker.pid)
        broker.restart()
        for topic, values in [(one, [b"before"]) for one in on_bad] + [
            (one, [b"before", b"meanwhile"]) for one in on_good
        ]:
            assert values_of(broker.bootstrap, topic)[: len(values)] == values


def values_of(bootstrap, topic) -> list[bytes]:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        end = consumer.end_offsets([(topic, 0)])[(topic, 0)]
        found: list[bytes] = []
        while len(found) < end:
            found += [record.value for record in consumer.poll(timeout=10)]
        return found

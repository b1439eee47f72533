"""The loop waits for no disk: what opens, renames or syncs files runs on a file thread."""

import errno

import pytest

from headwater.errors import E
from headwater.model import TopicPartition
from headwater.replication.isolation import FetchIsolation
from headwater.replication.leader_and_isr import LeaderAndIsr
from tests.integration.disks import FaultyFiles
from tests.unit.broker.live import batch as timed
from tests.unit.log.support import PARTITION, TOPIC_ID, stored
from tests.unit.log.support import batch as sent_batch
from tests.unit.replication.replica_under_test import NOW, FakeHost, Pending, ReplicasUnderTest

LEADER = 2
OTHER_ID = bytes(range(1, 17))


def batch(*values, **kind):
    return timed(*values, now=NOW, **kind)


class WatchedFiles(FaultyFiles):
    """Notes which slow calls are made while no file thread runs."""

    def __init__(self):
        super().__init__()
        self.host: FakeHost | None = None
        self.on_loop = []

    def _note(self, what):
        if self.host is not None and not self.host.in_thread:
            self.on_loop.append(what)

    def open(self, path, *, create=False, write=True, exclusive=False):
        if create:
            self._note(f"create {path}")
        return super().open(path, create=create, write=write, exclusive=exclusive)

    def rename(self, old, new):
        self._note(f"rename {old}")
        super().rename(old, new)

    def fdatasync(self, fd):
        self._note("fdatasync")
        super().fdatasync(fd)

    def sync_dir(self, path):
        self._note(f"sync {path}")
        super().sync_dir(path)

    def unlink(self, path):
        self._note(f"unlink {path}")
        super().unlink(path)

    def watch(self, broker) -> None:
        """Note calls from now on."""
        self.host = broker.host
        self.on_loop.clear()


def life(path, before=None, **configs) -> ReplicasUnderTest:
    """A broker whose disk is watched; the next life of `before`."""
    files = WatchedFiles()
    if before is None:
        broker = ReplicasUnderTest(path, files=files, **configs)
    else:
        broker = before.killed(files=files)
    broker.host.saves_epochs = False
    return broker


def run_all(broker):
    broker.host.end_tick()
    while broker.host.off:
        broker.host.run_off()
        broker.host.end_tick()


# -- the first batch of an epoch


@pytest.fixture
def broker(tmp_path):
    broker = life(tmp_path)
    assert broker.lead() is E.NONE
    broker.files.watch(broker)
    return broker


def test_the_first_batches_of_an_epoch_wait_for_its_file_in_order(broker):
    pendings = [broker.append(batch(b"%d" % number), acks) for number, acks in enumerate((-1, 1))]
    broker.host.end_tick()
    assert [pending.ends for pending in pendings] == [[], []]
    assert broker.replica().log.log_end_offset == 0, "not visible before the file"
    assert [pending.held > 0 for pending in pendings] == [True, True], "counted while they wait"
    run_all(broker)
    assert [(pending.ends, pending.base_offset) for pending in pendings] == [
        (["done"], 0),
        (["done"], 1),
    ]
    assert [pending.held for pending in pendings] == [0, 0]
    assert broker.files.on_loop == []


def test_a_coordinators_first_batch_has_its_offset_and_waits_for_the_file(broker):
    pending = Pending()
    broker.replica().built.append(bytearray(batch(b"group")), pending)
    assert pending.last_offset == 0
    broker.host.end_tick()
    assert broker.replica().log.log_end_offset == 0
    run_all(broker)
    assert pending.ends == ["done"]
    assert broker.files.on_loop == []


def test_a_coordinator_that_loads_in_the_next_epoch_misses_nothing_staged_in_the_one_before(
    broker, monkeypatch
):
    staged, waiting = Pending(), Pending()
    replica = broker.replica()
    replica.built.append(bytearray(batch(b"group")), staged)
    broker.host.end_tick()
    ends = []
    monkeypatch.setattr(
        broker.host, "leads", lambda replica: ends.append(replica.log.staging.end_offset)
    )
    assert broker.lead(epoch=1) is E.NONE
    assert ends == [replica.log.log_end_offset], "the load ends where the next batch will be"
    assert staged.ends == [E.NOT_LEADER_OR_FOLLOWER]
    replica.built.append(bytearray(batch(b"again")), waiting)
    run_all(broker)
    assert (waiting.ends, waiting.base_offset) == (["done"], 0)
    assert [b"again" in data for _, _, data in stored(replica.log)] == [True]


def test_the_file_has_the_epoch_before_the_log_has_its_batch(broker, tmp_path):
    broker.append(batch(b"first"))
    broker.host.run_off()  # the file; the batch is not written yet
    again = life(tmp_path, broker)
    assert again.dirs.logs[PARTITION].log_end_offset == 0
    assert again.lead(epoch=1, is_new=False) is E.NONE
    pending = again.append(batch(b"second"))
    run_all(again)
    assert (pending.ends, pending.base_offset) == (["done"], 0)
    last = life(tmp_path, again)
    assert len(stored(last.dirs.logs[PARTITION])) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_refuses_the_file_fails_all_who_wait(broker, tmp_path, code):
    broker.files.break_("pwritev", tmp_path / "topic-0" / "leader-epoch-checkpoint", code)
    pendings = [broker.append(batch()) for _ in range(2)]
    broker.host.run_off()
    assert [pending.ends for pending in pendings] == [[E.KAFKA_STORAGE_ERROR]] * 2
    assert broker.host.failures == [(code, False)]
    assert not broker.host.off, "tried again by the next batch alone"
    broker.files.repair()
    again = broker.append(batch())
    run_all(broker)
    assert (again.ends, again.base_offset) == (["done"], 0)


def test_a_leader_that_is_deposed_while_the_file_is_written_writes_nothing(broker):
    pending = broker.append(batch())
    decided = LeaderAndIsr(PARTITION, TOPIC_ID, LEADER, 1, 1, (1, LEADER), (1, LEADER))
    assert broker.replicas.apply(decided) is E.NONE
    assert pending.ends == [E.NOT_LEADER_OR_FOLLOWER]
    run_all(broker)
    assert broker.replica().log.log_end_offset == 0


def test_what_one_epoch_staged_is_written_before_the_next_begins(broker):
    first = broker.append(batch())
    run_all(broker)
    second = broker.append(batch())
    assert broker.lead(epoch=1) is E.NONE
    third = broker.append(batch())
    run_all(broker)
    assert [pending.base_offset for pending in (first, second, third)] == [0, 1, 2]
    assert broker.replica().offset_for_epoch(0) == (0, 2)


def test_a_follower_fetches_the_first_batch_of_an_epoch_again(broker):
    decided = LeaderAndIsr(PARTITION, TOPIC_ID, LEADER, 3, 3, (1, LEADER), (1, LEADER))
    assert broker.replicas.apply(decided) is E.NONE
    follower = broker.replica()
    data = bytes(sent_batch(1, leader=3))
    assert follower.following.append(data, 3, 0) == 0
    assert follower.epoch_saves.saving
    run_all(broker)
    assert follower.following.append(data, 3, 0) == 1
    run_all(broker)
    assert (follower.log_end_offset, follower.offset_for_epoch(3)) == (1, (3, 1))
    assert broker.files.on_loop == []


# -- a new leader of a topic with flush.messages


def test_a_new_leader_flushes_what_a_crash_left_on_a_thread(tmp_path):
    before = life(tmp_path, flush_messages="1")
    before.lead()
    before.append(batch(b"not synced"))
    before.host.run_off()
    before.host.end_tick()
    broker = life(tmp_path, before)
    broker.files.watch(broker)
    assert broker.lead(epoch=1, is_new=False) is E.NONE
    replica = broker.replica()
    assert replica.log_end_offset == 1
    assert replica.high_watermark == replica.readable_end(FetchIsolation.LOG_END) == 0
    assert not replica.leading.knows_what_is_committed
    assert replica.read_own(0, 1 << 20).size > 0, "its coordinator may know of it"
    run_all(broker)
    assert replica.high_watermark == replica.readable_end(FetchIsolation.LOG_END) == 1
    assert replica.leading.knows_what_is_committed
    assert broker.files.on_loop == []


# -- deletion


MANY = [TopicPartition("topic", number) for number in range(200)]


@pytest.fixture
def many(tmp_path):
    broker = life(tmp_path)
    for at in MANY:
        assert broker.lead(partition=at) is E.NONE
    broker.files.watch(broker)
    return broker


def test_the_folders_of_deleted_partitions_are_renamed_and_removed_by_threads(many, tmp_path):
    answers = []
    many.replicas.stop([(at, True) for at in MANY], answers.append)
    assert (len(many.host.off), answers) == (1, []), "one call renames them all"
    many.host.run_off()
    assert answers == [{}]
    assert all("-delete" in entry.name for entry in tmp_path.iterdir() if entry.name[:5] == "topic")
    run_all(many)
    assert [entry.name for entry in tmp_path.iterdir() if entry.name[:5] == "topic"] == []
    assert many.files.on_loop == []
    assert not many.dirs.retiring


def test_a_partition_of_a_deleted_name_waits_until_the_disk_has_the_rename(broker, tmp_path):
    broker.append(batch(b"old"))
    run_all(broker)
    broker.replicas.stop([(PARTITION, True)])
    decided = []
    broker.replicas.when_applicable([PARTITION], lambda: decided.append(True))
    assert broker.lead(OTHER_ID) is E.NONE
    assert (broker.replica(), decided) == (None, [])
    run_all(broker)
    assert (broker.replica().topic_id, decided) == (OTHER_ID, [True])
    pending = broker.append(batch(b"new"))
    run_all(broker)
    assert (pending.ends, pending.base_offset) == (["done"], 0)


def test_a_folder_that_cannot_be_renamed_is_named_in_the_answer(broker, monkeypatch):
    def refuse(old, new):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(broker.files, "rename", refuse)
    answers = []
    broker.replicas.stop([(PARTITION, True)], answers.append)
    run_all(broker)
    assert [failure.errno for failure in answers[0].values()] == [errno.EIO]
    assert list(answers[0]) == [PARTITION]


def test_a_log_of_another_topic_moves_aside_on_a_thread(broker, tmp_path):
    again = life(tmp_path, broker)
    again.files.watch(again)
    assert again.lead(OTHER_ID, epoch=1, is_new=False) is E.NONE
    assert again.replica() is None
    again.host.run_off()
    assert again.replica().topic_id == OTHER_ID
    assert not [
        call
        for call in again.files.on_loop
        if call.startswith(("rename", "sync")) and ".tmp" not in call
    ]

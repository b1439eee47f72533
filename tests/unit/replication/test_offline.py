"""Partitions that cannot be opened: their logs are kept, never replaced, and say why they are offline."""

import errno

import pytest

from headwater.errors import E, KafkaError
from headwater.log.folders import METADATA
from headwater.model import ZERO_UUID, TopicPartition
from headwater.replication.replicas import MOST_FAILURES
from tests.integration.disks import FaultyFiles
from tests.unit.broker.live import batch as timed
from tests.unit.log.support import PARTITION, TOPIC_ID
from tests.unit.replication.replica_under_test import NOW, ReplicasUnderTest

OTHER_ID = bytes(range(1, 17))


def batch(*values):
    return timed(*values, now=NOW)


@pytest.fixture
def broker(tmp_path):
    """A log with one record."""
    broker = ReplicasUnderTest(tmp_path)
    broker.lead()
    assert broker.written(batch(b"kept")).ends == ["done"]
    return broker


def refused(call) -> E:
    with pytest.raises(KafkaError) as failure:
        call()
    return failure.value.code


def assert_offline(broker):
    replicas = broker.replicas
    assert refused(lambda: replicas.leader(*PARTITION)) is E.KAFKA_STORAGE_ERROR
    if broker.replica() is not None:
        assert refused(lambda: broker.append(batch())) is E.KAFKA_STORAGE_ERROR
    assert replicas.is_offline(*PARTITION)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_log_whose_lost_id_cannot_be_written_is_kept_and_never_replaced(broker, tmp_path, code):
    files = FaultyFiles()
    (tmp_path / "topic-0" / METADATA).unlink()
    broker = broker.killed(files=files)
    files.break_("pwritev", tmp_path / "topic-0" / METADATA, code)
    assert broker.lead(epoch=1, is_new=False) is E.KAFKA_STORAGE_ERROR
    assert_offline(broker)
    assert not any(broker.replicas.retry_offline())
    assert broker.dirs.logs[PARTITION].topic_id == ZERO_UUID
    files.repair()
    opened = list(broker.replicas.retry_offline())
    assert opened == [True] * (code == errno.ENOSPC), "only room can come back"
    if code == errno.ENOSPC:
        assert not broker.replicas.is_offline(*PARTITION)
        assert broker.written(batch()).base_offset == 1


def test_of_thousands_of_logs_without_room_some_are_tried_at_a_time(tmp_path, monkeypatch):
    broker = ReplicasUnderTest(tmp_path)
    tried, mkdir = [], broker.files.mkdir

    def refuse(path):
        tried.append(path)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(broker.files, "mkdir", refuse)
    partitions = [TopicPartition("topic", index) for index in range(4 * MOST_FAILURES)]
    for at in partitions:
        assert broker.lead(partition=at) is E.KAFKA_STORAGE_ERROR
    tried.clear()
    for _ in range(4):
        assert not any(broker.replicas.retry_offline())
    assert len(set(tried)) == len(tried) == len(partitions), "each once, a quarter at a time"
    monkeypatch.setattr(broker.files, "mkdir", mkdir)
    assert list(broker.replicas.retry_offline()) == [True] * len(partitions)
    assert not any(broker.replicas.is_offline(*at) for at in partitions)


def test_an_offline_partition_is_not_opened_as_an_earlier_registration_was_told(broker, tmp_path):
    files, current = FaultyFiles(), [True]
    (tmp_path / "topic-0" / METADATA).unlink()
    broker = broker.killed(files=files)
    files.break_("pwritev", tmp_path / "topic-0" / METADATA, errno.ENOSPC)
    broker.lead(epoch=1, is_new=False, is_current=lambda: current[0])
    files.repair()
    current[0] = False
    assert not any(broker.replicas.retry_offline())
    assert_offline(broker)
    assert broker.lead(epoch=2, is_new=False) is E.NONE
    assert not broker.replicas.is_offline(*PARTITION)


def test_a_damaged_log_says_so_instead_of_sending_clients_elsewhere(broker, tmp_path):
    work = broker.replica().log.unflushed()
    work.run()
    broker.replica().log.mark_flushed(work)
    broker.dirs.checkpoint({})()
    path = tmp_path / "topic-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1])
    broker = broker.killed()
    assert broker.lead(epoch=1, is_new=False) is E.KAFKA_STORAGE_ERROR
    assert_offline(broker)


def test_a_log_of_another_topic_is_set_aside(broker, tmp_path):
    broker = broker.killed()
    assert broker.lead(OTHER_ID, epoch=1, is_new=False) is E.NONE
    broker.freed()
    assert broker.replica().log.log_end_offset == 0
    assert any(entry.name.endswith("-stray") for entry in tmp_path.iterdir())


def test_an_id_that_nothing_vouches_for_costs_no_log_its_place(broker, tmp_path):
    path = tmp_path / "topic-0" / METADATA
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    broker = broker.killed()
    assert broker.lead(OTHER_ID, epoch=1, is_new=False) is E.KAFKA_STORAGE_ERROR
    assert_offline(broker)
    assert broker.dirs.logs[PARTITION].log_end_offset == 1
    assert not [entry for entry in tmp_path.iterdir() if entry.name.endswith("-stray")]


def test_a_flipped_bit_in_the_id_costs_no_log_its_place(broker, tmp_path):
    path = tmp_path / "topic-0" / METADATA
    flipped = bytearray(path.read_bytes())
    flipped[flipped.index(b"topic_id: ") + 12] ^= 1
    path.write_bytes(flipped)
    broker = broker.killed()
    assert broker.lead(TOPIC_ID, epoch=1, is_new=False) is E.NONE
    assert broker.replica().log.log_end_offset == 1


def test_a_log_that_may_be_on_a_missing_disk_is_not_replaced(tmp_path):
    broker = ReplicasUnderTest(tmp_path)
    broker.dirs.missing = {"some-id": "/elsewhere"}
    elsewhere = TopicPartition("elsewhere", 0)
    assert broker.lead(partition=elsewhere, is_new=False) is E.KAFKA_STORAGE_ERROR
    assert "/elsewhere" in broker.replicas.absence(*elsewhere).message
    assert broker.lead(partition=TopicPartition("new", 0), is_new=True) is E.NONE


# -- flush.messages=1: what a dead process had not synced


def test_a_refused_sync_at_the_start_is_never_tried_again(tmp_path):
    broker = ReplicasUnderTest(tmp_path, flush_messages="1")
    broker.lead()
    broker.written(batch(b"not synced"))
    files = FaultyFiles()
    broker = broker.killed(files=files)
    files.break_("fdatasync", tmp_path / "topic-0", errno.EIO)
    assert broker.lead(epoch=1, is_new=False) is E.NONE
    broker.host.end_tick()
    broker.host.run_off()
    assert broker.host.failures == [(errno.EIO, True)]
    files.repair()
    assert not broker.host.off
    assert broker.replica().high_watermark == 0

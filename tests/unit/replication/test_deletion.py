"""Deleting and creating a partition again while its batches are staged and its flush is under way."""

import errno
import pathlib

import pytest

from headwater.errors import E
from tests.unit.broker.live import batch as timed
from tests.unit.log.support import PARTITION, TOPIC_ID
from tests.unit.replication.replica_under_test import NOW, Host

OTHER_ID = bytes(range(1, 17))


def batch(*values, **kind):
    return timed(*values, now=NOW, **kind)


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path, flush_messages="1")
    host.lead()
    return host


def files_of(host) -> set[str]:
    return {path.name for path in pathlib.Path(host.replica().log.directory).iterdir()}


@pytest.mark.parametrize("delete", [True, False])
def test_stopping_a_partition_with_staged_batches_is_no_storage_failure(tmp_path, delete):
    host = Host(tmp_path)
    host.lead()
    pending = host.append(batch(b"lost", producer_id=7, producer_epoch=0, base_sequence=0))
    host.replicas.stop(PARTITION, delete)
    host.around.end_tick()
    assert pending.ends == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert host.around.failures == []
    host.lead(OTHER_ID if delete else TOPIC_ID, epoch=1)
    again = host.written(batch(b"kept", producer_id=7, producer_epoch=0, base_sequence=0))
    assert (again.ends, again.base_offset) == (["done"], 0)


def test_a_flush_under_way_at_the_deletion_is_no_storage_failure(host):
    pending = host.written(batch())
    host.replicas.stop(PARTITION, delete=True)
    host.around.run_off()  # the flush; the removal of the folder is behind it
    assert pending.ends == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert host.around.failures == []


def test_a_late_flush_of_a_deleted_log_leaves_its_successor_alone(host):
    host.written(batch(b"old", producer_id=7, producer_epoch=0, base_sequence=0))
    host.replicas.stop(PARTITION, delete=True)
    host.lead(OTHER_ID)
    before = files_of(host)
    host.around.run_off()
    assert files_of(host) == before
    assert host.replica().log.recovery_point == 0
    assert host.around.failures == []


def test_a_flush_that_the_deletion_overtakes_leaves_its_successor_alone(host):
    host.written(batch(b"old", producer_id=7, producer_epoch=0, base_sequence=0))
    synced = host.files.fdatasync

    def delete_meanwhile(fd):
        host.files.fdatasync = synced
        synced(fd)
        host.replicas.stop(PARTITION, delete=True)
        host.lead(OTHER_ID)

    host.files.fdatasync = delete_meanwhile
    host.around.run_off()
    assert host.replica().topic_id == OTHER_ID
    assert not [name for name in files_of(host) if name.endswith(".snapshot")]
    assert host.around.failures == []


def test_a_disk_that_fails_during_a_deletion_is_still_a_failed_disk(host):
    host.written(batch())

    def fail(fd):
        host.replicas.stop(PARTITION, delete=True)
        raise OSError(errno.EIO, "broken")

    host.files.fdatasync = fail
    host.around.run_off()
    assert host.around.failures == [(errno.EIO, True)]


def test_a_flush_that_fails_in_an_unforeseen_way_acknowledges_nothing_and_is_done_again(host):
    pending = host.written(batch())
    _, done = host.around.off.popleft()
    done(None, MemoryError("no memory"))
    assert pending.ends == [E.KAFKA_STORAGE_ERROR]
    assert not host.replica().flushing
    later = host.written(batch())
    host.around.run_off()
    assert later.ends == ["done"]
    assert host.replica().log.recovery_point == 2

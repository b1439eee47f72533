"""Deleting and creating a partition again while its batches are staged and its flush is under way."""

import errno
import pathlib

import pytest

from headwater.errors import E
from tests.unit.broker.live import batch as timed
from tests.unit.log.support import PARTITION, TOPIC_ID
from tests.unit.replication.replica_under_test import NOW, ReplicasUnderTest

OTHER_ID = bytes(range(1, 17))


def batch(*values, **kind):
    return timed(*values, now=NOW, **kind)


@pytest.fixture
def broker(tmp_path):
    broker = ReplicasUnderTest(tmp_path, flush_messages="1")
    broker.lead()
    return broker


def files_of(broker) -> set[str]:
    return {path.name for path in pathlib.Path(broker.replica().log.directory).iterdir()}


@pytest.mark.parametrize("delete", [True, False])
def test_stopping_a_partition_with_staged_batches_is_no_storage_failure(tmp_path, delete):
    broker = ReplicasUnderTest(tmp_path)
    broker.lead()
    pending = broker.append(batch(b"lost", producer_id=7, producer_epoch=0, base_sequence=0))
    broker.replicas.stop([(PARTITION, delete)])
    broker.host.end_tick()
    assert pending.ends == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.host.failures == []
    broker.freed()
    broker.lead(OTHER_ID if delete else TOPIC_ID, epoch=1)
    broker.freed()
    again = broker.written(batch(b"kept", producer_id=7, producer_epoch=0, base_sequence=0))
    assert (again.ends, again.base_offset) == (["done"], 0)


def test_a_flush_under_way_at_the_deletion_is_no_storage_failure(broker):
    pending = broker.written(batch())
    broker.replicas.stop([(PARTITION, True)])
    broker.host.run_off()  # the flush; the removal of the folder is behind it
    assert pending.ends == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.host.failures == []


def test_a_late_flush_of_a_deleted_log_leaves_its_successor_alone(broker):
    broker.written(batch(b"old", producer_id=7, producer_epoch=0, base_sequence=0))
    broker.replicas.stop([(PARTITION, True)])
    broker.lead(OTHER_ID)
    broker.freed()
    before = files_of(broker)
    broker.host.run_off()
    assert files_of(broker) == before
    assert broker.replica().log.recovery_point == 0
    assert broker.host.failures == []


def test_a_flush_that_the_deletion_overtakes_leaves_its_successor_alone(broker):
    broker.written(batch(b"old", producer_id=7, producer_epoch=0, base_sequence=0))
    synced = broker.files.fdatasync

    def delete_meanwhile(fd):
        broker.files.fdatasync = synced
        synced(fd)
        broker.replicas.stop([(PARTITION, True)])
        broker.lead(OTHER_ID)
        broker.freed()

    broker.files.fdatasync = delete_meanwhile
    broker.host.run_off()
    assert broker.replica().topic_id == OTHER_ID
    assert not [name for name in files_of(broker) if name.endswith(".snapshot")]
    assert broker.host.failures == []


def test_a_disk_that_fails_during_a_deletion_is_still_a_failed_disk(broker):
    broker.written(batch())

    def fail(fd):
        broker.replicas.stop([(PARTITION, True)])
        raise OSError(errno.EIO, "broken")

    broker.files.fdatasync = fail
    broker.host.run_off()
    assert broker.host.failures == [(errno.EIO, True)]


def test_a_flush_that_fails_in_an_unforeseen_way_acknowledges_nothing_and_is_done_again(broker):
    pending = broker.written(batch())
    _, done = broker.host.off.popleft()
    done(None, MemoryError("no memory"))
    assert pending.ends == [E.KAFKA_STORAGE_ERROR]
    assert not broker.replica().flushes.flushing
    later = broker.written(batch())
    broker.host.run_off()
    assert later.ends == ["done"]
    assert broker.replica().log.recovery_point == 2

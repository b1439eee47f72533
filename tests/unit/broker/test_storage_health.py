"""What a failing disk means for the partitions on it, and for those on others."""

import errno

import pytest

from headwater.broker.storage_health import ROOM_TO_RETURN, StorageHealth
from headwater.errors import E
from tests.unit.broker.live import batch
from tests.unit.replication.replica_under_test import NOW, ReplicaUnderTest


class Disk:
    """Tells how much room there is."""

    def __init__(self, total, usable):
        self.total, self.usable = total, usable

    def space(self, path):
        return self.total, self.usable


@pytest.fixture
def here(tmp_path):
    """A partition with a batch that waits for a follower."""
    return ReplicaUnderTest(tmp_path / "here", replicas=(1, 2))


@pytest.fixture
def elsewhere(tmp_path):
    return ReplicaUnderTest(tmp_path / "elsewhere")


def waiting(leader):
    pending = leader.append(batch(now=NOW))
    leader.host.end_tick()
    assert pending.ends == []
    return pending


def health(leader, total=1 << 30, usable=0) -> StorageHealth:
    return StorageHealth(leader.dirs, Disk(total, usable), all_lost=lambda: None)


def test_a_broken_disk_answers_whoever_waits_on_it_and_nobody_else(here, elsewhere):
    pending = waiting(here)
    replicas = [here.replica, elsewhere.replica]
    health(here).failed(replicas, here.replica, OSError(errno.EIO, "broken"), flushing=False)
    assert pending.ends == [E.KAFKA_STORAGE_ERROR]
    assert here.replica.offline is here.replica.refusal is not None
    assert (elsewhere.replica.offline, elsewhere.replica.refusal) == (None, None)
    assert here.dirs.dirs[0].offline
    assert [proposal.isr for proposal in here.host.proposals] == [{2}], "the other one must lead"


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_only_the_first_failure_of_a_disk_visits_all_of_its_partitions(here, code):
    visits = []

    def replicas():
        visits.append(1)
        yield here.replica

    state = health(here)
    for _ in range(3):
        pending = here.append(batch(now=NOW)) if here.replica.refusal is None else None
        state.failed(replicas(), here.replica, OSError(code, "broken"), flushing=False)
        if pending is not None and code == errno.EIO:
            assert pending.ends == [E.KAFKA_STORAGE_ERROR]
    assert len(visits) == 1


def test_a_full_disk_refuses_writes_but_serves_and_lets_wait(here):
    pending = waiting(here)
    state = health(here)
    state.failed([here.replica], here.replica, OSError(errno.ENOSPC, "full"), flushing=False)
    assert here.replica.refusal is not None
    assert here.replica.offline is None
    assert [proposal.isr for proposal in here.host.proposals] == [{2}], "the other one must lead"
    assert pending.ends == [], "what is written already may still be committed"
    assert state.full_dirs


def test_a_full_disk_during_a_sync_is_a_broken_one(here):
    health(here).failed([here.replica], here.replica, OSError(errno.ENOSPC, "full"), flushing=True)
    assert here.replica.offline is not None


@pytest.mark.parametrize(
    ("total", "enough"), [(1 << 40, ROOM_TO_RETURN), (16 << 20, 2 << 20), (800, 100)]
)
def test_a_full_disk_returns_when_there_is_room_for_its_size(here, total, enough):
    state = health(here, total, enough - 1)
    state.failed([here.replica], here.replica, OSError(errno.EDQUOT, "quota"), flushing=False)
    state.probe([here.replica])
    assert here.replica.refusal is not None
    state._files.usable = enough
    state.probe([here.replica])
    assert here.replica.refusal is None
    assert not state.full_dirs


def test_room_does_not_mend_a_disk_that_broke_meanwhile(here):
    state = health(here, usable=1 << 29)
    state.failed([here.replica], here.replica, OSError(errno.ENOSPC, "full"), flushing=False)
    state.failed([here.replica], here.replica, OSError(errno.EIO, "broken"), flushing=False)
    state.probe([here.replica])
    assert here.replica.refusal is not None


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("flushing", [False, True])
def test_a_process_without_descriptors_is_no_sick_disk(here, code, flushing):
    failure = OSError(code, "too many")
    health(here).failed([here.replica], here.replica, failure, flushing=flushing)
    assert here.replica.offline is here.replica.refusal is None
    assert not here.dirs.dirs[0].offline
    assert here.dirs.free_descriptors() == 0, "the open files were closed to make room"

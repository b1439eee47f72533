"""One replica: who is told what, when, and exactly once."""

import errno

import pytest

from headwater.errors import E, KafkaError
from headwater.records.batch import batches
from headwater.records.record import decode_records
from headwater.records.rewrite import HEAVY_COUNT, HEAVY_OUTPUT
from headwater.replication.partition import Role
from tests.unit.broker.live import batch as timed
from tests.unit.replication.replica_under_test import NOW, Pending, ReplicaUnderTest


def batch(*values, **kind):
    return timed(*values, now=NOW, **kind)


@pytest.fixture
def stage(tmp_path):
    return ReplicaUnderTest(tmp_path)


def values(stored):
    found = []
    for at, header in batches(stored):
        found += [record.value for record in decode_records(stored[at : at + header.size])]
    return found


def refused(call) -> E:
    with pytest.raises(KafkaError) as failure:
        call()
    return failure.value.code


# -- acks


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_nobody_is_told_before_the_write(stage, acks):
    pending = stage.append(batch(), acks)
    assert pending.ends == []
    assert stage.replica.log.log_end_offset == 0
    stage.around.end_tick()
    assert pending.ends == ["done"]
    assert (pending.base_offset, pending.last_offset) == (0, 0)


def test_one_write_serves_all_batches_of_a_tick(stage):
    order = []
    for number in range(5):
        stage.append(batch(b"%d" % number), -1, Pending(number, order))
    assert len(stage.around.to_write) == 1
    stage.files.calls.clear()
    stage.around.end_tick()
    assert [call for call in stage.files.calls if call.endswith(".log")] == [
        "write 00000000000000000000.log"
    ]
    assert order == [0, 1, 2, 3, 4]


def test_acks_1_is_told_after_the_write_and_acks_all_when_followers_have_it(tmp_path):
    stage = ReplicaUnderTest(tmp_path, replicas=(1, 2))
    one, everyone = stage.append(batch(), 1), stage.append(batch(), -1)
    stage.around.end_tick()
    assert (one.ends, everyone.ends) == (["done"], [])
    assert everyone.parked, "it outlived its tick"
    stage.replica.run(stage.replica.partition.follower_fetched(0, 2, 1, 0))
    assert everyone.ends == [], "the follower has the first batch only"
    stage.replica.run(stage.replica.partition.follower_fetched(0, 2, 2, 0))
    assert everyone.ends == ["done"]
    assert stage.around.marks == [1, 2]


def test_too_few_in_sync_refuse_acks_all_and_take_acks_1(tmp_path):
    stage = ReplicaUnderTest(tmp_path, replicas=(1, 2), isr=(1,), min_insync=2)
    assert refused(lambda: stage.append(batch(), -1)) is E.NOT_ENOUGH_REPLICAS
    pending = stage.append(batch(), 1)
    stage.around.end_tick()
    assert pending.ends == ["done"]


def test_a_duplicate_is_answered_with_its_original_and_stored_once(stage):
    numbered = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    stage.append(numbered)
    other, again = stage.append(batch(b"b")), stage.append(numbered)
    stage.around.end_tick()
    assert other.ends == again.ends == ["done"]
    assert (again.base_offset, again.last_offset) == (0, 0)
    later = stage.append(numbered)
    stage.around.end_tick()
    assert (later.ends, later.base_offset) == (["done"], 0)
    assert values(stage.stored()) == [b"a", b"b"]


def test_a_refused_batch_leaves_nothing(stage):
    damaged = bytearray(batch(b"a"))
    damaged[-1] ^= 1
    assert refused(lambda: stage.append(damaged)) is E.CORRUPT_MESSAGE
    assert stage.around.to_write == []
    assert stage.replica.log.staged_end_offset == 0


def test_only_a_leader_takes_batches(stage):
    stage.replica.partition.followed(2, 1, 1, (1, 2), (2,))
    assert refused(lambda: stage.append(batch())) is E.NOT_LEADER_OR_FOLLOWER


# -- the inbox: held batches keep their place


def heavy(count=50):
    return batch(*[b"%04d" % number + b"x" * 2000 for number in range(count)])


@pytest.fixture
def recompressing(tmp_path):
    return ReplicaUnderTest(tmp_path, compression_type="gzip")


def test_batches_behind_a_held_one_keep_their_place(recompressing):
    stage, order = recompressing, []
    stage.append(heavy(), -1, Pending("held", order))
    stage.append(batch(b"after"), -1, Pending("after", order))
    stage.append(heavy(40), -1, Pending("held too", order))
    stage.append(batch(b"last"), -1, Pending("last", order))
    assert len(stage.around.off) == 2
    stage.around.end_tick()
    assert order == [], "nothing may pass the first one"
    stage.around.run_off(1)
    stage.around.end_tick()
    assert order == []
    stage.around.run_off(0)
    stage.around.end_tick()
    assert order == ["held", "after", "held too", "last"]
    found = values(stage.stored())
    assert len(found) == 92
    assert found[50] == b"after"
    assert found[-1] == b"last"


def test_a_batch_is_held_by_its_own_bytes_not_by_the_receive_buffer(tmp_path):
    stage = ReplicaUnderTest(
        tmp_path, cleanup_policy="compact"
    )  # stored as they come, after a look at keys
    large = batch(*[b"%04d" % number for number in range(HEAVY_COUNT + 1)], key=b"k")
    received, behind = bytearray(large), bytearray(batch(b"behind", key=b"k"))
    stage.replica.append(memoryview(received), Pending(), -1, NOW)
    stage.replica.append(memoryview(behind), Pending(), -1, NOW)
    assert stage.around.off, "nothing was held"
    received[:] = bytes(len(received))
    behind[:] = bytes(len(behind))
    stage.around.run_off()
    stage.around.end_tick()
    found = values(stage.stored())
    assert (found[0], found[-1]) == (b"0000", b"behind")


def test_a_small_batch_that_becomes_large_is_looked_into_off_the_loop(stage):
    pending = stage.append(batch(bytes(2 * HEAVY_OUTPUT), codec=1))
    assert len(stage.around.off) == 1
    stage.around.run_off()
    stage.around.end_tick()
    assert (pending.ends, len(values(stage.stored()))) == (["done"], 1)


@pytest.mark.parametrize("how", ["done", "abandoned"])
def test_what_waits_in_the_inbox_is_counted_until_it_leaves(recompressing, how):
    first, second = heavy(), heavy(40)
    held = [recompressing.append(first), recompressing.append(second)]
    assert [pending.held for pending in held] == [len(first), len(second)]
    if how == "done":
        recompressing.around.run_off()
        recompressing.around.run_off()
    else:
        recompressing.replica.abandon(KafkaError(E.KAFKA_STORAGE_ERROR))
    assert [pending.held for pending in held] == [0, 0]


def test_a_held_batch_that_fails_does_not_hold_the_others(recompressing):
    stage = recompressing
    broken = bytearray(heavy())
    held = stage.append(broken)
    after = stage.append(batch(b"after"))
    _, done = stage.around.off.popleft()
    done(None, KafkaError(E.INVALID_RECORD))
    stage.around.end_tick()
    assert (held.ends, after.ends) == ([E.INVALID_RECORD], ["done"])
    assert after.base_offset == 0


def test_a_mistake_in_the_treatment_is_a_server_error_not_a_hanging_client(recompressing):
    held = recompressing.append(heavy())
    _, done = recompressing.around.off.popleft()
    done(None, ValueError("a bug"))
    assert held.ends == [E.UNKNOWN_SERVER_ERROR]


def test_a_held_batch_of_a_deposed_leader_is_refused(recompressing):
    stage = recompressing
    held = stage.append(heavy())
    stage.replica.partition.role = Role.FOLLOWER
    stage.around.run_off()
    assert held.ends == [E.NOT_LEADER_OR_FOLLOWER]


def test_what_is_held_hears_of_a_failed_write_once(recompressing):
    stage = recompressing
    staged = stage.append(batch(b"staged"))
    held = stage.append(heavy())
    behind = stage.append(batch(b"behind"))
    stage.files.fail_write = OSError(errno.ENOSPC, "full")
    stage.around.end_tick()
    assert staged.ends == held.ends == behind.ends == [E.KAFKA_STORAGE_ERROR]
    stage.around.run_off()
    stage.around.end_tick()
    assert held.ends == [E.KAFKA_STORAGE_ERROR]
    assert stage.stored() == b""


# -- failures


def test_a_failed_write_answers_everyone_and_leaves_the_log_as_it_was(stage):
    stage.append(batch(b"kept"))
    stage.around.end_tick()
    waiting = [stage.append(batch(b"lost"), acks) for acks in (0, 1, -1)]
    stage.files.fail_write = OSError(errno.ENOSPC, "full")
    stage.around.end_tick()
    assert [pending.ends for pending in waiting] == [[E.KAFKA_STORAGE_ERROR]] * 3
    assert stage.around.failures == [(errno.ENOSPC, False)]
    again = stage.append(batch(b"again"))
    stage.around.end_tick()
    assert (again.ends, again.base_offset) == (["done"], 1)
    assert values(stage.stored()) == [b"kept", b"again"]


def test_a_failed_write_forgets_the_sequences_too(stage):
    numbered = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    stage.append(numbered)
    stage.files.fail_write = OSError(errno.ENOSPC, "full")
    stage.around.end_tick()
    retried = stage.append(numbered)
    stage.around.end_tick()
    assert retried.ends == ["done"]
    assert values(stage.stored()) == [b"a"]


def test_a_refusal_holds_until_it_is_taken_back(stage):
    stage.replica.refusal = KafkaError(E.KAFKA_STORAGE_ERROR)
    assert refused(lambda: stage.append(batch())) is E.KAFKA_STORAGE_ERROR
    assert refused(
        lambda: stage.replica.append_built(bytearray(batch()), Pending())
    ) is E.KAFKA_STORAGE_ERROR  # fmt: skip
    stage.replica.refusal = None
    stage.append(batch())


def numbered(sequence, value=b"a", **kind):
    return batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence, **kind)


def numbered_and_held():
    return numbered(0, bytes(2 * HEAVY_OUTPUT), codec=1)


def disk_full(stage):
    stage.replica.refusal = KafkaError(E.KAFKA_STORAGE_ERROR)
    assert refused(lambda: stage.append(numbered(0))) is E.KAFKA_STORAGE_ERROR
    stage.replica.refusal = None


def too_few_in_sync(stage):
    stage.replica.partition.enough_in_sync = False
    assert refused(lambda: stage.append(numbered(0))) is E.NOT_ENOUGH_REPLICAS
    stage.replica.partition.enough_in_sync = True


def write_failed_while_it_was_held(stage):
    first = stage.append(numbered_and_held())
    assert len(stage.around.off) == 1
    stage.replica.abandon(KafkaError(E.KAFKA_STORAGE_ERROR))
    assert first.ends == [E.KAFKA_STORAGE_ERROR]


def disk_filled_while_it_was_held(stage):
    first = stage.append(numbered_and_held())
    stage.replica.refusal = KafkaError(E.KAFKA_STORAGE_ERROR)
    stage.around.run_off()
    assert first.ends == [E.KAFKA_STORAGE_ERROR]
    stage.replica.refusal = None


@pytest.mark.parametrize(
    "refuse",
    [
        disk_full,
        too_few_in_sync,
        write_failed_while_it_was_held,
        disk_filled_while_it_was_held,
    ],
)
def test_the_second_batch_of_a_new_producer_does_not_pass_a_first_that_was_refused(stage, refuse):
    refuse(stage)
    second = numbered(1, b"b")
    assert refused(lambda: stage.append(second)) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    for data in (numbered(0), second):
        stage.append(data)
    stage.around.end_tick()
    assert values(stage.stored()) == [b"a", b"b"]


def test_resigning_answers_whoever_waits(tmp_path):
    stage = ReplicaUnderTest(tmp_path, replicas=(1, 2))
    pending = stage.append(batch())
    stage.around.end_tick()
    stage.replica.abandon(KafkaError(E.NOT_LEADER_OR_FOLLOWER))
    assert pending.ends == [E.NOT_LEADER_OR_FOLLOWER]


# -- flush.messages=1


@pytest.fixture
def syncing(tmp_path):
    return ReplicaUnderTest(tmp_path, flush_messages="1")


@pytest.mark.parametrize("acks", [1, -1])
def test_with_flush_messages_1_nobody_is_told_before_the_disk_has_it(syncing, acks):
    pending = syncing.append(batch(), acks)
    syncing.around.end_tick()
    assert pending.ends == []
    assert syncing.replica.partition.high_watermark == 0
    syncing.files.calls.clear()
    syncing.around.run_off()
    assert "sync 00000000000000000000.log" in syncing.files.calls
    assert pending.ends == ["done"]


def test_one_flush_at_a_time_serves_all_that_came_meanwhile(syncing):
    first = syncing.append(batch())
    syncing.around.end_tick()
    later = [syncing.append(batch()) for _ in range(3)]
    syncing.around.end_tick()
    assert len(syncing.around.off) == 1
    syncing.around.run_off()
    assert first.ends == ["done"]
    assert [pending.ends for pending in later] == [[], [], []]
    syncing.around.run_off()
    assert [pending.ends for pending in later] == [["done"]] * 3
    assert not syncing.around.off


@pytest.mark.parametrize("acks", [1, -1])
def test_with_flush_messages_n_the_nth_record_waits_for_the_flush_of_all(tmp_path, acks):
    stage = ReplicaUnderTest(tmp_path, flush_messages="3")
    early = stage.append(batch(b"1", b"2"), acks)
    stage.around.end_tick()
    assert (early.ends, len(stage.around.off)) == (["done"], 0)
    third, fourth = stage.append(batch(b"3"), acks), stage.append(batch(b"4"), acks)
    stage.around.end_tick()
    later = stage.append(batch(b"5"), acks)
    stage.around.end_tick()
    assert (third.ends, fourth.ends, later.ends) == ([], [], [])
    assert stage.replica.partition.high_watermark == 2, "no mark inside of what is flushed together"
    stage.around.run_off()
    assert stage.replica.log.recovery_point == 4
    assert (third.ends, fourth.ends, later.ends) == (["done"], ["done"], ["done"])
    assert not stage.around.off, "one record is unflushed, and may be"


def test_what_came_during_a_flush_waits_for_the_next_if_it_is_too_much(tmp_path):
    stage = ReplicaUnderTest(tmp_path, flush_messages="3")
    first = stage.append(batch(b"1", b"2", b"3"))
    stage.around.end_tick()
    later = stage.append(batch(b"4", b"5", b"6"))
    stage.around.end_tick()
    stage.around.run_off()
    assert (first.ends, later.ends) == (["done"], [])
    assert stage.replica.partition.high_watermark == 3
    stage.around.run_off()
    assert later.ends == ["done"]


def test_a_failed_flush_acknowledges_nothing(syncing):
    pending = syncing.append(batch())
    syncing.around.end_tick()

    def fail(fd):
        raise OSError(errno.EIO, "broken")

    syncing.files.fdatasync = fail
    syncing.around.run_off()
    assert pending.ends == [E.KAFKA_STORAGE_ERROR]
    assert syncing.around.failures == [(errno.EIO, True)]
    assert syncing.replica.partition.high_watermark == 0


# -- readers


def test_epochs_tell_an_old_client_from_one_that_is_ahead(stage):
    replica = stage.replica
    replica.partition.led(0, 5, 1, (1,), (1,), 0)
    replica.require_leader(5)
    replica.require_leader(-1)
    assert refused(lambda: replica.require_leader(4)) is E.FENCED_LEADER_EPOCH
    assert refused(lambda: replica.require_leader(6)) is E.UNKNOWN_LEADER_EPOCH


def test_an_offline_replica_serves_no_reads(stage):
    stage.replica.offline = KafkaError(E.KAFKA_STORAGE_ERROR)
    assert refused(stage.replica.require_leader) is E.KAFKA_STORAGE_ERROR


def test_offsets_outside_of_the_log_are_refused(stage):
    stage.append(batch(b"a", b"b"))
    stage.around.end_tick()
    stage.replica.check_in_range(0)
    stage.replica.check_in_range(2)
    for outside in (-1, 3):
        assert refused(lambda at=outside: stage.replica.check_in_range(at)) is E.OFFSET_OUT_OF_RANGE


def test_watchers_are_woken_when_more_is_committed(tmp_path):
    stage = ReplicaUnderTest(tmp_path, replicas=(1, 2))
    woken = []

    class Watcher:
        def wake(self, replica):
            woken.append(replica.partition.high_watermark)

    stage.replica.watchers[Watcher()] = None
    stage.append(batch())
    stage.around.end_tick()
    assert woken == []
    stage.replica.run(stage.replica.partition.follower_fetched(0, 2, 1, 0))
    assert woken == [1]

"""One replica: who is told what, when, and exactly once."""

import errno

import cramjam
import pytest

from headwater.errors import E, KafkaError
from headwater.log.flushing import mark_synced, unsynced
from headwater.log.partition_log import FLUSH_MS
from headwater.records.batch import HEADER, batches
from headwater.records.compression import Codec
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record, decode_records, encode_records
from headwater.records.rewrite import HEAVY_COUNT, HEAVY_OUTPUT
from headwater.records.rules import MAX_UNCOMPRESSED_BYTES
from headwater.replication.partition import Role
from tests.unit.broker.live import batch as timed
from tests.unit.replication.replica_under_test import NOW, Pending, ReplicaUnderTest


def batch(*values, **kind):
    return timed(*values, now=NOW, **kind)


@pytest.fixture
def leader(tmp_path):
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
def test_nobody_is_told_before_the_write(leader, acks):
    pending = leader.append(batch(), acks)
    assert pending.ends == []
    assert leader.replica.log.log_end_offset == 0
    leader.host.end_tick()
    assert pending.ends == ["done"]
    assert (pending.base_offset, pending.last_offset) == (0, 0)


def test_one_write_serves_all_batches_of_a_tick(leader):
    order = []
    for number in range(5):
        leader.append(batch(b"%d" % number), -1, Pending(number, order))
    assert len(leader.host.to_write) == 1
    leader.files.calls.clear()
    leader.host.end_tick()
    assert [call for call in leader.files.calls if call.endswith(".log")] == [
        "write 00000000000000000000.log"
    ]
    assert order == [0, 1, 2, 3, 4]


def test_acks_1_is_told_after_the_write_and_acks_all_when_followers_have_it(tmp_path):
    leader = ReplicaUnderTest(tmp_path, replicas=(1, 2))
    one, everyone = leader.append(batch(), 1), leader.append(batch(), -1)
    leader.host.end_tick()
    assert (one.ends, everyone.ends) == (["done"], [])
    assert everyone.parked, "it outlived its tick"
    leader.replica.leading.follower_fetched(2, 1, 0)
    assert everyone.ends == [], "the follower has the first batch only"
    leader.replica.leading.follower_fetched(2, 2, 0)
    assert everyone.ends == ["done"]
    assert leader.host.marks == [1, 2]


def test_too_few_in_sync_refuse_acks_all_and_take_acks_1(tmp_path):
    leader = ReplicaUnderTest(tmp_path, replicas=(1, 2), isr=(1,), min_insync=2)
    assert refused(lambda: leader.append(batch(), -1)) is E.NOT_ENOUGH_REPLICAS
    pending = leader.append(batch(), 1)
    leader.host.end_tick()
    assert pending.ends == ["done"]


def test_a_duplicate_is_answered_with_its_original_and_stored_once(leader):
    numbered = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    leader.append(numbered)
    other, again = leader.append(batch(b"b")), leader.append(numbered)
    leader.host.end_tick()
    assert other.ends == again.ends == ["done"]
    assert (again.base_offset, again.last_offset) == (0, 0)
    later = leader.append(numbered)
    leader.host.end_tick()
    assert (later.ends, later.base_offset) == (["done"], 0)
    assert values(leader.stored()) == [b"a", b"b"]


def test_a_refused_batch_leaves_nothing(leader):
    damaged = bytearray(batch(b"a"))
    damaged[-1] ^= 1
    assert refused(lambda: leader.append(damaged)) is E.CORRUPT_MESSAGE
    assert leader.host.to_write == []
    assert leader.replica.log.staging.end_offset == 0


def test_only_a_leader_takes_batches(leader):
    leader.replica.partition.followed(2, 1, 1, (1, 2), (2,))
    assert refused(lambda: leader.append(batch())) is E.NOT_LEADER_OR_FOLLOWER


# -- the inbox: held batches keep their place


def heavy(count=50):
    return batch(*[b"%04d" % number + b"x" * 2000 for number in range(count)])


@pytest.fixture
def recompressing(tmp_path):
    return ReplicaUnderTest(tmp_path, compression_type="gzip")


def test_batches_behind_a_held_one_keep_their_place(recompressing):
    leader, order = recompressing, []
    leader.append(heavy(), -1, Pending("held", order))
    leader.append(batch(b"after"), -1, Pending("after", order))
    leader.append(heavy(40), -1, Pending("held too", order))
    leader.append(batch(b"last"), -1, Pending("last", order))
    assert len(leader.host.off) == 2
    leader.host.end_tick()
    assert order == [], "nothing may pass the first one"
    leader.host.run_off(1)
    leader.host.end_tick()
    assert order == []
    leader.host.run_off(0)
    leader.host.end_tick()
    assert order == ["held", "after", "held too", "last"]
    found = values(leader.stored())
    assert len(found) == 92
    assert found[50] == b"after"
    assert found[-1] == b"last"


def test_a_batch_is_held_by_its_own_bytes_not_by_the_receive_buffer(tmp_path):
    leader = ReplicaUnderTest(
        tmp_path, cleanup_policy="compact"
    )  # stored as they come, after a look at keys
    large = batch(*[b"%04d" % number for number in range(HEAVY_COUNT + 1)], key=b"k")
    received, behind = bytearray(large), bytearray(batch(b"behind", key=b"k"))
    leader.replica.append(memoryview(received), Pending(), -1, NOW)
    leader.replica.append(memoryview(behind), Pending(), -1, NOW)
    assert leader.host.off, "nothing was held"
    received[:] = bytes(len(received))
    behind[:] = bytes(len(behind))
    leader.host.run_off()
    leader.host.end_tick()
    found = values(leader.stored())
    assert (found[0], found[-1]) == (b"0000", b"behind")


def test_a_small_batch_that_becomes_large_is_looked_into_off_the_loop(leader):
    pending = leader.append(batch(bytes(2 * HEAVY_OUTPUT), codec=1))
    assert len(leader.host.off) == 1
    leader.host.run_off()
    leader.host.end_tick()
    assert (pending.ends, len(values(leader.stored()))) == (["done"], 1)


def unsized(data):
    """A frame of zstd that does not state its size, as Java writes it."""
    stream = cramjam.zstd.Compressor()
    stream.compress(data)
    return bytes(stream.finish())


@pytest.mark.parametrize("stamped", [False, True])
def test_a_batch_whose_headers_do_not_tell_its_size_is_counted_off_the_loop(tmp_path, stamped):
    """Each of its 600 frames could have 128 KiB."""
    configs = {"message_timestamp_type": "LogAppendTime"} if stamped else {}
    leader = ReplicaUnderTest(tmp_path, **configs)
    area = encode_records([Record(value=bytes(20_000), timestamp=NOW)] * 5, NOW)
    frames = [unsized(area[at : at + 170]) for at in range(0, len(area), 170)]
    header = HEADER.unpack_from(batch(*5 * [b"x"], codec=Codec.ZSTD))
    pending = leader.append(complete_batch(header, b"".join(frames)))
    assert len(leader.host.off) == 1
    leader.append(batch(b"behind"))
    leader.host.run_off()
    leader.host.end_tick()
    assert pending.ends == ["done"]
    assert values(leader.stored()) == [*5 * [bytes(20_000)], b"behind"]
    # Too large for readers, which only counting shows.
    zeros = unsized(bytes(MAX_UNCOMPRESSED_BYTES))
    pending = leader.append(complete_batch(header, zeros + frames[0]))
    leader.host.run_off()
    assert pending.ends == [E.MESSAGE_TOO_LARGE]


@pytest.mark.parametrize("how", ["done", "abandoned"])
def test_what_waits_in_the_inbox_is_counted_until_it_leaves(recompressing, how):
    first, second = heavy(), heavy(40)
    held = [recompressing.append(first), recompressing.append(second)]
    assert [pending.held for pending in held] == [len(first), len(second)]
    if how == "done":
        recompressing.host.run_off()
        recompressing.host.run_off()
    else:
        recompressing.replica.fail_waiters(KafkaError(E.KAFKA_STORAGE_ERROR))
    assert [pending.held for pending in held] == [0, 0]


def test_a_held_batch_that_fails_does_not_hold_the_others(recompressing):
    leader = recompressing
    broken = bytearray(heavy())
    held = leader.append(broken)
    after = leader.append(batch(b"after"))
    _, done = leader.host.off.popleft()
    done(None, KafkaError(E.INVALID_RECORD))
    leader.host.end_tick()
    assert (held.ends, after.ends) == ([E.INVALID_RECORD], ["done"])
    assert after.base_offset == 0


def test_a_mistake_in_the_treatment_is_a_server_error_not_a_hanging_client(recompressing):
    held = recompressing.append(heavy())
    _, done = recompressing.host.off.popleft()
    done(None, ValueError("a bug"))
    assert held.ends == [E.UNKNOWN_SERVER_ERROR]


def test_a_held_batch_of_a_deposed_leader_is_refused(recompressing):
    leader = recompressing
    held = leader.append(heavy())
    leader.replica.partition.role = Role.FOLLOWER
    leader.host.run_off()
    assert held.ends == [E.NOT_LEADER_OR_FOLLOWER]


def test_what_is_held_hears_of_a_failed_write_once(recompressing):
    leader = recompressing
    staged = leader.append(batch(b"staged"))
    held = leader.append(heavy())
    behind = leader.append(batch(b"behind"))
    leader.files.fail_write = OSError(errno.ENOSPC, "full")
    leader.host.end_tick()
    assert staged.ends == held.ends == behind.ends == [E.KAFKA_STORAGE_ERROR]
    leader.host.run_off()
    leader.host.end_tick()
    assert held.ends == [E.KAFKA_STORAGE_ERROR]
    assert leader.stored() == b""


# -- failures


def test_a_failed_write_answers_everyone_and_leaves_the_log_as_it_was(leader):
    leader.append(batch(b"kept"))
    leader.host.end_tick()
    waiting = [leader.append(batch(b"lost"), acks) for acks in (0, 1, -1)]
    leader.files.fail_write = OSError(errno.ENOSPC, "full")
    leader.host.end_tick()
    assert [pending.ends for pending in waiting] == [[E.KAFKA_STORAGE_ERROR]] * 3
    assert leader.host.failures == [(errno.ENOSPC, False)]
    again = leader.append(batch(b"again"))
    leader.host.end_tick()
    assert (again.ends, again.base_offset) == (["done"], 1)
    assert values(leader.stored()) == [b"kept", b"again"]


def test_a_failed_write_forgets_the_sequences_too(leader):
    numbered = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    leader.append(numbered)
    leader.files.fail_write = OSError(errno.ENOSPC, "full")
    leader.host.end_tick()
    retried = leader.append(numbered)
    leader.host.end_tick()
    assert retried.ends == ["done"]
    assert values(leader.stored()) == [b"a"]


def test_a_refusal_holds_until_it_is_taken_back(leader):
    leader.replica.refusal = KafkaError(E.KAFKA_STORAGE_ERROR)
    assert refused(lambda: leader.append(batch())) is E.KAFKA_STORAGE_ERROR
    assert refused(
        lambda: leader.replica.built.append(bytearray(batch()), Pending())
    ) is E.KAFKA_STORAGE_ERROR  # fmt: skip
    leader.replica.refusal = None
    leader.append(batch())


def numbered(sequence, value=b"a", **kind):
    return batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence, **kind)


def numbered_and_held():
    return numbered(0, bytes(2 * HEAVY_OUTPUT), codec=1)


def disk_full(leader):
    leader.replica.refusal = KafkaError(E.KAFKA_STORAGE_ERROR)
    assert refused(lambda: leader.append(numbered(0))) is E.KAFKA_STORAGE_ERROR
    leader.replica.refusal = None


def too_few_in_sync(leader):
    leader.replica.partition.enough_in_sync = False
    assert refused(lambda: leader.append(numbered(0))) is E.NOT_ENOUGH_REPLICAS
    leader.replica.partition.enough_in_sync = True


def write_failed_while_it_was_held(leader):
    first = leader.append(numbered_and_held())
    assert len(leader.host.off) == 1
    leader.replica.fail_waiters(KafkaError(E.KAFKA_STORAGE_ERROR))
    assert first.ends == [E.KAFKA_STORAGE_ERROR]


def disk_filled_while_it_was_held(leader):
    first = leader.append(numbered_and_held())
    leader.replica.refusal = KafkaError(E.KAFKA_STORAGE_ERROR)
    leader.host.run_off()
    assert first.ends == [E.KAFKA_STORAGE_ERROR]
    leader.replica.refusal = None


@pytest.mark.parametrize(
    "refuse",
    [
        disk_full,
        too_few_in_sync,
        write_failed_while_it_was_held,
        disk_filled_while_it_was_held,
    ],
)
def test_the_second_batch_of_a_new_producer_does_not_pass_a_first_that_was_refused(leader, refuse):
    refuse(leader)
    second = numbered(1, b"b")
    assert refused(lambda: leader.append(second)) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    for data in (numbered(0), second):
        leader.append(data)
    leader.host.end_tick()
    assert values(leader.stored()) == [b"a", b"b"]


def test_resigning_answers_whoever_waits(tmp_path):
    leader = ReplicaUnderTest(tmp_path, replicas=(1, 2))
    pending = leader.append(batch())
    leader.host.end_tick()
    leader.replica.fail_waiters(KafkaError(E.NOT_LEADER_OR_FOLLOWER))
    assert pending.ends == [E.NOT_LEADER_OR_FOLLOWER]


# -- flush.messages=1


@pytest.fixture
def syncing(tmp_path):
    return ReplicaUnderTest(tmp_path, flush_messages="1")


@pytest.mark.parametrize("acks", [1, -1])
def test_with_flush_messages_1_nobody_is_told_before_the_disk_has_it(syncing, acks):
    pending = syncing.append(batch(), acks)
    syncing.host.end_tick()
    assert pending.ends == []
    assert syncing.replica.partition.high_watermark == 0
    syncing.files.calls.clear()
    syncing.host.run_off()
    assert "sync 00000000000000000000.log" in syncing.files.calls
    assert pending.ends == ["done"]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_in_the_log_is_not_refused_when_a_later_write_fails(syncing, acks):
    """An idempotent producer that is told so sends it again under another epoch: it is there twice."""
    first = syncing.append(batch(), acks)
    syncing.host.end_tick()
    second = syncing.append(batch(), acks)
    syncing.files.fail_write = OSError(errno.ENOSPC, "full")
    syncing.host.end_tick()
    assert (first.ends, second.ends) == ([], [E.KAFKA_STORAGE_ERROR])
    syncing.host.run_off()
    assert first.ends == ["done"]


@pytest.mark.parametrize("acks", [1, -1])
def test_without_a_descriptor_the_flush_is_due_again_and_its_batch_waits(
    syncing, acks, monkeypatch
):
    pending = syncing.append(batch(), acks)
    syncing.host.end_tick()

    open_file = syncing.files.open

    def exhausted(path, **how):
        if path.endswith(".log"):
            raise OSError(errno.EMFILE, "Too many open files")
        return open_file(path, **how)

    with monkeypatch.context() as patched:
        patched.setattr(syncing.files, "open", exhausted)
        syncing.host.run_off()
    assert syncing.host.failures == [(errno.EMFILE, True)]
    assert pending.ends == []
    assert pending.parked, "it does not wait forever"
    replica = syncing.replica
    assert replica.log.flush_due(0, 0)
    work = replica.log.unflushed()
    work.run()
    replica.flushes.flushed(work)
    assert pending.ends == ["done"]


def test_one_flush_at_a_time_serves_all_that_came_meanwhile(syncing):
    first = syncing.append(batch())
    syncing.host.end_tick()
    later = [syncing.append(batch()) for _ in range(3)]
    syncing.host.end_tick()
    assert len(syncing.host.off) == 1
    syncing.host.run_off()
    assert first.ends == ["done"]
    assert [pending.ends for pending in later] == [[], [], []]
    syncing.host.run_off()
    assert [pending.ends for pending in later] == [["done"]] * 3
    assert not syncing.host.off


def test_acknowledgments_wait_for_the_data_alone_once_the_segment_was_flushed(syncing, monkeypatch):
    """Every call of a file thread waits for the GIL: a flush for each tick took ten times as long."""
    syncing.append(batch())
    syncing.host.end_tick()
    syncing.host.run_off()
    log = syncing.replica.log
    assert log.recovery_point == 1, "the first flush also has the segment's name and the epoch"
    calls = []
    monkeypatch.setattr(syncing.files, "fdatasync", lambda fd: calls.append("fdatasync"))
    monkeypatch.setattr(syncing.files, "sync_dir", lambda path: calls.append("folder"))
    pending = syncing.append(batch())
    syncing.host.end_tick()
    syncing.host.run_off()
    assert pending.ends == ["done"]
    assert calls == ["fdatasync"]
    assert (log.recovery_point, log.synced_end) == (1, 2)
    assert not log.flush_due(0, 0), (
        "many logs that are written to would all be flushed all the time"
    )
    assert log.flush_due(FLUSH_MS, 0), "housekeeping moves the recovery point"
    syncing.replica.flushes.flush()
    syncing.host.run_off()
    assert log.recovery_point == 2
    assert "folder" in calls


@pytest.mark.parametrize("change", ["a roll", "an epoch that is not on the disk"])
def test_acknowledgments_wait_for_a_flush_if_the_data_alone_is_not_enough(syncing, change):
    log = syncing.replica.log
    for _ in range(2):
        syncing.append(batch())
        syncing.host.end_tick()
        syncing.host.run_off()
    assert (log.recovery_point, log.synced_end) == (1, 2)
    if change == "a roll":
        log.roll(NOW)
    else:
        log.epochs.unsynced = True
    pending = syncing.append(batch())
    syncing.host.end_tick()
    syncing.host.run_off()
    assert pending.ends == ["done"]
    assert log.recovery_point == 3


def test_a_sync_that_began_before_a_truncation_does_not_count(syncing):
    for _ in range(2):
        syncing.append(batch())
        syncing.host.end_tick()
        syncing.host.run_off()
    log = syncing.replica.log
    syncing.append(batch())
    syncing.host.end_tick()
    work = unsynced(log)
    work.run()
    log.truncate_to(1)
    mark_synced(log, work)
    assert log.synced_end == 1


def test_a_flush_has_its_turn_between_the_syncs_of_steady_writers(syncing):
    """Otherwise DeleteRecords would wait, and a start would read everything since the last roll."""
    log = syncing.replica.log
    for _ in range(2):
        syncing.append(batch())
        syncing.host.end_tick()
        syncing.host.run_off()
    syncing.append(batch())
    syncing.host.end_tick()
    syncing.replica.flushes.flush()
    assert not syncing.replica.flushes.announce(FLUSH_MS, 0)
    for _ in range(2):  # each time, the next sync is due when one ends
        syncing.append(batch())
        syncing.host.end_tick()
        syncing.host.run_off()
    assert log.recovery_point == 4
    syncing.append(batch())
    syncing.host.end_tick()
    syncing.host.run_off()
    syncing.host.run_off()
    assert (log.recovery_point, log.synced_end) == (4, 6), "one flush is enough"


@pytest.mark.parametrize("failing", [False, True])
def test_a_sync_closes_its_file_on_its_thread(syncing, monkeypatch, failing):
    """The last descriptor of a deleted file frees its space, which can take a third of a second."""
    for _ in range(2):
        syncing.append(batch())
        syncing.host.end_tick()
        syncing.host.run_off()
    on_threads = []

    def close(fd):
        on_threads.append(syncing.host.in_thread)
        if failing:
            raise OSError(errno.EDQUOT, "disk quota exceeded")

    monkeypatch.setattr(syncing.files, "close", close)
    pending = syncing.append(batch())
    syncing.host.end_tick()
    syncing.host.run_off()
    assert on_threads == [True]
    assert not syncing.replica.flushes.flushing
    assert len(pending.ends) == 1
    assert (pending.ends == ["done"]) != failing


@pytest.mark.parametrize("acks", [1, -1])
def test_with_flush_messages_n_the_nth_record_waits_for_the_flush_of_all(tmp_path, acks):
    leader = ReplicaUnderTest(tmp_path, flush_messages="3")
    early = leader.append(batch(b"1", b"2"), acks)
    leader.host.end_tick()
    assert (early.ends, len(leader.host.off)) == (["done"], 0)
    third, fourth = leader.append(batch(b"3"), acks), leader.append(batch(b"4"), acks)
    leader.host.end_tick()
    later = leader.append(batch(b"5"), acks)
    leader.host.end_tick()
    assert (third.ends, fourth.ends, later.ends) == ([], [], [])
    assert leader.replica.partition.high_watermark == 2, (
        "no mark inside of what is flushed together"
    )
    leader.host.run_off()
    assert leader.replica.log.recovery_point == 4
    assert (third.ends, fourth.ends, later.ends) == (["done"], ["done"], ["done"])
    assert not leader.host.off, "one record is unflushed, and may be"


def test_what_came_during_a_flush_waits_for_the_next_if_it_is_too_much(tmp_path):
    leader = ReplicaUnderTest(tmp_path, flush_messages="3")
    first = leader.append(batch(b"1", b"2", b"3"))
    leader.host.end_tick()
    later = leader.append(batch(b"4", b"5", b"6"))
    leader.host.end_tick()
    leader.host.run_off()
    assert (first.ends, later.ends) == (["done"], [])
    assert leader.replica.partition.high_watermark == 3
    leader.host.run_off()
    assert later.ends == ["done"]


def test_a_failed_flush_acknowledges_nothing(syncing):
    pending = syncing.append(batch())
    syncing.host.end_tick()

    def fail(fd):
        raise OSError(errno.EIO, "broken")

    syncing.files.fdatasync = fail
    syncing.host.run_off()
    assert pending.ends == [E.KAFKA_STORAGE_ERROR]
    assert syncing.host.failures == [(errno.EIO, True)]
    assert syncing.replica.partition.high_watermark == 0


# -- readers


def test_epochs_tell_an_old_client_from_one_that_is_ahead(leader):
    replica = leader.replica
    replica.partition.led(0, 5, 1, (1,), (1,), 0)
    replica.require_leader(5)
    replica.require_leader(-1)
    assert refused(lambda: replica.require_leader(4)) is E.FENCED_LEADER_EPOCH
    assert refused(lambda: replica.require_leader(6)) is E.UNKNOWN_LEADER_EPOCH


def test_an_offline_replica_serves_no_reads(leader):
    leader.replica.offline = KafkaError(E.KAFKA_STORAGE_ERROR)
    assert refused(leader.replica.require_leader) is E.KAFKA_STORAGE_ERROR


def test_offsets_outside_of_the_log_are_refused(leader):
    leader.append(batch(b"a", b"b"))
    leader.host.end_tick()
    leader.replica.check_in_range(0)
    leader.replica.check_in_range(2)
    for outside in (-1, 3):
        assert (
            refused(lambda at=outside: leader.replica.check_in_range(at)) is E.OFFSET_OUT_OF_RANGE
        )


def test_watchers_are_woken_when_more_is_committed(tmp_path):
    leader = ReplicaUnderTest(tmp_path, replicas=(1, 2))
    woken = []

    class Watcher:
        def wake(self, replica):
            woken.append(replica.partition.high_watermark)

    leader.replica.watchers[Watcher()] = None
    leader.append(batch())
    leader.host.end_tick()
    assert woken == []
    leader.replica.leading.follower_fetched(2, 1, 0)
    assert woken == [1]

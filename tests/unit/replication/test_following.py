"""A replica that follows: it takes its leader's batches as they are and cuts what differs."""

import errno

import pytest

from headwater.errors import E, KafkaError
from headwater.records.batch import HEADER_SIZE
from headwater.records.control import Marker, build_marker
from headwater.replication.isolation import FetchIsolation
from headwater.replication.leader_and_isr import LeaderAndIsr
from tests.unit.log.support import PARTITION, TOPIC_ID, batch
from tests.unit.replication.replica_under_test import (
    NOW,
    Pending,
    ReplicasUnderTest,
    ReplicaUnderTest,
)

LEADER = 2
EPOCH = 5


def sent(offset, count=1, leader=EPOCH, value=b"value", **more) -> bytes:
    """A batch as a leader's log holds it."""
    return bytes(batch(count, offset=offset, leader=leader, value=value, **more))


def follow(replicas, epoch=EPOCH):
    decided = LeaderAndIsr(PARTITION, TOPIC_ID, LEADER, epoch, epoch, (1, LEADER), (1, LEADER))
    assert replicas.replicas.apply(decided) is E.NONE
    return replicas.replica()


@pytest.fixture
def broker(tmp_path):
    return ReplicasUnderTest(tmp_path)


@pytest.fixture
def follower(broker):
    return follow(broker)


def take(replica, batches, epoch, mark, log_start=0) -> int:
    """Append what a leader sent; it sends again what begins an epoch, once that is saved."""
    end = replica.following.append(batches, epoch, mark, log_start)
    if batches and not replica.dirty:
        end = replica.following.append(batches, epoch, mark, log_start)
    return end


def code(call) -> E:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code


def content(replica) -> bytes:
    found = replica.log.read(replica.log_start_offset, replica.log_end_offset, 1 << 20, True)
    return b"" if found is None else bytes(found.load())


def test_batches_are_stored_byte_for_byte(broker, follower):
    first = sent(0, 3, leader=2, producer=7, sequence=0)
    second = sent(3, 1, leader=4)
    assert take(follower, first + second, EPOCH, 0) == 3, "an epoch begins after the write"
    assert follower.log_end_offset == 0, "visible after the write only"
    broker.host.end_tick()
    assert take(follower, second, EPOCH, 0) == 4
    broker.host.end_tick()
    assert (follower.log_end_offset, content(follower)) == (4, first + second)
    assert follower.offset_for_epoch(2) == (2, 3)
    assert [producer.last_sequence for producer in follower.upkeep.active_producers()] == [2]


def test_a_batch_cut_off_at_the_end_is_fetched_again(broker, follower):
    whole, cut = sent(0), sent(1)
    for missing in (1, len(cut) - HEADER_SIZE, len(cut) - 1):
        answer = (
            whole + cut[: len(cut) - missing] if not follower.log_end_offset else cut[:-missing]
        )
        assert take(follower, answer, EPOCH, 0) == 1
        broker.host.end_tick()
    assert content(follower) == whole


def test_the_mark_follows_the_leaders_and_never_passes_the_own_log(broker, follower):
    take(follower, sent(0, 4), EPOCH, 3)
    assert follower.high_watermark == 0, "nothing is written yet"
    broker.host.end_tick()
    assert follower.high_watermark == 3
    take(follower, b"", EPOCH, 100)
    assert follower.high_watermark == 4
    assert follower.readable_end(FetchIsolation.LOG_END) == 4


def test_the_log_start_follows_the_leaders_within_what_is_committed(broker, follower):
    take(follower, sent(0, 2) + sent(2, 2), EPOCH, 3, 4)
    broker.host.end_tick()
    take(follower, b"", EPOCH, 3, 4)
    assert follower.log_start_offset == 3


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(sent(2), id="gap"),
        pytest.param(sent(0), id="offset again"),
        pytest.param(flipped(sent(1)), id="checksum"),
        pytest.param(sent(1, leader=EPOCH + 1), id="epoch of no leader yet"),
        pytest.param(sent(1, leader=1), id="epoch goes back"),
        pytest.param(b"\0" * 100, id="no batch"),
    ],
)
def test_a_batch_that_cannot_follow_is_refused_and_those_before_it_stay(broker, follower, bad):
    good = sent(0, leader=2)
    follower.following.append(good, EPOCH, 0)  # begins the epoch
    assert code(lambda: follower.following.append(good + bad, EPOCH, 9)) is E.CORRUPT_MESSAGE
    broker.host.end_tick()
    assert (content(follower), follower.high_watermark) == (good, 0)


def test_an_epoch_in_which_this_broker_wrote_nothing_gives_way(broker):
    broker.lead(epoch=3)
    broker.written(sent(0))
    broker.lead(epoch=4)  # wrote nothing; the leader of 5 has a record of epoch 3 that we lack
    follower = follow(broker)
    take(follower, sent(1, leader=3), EPOCH, 0)
    broker.host.end_tick()
    assert (follower.log_end_offset, follower.offset_for_epoch(3)) == (2, (3, 2))


def test_only_a_follower_of_this_epoch_is_appended_to_or_cut(broker, follower):
    for epoch, refusal in ((EPOCH - 1, E.FENCED_LEADER_EPOCH), (EPOCH + 1, E.UNKNOWN_LEADER_EPOCH)):
        assert code(lambda epoch=epoch: take(follower, sent(0), epoch, 0)) is refusal
        assert code(lambda epoch=epoch: follower.following.truncate(0, epoch, print)) is refusal
    broker.lead(epoch=EPOCH + 1)
    calls = [
        lambda: take(follower, sent(0), EPOCH + 1, 0),
        lambda: follower.following.truncate(0, EPOCH + 1, print),
        lambda: follower.following.restart_at(0, EPOCH + 1, print),
    ]
    assert [code(call) for call in calls] == [E.NOT_LEADER_OR_FOLLOWER] * 3


def test_a_write_that_fails_leaves_the_follower_where_it_was(broker, follower):
    broker.files.fail_write = OSError(errno.ENOSPC, "full")
    take(follower, sent(0), EPOCH, 1)
    broker.host.end_tick()
    assert (follower.log_end_offset, follower.high_watermark) == (0, 0)
    broker.files.fail_write = None
    assert take(follower, sent(0), EPOCH, 1) == 1
    broker.host.end_tick()
    assert content(follower) == sent(0)


def test_a_follower_flushes_what_a_killed_process_had_not_before_it_fetches_on(tmp_path):
    """With flush.messages=1 it claims nothing that is not on the disk, so it must get there."""
    broker = ReplicasUnderTest(tmp_path, flush_messages="1")
    take(follow(broker), sent(0), EPOCH, 0)
    broker.host.end_tick()
    after = broker.killed()
    follower = follow(after)
    woken = []
    follower.end_watchers[Woken(woken)] = None
    assert follower.flushes.behind
    after.host.run_off()
    assert not follower.flushes.behind
    assert woken == [follower]


class Woken:
    def __init__(self, replicas):
        self._replicas = replicas

    def wake(self, replica):
        self._replicas.append(replica)


# -- truncating


@pytest.fixture
def written(broker, follower):
    """Five batches of one record, three of them committed."""
    take(follower, b"".join(sent(at, leader=3) for at in range(5)), EPOCH, 3)
    broker.host.end_tick()
    return follower


def cut(broker, call, *where):
    """Run a truncation to its end; the new end of the log."""
    ends = []
    call(*where, EPOCH, ends.append)
    broker.host.run_off()
    assert ends == [None]
    return broker.replica().log_end_offset


def test_a_truncation_drops_the_tail_and_its_epochs(broker, written):
    assert cut(broker, written.following.truncate, 4) == 4
    assert (written.log_end_offset, written.high_watermark) == (4, 3)
    other = sent(4, leader=EPOCH, value=b"of the new leader")
    take(written, other, EPOCH, 3)
    broker.host.end_tick()
    assert content(written).endswith(other)
    assert written.offset_for_epoch(3) == (3, 4)


def test_a_truncation_that_a_full_disk_refuses_leaves_a_log_that_goes_on(broker, follower):
    large = [sent(at, leader=3, value=b"v" * 3000) for at in range(5)]  # enough for index entries
    take(follower, b"".join(large), EPOCH, 3)
    broker.host.end_tick()
    broker.files.full = True
    failures = []
    follower.following.truncate(3, EPOCH, failures.append)
    broker.host.run_off()
    assert failures[0].code is E.KAFKA_STORAGE_ERROR
    assert follower.log_end_offset == 3
    broker.files.full = False
    assert cut(broker, follower.following.truncate, 3) == 3
    other = sent(3, leader=EPOCH, value=b"of the new leader")
    take(follower, other, EPOCH, 3)
    broker.host.end_tick()
    assert content(follower) == b"".join(large[:3]) + other


def test_what_an_unclean_leader_lacks_goes_with_a_loud_line(broker, written, caplog):
    assert cut(broker, written.following.truncate, 2) == 2
    assert written.high_watermark == 2
    assert "below its high watermark 3" in caplog.text


def test_an_old_mark_of_the_leader_does_not_commit_what_comes_after_a_truncation(broker, written):
    take(written, b"", EPOCH, 5)
    cut(broker, written.following.truncate, 4)
    take(written, sent(4), EPOCH, 4)
    broker.host.end_tick()
    assert written.high_watermark == 4


def test_a_log_that_the_leader_no_longer_has_begins_again_where_it_starts(broker, written):
    cut(broker, written.following.restart_at, 100)
    assert (written.log_start_offset, written.log_end_offset) == (100, 100)
    assert written.high_watermark == 100, "as a leader it would serve a mark below its log"
    take(written, sent(100), EPOCH, 100)
    broker.host.end_tick()
    assert written.log_end_offset == 101


def test_while_a_thread_cuts_nothing_touches_the_log_and_decisions_wait(broker, written):
    ends = []
    written.following.truncate(4, EPOCH, ends.append)
    assert code(lambda: take(written, sent(5), EPOCH, 3)) is E.REPLICA_NOT_AVAILABLE
    assert not written.flushes.announce(1 << 40, 0)
    assert broker.lead(epoch=EPOCH + 1) is E.NONE
    assert not written.is_leader
    broker.replicas.stop([(PARTITION, True)])
    assert broker.replica() is written
    broker.host.run_off()
    assert (ends, broker.replica(), broker.host.roles[-2:]) == ([None], None, ["leads", "stopped"])


def test_a_decision_that_is_no_longer_current_after_the_cut_is_dropped(broker, written):
    current = [True]
    written.following.truncate(4, EPOCH, print)
    assert broker.lead(epoch=EPOCH + 1, is_current=lambda: current[0]) is E.NONE
    current[0] = False
    broker.host.run_off()
    assert (written.is_leader, written.leader_epoch) == (False, EPOCH)
    assert broker.lead(epoch=EPOCH + 2) is E.NONE
    assert written.is_leader


def test_a_flush_under_way_ends_before_the_cut_begins(broker, written):
    assert written.flushes.announce(1 << 40, 0)
    work = written.flushes.begin()
    written.following.truncate(4, EPOCH, print)
    assert not broker.host.off
    work.run()
    written.flushes.flushed(work)
    broker.host.run_off()
    assert written.log_end_offset == 4


@pytest.mark.parametrize(
    ("epochs", "leader_says", "cut_at"),
    [
        pytest.param({2: 0, 3: 3}, (3, 4), 4, id="the leader has less of the same epoch"),
        pytest.param({2: 0, 4: 3}, (3, 5), 3, id="the leader lacks our last epoch"),
        pytest.param({2: 0, 5: 3}, (3, 9), 3, id="we lack the leader's epoch: ask again below it"),
        pytest.param({5: 0}, (3, 2), 0, id="no epoch is shared"),
    ],
)
def test_where_two_logs_part(broker, epochs, leader_says, cut_at):
    follower = follow(broker, 9)
    starts = [*sorted(epochs.values()), 5]
    for (epoch, start), end in zip(sorted(epochs.items()), starts[1:], strict=True):
        take(follower, sent(start, end - start, leader=epoch), 9, 0)
        broker.host.end_tick()
    assert follower.following.position == (5, max(epochs), 0)
    assert follower.following.common_end(*leader_says) == cut_at


def test_an_epoch_without_records_is_nobodys_history(broker):
    broker.lead(epoch=3)
    broker.written(sent(0))
    broker.lead(epoch=4)
    assert follow(broker).following.position == (1, 3, 0)


def test_after_a_truncation_below_the_flushed_point_a_crash_cuts_a_torn_tail(broker, written):
    """The checkpoint still says 5; what is written again is as unflushed as any other tail."""
    assert written.flushes.announce(1 << 40, 0)
    work = written.flushes.begin()
    work.run()
    written.flushes.flushed(work)
    broker.dirs.checkpoint({})()
    cut(broker, written.following.truncate, 3)
    take(written, sent(3, value=b"again"), EPOCH, 3)
    broker.host.end_tick()
    broker.dirs.abandon()
    with open(written.log.segments.active.path, "r+b") as file:
        file.truncate(file.seek(0, 2) - 1)
    again = ReplicasUnderTest(broker.path)
    log = again.dirs.logs[PARTITION]
    assert (log.failure, log.log_end_offset) == (None, 3)


# -- what a leader appends and hears


def test_a_marker_takes_no_sequence_and_is_fenced_by_epochs(tmp_path):
    leader = ReplicaUnderTest(tmp_path)
    leader.append(batch(producer=7, epoch=1, sequence=0))
    done = Pending()
    leader.replica.built.append_marker(build_marker(Marker(7, 1, False, 4), now=NOW), done)
    leader.host.end_tick()
    assert (done.ends, done.base_offset) == (["done"], 1)
    for marker, refusal in (
        (Marker(7, 0, True, 4), E.INVALID_PRODUCER_EPOCH),
        (Marker(7, 1, True, 3), E.TRANSACTION_COORDINATOR_FENCED),
    ):
        built = build_marker(marker, now=NOW)
        assert (
            code(lambda built=built: leader.replica.built.append_marker(built, Pending()))
            is refusal
        )
    assert leader.append(batch(producer=7, epoch=1, sequence=1)).base_offset == 2


def test_a_batch_that_is_no_marker_is_not_appended_as_one(tmp_path):
    leader = ReplicaUnderTest(tmp_path)
    plain = bytearray(batch())
    assert code(lambda: leader.replica.built.append_marker(plain, Pending())) is E.INVALID_RECORD


def test_a_follower_beyond_the_leaders_log_moves_nothing(tmp_path):
    leader = ReplicaUnderTest(tmp_path, replicas=(1, 2))
    leader.append(batch())
    leader.host.end_tick()
    assert code(lambda: leader.replica.leading.follower_fetched(2, 2, 0)) is E.OFFSET_OUT_OF_RANGE
    assert leader.replica.high_watermark == 0
    leader.replica.leading.follower_fetched(2, 1, 0)
    assert leader.replica.high_watermark == 1


def test_a_replica_that_stops_keeps_nothing_of_what_was_staged(tmp_path):
    leader = ReplicaUnderTest(tmp_path)
    pending = leader.append(batch(producer=7, sequence=0))
    leader.replica.stop()
    assert pending.ends == [E.UNKNOWN_TOPIC_OR_PARTITION]
    leader.replica.log.write_staged()
    assert (leader.replica.log_end_offset, leader.stored()) == (0, b"")
    assert [producer.last_sequence for producer in leader.replica.upkeep.active_producers()] == [-1]

"""The coordinator runtime: answers wait for the high watermark, and the log is the only memory."""

import pytest

from headwater.coordination.groups.commands import (
    Heartbeat,
    Joined,
    LeaveGroup,
    Leaver,
    RebalanceReason,
    SyncGroup,
)
from headwater.coordination.groups.offsets import CommitOffsets, NewOffset
from headwater.coordination.groups.records import CommittedOffset, OffsetRecord, encode
from headwater.coordination.groups.shard import GroupShard, ListGroups
from headwater.coordination.runtime_loop import REPLIES_PER_TURN
from headwater.errors import E, KafkaError
from headwater.model import ZERO_UUID
from headwater.records.batch import batches
from headwater.records.record import decode_records
from tests.unit.coordination.runtime_harness import Harness, MemoryLog


def test_a_partition_led_elsewhere_is_not_coordinated_here():
    with pytest.raises(KafkaError) as refusal:
        Harness().commit(1)
    assert refusal.value.code is E.NOT_COORDINATOR


def test_a_partition_that_loads_asks_for_patience():
    harness = Harness()
    harness.loop.elected(0, 1)
    with pytest.raises(KafkaError) as refusal:
        harness.commit(1)
    assert refusal.value.code is E.COORDINATOR_LOAD_IN_PROGRESS


def test_a_commit_is_answered_when_the_high_watermark_has_passed_it():
    harness = Harness().elected()
    harness.commit(1)
    assert harness.answers == []
    harness.commit_all()
    assert harness.answers == [[E.NONE]]


def test_a_read_waits_for_what_it_has_seen():
    harness = Harness().elected()
    harness.commit(1)
    harness.fetch()
    assert harness.answers == []
    harness.commit_all()
    assert [len(answer) for answer in harness.answers] == [1, 1]
    harness.fetch()
    assert len(harness.answers) == 3


def test_after_a_restart_reads_wait_until_the_whole_log_is_committed():
    harness = Harness().elected()
    harness.commit(9)
    again = Harness(harness.log).elected()
    again.fetch()
    assert again.answers == []
    again.commit_all()
    assert again.answers[0][0].offsets[0].offset == 9


def test_a_log_that_is_committed_already_needs_no_further_news():
    harness = Harness().elected()
    harness.commit(9)
    harness.commit_all()
    again = Harness(harness.log).elected()
    again.fetch()
    assert len(again.answers) == 1


def test_a_refused_commit_is_told_and_the_shard_is_kept():
    harness = Harness().elected()
    harness.commit(1)
    harness.commit_all()
    reads = harness.log.reads
    harness.log.failure = KafkaError(E.KAFKA_STORAGE_ERROR)
    harness.commit(2)
    assert harness.answers[1].code is E.NOT_COORDINATOR
    harness.fetch()
    assert harness.answers[-1][0].offsets[0].offset == 1
    assert harness.log.reads == reads, "nothing was staged, so nothing has to be read again"


def test_a_generation_that_cannot_be_stored_is_forgotten_and_the_log_read_again():
    harness = Harness().elected()
    harness.commit(1)
    harness.commit_all()
    reads = harness.log.reads
    harness.join()
    harness.clock.advance(3_000)
    joined = harness.answers[-1]
    harness.log.failure = KafkaError(E.KAFKA_STORAGE_ERROR)
    harness.submit(
        GroupShard.sync, SyncGroup("g", joined.member_id, None, joined.generation, None, None, {})
    )
    assert harness.answers[-1].code is E.NOT_COORDINATOR
    harness.log.failure = None
    harness.clock.advance(0)
    assert harness.log.reads > reads
    harness.submit(GroupShard.heartbeat, Heartbeat("g", joined.member_id, None, joined.generation))
    assert harness.answers[-1] is E.UNKNOWN_MEMBER_ID
    harness.fetch()
    assert harness.answers[-1][0].offsets[0].offset == 1


def test_a_generation_that_is_too_large_disturbs_no_other_group(caplog):
    harness = Harness().elected()
    harness.join("other")
    harness.join("g", b"m" * 10_000)
    harness.clock.advance(3_000)
    other, big = harness.answers
    harness.sync(other, "other", b"mine")
    harness.commit_all()
    reads, harness.log.largest = harness.log.reads, 10_000
    harness.sync(big)
    assert harness.answers[-1].code is E.UNKNOWN_SERVER_ERROR
    harness.heartbeat(big)
    assert harness.answers[-1] is E.REBALANCE_IN_PROGRESS
    harness.heartbeat(other, "other")
    assert harness.answers[-1] is E.NONE
    assert harness.log.reads == reads, "the shard is not loaded again"
    harness.rejoin(big, b"m" * 10_000)
    harness.sync(harness.answers[-1])
    assert harness.answers[-1].code is E.UNKNOWN_SERVER_ERROR
    said = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
    assert len(said) == 1, "once a minute"
    assert "group 'g' is too large to be stored" in said[0]
    assert "max.message.bytes" in said[0]
    harness.log.largest = 1 << 20
    harness.rejoin(big, b"m" * 10_000)
    harness.sync(harness.answers[-1], assignment=b"now it fits")
    harness.commit_all()
    assert harness.answers[-1].assignment == b"now it fits"


def test_a_static_member_whose_return_is_too_large_to_be_stored_makes_a_rebalance():
    harness = Harness().elected()
    harness.join("g", instance_id="i")
    harness.clock.advance(3_000)
    first = harness.answers[-1]
    harness.sync(first)
    harness.commit_all()
    harness.log.largest = 100
    harness.join("g", instance_id="i")
    assert harness.answers[-1].code is E.UNKNOWN_SERVER_ERROR
    harness.log.largest = 1 << 20
    harness.join("g", instance_id="i")
    harness.commit_all()
    again = harness.answers[-1]
    assert again.generation == first.generation + 1
    assert again.leader == again.member_id != first.member_id
    harness.sync(again, assignment=b"a")
    harness.commit_all()
    assert harness.answers[-1].assignment == b"a"


def test_a_commit_that_is_too_large_changes_nothing():
    harness = Harness().elected()
    harness.log.largest = 100
    harness.commit(1)
    assert harness.answers[-1].code is E.INVALID_COMMIT_OFFSET_SIZE
    assert harness.log.batches == []
    harness.submit(GroupShard.list_groups, ListGroups())
    assert harness.answers[-1] == []


def test_what_is_due_by_itself_is_written_at_any_size():
    harness = Harness().elected()
    harness.join("g")
    harness.clock.advance(3_000)
    harness.sync(harness.answers[-1])
    harness.commit_all()
    written, harness.log.largest = len(harness.log.batches), 10
    harness.clock.advance(80_000)
    assert len(harness.log.batches) == written + 1, "the group is empty"


def test_a_record_that_is_too_large_by_now_is_loaded(monkeypatch):
    """The limit may be lowered, and earlier versions had none."""
    monkeypatch.setattr(decode_records, "__defaults__", (10,))
    harness = Harness().elected()
    harness.commit(7)
    harness.log.largest = 10
    again = Harness(harness.log).elected()
    again.commit_all()
    again.fetch()
    assert again.answers[-1][0].offsets[0].offset == 7


def test_a_half_staged_commit_is_forgotten_and_the_log_read_again():
    harness = Harness().elected()
    reads, stage = harness.log.reads, harness.log.stage

    def first_batch_only(partition, rows, now_ms, producer=None):
        end = stage(partition, rows, now_ms)
        harness.log.failure = KafkaError(E.KAFKA_STORAGE_ERROR)
        return end

    harness.log.stage = first_batch_only
    offsets = tuple(NewOffset("t", ZERO_UUID, index, 5, -1, "") for index in range(600))
    harness.submit(GroupShard.commit, CommitOffsets("g", "", None, -1, offsets))
    assert harness.answers[-1].code is E.NOT_COORDINATOR
    harness.clock.advance(0)
    assert harness.log.reads > reads


def test_many_answers_leave_in_order_and_not_all_in_one_turn():
    harness = Harness().elected()
    for offset in range(3 * REPLIES_PER_TURN):
        harness.commit(offset)
    harness.log.committed = harness.log.next_offset
    harness.loop.high_watermark_advanced(0, harness.log.committed)
    assert len(harness.answers) == REPLIES_PER_TURN
    harness.loop.high_watermark_advanced(0, harness.log.committed)
    assert len(harness.answers) == REPLIES_PER_TURN, "a further move of the mark must not overtake"
    harness.clock.advance(0)
    assert len(harness.answers) == 3 * REPLIES_PER_TURN


def test_rebalances_are_counted_by_group_and_cause():
    harness = Harness().elected()
    harness.join()
    harness.clock.advance(3_000)
    joined = harness.answers[-1]
    leaver = Leaver(joined.member_id, None, "consumer poll timeout has expired.")
    harness.submit(GroupShard.sync, SyncGroup("g", joined.member_id, None, 1, None, None, {}))
    harness.commit_all()
    harness.submit(GroupShard.leave, LeaveGroup("g", (leaver,)))
    reasons = (RebalanceReason.JOIN, RebalanceReason.POLL_TIMEOUT)
    assert harness.rebalances.by_group == {("g", reason): 1 for reason in reasons}


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_failed_append_is_told_in_words_a_group_client_knows(cause, told):
    harness = Harness().elected()
    harness.log.failure = KafkaError(cause)
    harness.commit(2)
    (answer,) = harness.answers
    assert answer.code is told


def test_what_was_staged_but_lost_later_is_forgotten():
    harness = Harness().elected()
    harness.commit(1)
    harness.log.batches.clear()
    harness.log.next_offset = 0
    harness.loop.append_failed(0)
    assert [answer.code for answer in harness.answers] == [E.NOT_COORDINATOR]
    harness.clock.advance(0)
    harness.fetch()
    assert harness.answers[-1] == []


def test_whoever_is_parked_when_leadership_moves_is_told_once():
    harness = Harness().elected()
    harness.commit(1)
    harness.join()
    harness.loop.resigned(0)
    assert [answer.code for answer in harness.answers] == [E.NOT_COORDINATOR, E.NOT_COORDINATOR]
    harness.clock.advance(600_000)
    harness.loop.high_watermark_advanced(0, 100)
    assert len(harness.answers) == 2


def test_timeouts_come_without_any_request():
    harness = Harness().elected()
    harness.join()
    harness.clock.advance(2_999)
    assert harness.answers == []
    harness.clock.advance(1)
    (joined,) = harness.answers
    assert isinstance(joined, Joined)
    assert joined.member_id == "c-00000000-0000-0000-0000-000000000001"
    harness.clock.advance(20_000)
    harness.commit_all()
    harness.submit(GroupShard.heartbeat, Heartbeat("g", joined.member_id, None, 1))
    assert harness.answers[-1] is E.UNKNOWN_MEMBER_ID
    assert sum(harness.rebalances.by_group.values()) == 2


def test_a_long_log_is_loaded_in_bites():
    log = MemoryLog()
    for number in range(300):
        rows = [
            encode(OffsetRecord("g", f"topic-{number}", i, CommittedOffset(i, metadata="m" * 50)))
            for i in range(10)
        ]
        log.stage(0, rows, 0)
    log.committed = log.next_offset
    harness = Harness(log)
    harness.loop.elected(0, 1)
    harness.clock.timers.pop(0).call()
    with pytest.raises(KafkaError):
        harness.fetch()
    harness.clock.advance(0)
    harness.fetch()
    assert len(harness.answers[0]) == 300
    assert log.reads > 3


def test_many_partitions_load_one_bite_in_each_round_of_the_loop():
    log = MemoryLog()
    for number in range(60):
        log.stage(
            0, [encode(OffsetRecord("g", "t", number, CommittedOffset(1, metadata="m" * 500)))], 0
        )
    log.committed = log.next_offset
    harness = Harness(log)
    for partition in range(10):
        harness.loop.elected(partition, 1)
    harness.loop.resigned(9)
    bites = []
    while due := [timer for timer in harness.clock.timers if timer.at_ms == 0]:
        before = log.reads
        for timer in due:
            harness.clock.timers.remove(timer)
            timer.call()
        bites.append(log.reads - before)
    assert max(bites) == 1
    assert sum(bites) >= 2 * 9
    harness.fetch()
    assert len(harness.answers[0]) == 1


def test_unknown_and_damaged_records_are_skipped_and_counted():
    log = MemoryLog()
    damaged = encode(OffsetRecord("g", "t", 0, CommittedOffset(1)))[0]
    good = encode(OffsetRecord("g", "t", 1, CommittedOffset(7)))
    log.stage(0, [(b"\x00\x03\x00\x01g", b"\x00\x00"), (damaged, b"\x00\x63"), good], 0)
    log.committed = log.next_offset
    harness = Harness(log).elected()
    harness.fetch()
    assert harness.answers[0][0].offsets[0].offset == 7
    assert harness.loop._shards[0].skipped_records == 2


def test_offsets_from_a_batch_with_a_flipped_bit_are_never_served():
    log = MemoryLog()
    log.stage(0, [encode(OffsetRecord("g", "t", 0, CommittedOffset(1000)))], 0)
    log.committed = log.next_offset
    ((base, whole),) = log.batches
    for place in range(whole.index(b"t"), len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        log.batches = [(base, bytes(flipped))]
        harness = Harness(log)
        harness.loop.elected(0, 1)
        harness.clock.timers.pop(0).call()
        with pytest.raises(KafkaError) as refused:
            harness.fetch()
        assert refused.value.code is E.COORDINATOR_LOAD_IN_PROGRESS


def test_a_log_whose_end_was_compacted_away_is_loaded():
    """KAFKA-9065: the loader waited for records up to the end that compaction had removed."""
    harness = Harness().elected()
    harness.commit(1)
    harness.log.next_offset += 5
    harness.log.committed = harness.log.next_offset
    again = Harness(harness.log).elected()
    again.fetch()
    assert len(again.answers) == 1


def test_a_log_that_cannot_be_read_is_tried_again(caplog):
    harness = Harness()
    broken = harness.log.read
    harness.log.next_offset = 1

    def fail(partition, offset, max_bytes, done):
        done(KafkaError(E.KAFKA_STORAGE_ERROR))

    harness.log.read = fail
    harness.elected()
    with pytest.raises(KafkaError) as refusal:
        harness.fetch()
    assert refusal.value.code is E.COORDINATOR_LOAD_IN_PROGRESS
    for _ in range(70):
        harness.clock.advance(1_000)
    said = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
    assert len(said) == 2, "once, and again after a minute"
    assert "headwater log verify" in said[0]
    harness.log.read = broken
    harness.clock.advance(1_000)
    harness.loop.high_watermark_advanced(0, 1)
    harness.fetch()
    assert harness.answers == [[]]


def test_a_topic_deleted_while_loading_takes_its_offsets_along():
    harness = Harness().elected()
    harness.commit(1)
    again = Harness(harness.log)
    again.loop.elected(0, 2)
    again.loop.topics_deleted({"t": None})
    again.clock.advance(0)
    again.commit_all()
    again.fetch()
    assert again.answers == [[]]


def test_many_records_go_in_several_batches():
    harness = Harness().elected()
    offsets = tuple(NewOffset("t", ZERO_UUID, i, i, -1, "") for i in range(1_200))
    harness.submit(GroupShard.commit, CommitOffsets("g", "", None, -1, offsets))
    assert len(harness.log.batches) == 3
    harness.loop.high_watermark_advanced(0, 1_199)
    assert harness.answers == []
    harness.commit_all()
    assert len(harness.answers[0]) == 1_200


def test_many_large_records_go_in_several_batches():
    harness = Harness().elected()
    harness.log.largest = 10_000
    offsets = tuple(NewOffset("t", ZERO_UUID, i, i, -1, "m" * 3_000) for i in range(7))
    harness.submit(GroupShard.commit, CommitOffsets("g", "", None, -1, offsets))
    assert [header.count for _, batch in harness.log.batches for _, header in batches(batch)] == [
        3, 3, 1,
    ]  # fmt: skip
    assert max(len(batch) for _, batch in harness.log.batches) <= 10_000
    harness.commit_all()
    assert harness.answers == [[E.NONE] * 7]


def test_all_shards_are_asked_and_answer_together():
    harness = Harness()
    harness.loop.elected(0, 1)
    harness.loop.elected(1, 1)
    with pytest.raises(KafkaError):
        harness.loop.submit_to_all(GroupShard.list_groups, ListGroups(), harness.answers.append)
    harness.clock.advance(0)
    harness.loop.submit_to_all(GroupShard.list_groups, ListGroups(), harness.answers.append)
    assert harness.answers == [[[], []]]


def test_without_shards_there_are_no_groups():
    harness = Harness()
    harness.loop.submit_to_all(GroupShard.list_groups, ListGroups(), harness.answers.append)
    assert harness.answers == [[]]

"""The shard loop: answers wait for the high watermark, and the log is the only memory."""

from dataclasses import dataclass, field

import pytest

from headwater.coordination.groups.commands import (
    Cause,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaver,
    Sync,
)
from headwater.coordination.groups.offsets import Commit, FetchOffsets, NewOffset
from headwater.coordination.groups.records import CommittedOffset, OffsetRecord, encode
from headwater.coordination.groups.settings import GroupSettings
from headwater.coordination.groups.shard import GroupShard, ListGroups
from headwater.coordination.shard_loop import REPLIES_A_TURN, ShardLoop
from headwater.errors import E, KafkaError
from headwater.model import ZERO_UUID
from headwater.records.batch import batches
from headwater.records.builder import build_batch
from headwater.records.record import Record


@dataclass
class Clock:
    """A clock that stands still until it is moved, with the timers that hang on it."""

    ms: int = 0
    timers: list["Timer"] = field(default_factory=list)

    def monotonic_ms(self):
        return self.ms

    def wall_ms(self):
        return self.ms + 1_700_000_000_000

    def call_later(self, delay_s, call):
        timer = Timer(self.ms + round(delay_s * 1000), call)
        self.timers.append(timer)
        return timer

    def advance(self, ms):
        end = self.ms + ms
        while due := [it for it in self.timers if it.at_ms <= end and not it.cancelled]:
            timer = min(due, key=lambda it: it.at_ms)
            self.timers.remove(timer)
            self.ms = max(self.ms, timer.at_ms)
            timer.call()
        self.ms = end


@dataclass(eq=False)
class Timer:
    at_ms: int
    call: object
    cancelled: bool = False

    def cancel(self):
        self.cancelled = True


class MemoryLog:
    """One partition, as a list of batches."""

    def __init__(self):
        self.batches = []
        self.next_offset = 0
        self.committed = 0
        self.failure = None
        self.reads = 0

    def stage(self, partition, records, now_ms):
        if self.failure is not None:
            raise self.failure
        rows = [Record(i, now_ms, key, value, ()) for i, (key, value) in enumerate(records)]
        batch = build_batch(rows, base_offset=self.next_offset, now=now_ms)
        self.batches.append((self.next_offset, bytes(batch)))
        self.next_offset += len(rows)
        return self.next_offset

    def read(self, partition, offset, max_bytes, done):
        self.reads += 1
        chunk = b""
        for _, batch in self.batches:
            ((_, header),) = batches(batch)
            if header.next_offset > offset and (not chunk or len(chunk) + len(batch) <= max_bytes):
                chunk += batch
        done(chunk)

    def end(self, partition):
        return self.next_offset

    def high_watermark(self, partition):
        return self.committed


class FixedIds:
    def __init__(self):
        self.given = 0

    def uuid(self):
        self.given += 1
        return self.given.to_bytes(16, "big")

    def below(self, limit):
        return 0


class Desk:
    """A loop over one partition."""

    def __init__(self, log=None):
        self.log = log or MemoryLog()
        self.clock = Clock()
        self.answers = []
        self.loop = ShardLoop(
            self.log, self.clock, FixedIds(), self.clock.call_later, GroupSettings(), lambda: 1
        )

    def elected(self):
        self.loop.elected(0, 1)
        self.clock.advance(0)
        return self

    def commit_all(self):
        self.log.committed = self.log.next_offset
        self.loop.committed(0, self.log.committed)

    def submit(self, command, argument):
        self.loop.submit("g", command, argument, self.answers.append)

    def join(self):
        protocols = (("range", b""),)
        command = Join(
            "g", "", None, "consumer", protocols, 10_000, 60_000, "c", "/h", False, False
        )
        self.submit(GroupShard.join, command)

    def commit(self, offset, partition=0):
        new = NewOffset("t", ZERO_UUID, partition, offset, -1, "")
        self.submit(GroupShard.commit, Commit("g", "", None, -1, (new,)))

    def fetch(self):
        self.submit(GroupShard.fetch_offsets, FetchOffsets("g", None))


def test_a_partition_led_elsewhere_is_not_coordinated_here():
    with pytest.raises(KafkaError) as refusal:
        Desk().commit(1)
    assert refusal.value.code is E.NOT_COORDINATOR


def test_a_partition_that_loads_asks_for_patience():
    desk = Desk()
    desk.loop.elected(0, 1)
    with pytest.raises(KafkaError) as refusal:
        desk.commit(1)
    assert refusal.value.code is E.COORDINATOR_LOAD_IN_PROGRESS


def test_a_commit_is_answered_when_the_high_watermark_has_passed_it():
    desk = Desk().elected()
    desk.commit(1)
    assert desk.answers == []
    desk.commit_all()
    assert desk.answers == [[E.NONE]]


def test_a_read_waits_for_what_it_has_seen():
    desk = Desk().elected()
    desk.commit(1)
    desk.fetch()
    assert desk.answers == []
    desk.commit_all()
    assert [len(answer) for answer in desk.answers] == [1, 1]
    desk.fetch()
    assert len(desk.answers) == 3


def test_after_a_restart_reads_wait_until_the_whole_log_is_committed():
    desk = Desk().elected()
    desk.commit(9)
    again = Desk(desk.log).elected()
    again.fetch()
    assert again.answers == []
    again.commit_all()
    assert again.answers[0][0].offsets[0].offset == 9


def test_a_log_that_is_committed_already_needs_no_further_news():
    desk = Desk().elected()
    desk.commit(9)
    desk.commit_all()
    again = Desk(desk.log).elected()
    again.fetch()
    assert len(again.answers) == 1


def test_a_refused_commit_is_told_and_the_shard_is_kept():
    desk = Desk().elected()
    desk.commit(1)
    desk.commit_all()
    reads = desk.log.reads
    desk.log.failure = KafkaError(E.KAFKA_STORAGE_ERROR)
    desk.commit(2)
    assert desk.answers[1].code is E.NOT_COORDINATOR
    desk.fetch()
    assert desk.answers[-1][0].offsets[0].offset == 1
    assert desk.log.reads == reads, "nothing was staged, so nothing has to be read again"


def test_a_generation_that_cannot_be_stored_is_forgotten_and_the_log_read_again():
    desk = Desk().elected()
    desk.commit(1)
    desk.commit_all()
    reads = desk.log.reads
    desk.join()
    desk.clock.advance(3_000)
    joined = desk.answers[-1]
    desk.log.failure = KafkaError(E.KAFKA_STORAGE_ERROR)
    desk.submit(
        GroupShard.sync, Sync("g", joined.member_id, None, joined.generation, None, None, {})
    )
    assert desk.answers[-1].code is E.NOT_COORDINATOR
    desk.log.failure = None
    desk.clock.advance(0)
    assert desk.log.reads > reads
    desk.submit(GroupShard.heartbeat, Heartbeat("g", joined.member_id, None, joined.generation))
    assert desk.answers[-1] is E.UNKNOWN_MEMBER_ID
    desk.fetch()
    assert desk.answers[-1][0].offsets[0].offset == 1


def test_a_half_staged_commit_is_forgotten_and_the_log_read_again():
    desk = Desk().elected()
    reads, stage = desk.log.reads, desk.log.stage

    def first_batch_only(partition, rows, now_ms):
        end = stage(partition, rows, now_ms)
        desk.log.failure = KafkaError(E.KAFKA_STORAGE_ERROR)
        return end

    desk.log.stage = first_batch_only
    offsets = tuple(NewOffset("t", ZERO_UUID, index, 5, -1, "") for index in range(600))
    desk.submit(GroupShard.commit, Commit("g", "", None, -1, offsets))
    assert desk.answers[-1].code is E.NOT_COORDINATOR
    desk.clock.advance(0)
    assert desk.log.reads > reads


def test_many_answers_leave_in_order_and_not_all_in_one_turn():
    desk = Desk().elected()
    for offset in range(3 * REPLIES_A_TURN):
        desk.commit(offset)
    desk.log.committed = desk.log.next_offset
    desk.loop.committed(0, desk.log.committed)
    assert len(desk.answers) == REPLIES_A_TURN
    desk.loop.committed(0, desk.log.committed)
    assert len(desk.answers) == REPLIES_A_TURN, "a further move of the mark must not overtake"
    desk.clock.advance(0)
    assert len(desk.answers) == 3 * REPLIES_A_TURN


def test_rebalances_are_counted_by_cause_group_and_member():
    desk = Desk().elected()
    desk.join()
    desk.clock.advance(3_000)
    joined = desk.answers[-1]
    leaver = Leaver(joined.member_id, None, "consumer poll timeout has expired.")
    desk.submit(GroupShard.sync, Sync("g", joined.member_id, None, 1, None, None, {}))
    desk.commit_all()
    desk.submit(GroupShard.leave, Leave("g", (leaver,)))
    counted = desk.loop.rebalances
    assert counted.by_cause == {Cause.JOIN: 1, Cause.POLL_TIMEOUT: 1}
    assert counted.by_member["g", Cause.POLL_TIMEOUT, joined.member_id] == 1
    assert counted.of_group("g") == counted.by_cause
    assert not counted.of_group("other")


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
    desk = Desk().elected()
    desk.log.failure = KafkaError(cause)
    desk.commit(2)
    (answer,) = desk.answers
    assert answer.code is told


def test_what_was_staged_but_lost_later_is_forgotten():
    desk = Desk().elected()
    desk.commit(1)
    desk.log.batches.clear()
    desk.log.next_offset = 0
    desk.loop.append_failed(0)
    assert [answer.code for answer in desk.answers] == [E.NOT_COORDINATOR]
    desk.clock.advance(0)
    desk.fetch()
    assert desk.answers[-1] == []


def test_whoever_is_parked_when_leadership_moves_is_told_once():
    desk = Desk().elected()
    desk.commit(1)
    desk.join()
    desk.loop.resigned(0)
    assert [answer.code for answer in desk.answers] == [E.NOT_COORDINATOR, E.NOT_COORDINATOR]
    desk.clock.advance(600_000)
    desk.loop.committed(0, 100)
    assert len(desk.answers) == 2


def test_timeouts_come_without_any_request():
    desk = Desk().elected()
    desk.join()
    desk.clock.advance(2_999)
    assert desk.answers == []
    desk.clock.advance(1)
    (joined,) = desk.answers
    assert isinstance(joined, Joined)
    assert joined.member_id == "c-00000000-0000-0000-0000-000000000001"
    desk.clock.advance(20_000)
    desk.commit_all()
    desk.submit(GroupShard.heartbeat, Heartbeat("g", joined.member_id, None, 1))
    assert desk.answers[-1] is E.UNKNOWN_MEMBER_ID
    assert desk.loop.rebalances.by_cause.total() == 2


def test_a_long_log_is_loaded_in_bites():
    log = MemoryLog()
    for number in range(300):
        rows = [
            encode(OffsetRecord("g", f"topic-{number}", i, CommittedOffset(i, metadata="m" * 50)))
            for i in range(10)
        ]
        log.stage(0, rows, 0)
    log.committed = log.next_offset
    desk = Desk(log)
    desk.loop.elected(0, 1)
    desk.clock.timers.pop(0).call()
    with pytest.raises(KafkaError):
        desk.fetch()
    desk.clock.advance(0)
    desk.fetch()
    assert len(desk.answers[0]) == 300
    assert log.reads > 3


def test_unknown_and_damaged_records_are_skipped_and_counted():
    log = MemoryLog()
    damaged = encode(OffsetRecord("g", "t", 0, CommittedOffset(1)))[0]
    good = encode(OffsetRecord("g", "t", 1, CommittedOffset(7)))
    log.stage(0, [(b"\x00\x03\x00\x01g", b"\x00\x00"), (damaged, b"\x00\x63"), good], 0)
    log.committed = log.next_offset
    desk = Desk(log).elected()
    desk.fetch()
    assert desk.answers[0][0].offsets[0].offset == 7
    assert desk.loop._shards[0].skipped_records == 2


def test_offsets_from_a_batch_with_a_flipped_bit_are_never_served():
    log = MemoryLog()
    log.stage(0, [encode(OffsetRecord("g", "t", 0, CommittedOffset(1000)))], 0)
    log.committed = log.next_offset
    ((base, whole),) = log.batches
    for place in range(whole.index(b"t"), len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        log.batches = [(base, bytes(flipped))]
        desk = Desk(log)
        desk.loop.elected(0, 1)
        desk.clock.timers.pop(0).call()
        with pytest.raises(KafkaError) as refused:
            desk.fetch()
        assert refused.value.code is E.COORDINATOR_LOAD_IN_PROGRESS


def test_a_log_whose_end_was_compacted_away_is_loaded():
    """KAFKA-9065: the loader waited for records up to the end that compaction had removed."""
    desk = Desk().elected()
    desk.commit(1)
    desk.log.next_offset += 5
    desk.log.committed = desk.log.next_offset
    again = Desk(desk.log).elected()
    again.fetch()
    assert len(again.answers) == 1


def test_a_log_that_cannot_be_read_is_tried_again():
    desk = Desk()
    broken = desk.log.read
    desk.log.next_offset = 1

    def fail(partition, offset, max_bytes, done):
        done(KafkaError(E.KAFKA_STORAGE_ERROR))

    desk.log.read = fail
    desk.elected()
    with pytest.raises(KafkaError) as refusal:
        desk.fetch()
    assert refusal.value.code is E.COORDINATOR_LOAD_IN_PROGRESS
    desk.log.read = broken
    desk.clock.advance(1_000)
    desk.loop.committed(0, 1)
    desk.fetch()
    assert desk.answers == [[]]


def test_a_topic_deleted_while_loading_takes_its_offsets_along():
    desk = Desk().elected()
    desk.commit(1)
    again = Desk(desk.log)
    again.loop.elected(0, 2)
    again.loop.topic_deleted("t")
    again.clock.advance(0)
    again.commit_all()
    again.fetch()
    assert again.answers == [[]]


def test_many_records_go_in_several_batches():
    desk = Desk().elected()
    offsets = tuple(NewOffset("t", ZERO_UUID, i, i, -1, "") for i in range(1_200))
    desk.submit(GroupShard.commit, Commit("g", "", None, -1, offsets))
    assert len(desk.log.batches) == 3
    desk.loop.committed(0, 1_199)
    assert desk.answers == []
    desk.commit_all()
    assert len(desk.answers[0]) == 1_200


def test_all_shards_are_asked_and_answer_together():
    desk = Desk()
    desk.loop.elected(0, 1)
    desk.loop.elected(1, 1)
    with pytest.raises(KafkaError):
        desk.loop.submit_everywhere(GroupShard.list_groups, ListGroups(), desk.answers.append)
    desk.clock.advance(0)
    desk.loop.submit_everywhere(GroupShard.list_groups, ListGroups(), desk.answers.append)
    assert desk.answers == [[[], []]]


def test_without_shards_there_are_no_groups():
    desk = Desk()
    desk.loop.submit_everywhere(GroupShard.list_groups, ListGroups(), desk.answers.append)
    assert desk.answers == [[]]

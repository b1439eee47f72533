"""DeleteRecords where the high watermark is behind the log's end."""

from types import SimpleNamespace

import pytest

from headwater.broker.handlers.delete_records import (
    UP_TO_HIGH_WATERMARK,
    _advance,
    handle_delete_records,
)
from headwater.broker.turns import finish
from headwater.errors import E, KafkaError
from headwater.replication.leader_and_isr import LeaderAndIsr
from headwater.replication.leading import Leading
from headwater.wire.messages.topics import DeleteRecordsRequest
from tests.unit.broker.live import batch
from tests.unit.log.support import PARTITION, TOPIC_ID
from tests.unit.replication.replica_under_test import NOW, ReplicaUnderTest


@pytest.fixture
def replica(tmp_path):
    """A leader of five records, of which a follower has three."""
    leader = ReplicaUnderTest(tmp_path, replicas=(1, 2))
    for _ in range(5):
        leader.append(batch(now=NOW))
    leader.host.end_tick()
    leader.replica.leading.follower_fetched(2, 3, 0)
    assert (leader.replica.partition.high_watermark, leader.replica.log.log_end_offset) == (3, 5)
    return leader.replica


@pytest.mark.parametrize("offset", [4, 5, 6, -2])
def test_records_that_are_not_committed_are_not_deleted(replica, offset):
    with pytest.raises(KafkaError) as refused:
        _advance(replica, offset)
    assert refused.value.code is E.OFFSET_OUT_OF_RANGE
    assert replica.log.log_start_offset == 0


@pytest.mark.parametrize(("offset", "start"), [(0, 0), (2, 2), (3, 3), (UP_TO_HIGH_WATERMARK, 3)])
def test_the_log_starts_where_the_request_says(replica, offset, start):
    assert _advance(replica, offset) == start
    assert replica.log.log_start_offset == start


class Call:
    """A DeleteRecords for leaders of one record each, which a follower has."""

    def __init__(self, tmp_path, count, repeated=1):
        self.leaders = [
            ReplicaUnderTest(tmp_path / str(number), replicas=(1, 2)) for number in range(count)
        ]
        for leader in self.leaders:
            leader.append(batch(now=NOW))
            leader.host.end_tick()
            leader.replica.leading.follower_fetched(2, 1, 0)
        self.answers, self.parked, self.woken = [], [], []
        context = SimpleNamespace(
            clock=SimpleNamespace(monotonic_ms=lambda: 0),
            metadata=SimpleNamespace(brokers={1: None, 2: None}),
            replicas=SimpleNamespace(leader=lambda _, partition: self.leaders[partition].replica),
            permits=lambda *_: True,
            park=lambda deadline_ms, waiter: self.parked.append(waiter),
            tick=SimpleNamespace(recheck_soon=self.woken.append),
        )
        row = DeleteRecordsRequest.DeleteRecordsPartition
        rows = [row(partition_index=n, offset=1) for n in range(count) for _ in range(repeated)]
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name="topic", partitions=rows)
        self.request = SimpleNamespace(reply_in_turns=self.answers.append, on_gone=None)
        body = DeleteRecordsRequest(topics=[topic], timeout_ms=9000)
        finish(handle_delete_records(context, self.request, body))
        (self.waiter,) = self.parked
        assert not self.answers

    def follow(self, leader):
        """Let the follower and the checkpoint have the new start."""
        leader.replica.leading.follower_fetched(2, 1, 1)
        leader.replica.log.stored_start = 1
        leader.replica.wake_watchers()
        self.end_tick()

    def end_tick(self):
        while self.woken:
            self.woken.pop().recheck()

    def rows(self):
        (answer,) = self.answers
        return [(row.error_code, row.low_watermark) for row in answer.topics[0].partitions]


def test_a_partition_that_is_done_first_is_no_longer_watched(tmp_path):
    call = Call(tmp_path, 2)
    for leader in call.leaders:
        assert call.waiter in leader.replica.watchers
        leader.replica.leading.follower_fetched(2, 1, 1)
        call.end_tick()
        assert not call.answers, "the start is not on the disk"
        call.follow(leader)
        assert not leader.replica.watchers
    assert call.rows() == [(0, 1), (0, 1)]


def test_a_leader_that_was_deposed_does_not_say_that_records_are_deleted(tmp_path):
    """The next leader may never have heard of the new start, and serves the records."""
    call = Call(tmp_path, 2)
    deposed = call.leaders[0].replica
    deposed.become_follower(LeaderAndIsr(PARTITION, TOPIC_ID, 2, 1, 1, (1, 2), (1, 2), False))
    deposed.log.stored_start = 1
    deposed.wake_watchers()
    call.follow(call.leaders[1])
    assert call.rows() == [(E.NOT_LEADER_OR_FOLLOWER, -1), (0, 1)]


def test_a_partition_that_is_deleted_meanwhile_is_answered_at_once(tmp_path):
    call = Call(tmp_path, 1)
    call.leaders[0].replica.stop()
    call.end_tick()
    assert call.rows() == [(E.NOT_LEADER_OR_FOLLOWER, -1)]


def test_a_partition_that_changes_is_checked_once_and_no_other(tmp_path, monkeypatch):
    call = Call(tmp_path, 3, repeated=500)
    checked = []
    low_watermark = Leading.low_watermark

    def count(leading, live):
        checked.append(leading)
        return low_watermark(leading, live)

    monkeypatch.setattr(Leading, "low_watermark", count)
    for leader in call.leaders:
        for _ in range(3):
            leader.replica.wake_watchers()
        call.end_tick()
        assert checked.pop() is leader.replica.leading
        assert not checked
        call.follow(leader)
        checked.clear()
    assert call.rows() == [(0, 1)] * 1500


def test_the_request_of_a_client_that_left_waits_for_nothing(tmp_path):
    call = Call(tmp_path, 2)
    call.request.on_gone()
    assert call.waiter.answered
    assert not any(leader.replica.watchers for leader in call.leaders)

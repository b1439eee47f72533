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
from headwater.wire.messages.topics import DeleteRecordsRequest
from tests.unit.broker.live import batch
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


def test_a_partition_that_is_done_first_is_no_longer_watched_after_the_answer(tmp_path):
    leaders = [ReplicaUnderTest(tmp_path / name, replicas=(1, 2)) for name in ("a", "b")]
    for leader in leaders:
        leader.append(batch(now=NOW))
        leader.host.end_tick()
        leader.replica.leading.follower_fetched(2, 1, 0)
    answers, parked, woken = [], [], []
    context = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        metadata=SimpleNamespace(brokers={1: None, 2: None}),
        replicas=SimpleNamespace(leader=lambda _, partition: leaders[partition].replica),
        permits=lambda *_: True,
        park=lambda deadline_ms, waiter: parked.append(waiter),
        tick=SimpleNamespace(recheck_soon=woken.append),
    )
    rows = [
        DeleteRecordsRequest.DeleteRecordsPartition(partition_index=n, offset=1) for n in (0, 1)
    ]
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="topic", partitions=rows)
    finish(
        handle_delete_records(
            context,
            SimpleNamespace(reply_in_turns=answers.append),
            DeleteRecordsRequest(topics=[topic], timeout_ms=9000),
        )
    )
    (waiter,) = parked
    for leader in leaders:
        assert not answers
        assert waiter in leader.replica.watchers
        leader.replica.leading.follower_fetched(2, 1, 1)
        woken.pop().recheck()
        assert not answers, "the start is not on the disk"
        leader.replica.log.stored_start = 1
        leader.replica.wake_watchers()
        woken.pop().recheck()
    (answer,) = answers
    assert [row.low_watermark for row in answer.topics[0].partitions] == [1, 1]
    assert not any(leader.replica.watchers for leader in leaders)

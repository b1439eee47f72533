"""The mean rate of throttled replication, and which replicas count for it."""

import pytest

from headwater.model import TopicPartition
from headwater.replication.throttles import LONGEST_WAIT_MS, UNLIMITED, ReplicationThrottle

NODE = 2


@pytest.fixture
def throttle() -> ReplicationThrottle:
    made = ReplicationThrottle(11, 1000)
    made.limit = 1000
    made.cover("t", ["*"], NODE)
    return made


def test_a_replica_takes_what_it_gets_and_then_waits_until_the_mean_is_low_enough(throttle):
    assert not throttle.is_exceeded(0)
    throttle.record(0, 1000)
    assert not throttle.is_exceeded(0), "a window is at least one second"
    throttle.record(500, 2000)
    assert throttle.is_exceeded(500)
    assert throttle.wait_ms(2200) == 800
    assert throttle.is_exceeded(2999)
    assert not throttle.is_exceeded(3000)


def test_what_is_older_than_all_windows_is_forgotten(throttle):
    throttle.record(0, 1_000_000)
    assert throttle.wait_ms(10_999) == LONGEST_WAIT_MS
    assert not throttle.is_exceeded(11_000)


@pytest.mark.parametrize("bytes_at_once", [100, 9_000])
def test_the_rate_over_a_minute_is_the_limit(throttle, bytes_at_once):
    sent = now_ms = 0
    while now_ms < 60_000:
        if throttle.is_exceeded(now_ms):
            now_ms += throttle.wait_ms(now_ms)
        else:
            throttle.record(now_ms, bytes_at_once)
            sent += bytes_at_once
            now_ms += 1
    assert 60_000 * 0.85 <= sent <= 60_000 * 1.15 + bytes_at_once


def test_a_rate_of_nothing_stops_replication_after_the_first_bytes(throttle):
    throttle.limit = 0
    assert not throttle.is_exceeded(0)
    throttle.record(0, 1)
    assert throttle.wait_ms(5000) == LONGEST_WAIT_MS


def test_only_listed_replicas_of_this_broker_are_covered(throttle):
    throttle.cover("t", ["0:1", "1:2", "3:2"], NODE)
    assert [throttle.covers(TopicPartition("t", index)) for index in range(4)] == [
        False, True, False, True,
    ]  # fmt: skip
    assert not throttle.covers(TopicPartition("other", 1))
    throttle.record(0, 1_000_000)
    assert throttle.is_exceeded(0)
    throttle.cover("t", ["0:1"], NODE)
    assert not throttle.is_exceeded(0), "it covers nothing here"
    throttle.cover("t", ["*"], NODE)
    throttle.limit = UNLIMITED
    assert not throttle.is_exceeded(0)

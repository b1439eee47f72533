"""What a follower asks a leader for."""

from headwater.model import TopicPartition
from headwater.replication.follower_fetch import FollowerFetch, FollowerLimits
from headwater.replication.following import LogPosition

AT = TopicPartition("orders", 0)
TOPIC_ID = bytes(15) + b"\1"
LIMITS = FollowerLimits(1000, 1000, 1, 100)


def test_a_partition_that_is_given_up_while_it_is_delayed_is_forgotten():
    fetch = FollowerFetch(2, 1000)
    fetch.follow(AT, TOPIC_ID, 3, LogPosition(0, -1, 0))
    assert fetch.next_request(0, 1, LIMITS) is not None
    fetch.delay(0, AT)
    fetch.unfollow(AT)
    assert fetch.next_request(1, 1, LIMITS) is None
    assert fetch.next_request(5000, 1, LIMITS) is None

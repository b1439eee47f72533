"""What a follower asks a leader for."""

from headwater.model import TopicPartition
from headwater.replication.follower_fetch import FollowerFetch, FollowerLimits
from headwater.replication.following import LogPosition
from headwater.wire.messages.fetch import FetchResponse

AT, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
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


def test_an_answer_to_a_fetch_from_an_earlier_position_does_not_count():
    """The leader answers the second fetch from where the session was before the third one."""
    fetch = FollowerFetch(2, 1000)
    fetch.follow(AT, TOPIC_ID, 3, LogPosition(8, 3, 0))
    fetch.next_request(0, 1, LIMITS)
    first = fetch.requests
    fetch.follow(OTHER, TOPIC_ID, 3, LogPosition(0, -1, 0))
    fetch.next_request(0, 1, LIMITS)
    second = fetch.requests
    assert len(list(fetch.answered(0, answer(records=b"8"), first))) == 1
    fetch.hold(AT)  # until what came is flushed
    fetch.moved(AT, LogPosition(9, 3, 0))
    fetch.next_request(0, 1, LIMITS)
    assert list(fetch.answered(0, answer(records=b"8"), second)) == []
    assert len(list(fetch.answered(0, answer(records=b"9"), fetch.requests))) == 1


def answer(records: bytes) -> FetchResponse:
    partition = FetchResponse.PartitionData(
        partition_index=AT.partition, high_watermark=8, records=records
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    return FetchResponse(session_id=77, responses=[topic])

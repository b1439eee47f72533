"""What a follower asks a leader for."""

import pytest

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
    assert [one.records for one in fetch.answered(0, answer(records=b"8"), second)] == [None]
    (appended,) = fetch.answered(0, answer(records=b"9"), fetch.requests)
    assert appended.records == b"9"


@pytest.mark.parametrize("relisted", [False, True])
def test_a_high_watermark_counts_even_if_its_answer_comes_late(relisted):
    """The session sends each one once: a follower of an idle leader would never hear of it."""
    fetch = FollowerFetch(2, 1000)
    fetch.follow(AT, TOPIC_ID, 3, LogPosition(8, 3, 0))
    fetch.next_request(0, 1, LIMITS)
    asked = fetch.requests
    fetch.moved(AT, LogPosition(9, 3, 0))
    if relisted:
        fetch.next_request(0, 1, LIMITS)
    (mark,) = fetch.answered(0, answer(records=b"8", high_watermark=9), asked)
    assert (mark.records, mark.high_watermark) == (None, 9)


def test_a_session_that_sent_what_was_ignored_is_asked_to_forget_the_partition():
    """Its log was cut meanwhile, so that nothing in the answer counts."""
    fetch = FollowerFetch(2, 1000)
    fetch.follow(AT, TOPIC_ID, 3, LogPosition(8, 3, 0))
    fetch.follow(OTHER, TOPIC_ID, 3, LogPosition(0, -1, 0))
    fetch.next_request(0, 1, LIMITS)
    asked = fetch.requests
    fetch.moved(AT, LogPosition(5, 3, 0))
    assert list(fetch.answered(0, answer(records=b"8"), asked)) == []
    forgetting = fetch.next_request(0, 1, LIMITS)
    assert [topic.partitions for topic in forgetting.forgotten_topics_data] == [[AT.partition]]
    assert not forgetting.topics
    assert fetch.urgent
    assert listed_in(fetch.next_request(0, 1, LIMITS)) == [(AT.partition, 5)]
    assert not fetch.urgent


def test_a_session_of_one_partition_begins_again_if_what_it_sent_was_ignored():
    fetch = FollowerFetch(2, 1000)
    fetch.follow(AT, TOPIC_ID, 3, LogPosition(8, 3, 0))
    fetch.next_request(0, 1, LIMITS)
    fetch.moved(AT, LogPosition(5, 3, 0))
    assert list(fetch.answered(0, answer(records=b"8"), fetch.requests)) == []
    in_flight = fetch.requests
    again = fetch.next_request(0, 1, LIMITS)
    assert (again.session_id, listed_in(again)) == (0, [(AT.partition, 5)])
    assert list(fetch.answered(0, answer(records=b"5"), in_flight)) == []
    assert not fetch.in_session, "an answer to what was asked before has the former session"
    assert len(list(fetch.answered(0, answer(records=b"5"), fetch.requests))) == 1
    assert fetch.in_session


def test_without_a_session_every_request_lists_all_partitions_whatever_was_ignored():
    """A leader grants none if it has too many: a partition that is left out waits for the next fetch."""
    fetch = FollowerFetch(2, 1000)
    fetch.follow(AT, TOPIC_ID, 3, LogPosition(8, 3, 0))
    fetch.follow(OTHER, TOPIC_ID, 3, LogPosition(0, -1, 0))
    fetch.next_request(0, 1, LIMITS)
    fetch.hold(AT)  # until its log is flushed
    assert list(fetch.answered(0, answer(records=b"8", session=0), fetch.requests)) == []
    fetch.moved(AT, LogPosition(9, 3, 0))
    again = fetch.next_request(0, 1, LIMITS)
    assert (again.session_id, sorted(listed_in(again))) == (0, [(0, 9), (1, 0)])
    assert not fetch.urgent


def test_a_log_that_was_cut_takes_no_high_watermark_of_an_earlier_fetch():
    fetch = FollowerFetch(2, 1000)
    fetch.follow(AT, TOPIC_ID, 3, LogPosition(8, 3, 0))
    fetch.next_request(0, 1, LIMITS)
    asked = fetch.requests
    fetch.moved(AT, LogPosition(5, 3, 0))
    fetch.next_request(0, 1, LIMITS)
    fetch.moved(AT, LogPosition(9, 3, 0))
    assert list(fetch.answered(0, answer(records=b"8"), asked)) == []


def listed_in(request):
    return [
        (partition.partition, partition.fetch_offset)
        for topic in request.topics
        for partition in topic.partitions
    ]


def answer(records: bytes, high_watermark: int = 8, session: int = 77) -> FetchResponse:
    partition = FetchResponse.PartitionData(
        partition_index=AT.partition, high_watermark=high_watermark, records=records
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    return FetchResponse(session_id=session, responses=[topic])

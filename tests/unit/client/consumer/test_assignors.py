"""The assignors on small groups, as Java's share them; and the bytes they tell each other."""

import pytest

from headwater.client.consumer.assignors import (
    CooperativeStickyAssignor,
    GroupMember,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    assignors_named,
)
from headwater.client.consumer.group.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from headwater.config.keys import ConfigError
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition


def members(*ids, topics=("a", "b")):
    return [GroupMember(one, frozenset(topics)) for one in ids]


def named(shares):
    return {one: [f"{t}{n}" for t, n in share] for one, share in shares.items()}


def test_range_against_round_robin_over_two_topics() -> None:
    counts = {"a": 3, "b": 3}
    assert named(RangeAssignor().assign(counts, members("x", "y"))) == {
        "x": ["a0", "a1", "b0", "b1"],
        "y": ["a2", "b2"],
    }
    assert named(RoundRobinAssignor().assign(counts, members("x", "y"))) == {
        "x": ["a0", "a2", "b1"],
        "y": ["a1", "b0", "b2"],
    }


def test_more_members_than_partitions_leave_some_with_nothing() -> None:
    shares = named(RangeAssignor().assign({"a": 2}, members("x", "y", "z", topics=["a"])))
    assert shares == {"x": ["a0"], "y": ["a1"], "z": []}


def test_static_members_come_first_in_the_order_of_their_names() -> None:
    group = [
        GroupMember("a-dynamic", frozenset("a")),
        GroupMember("z", frozenset("a"), instance_id="2"),
        GroupMember("y", frozenset("a"), instance_id="1"),
    ]
    shares = named(RangeAssignor().assign({"a": 3}, group))
    assert shares == {"y": ["a0"], "z": ["a1"], "a-dynamic": ["a2"]}


def test_topics_that_do_not_exist_are_left_out() -> None:
    for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor):
        assert kind().assign({}, members("x")) == {"x": []}


def test_sticky_keeps_what_members_say_they_had() -> None:
    sticky = StickyAssignor()
    had = [TopicPartition("a", 2), TopicPartition("a", 3)]
    group = [
        GroupMember("x", frozenset("a")),
        GroupMember("y", frozenset("a"), user_data=sticky.user_data(had, 4)),
    ]
    assert named(sticky.assign({"a": 4}, group)) == {"x": ["a0", "a1"], "y": ["a2", "a3"]}


def test_a_newcomer_gets_its_share_once_others_have_given_it_up() -> None:
    sticky = CooperativeStickyAssignor()
    everything = tuple(TopicPartition("a", number) for number in range(4))
    old = GroupMember("x", frozenset("a"), everything, 1)
    new = GroupMember("y", frozenset("a"))
    first = sticky.assign({"a": 4}, [old, new])
    assert {one: len(share) for one, share in first.items()} == {"x": 2, "y": 0}
    second = sticky.assign({"a": 4}, [old._replace(owned=tuple(first["x"]), generation=2), new])
    assert {one: len(share) for one, share in second.items()} == {"x": 2, "y": 2}


def test_names_are_checked() -> None:
    assert [one.name for one in assignors_named(["range", "cooperative-sticky"])] == [
        "range",
        "cooperative-sticky",
    ]
    with pytest.raises(ConfigError, match="did you mean sticky"):
        assignors_named(["stickky"])
    with pytest.raises(ConfigError, match="empty"):
        assignors_named([])


def test_subscriptions_are_told_as_java_tells_them() -> None:
    blob = encode_subscription(["b", "a"], b"\x01", [TopicPartition("a", 7)], 5, "rack")
    assert blob == (
        b"\x00\x03"
        + b"\x00\x00\x00\x02\x00\x01a\x00\x01b"
        + b"\x00\x00\x00\x01\x01"
        + b"\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x01\x00\x00\x00\x07"
        + b"\x00\x00\x00\x05"
        + b"\x00\x04rack"
    )
    told = decode_subscription("m", None, blob)
    assert told == GroupMember(
        "m", frozenset("ab"), (TopicPartition("a", 7),), 5, None, "rack", b"\x01"
    )


def test_older_and_newer_subscriptions_are_understood() -> None:
    oldest = b"\x00\x00" + b"\x00\x00\x00\x01\x00\x01a" + b"\xff\xff\xff\xff"
    assert decode_subscription("m", "i", oldest) == GroupMember(
        "m", frozenset("a"), instance_id="i"
    )
    newer = b"\x00\x09" + encode_subscription(["a"], None, [], 1, None)[2:] + b"more"
    assert decode_subscription("m", None, newer).generation == 1


@pytest.mark.parametrize(
    "blob", [b"", b"\x00", b"\xff\xff", b"\x00\x01\x7f\xff\xff\xff", b"\x00\x00"]
)
def test_what_is_no_subscription_is_refused(blob) -> None:
    with pytest.raises(KafkaError) as refused:
        decode_subscription("m", None, blob)
    assert refused.value.code is E.INCONSISTENT_GROUP_PROTOCOL


def test_shares_come_back_as_they_were_written() -> None:
    share = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
    assert decode_assignment(encode_assignment(share)) == share
    assert decode_assignment(encode_assignment([])) == []
    assert decode_assignment(b"") == []
    with pytest.raises(KafkaError):
        decode_assignment(b"\x00\x00\x7f\xff\xff\xff")


def test_hostile_sticky_user_data_is_an_empty_claim() -> None:
    group = [GroupMember("x", frozenset("a"), user_data=b"\x7f\xff\xff\xff")]
    assert named(StickyAssignor().assign({"a": 1}, group)) == {"x": ["a0"]}

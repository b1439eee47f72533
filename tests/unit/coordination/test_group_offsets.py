"""Committed offsets: who may commit, what expires, what goes with its group or topic."""

import struct

import pytest

from headwater.coordination.groups.commands import Leaver
from headwater.coordination.groups.offsets import (
    CommitOffsets,
    FetchOffsets,
    NewOffset,
    Offsets,
    WantedTopic,
)
from headwater.coordination.groups.records import CommittedOffset, OffsetRecord
from headwater.coordination.groups.settings import GroupSettings
from headwater.coordination.groups.shard import OFFSETS_PER_STEP
from headwater.errors import E
from headwater.model import ZERO_UUID, TopicPartition
from tests.unit.coordination.group_driver import DELAY_MS, SESSION_MS, WALL_START, Driver, NoTopics

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS
CHECK_MS = 600_000
LIVELY = GroupSettings(max_session_timeout_ms=2**31 - 1)


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, version 1."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">ii", -1, 0)


def consumer_group(driver: Driver, *topics: str) -> str:
    """A Stable group of one consumer whose session never ends."""
    protocols = (("range", subscription(*topics)),)
    token = driver.join(protocols=protocols, session_ms=2**31 - 1)
    driver.advance(DELAY_MS)
    member = driver.joined(token).member_id
    driver.sync_all([member], 1)
    return member


def test_a_simple_consumer_commits_without_a_group():
    driver = Driver()
    assert driver.commit(7) is E.NONE
    assert driver.committed() == 7
    assert driver.list_groups() == ["g"]


def test_nothing_committed_is_no_offset_even_for_an_unknown_group():
    assert Driver().committed(group="nobody") is None


@pytest.mark.parametrize("unknown", [E.ILLEGAL_GENERATION, E.GROUP_ID_NOT_FOUND])
def test_a_member_of_an_unknown_group_cannot_commit(unknown):
    assert Driver().commit(1, "m", 3, unknown=unknown) is unknown


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [
        ("a-1", 1, E.NONE),
        ("a-1", 2, E.ILLEGAL_GENERATION),
        ("a-1", -1, E.ILLEGAL_GENERATION),
        ("ghost", 1, E.UNKNOWN_MEMBER_ID),
        ("", -1, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_while_a_group_has_members_only_they_commit(member, generation, error):
    driver = Driver()
    driver.form("a")
    assert driver.commit(1, member, generation) is error


def test_a_commit_during_a_rebalance_is_taken_from_the_last_generation():
    driver = Driver()
    a, _ = driver.form("a", "b")
    driver.join(client="c")
    assert driver.commit(1, a, 1) is E.NONE


def test_a_commit_between_join_and_sync_must_wait():
    driver = Driver()
    token = driver.join()
    driver.advance(DELAY_MS)
    assert driver.commit(1, driver.joined(token).member_id, 1) is E.REBALANCE_IN_PROGRESS


def test_an_assignment_of_an_older_generation_cannot_commit():
    driver = Driver()
    a, b = driver.form("a", "b")
    driver.leave(Leaver(b))
    driver.join(a)
    driver.sync_all([a], 2)
    assert driver.commit(1, a, 1) is E.ILLEGAL_GENERATION


def test_anyone_commits_for_an_empty_group():
    driver = Driver()
    (a,) = driver.form("a")
    driver.leave(Leaver(a))
    assert driver.commit(3) is E.NONE


def test_metadata_that_is_too_long_is_refused_for_its_partition_alone():
    driver = Driver()
    offsets = (
        NewOffset("t", ZERO_UUID, 0, 1, -1, "x" * 4097),
        NewOffset("t", ZERO_UUID, 1, 2, -1, None),
    )
    token = driver.token()
    driver.run(driver.shard.commit(driver.now, CommitOffsets("g", "", None, -1, offsets), token))
    assert driver.answers[token] == [E.OFFSET_METADATA_TOO_LARGE, E.NONE]
    assert (driver.committed(partition=0), driver.committed(partition=1)) == (None, 2)


def test_a_refused_commit_founds_no_group():
    driver = Driver()
    assert driver.commit(metadata="x" * 4097) is E.OFFSET_METADATA_TOO_LARGE
    assert driver.list_groups() == []


def test_offsets_survive_a_restart():
    driver = Driver()
    driver.commit(7)
    driver.restart()
    assert driver.committed() == 7
    assert driver.list_groups() == ["g"]


class OnlyTopicA(NoTopics):
    def topic_id(self, topic):
        return b"a" * 16 if topic == "a" else None


def test_all_offsets_of_a_group_are_told_by_topic():
    driver = Driver()
    for topic, partition in [("b", 0), ("a", 1), ("a", 0)]:
        driver.commit(partition, topic=topic, partition=partition)
    found = driver.shard.offsets.fetch(FetchOffsets("g", None), OnlyTopicA())
    assert [(it.topic, it.topic_id, list(it.partitions)) for it in found] == [
        ("a", b"a" * 16, [0, 1]),
        ("b", ZERO_UUID, [0]),
    ]


@pytest.mark.parametrize(
    ("stored", "asked", "offset"),
    [(b"a" * 16, b"a" * 16, 1), (b"a" * 16, b"b" * 16, None), (ZERO_UUID, b"b" * 16, 1), (b"a" * 16, ZERO_UUID, 1)],
)  # fmt: skip
def test_an_offset_of_a_former_topic_of_the_same_name_is_none(stored, asked, offset):
    offsets = Offsets()
    offsets.replay(OffsetRecord("g", "t", 0, CommittedOffset(1, topic_id=stored)))
    (found,) = offsets.fetch(FetchOffsets("g", (WantedTopic("t", asked, (0,)),)), NoTopics())
    committed = found.offsets[0]
    assert (None if committed is None else committed.offset) == offset


# Expiry (B28: offsets that expired while a group was at work, rebalanced or had just been loaded)


def test_offsets_of_a_simple_group_expire_a_week_after_their_commit():
    driver = Driver()
    driver.commit(1, topic="old")
    driver.advance(WEEK_MS // 2)
    driver.commit(2, topic="new")
    driver.advance(WEEK_MS // 2 + CHECK_MS)
    assert (driver.committed("old"), driver.committed("new")) == (None, 2)
    driver.advance(WEEK_MS)
    assert driver.list_groups() == []


def test_offsets_of_an_empty_group_expire_a_week_after_it_fell_empty():
    driver = Driver(LIVELY)
    a = consumer_group(driver, "t")
    driver.commit(1, a, 1)
    driver.advance(2 * WEEK_MS)
    driver.leave(Leaver(a))
    driver.advance(WEEK_MS - CHECK_MS)
    assert driver.committed() == 1
    driver.advance(2 * CHECK_MS)
    assert driver.committed() is None
    assert driver.list_groups() == []
    assert driver.shard.stored == {}


def test_nothing_expires_of_what_a_working_group_reads():
    driver = Driver(LIVELY)
    a = consumer_group(driver, "t")
    driver.commit(1, a, 1)
    driver.commit(1, a, 1, topic="former")
    driver.advance(2 * WEEK_MS)
    assert (driver.committed("t"), driver.committed("former")) == (1, None)


def test_nothing_expires_of_a_group_whose_subscription_cannot_be_read():
    driver = Driver(LIVELY)
    token = driver.join(session_ms=2**31 - 1)
    driver.advance(DELAY_MS)
    a = driver.joined(token).member_id
    driver.sync_all([a], 1)
    driver.commit(1, a, 1)
    driver.advance(2 * WEEK_MS)
    assert driver.committed() == 1


def test_nothing_expires_during_a_rebalance():
    driver = Driver(LIVELY)
    a = consumer_group(driver, "t")
    driver.commit(1, a, 1, topic="former")
    driver.advance(WEEK_MS - HOUR_MS)
    driver.join(protocols=(("range", subscription("t")),), rebalance_ms=2 * WEEK_MS)
    driver.advance(4 * 60_000)
    assert driver.shard.groups["g"].retention() is None


def test_a_restart_does_not_make_offsets_older_or_younger():
    driver = Driver()
    driver.commit(1)
    driver.advance(WEEK_MS - HOUR_MS)
    driver.restart()
    driver.advance(HOUR_MS - CHECK_MS)
    assert driver.committed() == 1
    driver.advance(2 * CHECK_MS)
    assert driver.committed() is None


def test_many_groups_are_checked_in_bites():
    driver = Driver(GroupSettings(offsets_retention_ms=1, offsets_check_interval_ms=1_000))
    for number in range(450):
        driver.commit(1, group=f"g{number}")
    driver.advance(1_000)
    assert len(driver.list_groups()) == 250
    driver.advance(2)
    assert driver.list_groups() == []


def test_a_commit_may_bring_its_own_retention():
    driver = Driver()
    driver.commit(1, retention_ms=HOUR_MS)
    driver.advance(HOUR_MS + CHECK_MS)
    assert driver.committed() is None


def test_a_jump_of_the_wall_clock_expires_nothing_at_once():
    driver = Driver()
    driver.commit(1)
    driver.wall_skew_ms += 2 * WEEK_MS
    driver.advance(CHECK_MS)
    assert driver.committed() == 1
    driver.wall_skew_ms = WALL_START
    driver.advance(10 * CHECK_MS)
    assert driver.committed() == 1


# Deletion


def test_a_group_with_members_cannot_be_deleted():
    driver = Driver()
    driver.form("a")
    assert driver.delete_group() is E.NON_EMPTY_GROUP
    assert driver.delete_group("other") is E.GROUP_ID_NOT_FOUND


def test_a_deleted_group_is_gone_with_its_offsets():
    driver = Driver()
    (a,) = driver.form("a")
    driver.commit(1, a, 1)
    driver.leave(Leaver(a))
    assert driver.delete_group() is E.NONE
    assert (driver.list_groups(), driver.committed()) == ([], None)
    driver.restart()
    assert (driver.list_groups(), driver.committed()) == ([], None)


def test_an_id_given_out_before_the_group_was_deleted_is_worth_nothing():
    driver = Driver()
    driver.commit(1)
    given = driver.joined(driver.join(needs_member_id=True)).member_id
    assert driver.delete_group() is E.NONE
    driver.advance(2 * SESSION_MS)
    assert driver.joined(driver.join(given)).error is E.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_are_still_read_cannot_be_deleted():
    driver = Driver(LIVELY)
    a = consumer_group(driver, "t")
    driver.commit(1, a, 1, topic="t")
    driver.commit(2, a, 1, topic="former")
    answer = driver.delete_offsets(
        TopicPartition("t", 0), TopicPartition("former", 0), TopicPartition("former", 9)
    )
    assert answer.error is E.NONE
    assert answer.partitions == (E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE, E.NONE)
    assert (driver.committed("t"), driver.committed("former")) == (1, None)


def test_offsets_of_other_protocols_can_be_deleted_only_while_the_group_is_empty():
    driver = Driver()
    token = driver.join(protocol_type="connect")
    driver.advance(DELAY_MS)
    member = driver.joined(token).member_id
    assert driver.delete_offsets(TopicPartition("t", 0)).error is E.NON_EMPTY_GROUP
    driver.leave(Leaver(member))
    assert driver.delete_offsets(TopicPartition("t", 0)).error is E.NONE
    missing = driver.delete_offsets(TopicPartition("t", 0), group="other")
    assert missing.error is E.GROUP_ID_NOT_FOUND


def test_offsets_go_with_their_topic():
    driver = Driver()
    driver.commit(1, topic="t")
    driver.commit(2, topic="t", group="h")
    driver.commit(3, topic="u")
    driver.delete_topic("t")
    assert [driver.committed("t"), driver.committed("t", group="h"), driver.committed("u")] == [
        None,
        None,
        3,
    ]


def test_groups_are_listed_by_state_and_kind_whatever_the_case():
    driver = Driver()
    driver.form("a", group="working")
    driver.commit(1, group="simple")
    assert driver.list_groups() == ["simple", "working"]
    assert driver.list_groups(states=("stable",)) == ["working"]
    assert driver.list_groups(states=("Empty", "Dead")) == ["simple"]
    assert driver.list_groups(kinds=("Classic",)) == ["simple", "working"]
    assert driver.list_groups(kinds=("consumer",)) == []


def test_a_group_shows_metadata_only_while_it_is_stable():
    driver = Driver()
    (a,) = driver.form("a")
    stable = driver.shard.groups["g"].describe()
    assert stable[:4] == (E.NONE, "Stable", "consumer", "range")
    assert stable.members[0][:6] == (a, None, "a", "/1.2.3.4", b"meta", b"for a-1")
    driver.join(a)
    driver.join(client="b")
    preparing = driver.shard.groups["g"].describe()
    assert preparing.protocol == ""
    assert {member.metadata for member in preparing.members} == {b""}


def test_an_unknown_group_is_dead():
    driver = Driver()
    token = driver.token()
    driver.run(driver.shard.describe(driver.now, "nobody", token))
    assert driver.answers[token][:2] == (E.GROUP_ID_NOT_FOUND, "Dead")


def test_names_too_long_for_the_records_are_refused_at_the_door():
    """A flexible request may carry them, the stored group could not, and its shard would fail."""
    driver = Driver()
    long = "x" * 33_000
    assert driver.joined(driver.join(group=long)).error is E.INVALID_GROUP_ID
    assert driver.commit(group=long) is E.INVALID_GROUP_ID
    assert driver.joined(driver.join(instance=long)).error is E.INVALID_REQUEST
    assert driver.joined(driver.join(protocols=((long, b""),))).error is E.INVALID_REQUEST
    assert driver.joined(driver.join(protocol_type=long)).error is E.INVALID_REQUEST
    assert driver.list_groups() == []


def test_a_deleted_topic_takes_the_offsets_of_all_groups_and_no_others():
    driver = Driver()
    for group in ("g", "h"):
        for topic in ("t", "u"):
            for partition in (0, 1):
                driver.commit(7, topic=topic, partition=partition, group=group)
    driver.delete_topic("t")
    for group in ("g", "h"):
        assert driver.committed("t", 0, group) is None
        assert driver.committed("u", 1, group) == 7
    driver.delete_topic("t")
    assert driver.shard.topics_deleted({"t": None}) is None


@pytest.mark.parametrize("others", [0, 1, 100])
def test_of_many_deleted_topics_the_known_ones_lose_their_offsets(others):
    driver = Driver()
    for topic in ("t", "u", "kept"):
        driver.commit(7, topic=topic)
    unknown = {f"unknown-{number}": None for number in range(others)}
    for step in driver.shard.topics_deleted({"t": None, **unknown, "u": None}):
        driver.run(step)
    left = [topic for topic in ("t", "u", "kept") if driver.committed(topic) is not None]
    assert left == ["kept"]
    assert driver.replayed().offsets == driver.shard.offsets


def test_a_deleted_topic_goes_in_steps_and_spares_the_one_that_takes_its_name():
    driver = Driver()
    groups = [f"g{rank}" for rank in range(1_000)]
    for group in groups:
        driver.commit(7, topic="t", group=group)
    steps = driver.shard.topics_deleted({"t": None})
    first = next(steps)
    assert len(first.records) <= 2 * OFFSETS_PER_STEP
    driver.run(first)
    driver.commit(1, topic="t", group="g0")
    driver.commit(7, topic="t", group="g999")
    for step in steps:
        assert len(step.records) <= 2 * OFFSETS_PER_STEP
        driver.run(step)
    left = [group for group in groups if driver.committed("t", group=group) is not None]
    assert left == ["g0", "g999"]
    assert driver.replayed().offsets == driver.shard.offsets

"""Joining: who is let in, when a generation is formed, who leads and which protocol wins."""

import pytest

from headwater.coordination.groups.commands import Leaver, RebalanceReason
from headwater.coordination.groups.pending_ids import MAX_BYTES, OVERHEAD_BYTES
from headwater.coordination.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from headwater.coordination.groups.states import GroupState
from headwater.errors import E
from tests.unit.coordination.group_driver import DELAY_MS, REBALANCE_MS, SESSION_MS, Driver


def test_a_group_without_a_name_is_refused():
    driver = Driver()
    assert driver.joined(driver.join(group="")).error is E.INVALID_GROUP_ID
    assert driver.heartbeat("m", 1, group="") is E.INVALID_GROUP_ID
    assert driver.synced(driver.sync("m", 1, group="")).error is E.INVALID_GROUP_ID
    assert driver.leave(Leaver("m"), group="").error is E.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms):
    driver = Driver()
    assert driver.joined(driver.join(session_ms=session_ms)).error is E.INVALID_SESSION_TIMEOUT


def test_a_member_id_nobody_gave_out_is_unknown():
    driver = Driver()
    assert driver.joined(driver.join("ghost")).error is E.UNKNOWN_MEMBER_ID
    driver.form("a")
    answer = driver.joined(driver.join("ghost"))
    assert (answer.error, answer.member_id) == (E.UNKNOWN_MEMBER_ID, "ghost")


@pytest.mark.parametrize(("kind", "protocols"), [("", (("range", b""),)), ("consumer", ())])
def test_a_join_without_protocols_is_refused_and_founds_no_group(kind, protocols):
    driver = Driver()
    answer = driver.joined(driver.join(protocol_type=kind, protocols=protocols))
    assert answer.error is E.INCONSISTENT_GROUP_PROTOCOL
    assert driver.list_groups() == []


def test_a_joiner_that_shares_no_protocol_or_type_is_refused():
    driver = Driver()
    driver.form("a")
    other = driver.join(protocols=(("roundrobin", b""),))
    assert driver.joined(other).error is E.INCONSISTENT_GROUP_PROTOCOL
    other = driver.join(protocol_type="connect")
    assert driver.joined(other).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state() is GroupState.STABLE


def test_a_dynamic_member_is_given_its_id_first():
    driver = Driver()
    first = driver.joined(driver.join(client="app", needs_member_id=True))
    assert (first.error, first.member_id, first.generation) == (E.MEMBER_ID_REQUIRED, "app-1", -1)
    again = driver.join("app-1", client="app", needs_member_id=True)
    assert again in driver.waiting
    driver.advance(DELAY_MS)
    assert driver.joined(again).generation == 1


def test_an_id_that_is_not_used_within_the_session_timeout_is_forgotten():
    driver = Driver()
    given = driver.joined(driver.join(needs_member_id=True)).member_id
    driver.advance(SESSION_MS + 1)
    assert driver.joined(driver.join(given)).error is E.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_ids_given_out_but_not_longer_than_they_live():
    driver = Driver()
    (a,) = driver.form("a")
    driver.joined(driver.join(needs_member_id=True))
    rejoin = driver.join(a)  # the leader asks for a new generation
    assert rejoin in driver.waiting
    driver.advance(SESSION_MS + 1)
    assert driver.joined(rejoin).generation == 2


def test_a_new_group_waits_for_more_members_and_again_while_they_come():
    driver = Driver()
    first = driver.join()
    driver.advance(DELAY_MS - 1)
    second = driver.join()
    driver.advance(DELAY_MS)  # the first delay is over, but someone came meanwhile
    assert {first, second} <= driver.waiting
    driver.advance(DELAY_MS)
    assert driver.joined(first).generation == driver.joined(second).generation == 1


def test_the_initial_delay_ends_at_the_rebalance_timeout_even_if_members_keep_coming():
    driver = Driver()
    tokens = [driver.join(rebalance_ms=10_000)]
    for _ in range(20):
        driver.advance(1_000)
        if tokens[0] in driver.answers:
            break
        tokens.append(driver.join(rebalance_ms=10_000))
    assert driver.joined(tokens[0]).error is E.NONE
    assert driver.monotonic_ms == 10_000


def test_the_first_joiner_leads_and_alone_sees_the_members():
    driver = Driver()
    first, second = driver.join(client="a"), driver.join(client="b")
    driver.advance(2 * DELAY_MS)
    lead, follow = driver.joined(first), driver.joined(second)
    assert lead.leader == follow.leader == lead.member_id
    assert [member.member_id for member in lead.members] == ["a-1", "b-2"]
    assert follow.members == ()


def test_most_votes_choose_among_the_protocols_that_all_support():
    driver = Driver()
    both = (("range", b"r"), ("sticky", b"s"))
    tokens = [
        driver.join(protocols=(("own", b""), *both)),
        driver.join(protocols=both[::-1]),
        driver.join(protocols=both[::-1]),
    ]
    driver.advance(2 * DELAY_MS)
    answers = [driver.joined(token) for token in tokens]
    assert {answer.protocol for answer in answers} == {"sticky"}
    assert [member.metadata for member in answers[0].members] == [b"s", b"s", b"s"]


def test_a_later_join_makes_everyone_join_again():
    driver = Driver()
    a, b = driver.form("a", "b")
    third = driver.join(client="c")
    assert driver.heartbeat(a, 1) is E.REBALANCE_IN_PROGRESS
    again = [driver.join(a), driver.join(b)]
    assert {driver.joined(token).generation for token in [third, *again]} == {2}
    assert driver.rebalances[-1].reason is RebalanceReason.JOIN


def test_who_does_not_rejoin_in_time_is_out():
    driver = Driver()
    a, b = driver.form("a", "b")
    third = driver.join(client="c")
    rejoin = driver.join(a)
    for _ in range(7):
        driver.heartbeat(b, 1)  # alive, but never joins
        driver.advance(REBALANCE_MS // 7 + 1)
    answer = driver.joined(rejoin)
    assert {member.member_id for member in answer.members} == {a, "c-3"}
    assert driver.joined(third).generation == 2
    assert driver.heartbeat(b, 1) is E.UNKNOWN_MEMBER_ID


def test_when_the_leader_does_not_rejoin_another_one_leads():
    driver = Driver()
    a, b = driver.form("a", "b")
    driver.join(client="c")
    rejoin = driver.join(b)
    driver.advance(REBALANCE_MS)
    assert a != driver.joined(rejoin).leader == b


def test_a_follower_that_missed_its_answer_is_told_again_without_a_rebalance():
    driver = Driver()
    _, b = driver.form("a", "b")
    answer = driver.joined(driver.join(b))
    assert (answer.error, answer.generation, answer.members) == (E.NONE, 1, ())
    assert driver.state() is GroupState.STABLE


def test_the_leader_may_ask_for_a_new_assignment():
    driver = Driver()
    a, _ = driver.form("a", "b")
    driver.join(a, reason="new partitions")
    assert driver.state() is GroupState.PREPARING_REBALANCE
    assert driver.rebalances[-1][1:] == (RebalanceReason.LEADER, a, "new partitions")


def test_a_member_that_changes_its_subscription_starts_a_rebalance():
    driver = Driver()
    _, b = driver.form("a", "b")
    driver.join(b, protocols=(("range", b"other topics"),))
    assert driver.rebalances[-1][1:3] == (RebalanceReason.METADATA, b)


def test_between_join_and_sync_an_unchanged_member_is_told_again():
    driver = Driver()
    first, second = driver.join(client="a"), driver.join(client="b")
    driver.advance(2 * DELAY_MS)
    a, b = driver.joined(first).member_id, driver.joined(second).member_id
    assert len(driver.joined(driver.join(a)).members) == 2
    assert driver.joined(driver.join(b)).generation == 1
    driver.join(b, protocols=(("range", b"changed"),))
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_join_that_is_repeated_while_parked_replaces_the_first():
    driver = Driver()
    given = driver.joined(driver.join(needs_member_id=True)).member_id
    lost = driver.join(given)
    kept = driver.join(given)
    assert driver.joined(lost).error is E.REBALANCE_IN_PROGRESS
    driver.advance(DELAY_MS)
    assert driver.joined(kept).error is E.NONE


def test_a_first_join_that_stays_parked_too_long_is_dropped():
    driver = Driver(GroupSettings(max_session_timeout_ms=10**9))
    (a,) = driver.form("a")
    ghost = driver.join(client="ghost", rebalance_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    for _ in range(60):
        driver.heartbeat(a, 1)
        driver.advance(NEW_MEMBER_JOIN_TIMEOUT_MS // 60)
    assert driver.joined(ghost).error is E.UNKNOWN_MEMBER_ID


def test_a_full_group_turns_newcomers_away():
    driver = Driver(GroupSettings(max_size=2))
    driver.form("a", "b")
    answer = driver.joined(driver.join(client="c"))
    assert (answer.error, answer.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")
    assert driver.state() is GroupState.STABLE


def test_a_group_loaded_under_a_smaller_limit_sheds_the_last_to_rejoin():
    driver = Driver()
    a, b, c = driver.form("a", "b", "c")
    driver.settings = driver.settings._replace(max_size=2)
    driver.restart()
    assert driver.rebalances[-1].reason is RebalanceReason.CAPACITY
    tokens = [driver.join(a), driver.join(c)]
    assert driver.joined(driver.join(b)).error is E.GROUP_MAX_SIZE_REACHED
    assert {driver.joined(token).generation for token in tokens} == {2}


def test_a_delay_of_zero_forms_the_generation_at_once():
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=0))
    token = driver.join()
    driver.advance(0)
    assert driver.joined(token).generation == 1


def test_ids_given_out_and_never_used_take_bounded_memory():
    driver = Driver()
    given = [
        driver.joined(driver.join(needs_member_id=True, group=f"g{number % 3}")).member_id
        for number in range(MAX_BYTES // OVERHEAD_BYTES + 100)
    ]
    pending = {one for group in driver.shard.groups.values() for one in group.pending}
    assert len(pending) < MAX_BYTES // OVERHEAD_BYTES
    assert given[0] not in pending
    assert given[-1] in pending
    late = driver.joined(driver.join(given[0], group="g0"))
    assert late.error is E.UNKNOWN_MEMBER_ID, "its client starts over"
    driver.advance(2 * SESSION_MS)
    assert not driver.shard.groups, "groups that never had a member leave nothing behind"


def test_groups_of_huge_client_ids_take_bounded_memory():
    driver = Driver()
    for number in range(200):
        driver.join(needs_member_id=True, client="x" * 30_000, group=f"g{number}")
    held = sum(len(one) for group in driver.shard.groups.values() for one in group.pending)
    assert held <= MAX_BYTES
    assert len(driver.shard.groups) < 100


def test_an_id_that_was_taken_back_no_longer_holds_a_rebalance_up():
    driver = Driver()
    (a,) = driver.form("a")
    driver.join(needs_member_id=True)
    waiting = driver.join(a, protocols=(("range", b"other"),))
    assert waiting in driver.waiting
    for number in range(MAX_BYTES // OVERHEAD_BYTES + 1):
        driver.join(needs_member_id=True, group=f"other{number}")
    assert waiting not in driver.waiting


@pytest.mark.parametrize(
    ("client_reason", "reason"),
    [
        (None, RebalanceReason.LEAVE),
        ("the consumer is being closed", RebalanceReason.LEAVE),
        ("consumer poll timeout has expired.", RebalanceReason.POLL_TIMEOUT),
        ("the application did not poll within max.poll.interval.ms", RebalanceReason.POLL_TIMEOUT),
    ],
)
def test_a_member_that_was_too_slow_to_poll_is_a_cause_of_its_own(client_reason, reason):
    driver = Driver()
    (a,) = driver.form("a")
    driver.leave(Leaver(a, None, client_reason))
    assert driver.rebalances[-1].reason is reason


@pytest.mark.parametrize(
    ("client_reason", "reason"),
    [
        ("cached metadata has changed from (version2) to (version3)", RebalanceReason.TOPICS),
        ("topics have more partitions, or were deleted", RebalanceReason.TOPICS),
        ("rebalance enforced by user", RebalanceReason.LEADER),
    ],
)
def test_a_leader_that_saw_other_partitions_is_a_cause_of_its_own(client_reason, reason):
    driver = Driver()
    (a,) = driver.form("a")
    driver.join(a, reason=client_reason)
    assert driver.rebalances[-1].reason is reason


def test_a_group_that_everybody_left_before_its_first_generation_leaves_nothing_behind():
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=2 * SESSION_MS))
    given = [driver.joined(driver.join(needs_member_id=True)).member_id for _ in "ab"]
    driver.join(given[0])
    driver.leave(Leaver(given[0]))
    driver.advance(SESSION_MS)  # nobody joins with the other id
    assert driver.list_groups() == []
    other = driver.join(group="other")
    driver.advance(2 * SESSION_MS)
    assert driver.joined(other).error is E.NONE

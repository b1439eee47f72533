"""Syncing, living, leaving: from a formed generation to a Stable group and back to Empty."""

import pytest

from headwater.coordination.groups.commands import Leaver, RebalanceReason
from headwater.coordination.groups.states import GroupState
from headwater.errors import E
from tests.unit.coordination.group_driver import DELAY_MS, REBALANCE_MS, SESSION_MS, Driver


def completing(driver: Driver) -> tuple[str, str]:
    """Two members that know their generation, and no assignment yet."""
    first, second = driver.join(client="a"), driver.join(client="b")
    driver.advance(2 * DELAY_MS)
    return driver.joined(first).member_id, driver.joined(second).member_id


def test_a_follower_waits_for_the_leaders_assignment():
    driver = Driver()
    a, b = completing(driver)
    follower = driver.sync(b, 1)
    assert follower in driver.waiting
    leader = driver.sync(a, 1, {a: b"A", b: b"B"})
    assert driver.synced(leader)[:] == (E.NONE, "consumer", "range", b"A")
    assert driver.synced(follower).assignment == b"B"
    assert driver.state() is GroupState.STABLE


def test_a_member_the_leader_left_out_gets_nothing():
    driver = Driver()
    a, b = completing(driver)
    driver.sync(a, 1, {a: b"A", "stranger": b"X"})
    assert driver.synced(driver.sync(b, 1)).assignment == b""


def test_a_member_that_syncs_late_gets_the_current_assignment():
    driver = Driver()
    a, b = completing(driver)
    driver.sync(a, 1, {b: b"B"})
    assert driver.synced(driver.sync(b, 1)).assignment == b"B"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member": "ghost"}, E.UNKNOWN_MEMBER_ID),
        ({"generation": 7}, E.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "sticky"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance": "i"}, E.UNKNOWN_MEMBER_ID),
        ({"group": "other"}, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(changes, error):
    driver = Driver()
    a, _ = completing(driver)
    arguments = {"member": a, "generation": 1, **changes}
    assert driver.synced(driver.sync(**arguments)).error is error


def test_a_sync_during_a_rebalance_sends_the_member_back_to_join():
    driver = Driver()
    a, _ = driver.form("a", "b")
    driver.join(client="c")
    assert driver.synced(driver.sync(a, 1)).error is E.REBALANCE_IN_PROGRESS


def test_a_rebalance_answers_those_who_wait_for_an_assignment():
    driver = Driver()
    _, b = completing(driver)
    follower = driver.sync(b, 1)
    driver.join(client="c")
    assert driver.synced(follower).error is E.REBALANCE_IN_PROGRESS


def test_a_rebalance_called_before_the_sync_ends_voids_the_old_shares():
    driver = Driver()
    a, b = driver.form("a", "b")
    tokens = [driver.join(a), driver.join(b)]
    assert {driver.joined(token).generation for token in tokens} == {2}
    driver.join(client="c")
    members = driver.shard.groups["g"].describe().members
    assert {member.assignment for member in members} == {b""}


def test_a_repeated_sync_replaces_the_parked_one():
    driver = Driver()
    a, b = completing(driver)
    lost, kept = driver.sync(b, 1), driver.sync(b, 1)
    assert driver.synced(lost).error is E.REBALANCE_IN_PROGRESS
    driver.sync(a, 1, {b: b"B"})
    assert driver.synced(kept).assignment == b"B"


def test_a_leader_that_never_syncs_does_not_hold_the_group_forever():
    """KAFKA-12890: members kept their sessions by heartbeats and the group never left this state."""
    driver = Driver()
    a, b = completing(driver)
    follower = driver.sync(b, 1)
    for _ in range(REBALANCE_MS // 5_000):
        driver.heartbeat(a, 1)
        driver.advance(5_000)
    assert driver.synced(follower).error is E.REBALANCE_IN_PROGRESS
    assert driver.rebalances[-1][1:3] == (RebalanceReason.SYNC, a)
    assert driver.heartbeat(a, 1) is E.UNKNOWN_MEMBER_ID


def test_a_follower_that_never_syncs_is_out_after_the_rebalance_timeout():
    driver = Driver()
    a, b = completing(driver)
    driver.sync(a, 1, {a: b"A", b: b"B"})
    for _ in range(REBALANCE_MS // 5_000):
        driver.heartbeat(a, 1)
        driver.heartbeat(b, 1)
        driver.advance(5_000)
    assert driver.heartbeat(b, 1) is E.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(a, 1) is E.REBALANCE_IN_PROGRESS


def test_heartbeats_keep_a_session_and_silence_ends_it():
    driver = Driver()
    a, b = driver.form("a", "b")
    for _ in range(5):
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat(a, 1) in (E.NONE, E.REBALANCE_IN_PROGRESS)
    assert driver.heartbeat(b, 1) is E.UNKNOWN_MEMBER_ID
    assert [it[1:3] for it in driver.rebalances][1:] == [(RebalanceReason.SESSION, b)]


def test_a_commit_keeps_a_session_as_well():
    driver = Driver()
    (a,) = driver.form("a")
    for _ in range(3):
        driver.advance(SESSION_MS - 1)
        assert driver.commit(1, a, 1) is E.NONE
    assert driver.state() is GroupState.STABLE


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [("ghost", 1, E.UNKNOWN_MEMBER_ID), ("a-1", 2, E.ILLEGAL_GENERATION), ("a-1", 1, E.NONE)],
)
def test_a_heartbeat_must_name_a_member_and_its_generation(member, generation, error):
    driver = Driver()
    driver.form("a")
    assert driver.heartbeat(member, generation) is error
    assert driver.heartbeat(member, generation, group="other") is E.UNKNOWN_MEMBER_ID


def test_a_heartbeat_between_join_and_sync_is_welcome():
    driver = Driver()
    a, _ = completing(driver)
    assert driver.heartbeat(a, 1) is E.NONE


def test_a_member_that_leaves_makes_the_others_rebalance():
    driver = Driver()
    a, b = driver.form("a", "b")
    assert driver.leave(Leaver(b, None, "closing")).members[0][1] is E.NONE
    assert driver.heartbeat(a, 1) is E.REBALANCE_IN_PROGRESS
    assert driver.joined(driver.join(a)).generation == 2
    assert driver.rebalances[-1][1:] == (RebalanceReason.LEAVE, b, "closing")


def test_the_last_to_leave_leaves_an_empty_group_behind():
    driver = Driver()
    (a,) = driver.form("a")
    driver.leave(Leaver(a))
    assert driver.state() is GroupState.EMPTY
    assert driver.shard.stored["g"].members == ()
    assert driver.shard.stored["g"].generation == 2


def test_several_leave_at_once_each_with_its_own_result():
    driver = Driver()
    a, b = driver.form("a", "b")
    pending = driver.joined(driver.join(needs_member_id=True)).member_id
    left = driver.leave(
        Leaver("ghost"), Leaver(a), Leaver(pending), Leaver("", "nobody"), Leaver(b)
    )
    errors = [error for _, error in left.members]
    assert errors == [E.UNKNOWN_MEMBER_ID, E.NONE, E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE]
    assert driver.state() is GroupState.EMPTY
    assert len(driver.rebalances) == 2


def test_an_id_that_is_given_back_unused_disturbs_nobody():
    driver = Driver()
    a, b = driver.form("a", "b")
    pending = driver.joined(driver.join(needs_member_id=True)).member_id
    driver.leave(Leaver(pending))
    assert driver.state() is GroupState.STABLE
    pending = driver.joined(driver.join(needs_member_id=True)).member_id
    rejoin = [driver.join(a), driver.join(b)]
    driver.leave(Leaver(pending))
    assert {driver.joined(token).generation for token in rejoin} == {2}


def test_nobody_is_a_member_of_a_group_that_is_not_there():
    left = Driver().leave(Leaver("a"))
    assert left.error is E.NONE
    assert [error for _, error in left.members] == [E.UNKNOWN_MEMBER_ID]


def test_one_who_leaves_while_parked_is_answered():
    driver = Driver()
    driver.form("a")
    parked = driver.join(client="b")
    driver.leave(Leaver("b-2"))
    assert driver.joined(parked).error is E.UNKNOWN_MEMBER_ID


def test_a_rebalance_ends_when_the_one_it_waits_for_leaves():
    driver = Driver()
    a, b = driver.form("a", "b")
    rejoin = driver.join(a)
    driver.leave(Leaver(b))
    assert driver.joined(rejoin).generation == 2


def test_a_restart_causes_no_rebalance():
    driver = Driver()
    a, b = driver.form("a", "b")
    driver.restart()
    assert driver.state() is GroupState.STABLE
    assert driver.heartbeat(a, 1) is driver.heartbeat(b, 1) is E.NONE
    assert driver.synced(driver.sync(b, 1)).assignment == b"for " + b.encode()
    assert len(driver.rebalances) == 1


def test_sessions_start_anew_after_a_restart():
    driver = Driver()
    (a,) = driver.form("a")
    driver.advance(SESSION_MS - 1)
    driver.restart()
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(a, 1) is E.NONE
    driver.advance(SESSION_MS)
    assert driver.state() is GroupState.EMPTY


def test_a_restart_during_a_rebalance_falls_back_to_the_last_whole_generation():
    driver = Driver()
    a, _ = driver.form("a", "b")
    driver.join(client="c")
    driver.restart()
    assert driver.heartbeat(a, 1) is E.NONE


def test_cooperative_members_move_one_partition_in_two_rebalances():
    """The leader sees a partition still owned by another, withholds it, and rebalances again."""
    driver = Driver()
    a, b = driver.form("a", "b")
    first = driver.join(client="c")
    tokens = [driver.join(a), driver.join(b), first]
    c = driver.joined(first).member_id
    assert driver.joined(tokens[0]).leader == a
    driver.sync_all([a, b, c], 2)
    again = [driver.join(b, protocols=(("range", b"revoked"),))]
    assert driver.heartbeat(c, 2) is E.REBALANCE_IN_PROGRESS
    again += [driver.join(a), driver.join(c)]
    assert {driver.joined(token).generation for token in again} == {3}
    driver.sync_all([a, b, c], 3)

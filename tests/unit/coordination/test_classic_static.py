"""Static members: an identity that outlives the process behind it."""

import pytest

from headwater.coordination.groups.commands import Leaver, RebalanceReason
from headwater.coordination.groups.states import GroupState
from headwater.errors import E
from tests.unit.coordination.group_driver import DELAY_MS, REBALANCE_MS, SESSION_MS, Driver


def static_group(driver: Driver, *instances: str) -> list[str]:
    """A Stable group of static members."""
    tokens = [driver.join(instance=instance, needs_member_id=True) for instance in instances]
    driver.advance(DELAY_MS * (len(instances) + 1))
    members = [driver.joined(token).member_id for token in tokens]
    driver.sync_all(members, 1)
    return members


def test_a_static_member_is_let_in_without_asking_for_an_id():
    driver = Driver()
    assert static_group(driver, "one") == ["one-1"]


def test_one_who_comes_back_takes_its_place_without_a_rebalance():
    driver = Driver()
    _, b = static_group(driver, "one", "two")
    back = driver.joined(driver.join(instance="two"))
    assert (back.error, back.generation, back.skip_assignment) == (E.NONE, 1, False)
    assert back.member_id not in (b, "")
    assert driver.state() is GroupState.STABLE
    assert driver.synced(driver.sync(back.member_id, 1)).assignment == b"for " + b.encode()


def test_the_old_process_is_fenced():
    driver = Driver()
    _, b = static_group(driver, "one", "two")
    driver.join(instance="two")
    assert driver.heartbeat(b, 1, "two") is E.FENCED_INSTANCE_ID
    assert driver.synced(driver.sync(b, 1, instance="two")).error is E.FENCED_INSTANCE_ID
    assert driver.commit(1, b, 1, instance="two") is E.FENCED_INSTANCE_ID
    assert driver.joined(driver.join(b, "two")).error is E.FENCED_INSTANCE_ID
    assert driver.leave(Leaver(b, "two")).members[0][1] is E.FENCED_INSTANCE_ID


def test_an_instance_id_nobody_has_is_unknown():
    driver = Driver()
    (a,) = static_group(driver, "one")
    assert driver.heartbeat(a, 1, "other") is E.UNKNOWN_MEMBER_ID


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment():
    driver = Driver()
    a, b = static_group(driver, "one", "two")
    back = driver.joined(driver.join(instance="one"))
    assert back.skip_assignment
    assert back.leader == back.member_id != a
    assert {member.member_id for member in back.members} == {back.member_id, b}


def test_an_old_client_that_led_and_comes_back_is_not_told_that_it_leads():
    driver = Driver()
    a, _ = static_group(driver, "one", "two")
    back = driver.joined(driver.join(instance="one", may_skip=False))
    assert (back.leader, back.members, back.skip_assignment) == (a, (), False)


def test_the_new_id_survives_a_restart():
    driver = Driver()
    static_group(driver, "one")
    back = driver.joined(driver.join(instance="one"))
    driver.restart()
    assert driver.heartbeat(back.member_id, 1, "one") is E.NONE


def test_one_who_comes_back_with_other_protocols_starts_a_rebalance():
    driver = Driver()
    tokens = [
        driver.join(instance=name, protocols=(("range", b""), ("sticky", b"")))
        for name in ("one", "two")
    ]
    driver.advance(3 * DELAY_MS)
    driver.sync_all([driver.joined(token).member_id for token in tokens], 1)
    driver.join(instance="two", protocols=(("sticky", b""),))
    assert driver.rebalances[-1].reason is RebalanceReason.STATIC
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_one_who_comes_back_between_join_and_sync_starts_over():
    driver = Driver()
    tokens = [driver.join(instance=name) for name in ("one", "two")]
    driver.advance(3 * DELAY_MS)
    old = driver.joined(tokens[1]).member_id
    parked = driver.sync(old, 1, instance="two")
    driver.join(instance="two")
    assert driver.synced(parked).error is E.FENCED_INSTANCE_ID
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_one_who_comes_back_while_its_join_is_parked_fences_it():
    driver = Driver()
    old = driver.join(instance="one")
    new = driver.join(instance="one")
    assert driver.joined(old).error is E.FENCED_INSTANCE_ID
    driver.advance(DELAY_MS * 2)
    assert driver.joined(new).generation == 1


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends():
    driver = Driver()
    a, b = static_group(driver, "one", "two")
    rejoin = driver.join(a, "one")
    newcomer = driver.join()
    driver.advance(SESSION_MS - 1)
    driver.heartbeat(b, 1, "two")
    driver.advance(SESSION_MS + 1)
    members = driver.joined(rejoin).members
    assert {member.member_id for member in members} == {a, driver.joined(newcomer).member_id}
    assert driver.heartbeat(b, 1, "two") is E.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_silent_in_the_join_phase_keeps_its_place():
    driver = Driver()
    tokens = [driver.join(instance=name, session_ms=2 * REBALANCE_MS) for name in ("one", "two")]
    driver.advance(3 * DELAY_MS)
    a, b = (driver.joined(token).member_id for token in tokens)
    driver.sync_all([a, b], 1)
    rejoin = driver.join(a, "one", session_ms=2 * REBALANCE_MS)
    driver.advance(REBALANCE_MS)
    assert {member.member_id for member in driver.joined(rejoin).members} == {a, b}


def test_when_only_absent_static_members_are_left_the_group_waits_for_one():
    driver = Driver()
    token = driver.join(instance="one", session_ms=3 * REBALANCE_MS)
    driver.advance(2 * DELAY_MS)
    a = driver.joined(token).member_id
    driver.sync_all([a], 1)
    newcomer = driver.join()
    driver.leave(Leaver("c-2"))
    assert driver.joined(newcomer).error is E.UNKNOWN_MEMBER_ID
    driver.advance(2 * REBALANCE_MS)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    driver.advance(2 * REBALANCE_MS)
    assert driver.state() is GroupState.EMPTY


@pytest.mark.parametrize("instance", ["one", "two"])
def test_an_administrator_removes_a_static_member_by_its_instance_id(instance):
    driver = Driver()
    static_group(driver, "one", "two")
    assert driver.leave(Leaver("", instance)).members[0][1] is E.NONE
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_absent_static_members_without_patience_do_not_keep_the_shard_busy():
    """With a rebalance timeout of 0 the next wait was due at once, again and again."""
    driver = Driver()
    token = driver.join(instance="one", rebalance_ms=10_000, session_ms=60_000)
    driver.advance(2 * DELAY_MS)
    member = driver.joined(token).member_id
    driver.sync_all([member], 1)
    driver.shard.groups["g"].members.by_id[member].rebalance_timeout_ms = 0
    newcomer = driver.join(rebalance_ms=0)
    driver.leave(Leaver("c-2"))
    assert driver.joined(newcomer).error is E.UNKNOWN_MEMBER_ID
    driver.advance(5_000)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    driver.advance(60_000)
    assert driver.state() is GroupState.EMPTY

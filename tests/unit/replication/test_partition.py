"""The partition machine: who leads, what is committed, who counts as in sync."""

import pytest

from headwater.replication.effects import AdvanceHW, ProposeIsr
from headwater.replication.partition import Partition, Role

LAG_MS = 30_000


def leader(
    *, replicas=(1, 2, 3), isr=(1, 2, 3), log_end=0, epoch=5, min_insync=1, now=0
) -> Partition:
    partition = Partition(1, LAG_MS, min_insync)
    partition.led(now, epoch, 0, replicas, isr, log_end)
    return partition


def fetched(partition: Partition, replica: int, offset: int, now: int = 0):
    return list(partition.follower_fetched(now, replica, offset, 0))


# -- W3: the worked example


def test_w3_ends_of_10_5_and_3_in_one_isr_give_a_high_watermark_of_3():
    partition = leader(log_end=10)
    fetched(partition, 2, 5)
    assert fetched(partition, 3, 3) == [AdvanceHW(3)]
    assert partition.high_watermark == 3


def test_w3_a_message_needs_two_fetches_until_the_followers_high_watermark_moves():
    leading, following = leader(replicas=(1, 2), isr=(1, 2)), Partition(2, LAG_MS, 1)
    following.followed(1, 5, 0, (1, 2), (1, 2))
    leading.appended(0, 1)

    # The first fetch asks for 0 and brings the message; the mark in its answer is still 0.
    assert fetched(leading, 2, 0) == []
    following.appended(0, 1)
    following.leader_hw_received(leading.high_watermark)
    assert (leading.high_watermark, following.high_watermark) == (0, 0)

    # The second one asks for 1: that tells the leader, and its answer tells the follower.
    assert fetched(leading, 2, 1) == [AdvanceHW(1)]
    assert following.leader_hw_received(leading.high_watermark) == (AdvanceHW(1),)


def test_with_one_replica_the_high_watermark_is_the_written_end():
    partition = leader(replicas=(1,), isr=(1,))
    assert partition.appended(0, 7) == (AdvanceHW(7),)


# -- the high watermark


def test_the_high_watermark_never_goes_back():
    partition = leader(log_end=10)
    fetched(partition, 2, 8)
    fetched(partition, 3, 8)
    assert fetched(partition, 3, 4) == []
    assert partition.high_watermark == 8


def test_a_follower_that_never_fetched_holds_the_high_watermark():
    partition = leader(replicas=(1, 2), isr=(1, 2), log_end=3)
    assert partition.appended(0, 9) == ()
    assert partition.high_watermark == 0


def test_a_replica_outside_the_isr_that_lags_does_not_hold_the_high_watermark():
    partition = leader(isr=(1, 2), log_end=10)
    fetched(partition, 3, 1, now=LAG_MS + 1)
    assert fetched(partition, 2, 10, now=LAG_MS + 1) == [AdvanceHW(10)]


def test_a_caught_up_replica_outside_the_isr_counts_because_it_is_about_to_join():
    partition = leader(isr=(1, 2), log_end=10)
    fetched(partition, 2, 10)
    fetched(partition, 3, 10)
    partition.appended(1, 12)
    assert fetched(partition, 2, 12, now=1) == []
    assert partition.high_watermark == 10


def test_an_unknown_replica_changes_nothing():
    partition = leader(log_end=10)
    assert fetched(partition, 9, 10) == []
    assert 9 not in partition.followers


def test_a_followers_mark_is_bounded_by_its_own_log():
    partition = Partition(2, LAG_MS, 1)
    partition.followed(1, 5, 0, (1, 2), (1, 2))
    partition.appended(0, 4)
    assert partition.leader_hw_received(100) == (AdvanceHW(4),)


def test_a_change_of_the_in_sync_set_forgets_no_mark_of_the_leader():
    """The leader sends each mark once, and this replica may be about to write what it covers."""
    partition = Partition(2, LAG_MS, 1)
    partition.followed(1, 5, 0, (1, 2, 3), (1, 2))
    assert partition.leader_hw_received(10) == ()
    partition.followed(1, 5, 1, (1, 2, 3), (1, 2, 3))
    assert list(partition.appended(0, 10)) == [AdvanceHW(10)]


def test_another_epoch_forgets_the_mark_of_the_leader_before():
    partition = Partition(2, LAG_MS, 1)
    partition.followed(1, 5, 0, (1, 2, 3), (1, 2))
    partition.leader_hw_received(10)
    partition.followed(3, 6, 1, (1, 2, 3), (2, 3))
    assert list(partition.appended(0, 10)) == []


def test_b23_truncation_takes_the_mark_along():
    partition = Partition(2, LAG_MS, 1)
    partition.followed(1, 5, 0, (1, 2), (1, 2))
    partition.appended(0, 10)
    partition.leader_hw_received(10)
    partition.truncated(6)
    assert (partition.log_end, partition.high_watermark) == (6, 6)


# -- enough replicas


@pytest.mark.parametrize(
    ("min_insync", "isr", "enough"),
    [
        (1, (1,), True),
        (2, (1,), False),
        (2, (1, 2), True),
        (3, (1, 2), False),
        (9, (1, 2, 3), True),  # no more can be asked than there are replicas
    ],
)
def test_enough_in_sync(min_insync, isr, enough):
    assert leader(isr=isr, min_insync=min_insync).enough_in_sync is enough


def test_too_few_in_sync_hold_the_high_watermark_until_there_are_enough():
    partition = leader(isr=(1,), min_insync=2, log_end=5)
    assert partition.appended(0, 6) == ()
    fetched(partition, 2, 6)
    assert partition.high_watermark == 0
    assert partition.isr_stored(0, (1, 2), 1) == (AdvanceHW(6),)


def test_asking_for_fewer_in_sync_replicas_counts_at_once():
    partition = leader(isr=(1,), min_insync=2)
    partition.require_in_sync(1)
    assert partition.enough_in_sync


# -- the in-sync set


def test_a_follower_that_is_behind_for_too_long_is_proposed_to_leave():
    partition = leader(log_end=10, now=0)
    fetched(partition, 2, 10, now=LAG_MS)
    fetched(partition, 3, 4, now=LAG_MS)
    (proposal,) = partition.lag_checked(LAG_MS + 1)
    assert proposal == ProposeIsr(frozenset({1, 2}), 5, 0)
    assert partition.isr == {1, 2, 3}, "it counts only once stored"
    assert partition.lag_checked(LAG_MS + 2) == (), "one proposal at a time"


def test_a_leader_that_cannot_write_proposes_the_set_without_itself_once():
    partition = leader(replicas=(1, 2, 3), isr=(1, 2))
    full = ProposeIsr(frozenset({2}), 5, 0, keeps_records=True)
    assert partition.write_refused(keeps_records=True) == [full]
    assert partition.write_refused(keeps_records=True) == ()
    alone = leader(replicas=(1, 2), isr=(1,))
    assert alone.write_refused(keeps_records=True) == (), "nobody else has it all"


def test_a_leader_alone_with_a_failed_disk_leaves_to_an_eligible_replica():
    partition = leader(replicas=(1, 2, 3), isr=(1, 2))
    partition.isr_stored(0, (1,), 1, elr=(2,))
    assert partition.write_refused(keeps_records=True) == (), "it can still serve what it has"
    empty = ProposeIsr(frozenset(), 5, 1)
    assert partition.write_refused(keeps_records=False) == [empty]
    assert partition.proposes(empty), "it is sent"
    assert partition.write_refused(keeps_records=False) == ()
    alone = leader(replicas=(1, 2), isr=(1,))
    assert alone.write_refused(keeps_records=False) == (), "nobody else has it all"


def test_a_follower_without_a_disk_leaves_once_and_again_after_it_had_one():
    partition = Partition(2, LAG_MS, 1)
    assert partition.write_refused(keeps_records=False) == (), "it has no replica yet"
    partition.followed(1, 5, 3, (1, 2), (1, 2))
    (leaving,) = partition.write_refused(keeps_records=False)
    assert leaving == ProposeIsr(frozenset(), 5, 3)
    assert partition.proposes(leaving)
    assert partition.write_refused(keeps_records=False) == ()
    partition.lag_checked(0)  # the disk has space again
    assert not partition.proposes(leaving)
    assert partition.write_refused(keeps_records=False) == [leaving]
    partition.led(0, 6, 4, (1, 2), (2,), 0)
    assert not partition.proposes(leaving)


def test_a_replica_whose_full_disk_fails_asks_again_to_leave_and_keeps_nothing():
    follower = Partition(2, LAG_MS, 1)
    follower.followed(1, 5, 3, (1, 2), (1, 2))
    for partition in (follower, leader(replicas=(1, 2, 3), isr=(1, 2))):
        (full,) = partition.write_refused(keeps_records=True)
        assert partition.write_refused(keeps_records=False) == [full._replace(keeps_records=False)]
        assert partition.write_refused(keeps_records=False) == ()
        assert partition.write_refused(keeps_records=True) == ()


def test_a_follower_that_left_by_itself_no_longer_holds_the_mark():
    """It had everything a moment ago, and is not about to join."""
    partition = leader(replicas=(1, 2), isr=(1, 2), log_end=10)
    fetched(partition, 2, 10)
    partition.appended(1, 12)
    assert partition.high_watermark == 10
    assert partition.isr_stored(2, (1,), 1) == (AdvanceHW(12),)


def test_a_follower_that_leaves_no_longer_holds_the_mark_once_that_is_stored():
    partition = leader(replicas=(1, 2), isr=(1, 2), log_end=10)
    fetched(partition, 2, 4)
    partition.lag_checked(LAG_MS + 1)
    assert partition.high_watermark == 4
    assert partition.isr_stored(LAG_MS + 1, (1,), 1) == (AdvanceHW(10),)


def test_a_silent_follower_that_has_everything_stays():
    partition = leader(replicas=(1, 2), isr=(1, 2), log_end=10)
    fetched(partition, 2, 10)
    assert partition.lag_checked(100 * LAG_MS) == ()


def test_a_follower_that_caught_up_is_proposed_to_join():
    partition = leader(isr=(1, 2), log_end=10)
    fetched(partition, 2, 10)
    assert fetched(partition, 3, 9) == []
    assert fetched(partition, 3, 10) == [ProposeIsr(frozenset({1, 2, 3}), 5, 0)]
    assert fetched(partition, 3, 10) == [], "one proposal at a time"


def test_a_follower_below_the_mark_cannot_join():
    partition = leader(isr=(1, 2), log_end=0)
    partition.appended(2 * LAG_MS, 10)
    assert fetched(partition, 2, 10, now=2 * LAG_MS) == [AdvanceHW(10)]
    assert fetched(partition, 3, 9, now=2 * LAG_MS) == [], "it lacks what is committed"
    assert fetched(partition, 3, 10, now=2 * LAG_MS) == [ProposeIsr(frozenset({1, 2, 3}), 5, 0)]


def test_a_replica_proposed_to_join_counts_for_the_mark_already():
    partition = leader(isr=(1, 2), log_end=10)
    fetched(partition, 2, 10)
    fetched(partition, 3, 10)
    partition.appended(2 * LAG_MS, 20)
    assert fetched(partition, 2, 20, now=2 * LAG_MS) == []
    assert partition.high_watermark == 10


def test_a_refused_proposal_may_be_made_again():
    partition = leader(isr=(1, 2), log_end=10)
    fetched(partition, 3, 10)
    partition.isr_refused(0)
    assert fetched(partition, 3, 10) == [ProposeIsr(frozenset({1, 2, 3}), 5, 0)]


def test_a_follower_that_may_not_join_does_not_hold_back_the_high_watermark():
    """Its broker stops: it caught up a moment ago, and will never fetch again."""
    partition = leader(isr=(1, 2), log_end=10)
    fetched(partition, 2, 10)
    fetched(partition, 3, 10)
    partition.appended(1, 12)
    fetched(partition, 2, 12, 2)
    assert partition.high_watermark == 10
    assert partition.isr_refused(3) == (AdvanceHW(12),)


def test_nothing_is_committed_while_a_replica_is_eligible():
    """Whatever min.insync.replicas is here: the controller may elect a replica without the record."""
    partition = leader(replicas=(1, 2), isr=(1, 2), log_end=10)
    fetched(partition, 2, 10)
    partition.isr_stored(1, (1,), 1, (2,))
    late = 2 * LAG_MS
    assert partition.appended(late, 12) == ()
    assert partition.isr_stored(late, (1,), 2) == (AdvanceHW(12),)
    partition.led(late, 6, 3, (1, 2), (1,), 12, elr=(2,))
    assert partition.appended(2 * late, 13) == ()


def test_an_old_store_answer_changes_nothing():
    partition = leader()
    partition.isr_stored(0, (1, 2), 4)
    assert partition.isr_stored(0, (1,), 4) == ()
    assert partition.isr == {1, 2}


# -- B5: KAFKA-7128, a new leader's mark lags; a follower at the mark may still lack records


def test_b5_a_follower_below_the_start_of_the_leaders_epoch_cannot_join():
    partition = Partition(1, LAG_MS, 1)
    partition.followed(2, 4, 0, (1, 2, 3), (1, 2))
    partition.appended(0, 10)
    partition.leader_hw_received(6)  # the true mark is 10, this replica does not know it yet
    partition.led(0, 5, 1, (1, 2, 3), (1, 2), 10)
    partition.followers[3].caught_up_ms = -LAG_MS - 1  # so that it does not hold the mark
    partition.isr_stored(0, (1, 2), 2)
    fetched(partition, 2, 6)
    assert fetched(partition, 3, 7) == [], "above the known mark, but it may lack what is committed"
    assert fetched(partition, 3, 10) == [ProposeIsr(frozenset({1, 2, 3}), 5, 2)]


# -- B6: KIP-320, what a follower did under an older leadership does not count


def test_b6_progress_of_an_earlier_epoch_is_forgotten():
    partition = leader(replicas=(1, 2), isr=(1, 2), log_end=10, epoch=5)
    fetched(partition, 2, 10)
    partition.led(0, 6, 1, (1, 2), (1, 2), 12)
    assert partition.followers[2].log_end == -1
    assert partition.high_watermark == 10


def test_a_confirmed_leader_keeps_what_it_knows_of_its_followers():
    partition = leader(replicas=(1, 2), isr=(1, 2), log_end=10)
    fetched(partition, 2, 8)
    partition.led(0, 5, 1, (1, 2, 4), (1, 2), 10)
    assert partition.followers[2].log_end == 8
    assert 4 in partition.followers
    partition.led(0, 5, 2, (1, 2), (1, 2), 10)
    assert 4 not in partition.followers


def test_a_follower_forgets_who_followed_it():
    partition = leader(log_end=4)
    partition.followed(2, 6, 1, (1, 2, 3), (2, 3))
    assert (partition.role, partition.leader, partition.followers) == (Role.FOLLOWER, 2, {})
    assert fetched(partition, 3, 4) == []


# -- low watermark


def test_the_low_watermark_waits_for_live_replicas_in_sync_or_not():
    partition = leader(isr=(1, 2), log_end=10)
    partition.follower_fetched(0, 2, 10, 3)
    partition.follower_fetched(0, 3, 10, 0)
    assert partition.low_watermark(5, live={1, 2, 3}) == 0
    assert partition.low_watermark(5, live={1, 2}) == 3
    partition.follower_fetched(0, 2, 10, 7)
    assert partition.low_watermark(5, live={1, 2}) == 5
    assert partition.low_watermark(5, live={1}) == 5

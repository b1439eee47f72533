"""When a follower counts as in sync."""

from headwater.replication.isr import FollowerProgress

LIMIT = 100


def test_reaching_the_end_is_being_caught_up_now():
    progress = FollowerProgress()
    progress.fetched(50, offset=10, leader_end=10)
    assert (progress.caught_up_ms, progress.log_end) == (50, 10)


def test_a_follower_that_always_comes_a_little_late_was_caught_up_at_its_previous_fetch():
    progress = FollowerProgress()
    progress.fetched(0, offset=0, leader_end=10)
    progress.fetched(40, offset=10, leader_end=20)
    assert progress.caught_up_ms == 0, "at 0 the leader's end was 10, which it has now"
    progress.fetched(80, offset=20, leader_end=30)
    assert progress.caught_up_ms == 40


def test_a_follower_that_falls_behind_keeps_the_moment_when_it_was_not():
    progress = FollowerProgress()
    progress.fetched(10, offset=5, leader_end=5)
    progress.fetched(20, offset=5, leader_end=50)
    progress.fetched(30, offset=6, leader_end=60)
    assert progress.caught_up_ms == 10


def test_the_first_fetch_of_a_lagging_follower_proves_nothing():
    progress = FollowerProgress(caught_up_ms=7)
    progress.fetched(30, offset=0, leader_end=60)
    assert progress.caught_up_ms == 7


def test_in_sync_is_having_everything_or_having_had_it_within_the_limit():
    progress = FollowerProgress(log_end=5, caught_up_ms=10)
    assert progress.in_sync(10 + LIMIT, 6, LIMIT)
    assert not progress.in_sync(11 + LIMIT, 6, LIMIT)
    assert progress.in_sync(1000 * LIMIT, 5, LIMIT)

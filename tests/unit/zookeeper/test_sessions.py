"""When sessions expire."""

from headwater.zookeeper.sessions import (
    MAX_TIMEOUT_MS,
    MIN_TIMEOUT_MS,
    TICK_MS,
    SessionDeadlines,
    negotiated,
)


def ticks(deadlines: SessionDeadlines, start: int, end: int) -> dict[int, int]:
    """The tick at which each session was first seen to have expired."""
    seen: dict[int, int] = {}
    for now in range(start, end, TICK_MS):
        for session in deadlines.expired(now):
            seen.setdefault(session, now)
    return seen


def test_a_session_expires_one_timeout_after_it_was_last_heard_from():
    deadlines = SessionDeadlines(0)
    deadlines.add(1, 1000, 0)
    deadlines.add(2, 1000, 0)
    ticks(deadlines, 0, 900)
    deadlines.heard(2, 900)
    assert ticks(deadlines, 900, 3000) == {1: 1000, 2: 1900}


def test_a_removed_session_never_expires():
    deadlines = SessionDeadlines(0)
    deadlines.add(1, 1000, 0)
    deadlines.remove(1)
    assert ticks(deadlines, 0, 5000) == {}
    deadlines.heard(1, 5000)
    assert len(deadlines) == 0


def test_nobody_expires_because_the_server_itself_stood_still():
    deadlines = SessionDeadlines(0)
    deadlines.add(1, 1000, 0)
    ticks(deadlines, 0, 500)
    assert deadlines.expired(60_000) == []
    later = ticks(deadlines, 60_000 + TICK_MS, 62_000)
    assert 60_000 + 400 <= later[1] <= 60_000 + 1000, "the rest of its time is still granted"


def test_a_timeout_is_kept_within_bounds():
    assert negotiated(1) == MIN_TIMEOUT_MS
    assert negotiated(3_600_000) == MAX_TIMEOUT_MS
    assert negotiated(18_000) == 18_000

"""A wall clock that jumps ahead must not make everything look old."""

import logging

from headwater.broker.wall_clock import DEFER_MS, JUMP_MS, WallClockWatch

START = 1_700_000_000_000
YEARS = 10 * 365 * 24 * 3_600_000


class HandClock:
    def __init__(self) -> None:
        self.real, self.skew = 0, 0

    def wall_ms(self) -> int:
        return START + self.real + self.skew

    def monotonic_ms(self) -> int:
        return self.real


def test_a_clock_that_goes_on_is_believed():
    clock = HandClock()
    watch = WallClockWatch(clock)
    clock.real += 5 * 24 * 3_600_000
    assert watch.believed_ms() == clock.wall_ms()
    clock.skew = JUMP_MS
    assert watch.believed_ms() == clock.wall_ms()


def test_after_a_jump_ahead_time_goes_on_at_its_real_pace_and_the_log_says_so(caplog):
    clock = HandClock()
    watch = WallClockWatch(clock)
    clock.real += 1000
    clock.skew = YEARS
    with caplog.at_level(logging.WARNING):
        assert watch.believed_ms() == START + 1000
        clock.real += 500
        assert watch.believed_ms() == START + 1500
    assert [record.getMessage()[:32] for record in caplog.records] == [
        "the wall clock jumped ahead by 3"
    ]


def test_a_clock_that_was_put_right_is_believed_at_once():
    clock = HandClock()
    watch = WallClockWatch(clock)
    clock.skew = YEARS
    watch.believed_ms()
    clock.skew = 0
    assert watch.believed_ms() == START
    clock.skew = YEARS
    assert watch.believed_ms() == START


def test_a_clock_that_stays_ahead_is_believed_in_the_end():
    clock = HandClock()
    watch = WallClockWatch(clock)
    clock.skew = YEARS
    assert watch.believed_ms() == START
    clock.real += DEFER_MS
    assert watch.believed_ms() == clock.wall_ms()
    assert watch.believed_ms() == clock.wall_ms()


def test_a_clock_set_back_is_believed():
    clock = HandClock()
    watch = WallClockWatch(clock)
    clock.skew = -YEARS
    assert watch.believed_ms() == START - YEARS

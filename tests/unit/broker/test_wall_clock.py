"""A wall clock that jumps ahead must not make everything look old."""

import logging

from headwater.broker.wall_clock import (
    DEFER_MS,
    JUMP_MS,
    REMEMBER_MS,
    LastTime,
    WallClockWatch,
    clock_problem,
)
from tests.unit.controller.fake_loop import MemoryFiles

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


def test_a_start_with_a_clock_far_ahead_of_another_one_defers_deletion_for_an_hour(caplog):
    clock = HandClock()
    clock.skew = YEARS
    watch = WallClockWatch(clock)
    with caplog.at_level(logging.WARNING):
        watch.compare_with_store(START)
        clock.real += 1000
        assert watch.believed_ms() == START + 1000
        watch.compare_with_store(START + 1000)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("the wall clock is 315360000 s ahead of the metadata store's: ")
    clock.real += DEFER_MS
    assert watch.believed_ms() == clock.wall_ms()


def test_a_start_with_a_clock_that_agrees_or_is_behind_is_believed():
    for known_ms in (START - JUMP_MS, START, START + YEARS):
        watch = WallClockWatch(HandClock())
        watch.compare_with_store(known_ms)
        assert watch.believed_ms() == START


def test_a_clock_far_behind_the_store_is_named_when_the_broker_registers_again(caplog):
    watch = WallClockWatch(HandClock())
    with caplog.at_level(logging.WARNING):
        watch.compare_with_store(START + JUMP_MS)
        watch.compare_with_store(START + 2 * JUMP_MS)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("the wall clock is 7200 s behind the metadata store's: ")


def test_a_start_compares_the_clock_with_the_stores_in_both_directions():
    for ahead_ms in (0, JUMP_MS, -JUMP_MS):
        assert clock_problem(START + ahead_ms, START) is None
    assert clock_problem(START + JUMP_MS + 1000, START) == (
        "this machine's clock (2023-11-14 23:13:21 UTC) is 3601 s ahead of the metadata store's "
        "(2023-11-14 22:13:20 UTC): records would be deleted too early; correct the wrong one of "
        "the two clocks, then start this broker again"
    )
    assert clock_problem(START - 2 * JUMP_MS, START) == (
        "this machine's clock (2023-11-14 20:13:20 UTC) is 7200 s behind the metadata store's "
        "(2023-11-14 22:13:20 UTC): records of clients would be refused as too far in the future; "
        "correct the wrong one of the two clocks, then start this broker again"
    )


def test_the_time_is_noted_from_time_to_time_and_a_damaged_note_says_nothing():
    files = MemoryFiles()
    files.mkdir("/data")
    last = LastTime(files, "/data")
    assert last.read_ms() is None
    assert last.is_due(START)
    last.note(START)
    assert not last.is_due(START + REMEMBER_MS - 1)
    assert last.is_due(START + REMEMBER_MS)
    assert last.is_due(START - YEARS)
    assert LastTime(files, "/data").read_ms() == START
    fd = files.open("/data/last-time")
    for place in range(len(files.pread(fd, 1000, 0))):
        (byte,) = files.pread(fd, 1, place)
        files.pwritev(fd, [bytes([byte ^ 1])], place)
        assert LastTime(files, "/data").read_ms() in {None, START}
        files.pwritev(fd, [bytes([byte])], place)
    files.truncate(fd, 0)
    files.pwritev(fd, [b"%d\n" % START], 0)
    assert LastTime(files, "/data").read_ms() == START  # of an earlier version


def test_a_broker_that_was_stopped_for_long_is_no_reason_to_warn(caplog):
    clock = HandClock()
    clock.skew = YEARS
    watch = WallClockWatch(clock)
    with caplog.at_level(logging.INFO):
        watch.compare_with_last_run(START)
        clock.real += DEFER_MS
        assert watch.believed_ms() == clock.wall_ms()
        clock.skew *= 2
        watch.believed_ms()
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]

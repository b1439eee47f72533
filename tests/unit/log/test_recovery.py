import errno
import random

import pytest

from headwater.log.checkpoints import LOG_CHECKPOINT, LogRow, write_log_rows
from headwater.log.settings import LogSettings
from headwater.log.truncation_note import write_start_note
from headwater.seams.files import OsFiles
from tests.unit.log.support import (
    NOW,
    PARTITION,
    TOPIC_ID,
    LossyFiles,
    append,
    batch,
    created,
    flush,
    opened,
    reopened,
    stage,
    stored,
)

SMALL = LogSettings(segment_bytes=1_000, index_interval_bytes=200)
FIRST = "topic-0/00000000000000000000.log"


def crashed(tmp_path, count=3, *, flushed=0, settings=None):
    """A log of `count` batches of two, the first `flushed` of them flushed, left by a crash."""
    settings = settings or LogSettings()
    dirs, log = created(tmp_path, settings)
    for number in range(count):
        append(log, 2, producer=4, sequence=2 * number)
        if number + 1 == flushed:
            flush(log, dirs)
    rows = stored(log)
    dirs.abandon()
    return rows


def claim(tmp_path, point):
    """Let the checkpoint say that the log was flushed up to `point`."""
    path = str(tmp_path / LOG_CHECKPOINT)
    write_log_rows(OsFiles(), path, {PARTITION: LogRow(TOPIC_ID, point)})


def test_a_tail_torn_at_any_byte_is_cut_at_the_last_whole_batch(tmp_path):
    rows = crashed(tmp_path)
    path = tmp_path / FIRST
    whole = path.read_bytes()
    size = len(rows[-1][2])
    for kept in range(size):
        path.write_bytes(whole[: len(whole) - size + kept])
        dirs = opened(tmp_path)
        log = dirs.logs[PARTITION]
        assert stored(log) == rows[:-1]
        assert log.failure is None
        if kept:
            assert dirs.recovered[PARTITION].dropped_bytes == kept
            assert dirs.recovered[PARTITION].dropped_from == 4
        assert append(log, 2, producer=4, sequence=4) == (4, 5)
        dirs.abandon()


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"\0", b"\xff" * 100, bytes(range(256))])
def test_senseless_bytes_after_the_last_batch_are_cut(tmp_path, tail):
    rows = crashed(tmp_path)
    path = tmp_path / FIRST
    path.write_bytes(path.read_bytes() + tail)
    dirs = opened(tmp_path)
    assert stored(dirs.logs[PARTITION]) == rows
    assert dirs.recovered[PARTITION].dropped_bytes == len(tail)


def test_old_bytes_of_an_earlier_log_behind_the_end_are_cut(tmp_path):
    rows = crashed(tmp_path)
    path = tmp_path / FIRST
    path.write_bytes(path.read_bytes() + rows[0][2] + rows[1][2])
    assert stored(opened(tmp_path).logs[PARTITION]) == rows


def test_a_flipped_bit_anywhere_in_an_unflushed_batch_cuts_the_log_there(tmp_path):
    rows = crashed(tmp_path)
    path = tmp_path / FIRST
    whole = path.read_bytes()
    start = len(rows[0][2])
    for place in range(len(rows[1][2])):
        broken = bytearray(whole)
        broken[start + place] ^= 1 << place % 8
        path.write_bytes(broken)
        dirs = opened(tmp_path)
        assert stored(dirs.logs[PARTITION]) == rows[:1], place
        dirs.abandon()


def test_every_bit_of_base_offset_and_epoch_is_guarded(tmp_path):
    rows = crashed(tmp_path)
    path = tmp_path / FIRST
    whole = path.read_bytes()
    start = len(rows[0][2])
    for bit in [*range(64), *range(96, 128)]:
        broken = bytearray(whole)
        broken[start + bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        dirs = opened(tmp_path)
        assert stored(dirs.logs[PARTITION]) == rows[:1], bit
        dirs.abandon()


def offline_for_good(tmp_path):
    """The log is offline, and stays so at every start, after a crash or a clean stop; its files too."""
    found = {at: at.read_bytes() for at in (tmp_path / "topic-0").glob("*.log")}
    for clean in (False, True, True, False):
        dirs = opened(tmp_path)
        assert dirs.logs[PARTITION].failure is not None
        assert {at: at.read_bytes() for at in (tmp_path / "topic-0").glob("*.log")} == found
        dirs.checkpoint({PARTITION: 0})()
        if clean:
            dirs.close({})
        else:
            dirs.abandon()


def test_b41_damage_below_the_recovery_point_takes_the_log_offline_for_good(tmp_path):
    crashed(tmp_path, 6, flushed=5)
    path = tmp_path / FIRST
    broken = bytearray(path.read_bytes())
    broken[8:12] = b"\x7f\0\0\0"
    path.write_bytes(broken)
    offline_for_good(tmp_path)


def test_a_log_that_lost_flushed_batches_goes_offline_for_good(tmp_path):
    rows = crashed(tmp_path, 6, flushed=6)
    path = tmp_path / FIRST
    path.write_bytes(b"".join(data for _, _, data in rows[:3]))
    offline_for_good(tmp_path)


def test_a_log_that_lost_flushed_batches_needs_no_other_trace_of_them(tmp_path):
    dirs, log = created(tmp_path)
    for _ in range(4):
        append(log, 2)
    rows = stored(log)
    flush(log, dirs)
    dirs.abandon()
    (tmp_path / FIRST).write_bytes(rows[0][2])
    for path in (tmp_path / "topic-0").iterdir():
        if path.suffix in {".snapshot", ".index"}:
            path.unlink()
    offline_for_good(tmp_path)


@pytest.mark.parametrize("clean", [True, False])
def test_a_flushed_log_that_lost_any_byte_of_its_last_batch_goes_offline(tmp_path, clean):
    rows = crashed(tmp_path, 3, flushed=3)
    if clean:
        opened(tmp_path).close({})
    path = tmp_path / FIRST
    whole = path.read_bytes()
    marker = tmp_path / ".kafka_cleanshutdown"
    stopped = marker.read_bytes() if clean else b""
    for lost in range(1, len(rows[-1][2]) + 1):
        path.write_bytes(whole[:-lost])
        if clean:
            marker.write_bytes(stopped)
        dirs = opened(tmp_path)
        assert dirs.logs[PARTITION].failure is not None, lost
        dirs.abandon()
    offline_for_good(tmp_path)


def test_a_flushed_last_batch_with_a_flipped_bit_goes_offline(tmp_path):
    crashed(tmp_path, 3, flushed=3)
    path = tmp_path / FIRST
    broken = bytearray(path.read_bytes())
    broken[-1] ^= 1
    path.write_bytes(broken)
    offline_for_good(tmp_path)


def test_a_sealed_segment_that_lost_bytes_at_the_recovery_point_goes_offline(tmp_path):
    dirs, log = created(tmp_path)
    for _ in range(3):
        append(log, 2)
    flush(log, dirs)
    log.roll(NOW)
    append(log, 2)
    dirs.abandon()
    path = tmp_path / FIRST
    path.write_bytes(path.read_bytes()[:-1])
    offline_for_good(tmp_path)


def test_segments_that_vanished_take_the_log_offline_for_good(tmp_path):
    crashed(tmp_path, 6, flushed=6)
    (tmp_path / FIRST).unlink()
    offline_for_good(tmp_path)


def test_a_recovery_point_inside_of_a_batch_is_seen_as_wrong(tmp_path):
    rows = crashed(tmp_path, 3)
    for point in (1, 3, 5):
        claim(tmp_path, point)
        dirs = opened(tmp_path)
        log = dirs.logs[PARTITION]
        assert (log.failure, stored(log), log.log_end_offset) == (None, rows, 6)
        assert dirs.recovered[PARTITION].scanned_bytes == log.size
        dirs.abandon()


def test_only_what_is_beyond_the_recovery_point_is_scanned(tmp_path):
    rows = crashed(tmp_path, 200, flushed=190)
    dirs = opened(tmp_path)
    assert dirs.logs[PARTITION].recovery_point == 380
    assert dirs.recovered[PARTITION].scanned_bytes == sum(len(row[2]) for row in rows[190:])
    assert stored(dirs.logs[PARTITION]) == rows


def test_a_torn_segment_takes_the_later_ones_with_it(tmp_path):
    rows = crashed(tmp_path, 40, settings=SMALL)
    second = sorted((tmp_path / "topic-0").glob("*.log"))[1]
    second.write_bytes(second.read_bytes()[:-5])
    dirs = opened(tmp_path, SMALL)
    log = dirs.logs[PARTITION]
    kept = stored(log)
    assert kept == rows[: len(kept)]
    assert len(log.segments) == 2
    assert append(log, 2, producer=4, sequence=2 * len(kept)) == (2 * len(kept), 2 * len(kept) + 1)


def test_a_missing_segment_in_the_unflushed_part_ends_the_log_before_it(tmp_path):
    rows = crashed(tmp_path, 40, settings=SMALL)
    segments = sorted((tmp_path / "topic-0").glob("*.log"))
    segments[2].unlink()
    kept = stored(opened(tmp_path, SMALL).logs[PARTITION])
    assert kept == rows[: len(kept)]
    assert kept[-1][1] + 1 == int(segments[2].stem)


@pytest.mark.parametrize(
    "name",
    [
        "headwater-log-checkpoint",
        "topic-0/leader-epoch-checkpoint",
    ],
)
@pytest.mark.parametrize(
    "content", [b"", b"\0" * 30, b"0\n7\n", b"junk \xff\n", b"0\n1\ntopic 0\n"]
)
@pytest.mark.parametrize("clean", [True, False])
def test_b16_damaged_checkpoints_are_passed_over(tmp_path, name, content, clean):
    dirs, log = created(tmp_path)
    for leader in (1, 1, 3):
        append(log, 2, leader=leader)
    flush(log, dirs)
    append(log, 2, leader=6)
    rows = stored(log)
    if clean:
        dirs.close({})
    else:
        dirs.abandon()
    (tmp_path / name).write_bytes(content)
    dirs = opened(tmp_path)
    log = dirs.logs[PARTITION]
    assert log.failure is None
    assert stored(log) == rows
    assert (log.epochs.epochs, log.epochs.starts) == ([1, 3, 6], [0, 4, 6])
    assert append(log, 1, leader=6) == (8, 8)


def test_a_recovery_point_far_too_high_is_seen_as_wrong(tmp_path):
    dirs, log = created(tmp_path)
    append(log, 2)
    rows = stored(log)
    dirs.abandon()
    (tmp_path / LOG_CHECKPOINT).unlink(missing_ok=True)
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\ntopic 0 900\n")
    log = opened(tmp_path).logs[PARTITION]
    assert log.failure is None
    assert stored(log) == rows


def test_without_a_recovery_point_old_damage_is_still_no_torn_tail(tmp_path):
    dirs, log = created(tmp_path)
    for _ in range(3):
        append(log, 2)
        flush(log, dirs)
    dirs.abandon()
    (tmp_path / "headwater-log-checkpoint").write_bytes(b"?")
    path = tmp_path / FIRST
    broken = bytearray(path.read_bytes())
    broken[8:12] = b"\x7f\0\0\0"
    path.write_bytes(broken)
    assert opened(tmp_path).logs[PARTITION].failure is not None
    assert path.read_bytes() == broken


def test_after_a_clean_stop_no_segment_is_read(tmp_path):
    dirs, log = created(tmp_path, SMALL)
    for _ in range(30):
        append(log, 2)
    rows = stored(log)
    dirs.close({})
    files = LossyFiles()
    dirs = opened(tmp_path, SMALL, files)
    assert [call for call in files.calls if call.endswith((".log", ".index"))] == []
    log = dirs.logs[PARTITION]
    assert (log.log_end_offset, log.recovery_point) == (60, 60)
    assert stored(log) == rows
    assert append(log) == (60, 60)


def test_b14_the_clean_marker_is_gone_before_anything_is_loaded(tmp_path):
    dirs, log = created(tmp_path)
    append(log, 2)
    dirs.close({})
    assert (tmp_path / ".kafka_cleanshutdown").exists()

    class DiesOnLoad(LossyFiles):
        def path_size(self, path):
            raise RuntimeError("crash while loading")

    with pytest.raises(RuntimeError):
        opened(tmp_path, files=DiesOnLoad())
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_segment_changed_since_the_clean_stop_is_checked_after_all(tmp_path):
    dirs, log = created(tmp_path)
    append(log, 2)
    rows = stored(log)
    dirs.close({})
    path = tmp_path / FIRST
    path.write_bytes(path.read_bytes() + b"more")
    dirs = opened(tmp_path)
    assert stored(dirs.logs[PARTITION]) == rows
    assert dirs.recovered[PARTITION].dropped_bytes == 4


def test_leftovers_of_interrupted_work_are_cleared(tmp_path):
    dirs, log = created(tmp_path)
    append(log, 2)
    rows = stored(log)
    dirs.abandon()
    folder = tmp_path / "topic-0"
    for name in ("00000000000000000000.log.deleted", "x.tmp", "00000000000000000009.log.cleaned"):
        (folder / name).write_bytes(b"leftover")
    (folder / "00000000000000000000.log.swap").write_bytes(b"half")
    assert stored(opened(tmp_path).logs[PARTITION]) == rows
    left = {path.suffix for path in folder.iterdir()}
    assert left.isdisjoint({".deleted", ".tmp", ".cleaned", ".swap"})


@pytest.mark.parametrize("seed", range(25))
def test_a_power_cut_loses_nothing_that_was_flushed(tmp_path, seed):
    chance = random.Random(seed)
    files = LossyFiles()
    dirs, log = created(tmp_path, SMALL, files)
    safe = []
    for number in range(chance.randrange(5, 60)):
        stage(
            log,
            batch(1 + number % 3, producer=1, sequence=log.staging.end_offset),
            leader=number // 20,
        )
        log.write_staged()
        if chance.random() < 0.15:
            flush(log, dirs)
            safe = stored(log)
    rows = stored(log)
    dirs.abandon()
    files.lose_power(tmp_path, lambda unsynced: chance.randrange(unsynced + 1))
    log = opened(tmp_path, SMALL).logs[PARTITION]
    assert log.failure is None
    kept = stored(log)
    assert kept == rows[: len(kept)]
    assert len(kept) >= len(safe)
    end = log.log_end_offset
    assert append(log, 1, leader=9, producer=1, sequence=end) == (end, end)


def test_epochs_and_ends_survive_repeated_crashes(tmp_path):
    dirs, log = created(tmp_path)
    for leader in range(5):
        append(log, 2, leader=leader)
        dirs, log = reopened(dirs, tmp_path)
    assert log.epochs.epochs == [0, 1, 2, 3, 4]
    assert log.epochs.end_offset(2, 10) == (2, 6)


def test_a_flush_that_a_power_cut_ended_early_proves_nothing(tmp_path):
    """Several rolls between two flushes leave several snapshots to one flush."""
    files = LossyFiles()
    dirs, log = created(tmp_path, SMALL, files)
    append(log)
    flush(log, dirs)
    kept = stored(log)
    while len(log.snapshots) < 3:
        append(log)
    work = log.unflushed()

    def power_cut(fd):
        raise OSError(errno.EIO, "cut")

    files.fdatasync = power_cut
    with pytest.raises(OSError, match="cut"):
        work.run()
    dirs.abandon()
    (tmp_path / LOG_CHECKPOINT).write_bytes(b"?")
    first = tmp_path / FIRST
    first.write_bytes(first.read_bytes()[: len(kept[0][2]) + 10])
    log = opened(tmp_path, SMALL).logs[PARTITION]
    assert log.failure is None
    assert stored(log) == kept


@pytest.mark.parametrize("left", [0, 2])
def test_a_moved_start_above_the_end_hides_no_later_record(tmp_path, left):
    """A move notes the start; a power cut may take the records up to it, and others get their offsets."""
    dirs, log = created(tmp_path)
    for _ in range(left):
        append(log, 1)
    flush(log, dirs)
    write_start_note(OsFiles(), log.directory, 3)
    dirs, log = reopened(dirs, tmp_path)
    assert log.log_start_offset == log.log_end_offset == left
    append(log, 1, value=b"new")
    work = log.unflushed()
    work.run()
    log.mark_flushed(work)
    dirs, log = reopened(dirs, tmp_path)
    assert [first for first, *_ in stored(log)] == [left]
    dirs.abandon()

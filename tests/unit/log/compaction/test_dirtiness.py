import pytest

from headwater.log.checkpoints import DamagedCheckpoint, LogRow, read_log_rows, write_log_rows
from headwater.log.compaction import dirtiness
from headwater.log.compaction.segment_times import MOST_READS, SegmentTimes
from headwater.log.settings import LogSettings
from headwater.seams.files import OsFiles
from tests.unit.log.compaction.support import end_transaction, write
from tests.unit.log.support import (
    NOW,
    PARTITION,
    TOPIC_ID,
    append,
    created,
    flush,
    reopened,
)


def segmented(path, segments=4, **settings):
    """A log of equal segments, a minute apart; the last one is active."""
    dirs, log = created(path, LogSettings(cleanup_policy="compact", retention_ms=-1, **settings))
    for number in range(segments):
        if number:
            log.roll(NOW)
        write(log, (b"a", b"x"), (b"b", b"y"), now=NOW + number * 60_000)
    flush(log, dirs)
    return dirs, log


def measure(log, stable, now_ms, times=None):
    """With all times that matter read."""
    times = SegmentTimes() if times is None else times
    while (read := times.to_read(log)) is not None:
        times.note(log, read())
    return dirtiness.measure(log, stable, now_ms, times)


def test_sealed_segments_are_dirty_until_they_are_cleaned(tmp_path):
    dirs, log = segmented(tmp_path)
    size = log.segments[0].size
    found = measure(log, log.log_end_offset, NOW)
    assert found == (0, 6, 3, 0, 3 * size, False)
    assert found.ratio == 1.0
    log.cleaned_end = 4
    found = measure(log, log.log_end_offset, NOW)
    assert found == (4, 6, 3, 2 * size, size, False)
    assert found.needs_pass(0.3)
    assert not found.needs_pass(found.ratio)
    log.cleaned_end = 6
    found = measure(log, log.log_end_offset, NOW)
    assert found[:2] == (6, 6)
    assert not found.needs_pass(0.0)
    dirs.abandon()


def test_a_pass_that_stopped_inside_a_segment_leaves_it_dirty(tmp_path):
    dirs, log = segmented(tmp_path)
    log.cleaned_end = 3
    assert measure(log, log.log_end_offset, NOW)[:4] == (3, 6, 3, log.segments[0].size)
    dirs.abandon()


def test_deleted_records_are_not_dirty(tmp_path):
    dirs, log = segmented(tmp_path)
    log.advance_start(4)
    assert measure(log, log.log_end_offset, NOW).first_dirty == 4
    dirs.abandon()


def test_nothing_above_the_last_stable_offset_is_cleaned(tmp_path):
    dirs, log = segmented(tmp_path)
    assert measure(log, 5, NOW).end_offset == 4
    assert measure(log, 4, NOW).end_offset == 4
    assert measure(log, 1, NOW)[:3] == (0, 0, 0)
    dirs.abandon()


def test_nothing_above_the_recovery_point_is_cleaned(tmp_path):
    dirs, log = segmented(tmp_path)
    log.recovery_point = 3
    assert measure(log, log.log_end_offset, NOW).end_offset == 2
    dirs.abandon()


def test_a_segment_whose_aborted_transactions_are_not_saved_waits(tmp_path):
    dirs, log = segmented(tmp_path, segments=1)
    write(log, (b"a", b"no"), producer_id=7, base_sequence=0, transactional=True)
    end_transaction(log, 7, commit=False)
    log.roll(NOW)
    log.recovery_point = log.decided_end = log.log_end_offset
    assert measure(log, log.log_end_offset, NOW).segments == 0
    log.recovery_point = 0
    flush(log, dirs)
    assert measure(log, log.log_end_offset, NOW).segments == 1
    dirs.abandon()


def test_min_compaction_lag_keeps_young_records(tmp_path):
    dirs, log = segmented(tmp_path, min_compaction_lag_ms=90_000)
    assert measure(log, log.log_end_offset, NOW + 60_000).segments == 0
    assert measure(log, log.log_end_offset, NOW + 149_999).segments == 1
    assert measure(log, log.log_end_offset, NOW + 150_000).segments == 2
    # What was cleaned once is part of every pass.
    log.cleaned_end = 6
    assert measure(log, log.log_end_offset, NOW).segments == 3
    dirs.abandon()


def test_max_compaction_lag_makes_a_pass_due_however_clean_the_log_is(tmp_path):
    dirs, log = segmented(tmp_path, segments=11, max_compaction_lag_ms=100_000)
    log.cleaned_end = 18
    due = NOW + 9 * 60_000 + 100_000
    assert not measure(log, log.log_end_offset, due).needs_pass(0.5)
    assert measure(log, log.log_end_offset, due + 1).needs_pass(0.5)
    dirs, log = reopened(dirs, tmp_path, log.settings, clean=True)
    log.cleaned_end = 18
    assert measure(log, log.log_end_offset, due + 1).overdue_ms == 1
    log.cleaned_end = 20
    assert not measure(log, log.log_end_offset, due + 1).needs_pass(0.0)
    dirs.abandon()


# -- how far a log is clean, over restarts


@pytest.mark.parametrize("clean", [True, False])
def test_the_cleaned_end_survives_a_restart(tmp_path, clean):
    dirs, log = segmented(tmp_path)
    log.cleaned_end = 4
    dirs.checkpoint({})()
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\ntopic 0 4\n"
    dirs, log = reopened(dirs, tmp_path, log.settings, clean=clean)
    assert log.cleaned_end == 4
    dirs.abandon()


def test_b21_a_truncated_log_is_not_clean_above_its_end(tmp_path):
    dirs, log = segmented(tmp_path)
    log.cleaned_end = 6
    dirs.checkpoint({})()
    log.truncate_to(3)
    assert log.cleaned_end == 2
    for _ in range(4):
        append(log, 2, leader=1)
    flush_only(log)
    # The checkpoint from before the truncation must not hold for what was written since.
    dirs, log = reopened(dirs, tmp_path, log.settings)
    assert log.cleaned_end <= 2
    dirs.abandon()


def flush_only(log):
    work = log.unflushed()
    work.run()
    log.mark_flushed(work)


def test_a_topic_created_again_is_not_clean(tmp_path):
    path = str(tmp_path / "checkpoint")
    write_log_rows(OsFiles(), path, {PARTITION: LogRow(TOPIC_ID, 9, 0, 9, 7)})
    assert read_log_rows(OsFiles(), path)[PARTITION].cleaned_end == 7
    dirs, log = segmented(tmp_path / "logs")
    log.cleaned_end = 6
    log.topic_id = bytes(16)
    dirs.checkpoint({})()
    dirs, log = reopened(dirs, tmp_path / "logs", log.settings)
    assert log.cleaned_end == 0
    dirs.abandon()


def test_checkpoints_of_earlier_versions_are_read(tmp_path):
    path = tmp_path / "checkpoint"
    write_log_rows(OsFiles(), str(path), {PARTITION: LogRow(TOPIC_ID, 9, 1, 8, 7)})
    from headwater.records.checksum import crc32c

    text = path.read_bytes().rpartition(b"crc32c")[0]
    for version, end, row in (
        (b"1", b" 8\n", LogRow(TOPIC_ID, 9, 1, 8)),
        (b"2", b" 8 7\n", LogRow(TOPIC_ID, 9, 1, 8, 7)),
        (b"4", b" 8 7 0\n", None),
    ):
        older = text.replace(b"3\n1\n", version + b"\n1\n").replace(b" 8 7 0\n", end)
        path.write_bytes(older + b"crc32c %08x\n" % crc32c(older))
        if row is not None:
            assert read_log_rows(OsFiles(), str(path)) == {PARTITION: row}
        else:
            with pytest.raises(DamagedCheckpoint):
                read_log_rows(OsFiles(), str(path))


# -- the age of records after a start


class NotedFiles(OsFiles):
    """Notes what is opened and read."""

    def __init__(self):
        self.calls = []

    def open(self, path, **kind):
        self.calls.append(path)
        return super().open(path, **kind)

    def pread(self, fd, size, offset):
        self.calls.append(size)
        return super().pread(fd, size, offset)

    def modified_ms(self, path):
        self.calls.append(path)
        return super().modified_ms(path)


LAGS = {"min_compaction_lag_ms": 90_000, "max_compaction_lag_ms": 2**40}


def started(tmp_path, segments, **settings):
    """A log after a start: the times of none of its segments are known."""
    dirs, log = segmented(tmp_path, segments=segments, **settings)
    files = NotedFiles()
    dirs, log = reopened(dirs, tmp_path, log.settings, files=files, clean=True)
    files.calls.clear()
    return dirs, log, files


@pytest.mark.parametrize("lag", LAGS)
def test_a_measurement_reads_no_disk_and_what_is_read_once_stays_known(tmp_path, lag):
    """A time index can have 10 MiB, and a log thousands of segments."""
    dirs, log, files = started(tmp_path, MOST_READS + 10, **{lag: LAGS[lag]})
    times, now = SegmentTimes(), NOW + 10_000 * 60_000
    unread = dirtiness.measure(log, log.log_end_offset, now, times)
    known = []
    while (read := times.to_read(log)) is not None:
        assert files.calls == [], "only the call for a thread reads"
        found = read()
        files.calls.clear()
        times.note(log, found)
        known.append(len(found))
    assert known == [MOST_READS, 9]
    found = dirtiness.measure(log, log.log_end_offset, now, times)
    assert files.calls == []
    assert found.segments == MOST_READS + 9
    assert unread.segments == (0 if lag == "min_compaction_lag_ms" else found.segments)
    assert not any(segment.time_index.loaded for segment in list(log.segments)[:-1])
    dirs.abandon()


def test_after_a_start_records_are_as_old_as_before(tmp_path):
    dirs, log, _ = started(tmp_path, 4, min_compaction_lag_ms=90_000)
    assert measure(log, log.log_end_offset, NOW + 60_000).segments == 0
    assert measure(log, log.log_end_offset, NOW + 149_999).segments == 1
    assert measure(log, log.log_end_offset, NOW + 150_000).segments == 2
    dirs.abandon()


def test_a_damaged_time_index_is_rebuilt_rather_than_believed(tmp_path):
    dirs, log, _ = started(tmp_path, 4, min_compaction_lag_ms=90_000)
    (tmp_path / "topic-0" / f"{2:020d}.timeindex").write_bytes(b"x" * 12)
    assert measure(log, log.log_end_offset, NOW + 149_999).segments == 1
    assert measure(log, log.log_end_offset, NOW + 150_000).segments == 2
    dirs.abandon()


def test_what_was_read_of_a_segment_that_changed_meanwhile_is_not_kept(tmp_path):
    dirs, log, _ = started(tmp_path, 4, min_compaction_lag_ms=90_000)
    times = SegmentTimes()
    found = times.to_read(log)()
    log.truncate_to(3)
    times.note(log, found)
    for _ in range(2):
        append(log, 2)
        log.roll(NOW)
    assert times.to_read(log) is None, "what this process wrote is known"
    assert [times.of(log.segments[rank]).newest for rank in (0, 1)] == [NOW, NOW]
    dirs.abandon()


@pytest.mark.parametrize("change", ["retention", "truncation", "written again"])
def test_a_segment_that_is_dropped_before_it_is_read_is_not_damaged(tmp_path, change):
    dirs, log, _ = started(tmp_path, 4, min_compaction_lag_ms=90_000)
    log.segments.on_damage = pytest.fail
    times = SegmentTimes()
    read = times.to_read(log)
    dropped = list(log.segments)[: 1 if change == "retention" else 3]
    if change == "retention":
        log.drop_first()
    else:
        log.truncate_to(1)
    if change == "written again":
        for _ in range(3):
            append(log, 2)
            log.roll(NOW)
    times.note(log, read())
    in_log = set(log.segments)
    assert [times.of(segment) for segment in dropped if segment not in in_log] == [None] * (
        1 if change == "retention" else 2
    )
    dirs.abandon()


def test_nothing_is_read_of_a_log_that_was_deleted_meanwhile(tmp_path):
    dirs, log, files = started(tmp_path, 4, min_compaction_lag_ms=90_000)
    read = SegmentTimes().to_read(log)
    log.presence.end()
    assert (read(), files.calls) == ([], [])
    dirs.abandon()

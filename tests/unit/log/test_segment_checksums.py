"""The checksums beside sealed segments: when they are written, removed, compared."""

import os
from dataclasses import replace

import pytest

from headwater.errors import E, KafkaError
from headwater.log.compaction.passes import CleaningPass
from headwater.log.flushing import save_active_checksums
from headwater.log.segment_checksums import DamagedChecksums, decode, encode
from headwater.log.settings import LogSettings
from headwater.seams.files import OsFiles
from tests.unit.log.compaction.support import end_transaction, job_of, write
from tests.unit.log.support import (
    NOW,
    PARTITION,
    append,
    batch,
    created,
    flush,
    opened,
    reopened,
    replicate,
    stored,
)

LIMITS = LogSettings(segment_bytes=150_000, index_interval_bytes=4096)
VALUE = bytes(range(256)) * 40


def files_of(log):
    return sorted(name for name in os.listdir(log.directory) if name.endswith(".checksums"))


def name(base):
    return f"{base:020d}.checksums"


def fill(log, count=40):
    for _ in range(count):
        append(log, 1, value=VALUE)


def flip(path, place, bit=0):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))


@pytest.fixture
def stopped(tmp_path):
    """A log of three segments after a clean stop."""
    dirs, log = created(tmp_path, LIMITS)
    fill(log)
    assert len(log.segments) == 3
    rows = stored(log)
    dirs.close({})
    return tmp_path, rows


def test_a_flush_writes_them_for_sealed_segments_and_a_stop_for_the_last(tmp_path):
    dirs, log = created(tmp_path, LIMITS)
    fill(log, 10)
    flush(log, dirs)
    assert files_of(log) == []
    fill(log, 30)
    flush(log, dirs)
    bases = [segment.base_offset for segment in log.segments]
    assert files_of(log) == [name(base) for base in bases[:-1]]
    again = dirs
    again, log = reopened(dirs, tmp_path, LIMITS, clean=True)
    assert files_of(log) == [name(base) for base in bases]
    assert len(stored(log)) == 40
    # The last segment grows: its checksums still hold for what was there.
    fill(log, 40)
    again, log = reopened(again, tmp_path, LIMITS, clean=True)
    assert len(stored(log)) == 80
    assert all(segment.checksums.trusted for segment in log.segments)
    again.abandon()


@pytest.mark.parametrize("place", [0, 7, 9, 14, 16, 18, 40, 5_000, 70_000, 140_000])
def test_a_flipped_bit_of_a_loaded_segment_is_not_served(stopped, place):
    path, rows = stopped
    second = sorted((path / "topic-0").glob("*.log"))[1]
    flip(second, place, place % 8)
    log = opened(path, LIMITS).logs[PARTITION]
    start = int(second.stem)
    with pytest.raises(KafkaError) as refused:
        stored(log, start=start)
    assert refused.value.code is E.CORRUPT_MESSAGE
    assert second.name in refused.value.message
    later = [row for row in rows if row[0] >= log.segments[2].base_offset]
    assert stored(log, start=later[0][0]) == later


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_a_damaged_index_of_a_sealed_segment_is_rebuilt(tmp_path, suffix):
    dirs, log = created(tmp_path, LIMITS)
    fill(log, 10)
    append(log, 1, value=VALUE, producer=7, sequence=0, transactional=True)
    end_transaction(log, 7, commit=False)
    fill(log, 30)
    rows, aborted = stored(log), log.aborted_transactions(0, 50)
    assert aborted
    dirs.close({})
    path = min((tmp_path / "topic-0").glob(f"*.{suffix}"))
    flip(path, 9 if suffix == "txnindex" else path.stat().st_size - 1)
    dirs = opened(tmp_path, LIMITS)
    log = dirs.logs[PARTITION]
    assert stored(log) == stored(log) == rows
    assert log.aborted_transactions(0, 50) == aborted
    newest = log.newest_timestamp(log.segments[0], confirmed=True)
    assert newest == NOW
    append(log)
    dirs.close({})
    log = opened(tmp_path, LIMITS).logs[PARTITION]
    assert not any(index.load() or index.damaged for index in log.segments[0].indexes)


def test_a_crash_removes_those_beyond_the_recovery_point_only(tmp_path):
    dirs, log = created(tmp_path, LIMITS)
    fill(log)
    flush(log, dirs)
    kept = files_of(log)
    again, log = reopened(dirs, tmp_path, LIMITS, clean=True)
    assert len(files_of(log)) == 3
    fill(log, 1)
    _, log = reopened(again, tmp_path, LIMITS)
    assert files_of(log) == kept
    assert len(stored(log)) == 41


def test_a_crash_between_a_flush_and_the_checkpoint_keeps_those_of_whole_segments(tmp_path):
    """A start does not read what the checkpoint calls flushed: only they show damage in there."""
    dirs, log = created(tmp_path, LIMITS)
    fill(log, 10)
    flush(log, dirs)
    fill(log, 30)
    work = log.unflushed()
    work.run()
    log.mark_flushed(work)
    kept = files_of(log)
    assert name(0) in kept
    flip(log.segments[0].path, 15)  # the leader epoch, which no CRC covers
    _, log = reopened(dirs, tmp_path, LIMITS)
    assert files_of(log) == kept
    with pytest.raises(KafkaError) as refused:
        stored(log)
    assert refused.value.code is E.CORRUPT_MESSAGE


@pytest.mark.parametrize("place", [0, 7, 9, 15, 40, 70_000])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_crash_takes_no_damage_above_the_checkpoint_for_a_torn_tail(tmp_path, number, place):
    """The checksums were made after a flush. A wrong offset must not become the end of the log."""
    limits = replace(LIMITS, cleanup_policy="compact")  # gaps are in order
    dirs, log = created(tmp_path, limits)
    fill(log)
    work = log.unflushed()
    work.run()
    log.mark_flushed(work)
    log.segments.active.seal()
    save_active_checksums(log)  # a clean stop that was killed before its checkpoint
    rows, kept = stored(log), files_of(log)
    assert len(kept) == 3
    path = log.segments[number].path
    flip(path, place, 3)
    for _ in range(2):
        dirs, log = reopened(dirs, tmp_path, limits)
        assert f"{path}, which was flushed, is damaged near byte" in log.failure
        assert files_of(log) == kept
    flip(path, place, 3)
    dirs, log = reopened(dirs, tmp_path, limits)
    assert log.failure is None
    assert stored(log) == rows
    dirs.abandon()


def test_a_truncation_removes_them_first_and_later_appends_are_covered_again(tmp_path):
    dirs, log = created(tmp_path, LIMITS)
    for offset in range(40):
        replicate(log, batch(value=VALUE, offset=offset, leader=0))
        log.write_staged()
    flush(log, dirs)
    log.truncate_to(20)
    assert files_of(log) == [name(0)]
    for offset in range(20, 60):
        replicate(log, batch(value=VALUE[::-1], offset=offset, leader=0))
        log.write_staged()
    flush(log, dirs)
    dirs, log = reopened(dirs, tmp_path, LIMITS, clean=True)
    assert [row[0] for row in stored(log)] == list(range(60))
    assert len(files_of(log)) == len(log.segments) > 3
    log.truncate_fully(5)
    assert files_of(log) == []
    dirs.abandon()


def test_a_swap_of_compaction_brings_new_ones_and_takes_the_old_away(tmp_path):
    limits = LogSettings(segment_bytes=150_000, cleanup_policy="compact")
    dirs, log = created(tmp_path, limits)
    for number in range(30):
        write(log, (b"key%d" % (number % 20), VALUE))
    log.roll(NOW)
    flush(log, dirs)
    for group in CleaningPass(OsFiles(), job_of(log)).run():
        assert log.replace_segments(*group)
    names = [name(segment.base_offset) for segment in log.segments][:-1]
    assert files_of(log) == names
    assert [row[0] for row in stored(log)] == list(range(10, 30))
    # A base offset that is higher but still in order is what only these checksums can detect.
    _, last = stored(log)[-1][:2]
    dirs, log = reopened(dirs, tmp_path, limits, clean=True)
    assert last == 29
    flip(log.segments[0].path, 7)
    with pytest.raises(KafkaError):
        stored(log)
    dirs.abandon()


def test_files_of_another_size_and_torn_ones_are_ignored(stopped, caplog):
    path, rows = stopped
    first, second, third = sorted((path / "topic-0").glob("*.checksums"))
    first.write_bytes(third.read_bytes())
    flip(second, 30)
    third.write_bytes(b"")
    log = opened(path, LIMITS).logs[PARTITION]
    assert stored(log) == rows
    assert "own checksum does not match" in caplog.text


def test_kafka_has_run_here_so_they_are_removed(stopped):
    path, rows = stopped
    (path / ".kafka_cleanshutdown").write_text('{"version":0}')
    log = opened(path, LIMITS).logs[PARTITION]
    assert files_of(log) == []
    assert stored(log) == rows


def test_every_bit_of_the_file_is_covered(stopped):
    path, _ = stopped
    content = min((path / "topic-0").glob("*.checksums")).read_bytes()
    assert encode(*decode(content)) == content
    for bit in range(len(content) * 8):
        wrong = bytearray(content)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedChecksums):
            decode(bytes(wrong))

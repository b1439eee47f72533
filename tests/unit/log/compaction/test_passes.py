import errno
import os

import pytest

from headwater.log.compaction.jobs import DISK, CleaningFailed, decode_answer, encode_job
from headwater.log.compaction.passes import CleaningPass
from headwater.log.compaction.worker import answers
from headwater.log.partition_log import PartitionLog
from headwater.log.segment import DamagedSegment
from headwater.log.settings import LogSettings
from headwater.log.verify import verify_log
from headwater.records.batch import read_header
from headwater.records.compression import Codec
from headwater.records.record import decode_records
from headwater.seams.files import OsFiles
from tests.unit.log.compaction.support import (
    COMPACTED,
    cleaned,
    contents,
    end_transaction,
    job_of,
    key_map,  # noqa: F401
    records_of,
    write,
)
from tests.unit.log.support import NOW, created, flush, reopened, stored

DAY = 24 * 3600 * 1000
pytestmark = pytest.mark.usefixtures("key_map")


@pytest.fixture
def dirs_and_log(tmp_path):
    dirs, log = created(tmp_path, COMPACTED)
    yield dirs, log
    dirs.abandon()
    assert verify_log(log.directory, gaps=True).problems == []


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in records_of(log)]


def batch_at(log: PartitionLog, base: int) -> bytes:
    return next(data for first, _, data in stored(log) if first == base)


# -- values


def test_batches_that_are_not_compressed_have_no_limit(dirs_and_log, monkeypatch):
    monkeypatch.setattr("headwater.log.compaction.cleaned_batches.MAX_UNCOMPRESSED_BYTES", 10)
    dirs, log = dirs_and_log
    write(log, (b"k", b"1" * 20), (b"other", b"2" * 20))
    write(log, (b"k", b"3" * 20))
    cleaned(log, dirs)
    assert offsets(log) == [1, 2]


@pytest.mark.parametrize("per_batch", [1, 4, 9])
def test_w2_the_last_value_of_each_key_remains(dirs_and_log, per_batch):
    dirs, log = dirs_and_log
    keys = [b"K1", b"K2", b"K1", b"K1", b"K3", b"K4", b"K5", b"K5", b"K2"]
    rows = [(key, b"V%d" % at) for at, key in enumerate(keys)]
    for start in range(0, len(rows), per_batch):
        write(log, *rows[start : start + per_batch])
    cleaned(log, dirs)
    assert offsets(log) == [3, 4, 5, 7, 8]
    # A read of a removed offset continues at the next one that exists.
    assert [record.offset for record in records_of(log, start=6) if record.offset >= 6] == [7, 8]
    assert log.log_end_offset == 9


def test_a_second_pass_compares_new_values_with_clean_ones(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"1"), (b"b", b"2"))
    first = cleaned(log, dirs)
    assert first.cleaned_to == 2
    write(log, (b"a", b"3"))
    second = cleaned(log, dirs, first_dirty=first.cleaned_to)
    assert contents(log) == [(1, b"b", b"2"), (2, b"a", b"3")]
    assert (second.cleaned_to, second.keys) == (3, 1)


def test_the_active_segment_stays_as_it_is(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"1"))
    log.roll(NOW)
    write(log, (b"a", b"2"), (b"a", b"3"))
    flush(log, dirs)
    assert list(CleaningPass(OsFiles(), job_of(log)).run()) == []
    assert offsets(log) == [0, 1, 2]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_loses_records_stays_the_same_otherwise(dirs_and_log, codec):
    dirs, log = dirs_and_log
    write(log, (b"a", b"1" * 500), (b"b", b"2" * 500), (b"a", b"3" * 500), codec=codec)
    before = read_header(batch_at(log, 0))
    stamps = {record.offset: record.timestamp for record in records_of(log)}
    cleaned(log, dirs)
    after = read_header(batch_at(log, 0))
    assert (after.count, before.count) == (2, 3)
    assert after.codec == codec
    same = ("base_offset", "last_offset", "base_timestamp", "attributes", "leader_epoch")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert [(row.offset, row.timestamp) for row in records_of(log)] == [
        (offset, stamps[offset]) for offset in (1, 2)
    ]


def test_the_newest_timestamp_is_that_of_the_remaining_records(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"1"), now=NOW + 50)
    write(log, (b"b", b"2"), now=NOW)
    write(log, (b"a", b"3"), now=NOW + 10)
    cleaned(log, dirs)
    assert [row.timestamp for row in records_of(log)] == [NOW, NOW + 10]
    assert log.newest_timestamp(log.segments[0], confirmed=True) == NOW + 10


def test_log_append_time_stays(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"1"), (b"a", None), (b"b", b"3"), now=NOW + 7, timestamp_type=1)
    cleaned(log, dirs)
    assert [row.timestamp for row in records_of(log)] == [NOW + 7] * 2
    assert read_header(batch_at(log, 0)).log_append_time


def test_a_batch_larger_than_a_piece_is_read_whole(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", os.urandom(300_000)))
    write(log, (b"b", os.urandom(70_000)))
    write(log, (b"a", b"last"))
    cleaned(log, dirs, piece_bytes=1)
    assert offsets(log) == [1, 2]


# -- tombstones


def test_a_tombstone_removes_its_key_and_itself_after_the_horizon(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"1"), (b"b", b"2"), now=NOW - 5)
    write(log, (b"c", b"3"), (b"a", None), now=NOW - 5)
    cleaned(log, dirs)
    assert contents(log) == [(1, b"b", b"2"), (2, b"c", b"3"), (3, b"a", None)]
    assert read_header(batch_at(log, 2)).delete_horizon_ms == NOW + DAY
    # The horizon takes the place of the base timestamp; the times of the records stay.
    assert [row.timestamp for row in records_of(log)] == [NOW - 5] * 3
    write(log, (b"d", b"4"))
    cleaned(log, dirs, first_dirty=4, now_ms=NOW + DAY - 1)
    assert (3, b"a", None) in contents(log)
    assert read_header(batch_at(log, 2)).delete_horizon_ms == NOW + DAY
    write(log, (b"e", b"5"))
    cleaned(log, dirs, first_dirty=5, now_ms=NOW + DAY)
    assert [key for _, key, _ in contents(log)] == [b"b", b"c", b"d", b"e"]


def test_a_new_tombstone_gets_no_older_horizon(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", None))
    cleaned(log, dirs)
    write(log, (b"a", b"1"))
    write(log, (b"a", None))
    cleaned(log, dirs, first_dirty=1, now_ms=NOW + 2 * DAY)
    assert contents(log) == [(2, b"a", None)]
    assert read_header(batch_at(log, 2)).delete_horizon_ms == NOW + 3 * DAY


def test_tombstones_may_stay_for_good(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"1"), (b"a", None))
    for now_ms in (NOW, NOW + DAY):
        cleaned(log, dirs, now_ms=now_ms, delete_retention_ms=(1 << 63) - 1)
        assert [(row.offset, row.timestamp) for row in records_of(log)] == [(1, NOW)]


def test_tombstones_past_the_last_mapped_offset_wait_for_their_pass(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"1"), (b"b", b"2"), (b"c", None))
    cleaning = cleaned(log, dirs, map_bytes=0)
    assert cleaning.cleaned_to == 1
    assert contents(log) == [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"c", None)]


# -- transactions


def test_records_of_an_aborted_transaction_go_and_its_marker_follows(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"kept"))
    write(log, (b"a", b"no"), producer_id=7, base_sequence=0, transactional=True)
    marker = end_transaction(log, 7, commit=False)
    write(log, (b"b", b"1"))
    log.producers.expire(NOW + 1)
    cleaned(log, dirs)
    assert contents(log) == [(0, b"a", b"kept"), (3, b"b", b"1")]
    # The marker and its entry stay as long as a batch of the transaction may be read.
    assert [row.last_offset for row in log.aborted_transactions(0, 4)] == [marker]
    write(log, (b"c", b"1"))
    cleaned(log, dirs, first_dirty=4)
    assert read_header(batch_at(log, marker)).delete_horizon_ms == NOW + DAY
    assert log.aborted_transactions(0, 5) == []
    write(log, (b"d", b"1"))
    cleaned(log, dirs, first_dirty=5, now_ms=NOW + DAY)
    assert marker not in [first for first, _, _ in stored(log)]


def test_a_commit_marker_stays_while_a_record_of_its_transaction_does(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"1"), producer_id=7, base_sequence=0, transactional=True)
    marker = end_transaction(log, 7, commit=True)
    write(log, (b"b", b"1"))
    log.producers.expire(NOW + 1)
    for now_ms in (NOW, NOW + 5 * DAY):
        cleaned(log, dirs, now_ms=now_ms)
        assert read_header(batch_at(log, marker)).delete_horizon_ms is None
        write(log, (b"b", b"1"))
    write(log, (b"a", b"2"))
    # The pass that removes the last record, one that sets the horizon, and the last.
    for now_ms, stays in ((NOW, True), (NOW, True), (NOW + DAY, False)):
        cleaned(log, dirs, now_ms=now_ms)
        assert (marker in [first for first, _, _ in stored(log)]) is stays
        write(log, (b"z", b"1"))


def test_an_aborted_value_does_not_replace_a_committed_one_in_a_later_pass(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"kept"))
    cleaned(log, dirs)
    write(log, (b"x", b"no"), producer_id=7, base_sequence=0, transactional=True)
    cleaned(log, dirs, first_dirty=1)
    write(log, (b"a", b"no"), producer_id=7, base_sequence=1, transactional=True)
    end_transaction(log, 7, commit=False)
    cleaned(log, dirs, first_dirty=1)
    assert contents(log) == [(0, b"a", b"kept")]


def test_a_key_stays_deleted_if_its_producer_aborted_before(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"old"))
    write(log, (b"x", b"no"), producer_id=7, base_sequence=0, transactional=True)
    end_transaction(log, 7, commit=False)
    first = cleaned(log, dirs)
    write(log, (b"a", None), producer_id=7, base_sequence=1, transactional=True)
    end_transaction(log, 7, commit=True)
    second = cleaned(log, dirs, first.cleaned_to)
    assert contents(log) == [(3, b"a", None)]
    write(log, (b"b", b"1"))
    cleaned(log, dirs, second.cleaned_to, NOW + DAY)
    assert contents(log) == [(5, b"b", b"1")]


def test_a_transaction_whose_marker_is_above_the_end_is_known_to_be_aborted(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"no"), producer_id=7, base_sequence=0, transactional=True)
    write(log, (b"b", b"1"))
    log.roll(NOW)
    end_transaction(log, 7, commit=False)
    log.producers.expire(NOW + 1)
    flush(log, dirs)
    cleaning = CleaningPass(OsFiles(), job_of(log))
    for group in cleaning.run():
        assert log.replace_segments(*group)
    assert contents(log) == [(1, b"b", b"1")]


def test_an_abort_that_the_index_lacks_stops_the_pass(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"no"), producer_id=7, base_sequence=0, transactional=True)
    end_transaction(log, 7, commit=False)
    log.roll(NOW)
    flush(log, dirs)
    os.unlink(log.segments[0].aborted.path)
    with pytest.raises(DamagedSegment, match=r"txnindex is damaged"):
        list(CleaningPass(OsFiles(), job_of(log)).run())
    os.unlink(log.segments[0].checksums.path)
    with pytest.raises(DamagedSegment, match="index of aborted transactions"):
        list(CleaningPass(OsFiles(), job_of(log)).run())


# -- producers


def test_b19_the_last_sequence_of_a_producer_survives_as_an_empty_batch(tmp_path):
    dirs, log = created(tmp_path, COMPACTED)
    write(log, (b"a", b"1"), (b"b", b"1"), producer_id=7, base_sequence=0)
    write(log, (b"a", b"2"), producer_id=7, base_sequence=2)
    # Another epoch begins at the same sequence: the offset tells the batches apart.
    write(log, (b"b", b"2"), producer_id=7, base_sequence=0, producer_epoch=1)
    write(log, (b"a", b"3"), (b"b", b"3"), (b"c", b"3"))
    cleaned(log, dirs)
    empty = read_header(batch_at(log, 3))
    assert (empty.count, empty.size, empty.base_sequence, empty.producer_epoch) == (0, 61, 0, 1)
    assert [first for first, _, _ in stored(log)] == [3, 4]
    for name in os.listdir(log.directory):
        if name.endswith((".snapshot", ".window")):
            os.unlink(f"{log.directory}/{name}")
    dirs, log = reopened(dirs, tmp_path, COMPACTED)
    state = log.producers.get(7)
    assert (state.epoch, state.last_sequence) == (1, 0)
    dirs.abandon()


def test_the_last_marker_of_a_producer_keeps_its_epoch(dirs_and_log):
    dirs, log = dirs_and_log
    end_transaction(log, 7, commit=True, epoch=3)
    write(log, (b"a", b"1"))
    for now_ms in (NOW, NOW + 2 * DAY):
        cleaned(log, dirs, now_ms=now_ms)
        assert decode_records(batch_at(log, 0))
        write(log, (b"a", b"2"))


def test_b18_a_log_that_loses_everything_keeps_its_end(tmp_path):
    dirs, log = created(tmp_path, COMPACTED)
    write(log, (b"a", None))
    cleaned(log, dirs)
    write(log, (b"b", b"1"))
    write(log, (b"b", None))
    cleaned(log, dirs, first_dirty=1, now_ms=NOW)
    cleaned(log, dirs, first_dirty=3, now_ms=NOW + 2 * DAY)
    assert contents(log) == []
    dirs, log = reopened(dirs, tmp_path, COMPACTED)
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    write(log, (b"c", b"1"))
    assert contents(log) == [(3, b"c", b"1")]
    dirs.abandon()


# -- segments


def test_small_segments_become_one_within_the_limit(tmp_path):
    settings = LogSettings(cleanup_policy="compact", segment_bytes=2_000)
    dirs, log = created(tmp_path, settings)
    for at in range(20):
        write(log, (b"key%d" % (at % 10), b"x" * 200))
        log.roll(NOW)
    cleaned(log, dirs)
    assert offsets(log) == list(range(10, 20))
    assert max(segment.size for segment in log.segments) <= 2_000
    assert len(log.segments) < 8
    # Each segment ends where the next one begins.
    ends = [read_header(data).next_offset for _, _, data in stored(log)]
    assert {segment.base_offset for segment in log.segments} - {0} <= set(ends)
    cleaned(log, dirs)
    assert len(log.segments) <= 3
    dirs.abandon()
    assert verify_log(log.directory, gaps=True).problems == []


def test_a_segment_that_stays_the_same_is_not_replaced(dirs_and_log):
    dirs, log = dirs_and_log
    write(log, (b"a", b"1"), (b"b", b"2"))
    cleaned(log, dirs)
    first = log.segments[0]
    cleaned(log, dirs)
    assert log.segments[0] is first
    assert [name for name in os.listdir(log.directory) if name.endswith(".cleaned")] == []


def test_a_map_that_is_too_small_takes_several_passes(tmp_path, key_map):  # noqa: F811
    dirs, log = created(tmp_path, LogSettings(cleanup_policy="compact", segment_bytes=1_000))
    rows = [(b"key%d" % (at % 25), b"%d" % at) for at in range(100)]
    for start in range(0, 100, 5):
        write(log, *rows[start : start + 5])
    dirty, passes = 0, 0
    while dirty < log.segments.active.base_offset:
        cleaning = cleaned(log, dirs, first_dirty=dirty, map_bytes=12 * key_map.BYTES_PER_KEY)
        assert cleaning.cleaned_to > dirty
        assert cleaning.keys <= 10
        dirty, passes = cleaning.cleaned_to, passes + 1
        # Nothing is lost on the way.
        last = {key: value for _, key, value in contents(log)}
        assert last == dict(rows)
    assert passes > 5
    assert contents(log) == [(at, *rows[at]) for at in range(75, 100)]
    dirs.abandon()


def test_damage_stops_the_pass_and_leaves_the_log_alone(tmp_path):
    dirs, log = created(tmp_path, COMPACTED)
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"))
    log.roll(NOW)
    flush(log, dirs)
    with open(log.segments[0].path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    with pytest.raises(DamagedSegment, match="is damaged near byte 0"):
        list(CleaningPass(OsFiles(), job_of(log)).run())
    os.unlink(log.segments[0].checksums.path)
    before = sorted(os.listdir(log.directory))
    with pytest.raises(DamagedSegment, match="wrong checksum at offset 1"):
        list(CleaningPass(OsFiles(), job_of(log)).run())
    assert sorted(os.listdir(log.directory)) == before
    dirs.abandon()


def test_a_tombstone_that_is_not_mapped_yet_gets_no_horizon(tmp_path):
    """Its time would be over before a pass has looked for older values."""
    dirs, log = created(tmp_path, COMPACTED)
    write(log, (b"a", b"1"))
    write(log, (b"b", b"2"))
    write(log, (b"a", None))
    cleaning = cleaned(log, dirs, map_bytes=1)
    assert cleaning.cleaned_to == 1
    assert read_header(batch_at(log, 2)).delete_horizon_ms is None
    cleaned(log, dirs, first_dirty=1, now_ms=NOW + DAY)
    assert (2, b"a", None) in contents(log)
    dirs.abandon()


def test_a_worker_without_memory_says_so(tmp_path, monkeypatch):
    def run(self):
        raise MemoryError
        yield

    monkeypatch.setattr("headwater.log.compaction.worker.CleaningPass.run", run)
    dirs, log = created(tmp_path, COMPACTED)
    write(log, (b"a", b"1"))
    (line,) = answers(OsFiles(), encode_job(job_of(log)), lambda _: None)
    with pytest.raises(CleaningFailed) as failed:
        decode_answer(line)
    assert (failed.value.kind, failed.value.errno) == (DISK, errno.ENOMEM)
    dirs.abandon()

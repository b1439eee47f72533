import errno
import random

import pytest

from headwater.errors import E, KafkaError
from headwater.log import snapshots
from headwater.log.flushing import BYTES_PER_PRODUCER, FEW_PRODUCERS, FlushWork
from headwater.log.segment import JITTER_SHARES, Segment
from headwater.log.settings import LogSettings
from headwater.log.time_lookup import TimeLookup
from headwater.records.batch import batches, read_header
from headwater.records.checksum import crc32c
from headwater.records.control import Marker, build_marker
from headwater.seams.files import OsFiles
from tests.unit.log.support import (
    NOW,
    PARTITION,
    LossyFiles,
    append,
    batch,
    created,
    flush,
    opened,
    reopened,
    replicate,
    stage,
    stored,
)

SMALL = LogSettings(segment_bytes=2_000, index_interval_bytes=200)


def test_a_batch_gets_its_offset_and_epoch_and_is_visible_only_once_written(tmp_path):
    _, log = created(tmp_path)
    first = batch(3)
    assert stage(log, first, leader=4) == (0, 2)
    assert stage(log, batch(2), leader=4) == (3, 4)
    assert (log.staging.end_offset, log.log_end_offset) == (5, 0)
    assert log.read(0, 5, 1000, True) is None
    log.write_staged()
    assert log.log_end_offset == 5
    (base, last, data), second = stored(log)
    assert (base, last, second[:2]) == (0, 2, (3, 4))
    assert data == bytes(first)
    assert read_header(data).leader_epoch == 4


def test_all_batches_of_a_tick_are_written_with_one_call(tmp_path):
    files = LossyFiles()
    _, log = created(tmp_path, files=files)
    append(log)
    files.calls.clear()
    for _ in range(20):
        stage(log, batch())
    log.write_staged()
    assert files.calls == ["write 00000000000000000000.log"]


def test_more_batches_than_one_call_takes_are_all_written(tmp_path):
    _, log = created(tmp_path)
    for _ in range(2_500):
        stage(log, batch())
    log.write_staged()
    assert [base for base, _, _ in stored(log)] == list(range(2_500))


def test_b22_a_short_write_is_completed(tmp_path):
    files = LossyFiles()
    _, log = created(tmp_path, files=files)
    sent = [batch(2, value=bytes([65 + n]) * 50) for n in range(3)]
    for data in sent:
        stage(log, data)
    files.short = len(sent[0]) + 7
    log.write_staged()
    assert [data for _, _, data in stored(log)] == [bytes(data) for data in sent]


@pytest.mark.parametrize("most", [1, 50, 100])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_b22_a_short_read_is_completed(tmp_path, most, clean):
    """A header has 61 bytes: no read of one is whole."""
    dirs, log = created(tmp_path)
    for number in range(6):
        append(log, 2, value=bytes([65 + number]) * 90, producer=7, sequence=2 * number)
        if number == 3:
            log.roll(NOW)
            flush(log, dirs)
    sent = stored(log)
    files = LossyFiles()
    files.most_read = most
    _, log = reopened(dirs, tmp_path, files=files, clean=clean)
    assert (log.failure, log.log_end_offset) == (None, 12)
    assert log.producers.get(7).last_sequence == 11
    found, offset = [], 0
    while (piece := log.read(offset, 12, 1, True)) is not None:
        found.append(piece.load())
        offset = read_header(found[-1]).next_offset
    assert found == [data for _, _, data in sent]
    assert TimeLookup(log, 12).at_or_after(NOW)[1] == 0
    assert files.calls.count(f"read {0:020d}.log") > 9 * 400 // most


def test_a_failed_write_leaves_no_trace_and_the_log_goes_on(tmp_path):
    files = LossyFiles()
    dirs, log = created(tmp_path, files=files)
    append(log, 2, producer=7, sequence=0)
    files.fail_write = OSError(errno.ENOSPC, "no space left")
    stage(log, batch(3, producer=7, sequence=2), leader=9)
    stage(log, batch(1), leader=9)
    with pytest.raises(OSError, match="no space"):
        log.write_staged()
    assert (log.staging.end_offset, log.log_end_offset) == (2, 2)
    assert log.producers.get(7).last_sequence == 1
    assert log.epochs.epoch_at(2) in {-1, 0, 9}
    assert (
        log.segments.active.size
        == (tmp_path / "topic-0" / "00000000000000000000.log").stat().st_size
    )
    assert append(log, 3, leader=9, producer=7, sequence=2) == (2, 4)
    _, log = reopened(dirs, tmp_path, files=files)
    assert [row[:2] for row in stored(log)] == [(0, 1), (2, 4)]


def test_whatever_fails_in_a_write_lets_go_of_the_staged_buffers(tmp_path, monkeypatch):
    """They are parts of receive buffers: written later, they would be bytes of other requests."""
    dirs, log = created(tmp_path)
    append(log, 2)
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "index_batches", lambda *_: 1 // 0)
        stage(log, batch(3))
        with pytest.raises(ZeroDivisionError):
            log.write_staged()
    assert (log.staging.end_offset, log.staging.buffers) == (2, [])
    assert append(log, 1) == (2, 2)
    assert [row[:2] for row in stored(log)] == [(0, 1), (2, 2)]
    _, log = reopened(dirs, tmp_path)
    assert [row[:2] for row in stored(log)] == [(0, 1), (2, 2)]


def test_batches_of_one_tick_that_span_too_many_offsets_roll_a_fresh_segment(tmp_path):
    dirs, log = created(tmp_path)
    for _ in range(3):
        wide = batch()
        wide[23:27] = (2**31 - 2).to_bytes(4, "big")  # the last offset delta
        wide[17:21] = crc32c(wide[21:]).to_bytes(4, "big")
        stage(log, wide)
    log.write_staged()
    log.roll(NOW)
    bases = [0, 2**31 - 1, 2 * (2**31 - 1)]
    assert [segment.base_offset for segment in log.segments] == [*bases, 3 * (2**31 - 1)]
    _, log = reopened(dirs, tmp_path)
    assert [row[0] for row in stored(log)] == bases


def test_a_write_that_fails_after_a_roll_takes_the_new_segment_away_again(tmp_path):
    class FailsLater(LossyFiles):
        def pwritev(self, fd, buffers, offset):
            if self._paths[fd].endswith("02.log"):
                raise OSError(errno.EIO, "broken")
            return super().pwritev(fd, buffers, offset)

    files = FailsLater()
    dirs, log = created(tmp_path, SMALL, files)
    append(log, 1, value=b"v" * 1_200)
    stage(log, batch(1, value=b"w" * 500))
    stage(log, batch(1, value=b"x" * 500))
    with pytest.raises(OSError, match="broken"):
        log.write_staged()
    assert [segment.base_offset for segment in log.segments] == [0]
    assert [row[:2] for row in stored(log)] == [(0, 0)]
    assert append(log, 1) == (1, 1)
    _, log = reopened(dirs, tmp_path, SMALL)
    assert [row[:2] for row in stored(log)] == [(0, 0), (1, 1)]


def test_b12_a_log_that_cannot_be_cut_back_takes_nothing_more(tmp_path):
    files = LossyFiles()
    _, log = created(tmp_path, files=files)
    append(log)
    files.fail_write = OSError(errno.EIO, "broken")
    files.fail_truncate = OSError(errno.EIO, "still broken")
    stage(log, batch())
    with pytest.raises(OSError, match="broken"):
        log.write_staged()
    with pytest.raises(KafkaError) as refused:
        stage(log, batch())
    assert refused.value.code is E.KAFKA_STORAGE_ERROR


def test_b12_a_cut_that_cannot_be_synced_is_a_failed_disk_and_not_a_full_one(tmp_path):
    """No later sync of the file may count: it may lack what was written before."""

    class FailsToSync(LossyFiles):
        def fdatasync(self, fd):
            if self._paths[fd].endswith(".log"):
                raise OSError(errno.ENOSPC, "no space for what was written")
            super().fdatasync(fd)

    files = FailsToSync()
    _, log = created(tmp_path, files=files)
    files.fail_write = OSError(errno.ENOSPC, "no space left")
    stage(log, batch())
    with pytest.raises(OSError, match="no space left; cutting back failed too") as failed:
        log.write_staged()
    assert failed.value.errno == errno.EIO
    assert log.staging.buffers == []
    with pytest.raises(KafkaError) as refused:
        stage(log, batch())
    assert refused.value.code is E.KAFKA_STORAGE_ERROR


def test_segments_roll_by_size_between_batches_of_one_tick(tmp_path):
    _, log = created(tmp_path, SMALL)
    for _ in range(30):
        stage(log, batch(1, value=b"v" * 300))
    log.write_staged()
    assert len(log.segments) > 4
    assert all(segment.size <= 2_000 for segment in log.segments)
    assert [base for base, _, _ in stored(log)] == list(range(30))
    assert log.size == sum(segment.size for segment in log.segments)


def test_a_segment_rolls_when_a_batch_is_much_newer_than_its_first(tmp_path):
    _, log = created(tmp_path, LogSettings(segment_ms=1_000))
    append(log, now=5_000)
    append(log, now=6_000)
    assert len(log.segments) == 1
    append(log, now=6_001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_rolls_when_its_index_is_full(tmp_path):
    _, log = created(tmp_path, LogSettings(segment_index_bytes=24, index_interval_bytes=10))
    for _ in range(12):
        append(log)
    assert len(log.segments) > 2
    assert [base for base, _, _ in stored(log)] == list(range(12))


def test_a_segment_rolls_before_a_relative_offset_overflows(tmp_path):
    _, log = created(tmp_path)
    append(log)
    replicate(log, batch(1, offset=1, leader=0))
    log.write_staged()
    log.truncate_fully(0)
    log.configure(LogSettings(cleanup_policy="compact"))
    replicate(log, batch(1, offset=5, leader=0))
    log.write_staged()
    replicate(log, batch(1, offset=1 << 31, leader=0))
    log.write_staged()
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    assert [row[:2] for row in stored(log)] == [(5, 5), (1 << 31, 1 << 31)]


@pytest.mark.parametrize("max_bytes", [1, 90, 200, 1_000, 5_000, 1 << 20])
def test_a_reader_gets_every_batch_once_whatever_it_asks_for(tmp_path, max_bytes):
    _, log = created(tmp_path, LogSettings(segment_bytes=40_000, index_interval_bytes=500))
    for number in range(900):
        stage(log, batch(1 + number % 3))
        if number % 11 == 0:
            log.write_staged()
    log.write_staged()
    bases = [base for base, _, _ in stored(log, max_bytes)]
    assert bases == sorted(set(bases))
    assert len(bases) == 900


def test_a_batch_that_is_too_large_for_a_read_is_not_passed_over(tmp_path):
    _, log = created(tmp_path, LogSettings(segment_bytes=400))
    append(log, 1, value=b"v" * 300)
    append(log, 1)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert log.read(0, 2, 200, False) is None
    assert log.read(0, 2, 200, True).size == len(batch(1, value=b"v" * 300))


def test_a_read_keeps_to_whole_batches_below_the_upper_offset_and_the_size(tmp_path):
    _, log = created(tmp_path)
    size = len(batch(2))
    for _ in range(5):
        append(log, 2)
    piece = log.read(3, 8, 1 << 20, True)
    assert (piece.position, piece.size) == (size, 3 * size)
    assert log.read(3, 7, 1 << 20, True).size == 2 * size
    assert log.read(3, 10, 2 * size + 5, True).size == 2 * size
    assert log.read(3, 10, 5, True).size == size
    assert log.read(3, 10, 5, False) is None
    assert log.read(3, 3, 100, True) is None
    assert log.read(10, 10, 100, True) is None
    assert log.read(2, 3, 1 << 20, True) is None


def test_reads_near_the_end_touch_no_file(tmp_path):
    files = LossyFiles()
    _, log = created(tmp_path, files=files)
    for _ in range(600):
        append(log)
    files.calls.clear()
    assert log.read(500, 590, 1 << 20, True).size == 90 * len(batch())
    assert files.calls == []


def test_a_follower_keeps_offsets_epochs_and_bytes(tmp_path):
    _, leader = created(tmp_path / "a")
    _, follower = created(tmp_path / "b")
    append(leader, 3, leader=2)
    append(leader, 1, leader=5, producer=3, sequence=10)
    for _, _, data in stored(leader):
        replicate(follower, data, 9)
        assert follower.log_end_offset < follower.staging.end_offset
        follower.write_staged()
    assert stored(follower) == stored(leader)
    assert follower.epochs.epochs == [2, 5]
    assert follower.producers.get(3).last_sequence == 10


def test_a_follower_refuses_a_gap(tmp_path):
    _, log = created(tmp_path)
    with pytest.raises(KafkaError) as refused:
        log.stage_replicated(batch(1, offset=4, leader=0), 0, 0)
    assert refused.value.code is E.CORRUPT_MESSAGE


def test_an_older_leader_epoch_is_refused(tmp_path):
    _, log = created(tmp_path)
    append(log, leader=5)
    with pytest.raises(KafkaError) as refused:
        stage(log, batch(), leader=4)
    assert refused.value.code is E.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("offset", [0, 1, 5, 6, 7, 24, 30, 58, 59])
def test_truncation_drops_the_batch_that_holds_the_offset_and_all_after_it(tmp_path, offset):
    dirs, log = created(tmp_path, SMALL)
    for number in range(20):
        append(log, 3, value=b"v" * 100, producer=1, sequence=3 * number)
    before = stored(log)
    log.truncate_to(offset)
    kept = [row for row in before if row[1] < offset]
    assert stored(log) == kept
    end = kept[-1][1] + 1 if kept else 0
    assert (log.log_end_offset, log.staging.end_offset) == (end, end)
    assert log.size == sum(len(row[2]) for row in kept)
    state = log.producers.get(1)
    assert (state.last_sequence if state else -1) == end - 1
    assert append(log, 3, producer=1, sequence=end) == (end, end + 2)
    _, again = reopened(dirs, tmp_path, SMALL)
    assert [row[:2] for row in stored(again)] == [row[:2] for row in stored(log)]


def test_full_truncation_goes_on_at_the_given_offset(tmp_path):
    dirs, log = created(tmp_path)
    append(log, 3)
    log.truncate_fully(100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert append(log, 2, leader=1) == (100, 101)
    _, log = reopened(dirs, tmp_path)
    assert [row[:2] for row in stored(log)] == [(100, 101)]


def test_a_read_that_overlaps_a_truncation_fails_instead_of_lying(tmp_path):
    _, log = created(tmp_path)
    append(log, 3)
    append(log, 3)
    piece = log.read(3, 6, 1 << 20, True)
    log.truncate_to(3)
    assert piece.load_now() is None
    with pytest.raises(KafkaError):
        piece.load()


def test_a_flush_moves_the_recovery_point_but_not_past_a_truncation(tmp_path):
    _, log = created(tmp_path)
    append(log, 4)
    work = log.unflushed()
    work.run()
    append(log, 4)
    log.mark_flushed(work)
    assert log.recovery_point == 4
    work = log.unflushed()
    work.run()
    log.truncate_to(4)
    append(log, 4)
    log.mark_flushed(work)
    assert log.recovery_point == 4


def test_a_flush_syncs_only_segments_that_hold_something_new(tmp_path):
    files = LossyFiles()
    dirs, log = created(tmp_path, SMALL, files)
    for _ in range(10):
        append(log, value=b"v" * 600)
    flush(log, dirs)
    files.calls.clear()
    append(log, 1, value=b"v" * 1_500)
    log.unflushed().run()
    synced = [call for call in files.calls if call.startswith("sync") and call.endswith(".log")]
    assert len(synced) <= 2
    assert log.flush_due(0, 0) is False


def test_a_flush_is_due_a_minute_after_the_last_look_before_the_write_or_after_64_mebibytes(
    tmp_path,
):
    _, log = created(tmp_path)
    assert not log.flush_due(1 << 60, 0)
    append(log)
    assert not log.flush_due(60_999, looked_ms=1_000)
    assert log.flush_due(61_000, looked_ms=60_999)
    log.unflushed()
    big = batch(1, value=b"v" * (1 << 20))
    for _ in range(65):
        stage(log, big)
    log.write_staged()
    assert log.flush_due(1_001, looked_ms=1_000)


def test_a_segment_rolls_earlier_by_its_own_share_of_the_jitter(tmp_path):
    settings = LogSettings(segment_ms=10_000, segment_jitter_ms=4_000)
    for share, rolls in ((0, 10_001), (JITTER_SHARES // 2, 8_001), (JITTER_SHARES // 4 * 3, 7_001)):
        _, log = created(tmp_path / str(share), settings)
        log.segments.active.jitter = share
        append(log, now=NOW)
        append(log, now=NOW + rolls - 1)
        assert len(log.segments) == 1
        append(log, now=NOW + rolls)
        assert len(log.segments) == 2


def test_a_jitter_above_segment_ms_does_not_roll_at_every_batch(tmp_path):
    _, log = created(tmp_path, LogSettings(segment_ms=10_000, segment_jitter_ms=1 << 40))
    log.segments.active.jitter = JITTER_SHARES // 2
    for number in range(50):
        append(log, now=NOW + 100 * number)
    assert len(log.segments) == 1


def test_each_new_segment_draws_its_share_of_the_jitter(tmp_path):
    dirs, log = created(tmp_path, SMALL)
    drawn = []
    log.segments.draw = lambda limit: drawn.append(limit) or len(drawn)
    while len(log.segments) < 4:
        append(log, value=b"v" * 900)
    assert drawn == [JITTER_SHARES] * 3
    assert [segment.jitter for segment in list(log.segments)[1:]] == [1, 2, 3]
    _, log = reopened(dirs, tmp_path, SMALL)
    assert log.segments.draw(1) == 0


def test_flush_ms_counts_real_time_whatever_the_wall_clock_does(tmp_path):
    _, log = created(tmp_path, LogSettings(flush_ms=200))
    stage(log, batch(), now_ms=NOW)
    log.write_staged()
    stage(log, batch(), now_ms=NOW - 3_600_000)
    log.write_staged()
    assert not log.flush_due(1_100, looked_ms=1_000)
    assert log.flush_due(1_200, looked_ms=1_100)


def test_flush_messages_asks_for_a_flush_at_once(tmp_path):
    _, log = created(tmp_path, LogSettings(flush_messages=2))
    append(log)
    assert not log.flush_due(0, 0)
    append(log)
    assert log.flush_due(0, 0)


def test_a_flush_looks_only_at_segments_that_an_earlier_one_did_not_save(tmp_path, monkeypatch):
    dirs, log = created(tmp_path, SMALL)
    while len(log.segments) < 30:
        append(log, value=b"v" * 600)
    flush(log, dirs)
    looked = []
    add_segment = FlushWork._add_segment

    def count(work, segment, *, sync):
        looked.append(segment.base_offset)
        add_segment(work, segment, sync=sync)

    monkeypatch.setattr(FlushWork, "_add_segment", count)
    append(log, value=b"v" * 1_500)
    flush(log, dirs)
    assert 1 <= len(looked) <= 2


def test_indexes_that_were_rebuilt_are_saved_by_the_next_flush(tmp_path):
    dirs, log = created(tmp_path, SMALL)
    while len(log.segments) < 5:
        append(log, value=b"v" * 600)
    flush(log, dirs)
    path = tmp_path / "topic-0" / f"{log.segments[1].base_offset:020d}.index"
    log.segments[1].index.release()
    sound = path.read_bytes()
    path.write_bytes(sound[:3])
    log.segments.rebuild(log.segments[1])
    append(log)
    flush(log, dirs)
    assert path.read_bytes() == sound


def test_the_states_of_many_producers_are_written_once_for_many_flushes(tmp_path):
    files = LossyFiles()
    dirs, log = created(tmp_path, files=files)
    producers, turns = 2 * FEW_PRODUCERS, 3
    for turn in range(turns):
        for number in range(producers):
            append(log, producer=number, sequence=turn)
            flush(log, dirs)
    written = [call for call in files.calls if call.startswith("write") and ".snapshot" in call]
    flushes = producers * turns
    assert FEW_PRODUCERS <= len(written) < flushes // 2
    assert len(written) - FEW_PRODUCERS <= log.size // BYTES_PER_PRODUCER
    files.calls.clear()
    log.roll(NOW)
    flush(log, dirs)
    assert [
        call for call in files.calls if f"{log.segments.active.base_offset:020d}.snapshot" in call
    ]


def test_producers_are_known_after_a_crash_though_no_flush_wrote_them(tmp_path):
    dirs, log = created(tmp_path)
    producers = 2 * FEW_PRODUCERS
    for number in range(producers):
        append(log, producer=number, sequence=0)
        flush(log, dirs)
    assert log.snapshot_offset < log.log_end_offset
    _, log = reopened(dirs, tmp_path)
    assert len(log.producers) == producers
    assert log.producers.get(producers - 1).last_sequence == 0


def test_a_flush_encodes_the_states_of_producers_only_when_it_runs(tmp_path, monkeypatch):
    _, log = created(tmp_path)
    append(log, producer=7, sequence=0)
    encoded = []
    encode = snapshots.encode_states
    monkeypatch.setattr(
        snapshots, "encode_states", lambda states: encoded.append(states) or encode(states)
    )
    work = log.unflushed()
    assert not encoded
    append(log, producer=7, sequence=1)
    work.run()
    assert [states[7][1] for states in encoded] == [0]


def test_offsets_are_found_by_time_across_segments(tmp_path):
    _, log = created(tmp_path, SMALL)
    for number in range(60):
        append(log, 1, value=b"v" * 80, now=1_000 + 10 * number)
    assert len(log.segments) > 2
    end = log.log_end_offset
    for number in range(60):
        assert TimeLookup(log, end).at_or_after(1_000 + 10 * number) == (
            1_000 + 10 * number,
            number,
            0,
        )
        assert TimeLookup(log, end).at_or_after(991 + 10 * number)[1] == number
    assert TimeLookup(log, end).at_or_after(1_591) is None
    assert TimeLookup(log, 30).at_or_after(1_300) is None
    assert TimeLookup(log, log.log_end_offset).newest() == (1_590, 59, 0)


def test_transactions_hold_the_last_stable_offset_until_their_marker_is_replicated(tmp_path):
    dirs, log = created(tmp_path)
    append(log)
    append(log, 2, producer=5, sequence=0, transactional=True)
    append(log, 1, producer=6, sequence=0, transactional=True)
    assert log.last_stable_offset(4) == 1
    log.staging.stage_marker(build_marker(Marker(5, 0, False, 0), now=1), 0, 1)
    log.write_staged()
    assert log.last_stable_offset(4) == 1
    assert log.last_stable_offset(5) == 3
    log.staging.stage_marker(build_marker(Marker(6, 0, True, 0), now=1), 0, 1)
    log.write_staged()
    assert log.last_stable_offset(6) == 6
    expected = [(5, 1, 4, 3)]
    assert log.aborted_transactions(0, 6) == expected
    assert log.aborted_transactions(0, 1) == []
    _, log = reopened(dirs, tmp_path)
    assert log.aborted_transactions(0, 6) == expected
    dirs, log = reopened(_, tmp_path, clean=True)
    assert log.aborted_transactions(2, 6) == expected
    assert log.last_stable_offset(6) == 6


def abort(log, producer):
    log.staging.stage_marker(build_marker(Marker(producer, 0, False, 0), now=1), 0, 1)
    log.write_staged()


def test_a_slice_names_the_aborted_transactions_of_its_own_batches(tmp_path):
    _, log = created(tmp_path, LogSettings(segment_bytes=3_000, index_interval_bytes=100))
    for number in range(60):
        append(log, 1, producer=number, sequence=0, transactional=True)
        abort(log, number)
    end = log.log_end_offset
    found = log.read(40, end, 500, True)
    upper = log.segments.end_of(found, end)
    assert found.segment is not log.segments.active
    named = [row.first_offset for row in log.aborted_transactions(40, upper)]
    assert named[0] == 40
    assert named == list(range(40, named[-1] + 1, 2))
    last = [header.last_offset for _, header in batches(found.load())][-1]
    assert last < upper <= last + 4
    tail = log.read(end - 2, end, 1 << 20, True)
    assert log.segments.end_of(tail, end) == end


def test_a_damaged_index_of_aborted_transactions_is_rebuilt_before_it_is_saved(tmp_path):
    dirs, log = created(tmp_path)
    for producer in (1, 2):
        append(log, 1, producer=producer, sequence=0, transactional=True)
    flush(log, dirs)
    log.roll(NOW)
    abort(log, 1)
    abort(log, 2)
    expected = log.aborted_transactions(0, 4)
    assert len(expected) == 2
    dirs.close({})
    (index,) = (tmp_path / "topic-0").glob("*.txnindex")
    index.write_bytes(index.read_bytes()[:-1])
    dirs = opened(tmp_path)
    dirs.close({})
    dirs = opened(tmp_path)
    assert dirs.logs[PARTITION].aborted_transactions(0, 4) == expected
    _, log = reopened(dirs, tmp_path, clean=True)
    assert log.aborted_transactions(0, 4) == expected
    assert not log.segments.active.aborted.damaged


def test_a_transaction_that_was_open_for_a_year_is_open_until_its_marker(tmp_path):
    year_ms = 365 * 86_400_000
    dirs, log = created(tmp_path)
    append(log, 2, producer=1, sequence=0, transactional=True)
    append(log, 1, producer=2, sequence=0)
    dirs.close({})
    log = opened(tmp_path, now_ms=NOW + year_ms).logs[PARTITION]
    log.producers.expire(NOW + year_ms - 86_400_000)
    assert log.producers.get(2) is None, "silent, and not in a transaction"
    assert log.last_stable_offset(3) == 0
    abort(log, 1)
    assert log.last_stable_offset(4) == 4
    assert [row.first_offset for row in log.aborted_transactions(0, 4)] == [0]


def aborted_in_two_segments(tmp_path):
    """A log that was closed; three transactions were aborted in its first segment, one in the next."""
    dirs, log = created(tmp_path)
    for producer in (1, 2, 3, 4):
        append(log, 1, producer=producer, sequence=0, transactional=True)
        abort(log, producer)
        if producer == 3:
            log.roll(NOW)
    expected = log.aborted_transactions(0, 8)
    assert len(expected) == 4
    dirs.close({})
    return sorted((tmp_path / "topic-0").glob("*.txnindex")), expected


@pytest.mark.parametrize("entries", [None, 0, 2])
@pytest.mark.parametrize("segment", [0, 1])
def test_an_index_of_aborted_transactions_that_lost_entries_is_rebuilt(tmp_path, entries, segment):
    indexes, expected = aborted_in_two_segments(tmp_path)
    whole = indexes[segment].read_bytes()
    if entries is None:
        indexes[segment].unlink()
    else:
        indexes[segment].write_bytes(whole[: min(entries * 34, len(whole) - 34)])
    dirs = opened(tmp_path)
    assert dirs.logs[PARTITION].aborted_transactions(0, 8) == expected
    append(dirs.logs[PARTITION])
    dirs.close({})
    assert indexes[segment].read_bytes() == whole


def test_an_index_that_was_cut_with_its_log_is_as_expected(tmp_path, caplog):
    _, expected = aborted_in_two_segments(tmp_path)
    dirs = opened(tmp_path)
    log = dirs.logs[PARTITION]
    log.truncate_to(4)
    assert log.aborted_transactions(0, 8) == expected[:2]
    dirs, log = reopened(dirs, tmp_path, clean=True)
    assert log.aborted_transactions(0, 8) == expected[:2]
    log.truncate_to(0)
    _, log = reopened(dirs, tmp_path, clean=True)
    assert log.aborted_transactions(0, 8) == []
    assert "damaged" not in caplog.text


def test_a_damaged_count_of_aborted_transactions_is_ignored(tmp_path):
    _, expected = aborted_in_two_segments(tmp_path)
    (tmp_path / "topic-0" / "headwater-aborted-checkpoint").write_bytes(b"0\n2\n0 x\n8")
    assert opened(tmp_path).logs[PARTITION].aborted_transactions(0, 8) == expected


def test_records_deleted_from_an_open_transaction_are_not_awaited(tmp_path):
    _, log = created(tmp_path)
    append(log, 4, producer=1, sequence=0, transactional=True)
    append(log, 1)
    log.advance_start(3)
    assert log.last_stable_offset(5) == 3


def test_replicated_transactions_are_forgotten_without_readers(tmp_path):
    _, log = created(tmp_path)
    for producer in range(4):
        append(log, 1, producer=producer, sequence=0, transactional=True)
        abort(log, producer)
    log.producers.forget_replicated(5)
    # The transaction that ended at offset 3 is replicated, even if the question is an older one.
    assert log.last_stable_offset(3) == 3
    assert log.last_stable_offset(6) == 6


def test_an_aborted_marker_that_is_not_written_leaves_no_entry(tmp_path):
    files = LossyFiles()
    _, log = created(tmp_path, files=files)
    append(log, 2, producer=5, sequence=0, transactional=True)
    log.staging.stage_marker(build_marker(Marker(5, 0, False, 0), now=1), 0, 1)
    files.fail_write = OSError(errno.ENOSPC, "full")
    with pytest.raises(OSError, match="full"):
        log.write_staged()
    assert log.aborted_transactions(0, 10) == []
    assert log.last_stable_offset(2) == 0


def test_what_the_page_cache_lacks_is_looked_up_and_read_by_the_reader_thread(tmp_path):
    class Evicted(LossyFiles):
        def pread_now(self, fd, size, offset):
            return None

    files = Evicted()
    dirs, log = created(tmp_path, SMALL, files)
    for number in range(60):
        append(log, 2, value=b"v" * (20 + number))
    expected = stored(log)
    _, log = reopened(dirs, tmp_path, SMALL, Evicted(), clean=True)
    assert log.read(7, 120, 300, True).load_now() is None
    assert stored(log, max_bytes=300) == expected
    assert stored(log, start=7)[0][:2] == (6, 7)


def test_a_partly_cached_range_counts_as_cold(tmp_path):
    class HalfEvicted(LossyFiles):
        def pread_now(self, fd, size, offset):
            return super().pread_now(fd, size // 2, offset)

    _, log = created(tmp_path, files=HalfEvicted())
    append(log, 2)
    piece = log.read(0, 2, 1_000, True)
    assert piece.load_now() is None
    assert len(piece.load()) == piece.size


def test_a_missing_index_of_a_sealed_segment_is_built_anew_when_it_is_read(tmp_path):
    dirs, log = created(tmp_path, SMALL)
    for _ in range(60):
        append(log, 2)
    expected = stored(log)
    dirs.close({})
    for path in (tmp_path / "topic-0").glob("*.index"):
        path.write_bytes(b"junk")
    _, log = reopened(dirs, tmp_path, SMALL)
    assert stored(log, max_bytes=250) == expected
    assert all(segment.index.count for segment in list(log.segments)[:-1])


# -- snapshots of producers speak of what is in the log, never of what is staged


def snapshots_of(log):
    """By offset, the last offsets of the producers in each snapshot in the folder."""
    files = OsFiles()
    return {
        offset: [
            batch[3]
            for row in snapshots.read(files, snapshots.stem(log.directory, offset))
            for batch in row.window
        ]
        for offset in snapshots.offsets(files, log.directory)
    }


def test_a_flush_between_staging_and_writing_does_not_take_the_retry_for_a_duplicate(tmp_path):
    dirs, log = created(tmp_path)
    append(log, 1, producer=7, sequence=0)
    stage(log, batch(producer=7, sequence=1))
    stage(log, batch(producer=8, sequence=0))
    work = log.unflushed(closing=True)
    work.run()
    log.mark_flushed(work)
    dirs.checkpoint({})()
    assert snapshots_of(log)[1] == [0]
    _, log = reopened(dirs, tmp_path)
    assert append(log, 1, producer=7, sequence=1) == (1, 1)
    assert append(log, 1, producer=8, sequence=0) == (2, 2)
    assert [row[0] for row in stored(log)] == [0, 1, 2]


def test_no_snapshot_has_a_batch_at_or_above_its_offset(tmp_path):
    """Rolls between the batches of one tick, flushes between staging and writing."""
    dirs, log = created(tmp_path, LogSettings(segment_bytes=300))
    chance, sequence, seen = random.Random(7), [0, 0], set()
    for _ in range(60):
        for _ in range(chance.randrange(1, 5)):
            producer = chance.randrange(2)
            stage(log, batch(producer=producer, sequence=sequence[producer]))
            sequence[producer] += 1
        if chance.random() < 0.3:
            flush(log, dirs)
        log.write_staged()
        if chance.random() < 0.5:
            flush(log, dirs)
        for offset, lasts in snapshots_of(log).items():
            seen.add(offset)
            assert all(last < offset for last in lasts), (offset, lasts)
    assert len(seen) > 20

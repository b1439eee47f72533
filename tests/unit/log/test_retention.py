import pytest

from headwater.errors import KafkaError
from headwater.log.retention import STEP, step
from headwater.log.settings import LogSettings
from headwater.log.time_lookup import TimeLookup
from tests.unit.log.support import NOW, PARTITION, append, created, opened, reopened, stored

HOUR = 3_600_000


def filled(tmp_path, **limits):
    settings = LogSettings(segment_bytes=1_000, **limits)
    dirs, log = created(tmp_path, settings)
    for number in range(40):
        append(log, 1, value=b"v" * 100, now=NOW + number * HOUR)
    return dirs, log, settings


def test_segments_whose_newest_record_is_too_old_go(tmp_path):
    _, log, _ = filled(tmp_path, retention_ms=10 * HOUR)
    end = log.log_end_offset
    dropped = log.retain(NOW + 39 * HOUR, end)
    assert dropped
    assert log.log_start_offset == log.segments[0].base_offset
    assert all(log.newest_timestamp(segment) >= NOW + 29 * HOUR for segment in log.segments)
    assert stored(log)[0][0] == log.log_start_offset
    assert log.size == sum(segment.size for segment in log.segments)


def test_nothing_above_the_high_watermark_goes(tmp_path):
    _, log, _ = filled(tmp_path, retention_ms=1)
    log.retain(NOW + 1000 * HOUR, log.segments[2].base_offset + 1)
    assert log.log_start_offset == log.segments[0].base_offset == 10


def test_an_active_segment_that_is_too_old_is_rolled_and_goes(tmp_path):
    dirs, log, settings = filled(tmp_path, retention_ms=HOUR)
    log.retain(NOW + 1000 * HOUR, 40)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (40, 40, 0)
    assert append(log) == (40, 40)
    _, log = reopened(dirs, tmp_path, settings)
    assert [row[:2] for row in stored(log)] == [(40, 40)]


def test_the_log_keeps_at_least_retention_bytes(tmp_path):
    _, log, _ = filled(tmp_path, retention_bytes=2_500)
    log.retain(NOW, 40)
    assert log.size >= 2_500
    assert log.size - log.segments[0].size < 2_500


def test_unlimited_retention_keeps_all(tmp_path):
    _, log, _ = filled(tmp_path, retention_ms=-1, retention_bytes=-1)
    assert log.retain(NOW + 10_000 * HOUR, 40) == []


def test_a_compacted_log_does_not_expire(tmp_path):
    _, log, _ = filled(tmp_path, retention_ms=1, cleanup_policy="compact")
    assert log.retain(NOW + 10_000 * HOUR, 40) == []


def test_deleted_records_are_gone_for_readers_at_once_and_their_segments_later(tmp_path):
    _, log, _ = filled(tmp_path, retention_ms=-1)
    log.advance_start(17)
    assert stored(log)[0][0] == 17
    assert TimeLookup(log, 40).at_or_after(NOW)[1] == 17
    dropped = log.retain(NOW, 40)
    assert [segment.base_offset for segment in dropped] == [0, 5, 10]
    assert log.log_start_offset == 17
    log.advance_start(3)
    assert log.log_start_offset == 17
    with pytest.raises(KafkaError):
        log.advance_start(41)


def test_dropped_files_are_renamed_and_listed_for_removal(tmp_path):
    _, log, _ = filled(tmp_path, retention_bytes=2_000)
    piece = log.read(0, 40, 100, True)
    log.retain(NOW, 40)
    assert all(path.endswith(".deleted") for path in log.segments.garbage)
    present = {str(path) for path in (tmp_path / "topic-0").glob("*.deleted")}
    assert present == set(log.segments.garbage)
    assert piece.load_now() is None


def test_retention_after_a_restart_knows_the_newest_timestamps(tmp_path):
    dirs, _, settings = filled(tmp_path, retention_ms=10 * HOUR)
    _, log = reopened(dirs, tmp_path, settings, clean=True)
    log.retain(NOW + 39 * HOUR, 40)
    assert 20 <= log.log_start_offset <= 30


def test_a_lost_time_index_does_not_make_a_segment_old(tmp_path):
    dirs, _, settings = filled(tmp_path, retention_ms=10 * HOUR)
    dirs.close({})
    for path in (tmp_path / "topic-0").glob("*.timeindex"):
        path.write_bytes(path.read_bytes()[:-12] + bytes(12))
    _, log = reopened(dirs, tmp_path, settings)
    log.retain(NOW + 39 * HOUR, 40)
    assert 20 <= log.log_start_offset <= 30


def test_a_load_of_a_segment_that_is_gone_says_so(tmp_path):
    _, log, _ = filled(tmp_path, retention_bytes=2_000)
    piece = log.read(0, 40, 100, True)
    log.retain(NOW, 40)
    with pytest.raises(KafkaError, match="removed meanwhile"):
        piece.load()


def test_one_step_drops_a_bounded_number_of_segments(tmp_path):
    settings = LogSettings(segment_bytes=150, retention_ms=HOUR)
    _, log = created(tmp_path, settings)
    for _ in range(2 * STEP + 5):
        append(log, 1, value=b"v" * 100, now=NOW)
    segments, end = len(log.segments), log.log_end_offset
    sizes, more = [], True
    while more:
        done = step(log, NOW + 2 * HOUR, end, may_roll=True)
        sizes.append(len(done.dropped))
        more = done.more
    assert sizes == [STEP, STEP, segments - 2 * STEP]


def test_an_expired_segment_that_is_alone_waits_for_leave_to_roll(tmp_path):
    _, log = created(tmp_path, LogSettings(retention_ms=HOUR))
    append(log, 1, now=NOW)
    done = step(log, NOW + 2 * HOUR, 1, may_roll=False)
    assert (done.dropped, done.more, done.needs_roll) == ([], False, True)
    assert len(step(log, NOW + 2 * HOUR, 1, may_roll=True).dropped) == 1


@pytest.mark.parametrize("each", [HOUR, -HOUR])
@pytest.mark.parametrize("place", range(2))
def test_no_flipped_bit_in_a_time_index_costs_fresh_records(tmp_path, each, place):
    """Segments of one entry, and of several; timestamps that grow, and that fall."""
    settings = LogSettings(
        segment_bytes=1_000, index_interval_bytes=(4096, 200)[place], retention_ms=100 * HOUR
    )
    dirs, log = created(tmp_path, settings)
    for number in range(12):
        append(log, 1, value=b"v" * 100, now=NOW + number * each)
    rows, now_ms = stored(log), NOW + 30 * HOUR
    dirs.close({})
    path = tmp_path / "topic-0" / "00000000000000000000.timeindex"
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        dirs = opened(tmp_path, settings)
        log = dirs.logs[PARTITION]
        assert log.retain(now_ms, log.log_end_offset) == [], bit
        assert stored(log) == rows
        dirs.close({})


def test_an_index_that_is_right_is_not_built_again(tmp_path, caplog):
    dirs, _, settings = filled(tmp_path, retention_ms=10 * HOUR)
    _, log = reopened(dirs, tmp_path, settings, clean=True)
    assert log.retain(NOW + 39 * HOUR, log.log_end_offset)
    assert "built again" not in caplog.text

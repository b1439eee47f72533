"""Offsets by time: the right record, no more read of a batch than it takes, any damage survived."""

import pytest

from headwater.errors import E, KafkaError
from headwater.log.settings import LogSettings
from headwater.log.time_lookup import TimeLookup
from headwater.records.builder import build_batch
from headwater.records.record import Record, encode_records
from headwater.records.record_scan import first_not_older
from tests.unit.log.support import NOW, append, created, reopened, stage

SMALL = LogSettings(segment_bytes=2_000, index_interval_bytes=200)
TIMES = [5, 9, 7, 12, 12, 3, 20]


def packed(log, codec, times=TIMES):
    rows = [Record(index, NOW + time, b"k", b"v", ()) for index, time in enumerate(times)]
    stage(log, memoryview(build_batch(rows, now=NOW, codec=codec)))
    log.write_staged()


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("wanted", range(25))
def test_the_first_record_of_a_batch_that_is_new_enough(tmp_path, codec, wanted):
    _, log = created(tmp_path)
    packed(log, codec)
    found = TimeLookup(log, 7).at_or_after(NOW + wanted)
    expected = next(((NOW + t, at, 0) for at, t in enumerate(TIMES) if t >= wanted), None)
    assert found == expected


def test_records_below_the_log_start_are_not_found(tmp_path):
    _, log = created(tmp_path)
    packed(log, 0)
    log.advance_start(2)
    assert TimeLookup(log, 7).at_or_after(NOW + 4) == (NOW + 7, 2, 0)


def test_a_batch_that_unpacks_to_more_than_allowed_counts_as_one_record(tmp_path):
    _, log = created(tmp_path)
    packed(log, 4, [*[1] * 5000, 2])
    assert TimeLookup(log, 5001, most_bytes=1000).at_or_after(NOW + 2) == (NOW + 2, 0, 0)
    assert TimeLookup(log, 5001).at_or_after(NOW + 2) == (NOW + 2, 5000, 0)


def test_the_walk_ends_at_the_first_record_that_fits():
    """What follows may be anything: it is not looked at."""
    rows = [Record(index, NOW + time, b"k", b"v", ()) for index, time in enumerate(TIMES)]
    area = encode_records(rows, NOW)
    cut = area[: len(area) // 2]
    assert first_not_older(cut, len(TIMES), 9, 0) == (9, 1)
    with pytest.raises(KafkaError) as refused:
        first_not_older(cut, len(TIMES), 20, 0)
    assert refused.value.code is E.INVALID_RECORD


@pytest.mark.parametrize("clean", [True, False])
def test_times_are_found_after_a_restart_without_a_write(tmp_path, clean):
    dirs, log = created(tmp_path, SMALL)
    for number in range(60):
        append(log, 1, value=b"v" * 80, now=1_000 + 10 * number)
    _, log = reopened(dirs, tmp_path, SMALL, clean=clean)
    assert TimeLookup(log, 60).newest() == (1_590, 59, 0)
    for number in range(60):
        assert TimeLookup(log, 60).at_or_after(991 + 10 * number) == (
            1_000 + 10 * number,
            number,
            0,
        )
    if clean:  # after a crash recovery has read them
        assert all(segment.time_index._entries is None for segment in list(log.segments)[:-1])


def test_a_segment_removed_meanwhile_is_passed_over(tmp_path):
    _, log = created(tmp_path, SMALL)
    for number in range(60):
        append(log, 1, value=b"v" * 80, now=1_000 + 10 * number)
    lookup = TimeLookup(log, 60)
    log.drop_first()
    found = lookup.at_or_after(1_000)
    assert found is not None
    assert found[1] == log.segments[0].base_offset


def test_a_log_cut_meanwhile_gives_no_offset_that_is_gone(tmp_path):
    _, log = created(tmp_path)
    for number in range(20):
        append(log, 1, now=1_000 + number)
    lookup = TimeLookup(log, 20)
    read = log.segments.files.open

    def cut_first(path, **how):
        fd = read(path, **how)
        if how.get("write") is False and log.log_end_offset == 20:
            log.truncate_to(5)
        return fd

    log.segments.files.open = cut_first
    try:
        with pytest.raises(KafkaError) as refused:
            lookup.at_or_after(1_003)
    finally:
        del log.segments.files.open
    assert refused.value.code in (E.OFFSET_NOT_AVAILABLE, E.KAFKA_STORAGE_ERROR)

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.aborted_index import AbortedIndex, AbortedTransaction
from headwater.log.offset_index import OffsetIndex
from headwater.log.settings import LogSettings
from headwater.log.time_index import TimeIndex
from headwater.log.time_lookup import TimeLookup
from headwater.seams.files import OsFiles
from tests.unit.log.support import append, created, flush, reopened, stored

FILES = OsFiles()
EAGER = LogSettings(index_interval_bytes=300)


def fresh(kind, tmp_path):
    return kind(FILES, str(tmp_path / "index"), fresh=True)


def loaded(kind, tmp_path):
    return kind(FILES, str(tmp_path / "index"))


def test_w1_offset_600_is_looked_for_from_the_batch_that_ends_at_587(tmp_path):
    base = 522
    index = fresh(OffsetIndex, tmp_path)
    for offset, position in [(587, 6410), (639, 13795), (691, 21060), (743, 28367)]:
        index.append(offset - base, position)
    assert index.lookup(600 - base) == (587 - base, 6410)
    assert index.lookup(522 - base) == (-1, 0)
    assert index.lookup(743 - base) == (743 - base, 28367)
    index.save()
    content = (tmp_path / "index").read_bytes()
    assert content == struct.pack(">8i", 65, 6410, 117, 13795, 169, 21060, 221, 28367)
    assert loaded(OffsetIndex, tmp_path).lookup(600 - base) == (65, 6410)


def test_w1_the_walk_forward_from_the_entry_finds_the_batch_that_holds_offset_600(tmp_path):
    _, log = created(tmp_path, LogSettings(index_interval_bytes=7_000))
    log.truncate_fully(522)
    for _ in range(17):
        append(log, 13, value=b"v" * 140)
    assert log.log_end_offset == 743
    segment = log.segments.active
    entry = segment.index.lookup(600 - 522)
    assert 0 <= entry[0] < 600 - 522 < segment.index.last()[0]
    position, header = segment.find(segment.read_blocking, 600)
    assert entry[1] <= position
    assert header[0] <= 600 <= header[0] + header[6]


@given(st.sets(st.integers(0, 3000), max_size=60), st.booleans(), st.lists(st.integers(-2, 3100)))
def test_a_lookup_gives_the_last_entry_at_or_before_its_target(numbers, uneven, targets):
    index = OffsetIndex(FILES, "", fresh=True)
    entries = [(-1, 0)]
    for number in sorted(numbers):
        entries.append((number, number**2 + 1 if uneven else 7 * number + 1))
        index.append(*entries[-1])
    for target in targets:
        assert index.lookup(target) == max(row for row in entries if row[0] <= max(target, -1))
        position = target**2 if uneven else 7 * target
        wanted = max(row for row in entries if row[1] <= max(position, 0))
        assert index.lookup_position(position) == wanted


@pytest.mark.parametrize("tail", [b"\0" * 64, b"\0\0\0", b"\xff" * 8, struct.pack(">ii", 1, 5)])
def test_an_offset_index_with_a_senseless_tail_is_taken_up_to_it(tmp_path, tail):
    (tmp_path / "index").write_bytes(struct.pack(">4i", 3, 70, 8, 140) + tail)
    index = loaded(OffsetIndex, tmp_path)
    assert index.count == 2
    assert index.damaged
    index.save()
    assert (tmp_path / "index").stat().st_size == 16


def test_a_time_index_keeps_only_growing_timestamps(tmp_path):
    index = fresh(TimeIndex, tmp_path)
    for timestamp, offset in [(10, 1), (10, 3), (5, 4), (30, 9)]:
        index.append(timestamp, offset)
    assert [index.lookup(at) for at in (0, 10, 11, 30, 31)] == [-1, -1, 1, 1, 9]
    assert index.last() == (30, 9)
    index.cut_from(9)
    assert index.last() == (10, 1)


def test_a_time_index_with_zeros_at_its_end_is_taken_up_to_them(tmp_path):
    (tmp_path / "index").write_bytes(struct.pack(">qi", 10, 1) + bytes(24))
    index = loaded(TimeIndex, tmp_path)
    assert (index.count, index.damaged) == (1, True)


def test_aborted_transactions_survive_a_save(tmp_path):
    index = fresh(AbortedIndex, tmp_path)
    rows = [AbortedTransaction(1, 0, 5, 3), AbortedTransaction(2, 3, 9, 10)]
    for row in rows:
        index.append(row)
    index.save()
    again = loaded(AbortedIndex, tmp_path)
    assert list(again) == rows
    again.cut_from(9)
    assert list(again) == rows[:1]
    assert (tmp_path / "index").stat().st_size == 2 * 34


def test_entries_are_saved_once_and_only_what_is_new(tmp_path):
    index = fresh(OffsetIndex, tmp_path)
    index.append(1, 10)
    assert index.unsaved() == (-1, struct.pack(">ii", 1, 10))
    index.save()
    index.append(2, 20)
    assert index.unsaved() == (8, struct.pack(">ii", 2, 20))
    index.save()
    assert index.unsaved() is None
    index.release()
    assert index.lookup(2) == (2, 20)


@pytest.mark.parametrize("bit", range(64))
def test_a_flipped_bit_in_an_index_entry_costs_a_rebuild_and_no_wrong_answer(tmp_path, bit):
    dirs, log = created(tmp_path, EAGER)
    for _ in range(40):
        append(log, 2)
    flush(log, dirs)
    expected = stored(log)
    dirs.close({})
    path = tmp_path / "topic-0" / "00000000000000000000.index"
    content = bytearray(path.read_bytes())
    content[16 + bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    _, log = reopened(dirs, tmp_path, EAGER)
    for offset in range(80):
        assert stored(log, start=offset) == expected[offset // 2 :]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("clean", [True, False])
def test_missing_indexes_and_snapshots_are_built_anew(tmp_path, suffix, clean):
    dirs, log = created(tmp_path, EAGER)
    for number in range(40):
        append(log, 1, producer=9, sequence=number, now=1_000 + number)
    flush(log, dirs)
    expected = stored(log)
    if clean:
        dirs.close({})
    for path in (tmp_path / "topic-0").glob(f"*{suffix}"):
        path.unlink()
    _, log = reopened(dirs, tmp_path, EAGER)
    assert stored(log) == expected
    assert log.producers.get(9).last_sequence == 39
    assert TimeLookup(log, 40).at_or_after(1_020) == (1_020, 20, 0)
    assert append(log, 1, producer=9, sequence=40) == (40, 40)


def test_indexes_of_sealed_segments_do_not_pile_up_in_memory(tmp_path):
    limits = LogSettings(segment_bytes=600, index_interval_bytes=100)
    dirs, log = created(tmp_path, limits)
    for _ in range(150):
        append(log, 2)
    assert len(log.segments) > 20
    dirs, log = reopened(dirs, tmp_path, limits, clean=True)
    stored(log)
    assert sum(segment.index._entries is not None for segment in log.segments) <= 9


def test_a_lookup_reads_the_index_of_a_sealed_segment_on_a_reader_thread(tmp_path):
    limits = LogSettings(segment_bytes=600, index_interval_bytes=100)
    dirs, log = created(tmp_path, limits)
    for _ in range(30):
        append(log, 2)
    dirs, log = reopened(dirs, tmp_path, limits, clean=True)
    segment = log.segments[0]
    piece = log.read(1, log.log_end_offset, 200, True)
    assert piece.load_now() is None
    assert not segment.index.loaded
    data = piece.load()
    assert segment.index.loaded
    assert log.read(1, log.log_end_offset, 200, True).load_now() == data

import os
import shutil

import pyarrow as pa
import pytest

from headwater.config.keys import ConfigError
from headwater.errors import KafkaError
from headwater.log.aborted_index import AbortedIndex, AbortedTransaction
from headwater.log.offset_index import OffsetIndex
from headwater.model import TopicPartition
from headwater.pipelines.segments import segment_scan
from headwater.pipelines.segments.files import MAX_OFFSET, aborted_in, find_segments, split
from headwater.pipelines.segments.options import parse_options
from headwater.pipelines.segments.rows import RecordFilter, batches, records
from headwater.pipelines.segments.segment_scan import DamagedRange, SoundBatch, scan_segment
from headwater.records.batch import HEADER_SIZE, assign
from headwater.records.checksum import crc32c
from headwater.records.control import Marker, build_marker
from headwater.seams.files import OsFiles
from tests.unit.pipelines.segment_files import NOW, batch, flip, segment

SIZE = len(batch(0))


def shape(path, base=0, **where):
    """Offset of each batch, or the reason of each damage, with position and size."""
    return [
        (
            found.header.base_offset if isinstance(found, SoundBatch) else "damage",
            *found[:1],
            found.size,
        )
        for found in scan_segment(str(path), base, **where)
    ]


@pytest.fixture
def path(tmp_path):
    return segment(tmp_path / "orders-0", 0, [batch(0), batch(3), batch(6), batch(9)])


def test_a_walk_gives_every_batch_and_its_bytes(path):
    found = list(scan_segment(str(path), 0))
    assert [each.header.base_offset for each in found] == [0, 3, 6, 9]
    assert b"".join(each.data for each in found) == path.read_bytes()


def test_a_walk_reads_files_that_are_larger_than_its_window(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_scan, "WINDOW", 100)
    large = batch(3, value=bytes(1000))
    path = segment(tmp_path / "orders-0", 0, [batch(0), large, batch(6)])
    assert [row[0] for row in shape(path)] == [0, 3, 6]


def test_a_batch_with_a_wrong_checksum_is_one_damage_and_the_next_is_read(path):
    flip(path, SIZE + 70)
    assert shape(path) == [
        (0, 0, SIZE),
        ("damage", SIZE, SIZE),
        (6, 2 * SIZE, SIZE),
        (9, 3 * SIZE, SIZE),
    ]


@pytest.mark.parametrize("field", [8, 9, 10, 11, 16], ids=lambda at: f"byte {at}")
def test_a_wrong_length_or_magic_costs_its_own_batch_only(path, field):
    flip(path, SIZE + field)
    assert shape(path) == [
        (0, 0, SIZE),
        ("damage", SIZE, SIZE),
        (6, 2 * SIZE, SIZE),
        (9, 3 * SIZE, SIZE),
    ]


def test_an_offset_that_no_segment_of_this_name_has_is_damage(path):
    flip(path, SIZE + 1)
    assert [row[0] for row in shape(path)] == [0, "damage", 6, 9]
    reasons = [
        found.reason for found in scan_segment(str(path), 0) if isinstance(found, DamagedRange)
    ]
    assert reasons == [f"offset {(0x10 << 48) + 3} cannot be in this segment"]


def test_batches_of_garbage_headers_are_rows_all_the_same(path):
    data = bytearray(path.read_bytes())
    data[SIZE : SIZE + 8] = b"\x7f" + b"\xff" * 7
    path.write_bytes(data)
    (only,) = find_segments(str(path))
    kinds = pa.schema([("last_offset", pa.int64()), ("crc_ok", pa.bool_())])
    (rows,) = batches(split(only, 1 << 30)[0], RecordFilter(failfast=False), kinds)
    assert rows.column("crc_ok").to_pylist() == [True, False, True, True]
    assert rows.column("last_offset").to_pylist() == [2, MAX_OFFSET, 8, 11]


def test_damage_across_the_windows_of_a_search_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_scan, "WINDOW", 100)
    large = batch(3, value=b"\x02" * 700)
    path = segment(tmp_path / "orders-0", 0, [batch(0), large, batch(6)])
    flip(path, SIZE + 8)
    assert shape(path)[1:] == [("damage", SIZE, len(large)), (6, SIZE + len(large), SIZE)]


def test_batches_inside_a_damaged_value_are_not_taken_for_the_logs_own(tmp_path):
    nested = batch(3, count=1, value=batch(4))
    path = segment(tmp_path / "orders-0", 0, [batch(0), nested, batch(5)])
    flip(path, SIZE + 30)
    assert [row[0] for row in shape(path)] == [0, "damage", 5]


def test_a_torn_tail_is_damage_to_the_end_of_the_file(path):
    os.truncate(path, 4 * SIZE - 5)
    assert shape(path)[-1] == ("damage", 3 * SIZE, SIZE - 5)
    os.truncate(path, 3 * SIZE + 20)
    assert shape(path)[-1] == ("damage", 3 * SIZE, 20)


def test_garbage_is_one_damage(tmp_path):
    path = segment(tmp_path / "orders-0", 0, [b"\x02" * 5000])
    assert shape(path) == [("damage", 0, 5000)]


def test_a_walk_over_a_part_stays_in_it(path):
    assert [row[0] for row in shape(path, start=SIZE, end=3 * SIZE)] == [3, 6]


def test_damage_says_what_its_header_says(path):
    flip(path, 70)
    damage = next(scan_segment(str(path), 0))
    assert isinstance(damage, DamagedRange)
    assert damage.reason == "the checksum is wrong"
    assert damage.header is not None
    assert damage.header.count == 3


def found(path, named=None):
    return [(s.topic, s.partition, s.base_offset) for s in find_segments(str(path), named)]


@pytest.fixture
def data(tmp_path):
    segment(tmp_path / "orders-0", 0, [batch(0)])
    segment(tmp_path / "orders-0", 3, [batch(3)])
    segment(tmp_path / "orders-1", 0, [batch(0)])
    segment(tmp_path / "my-topic-10", 7, [batch(7)])
    segment(tmp_path / "gone-0.0123456789abcdef0123456789abcdef-delete", 0, [batch(0)])
    segment(tmp_path / "headwater-metadata", 0, [batch(0)])
    (tmp_path / "orders-0" / "00000000000000000009.log.deleted").write_bytes(b"")
    (tmp_path / "orders-0" / "00000000000000000000.index").write_bytes(b"")
    (tmp_path / "meta.properties").write_text("version=1\n")
    return tmp_path


def test_a_data_folder_means_the_segments_of_all_its_partitions(data):
    assert found(data) == [
        ("my-topic", 10, 7),
        ("orders", 0, 0),
        ("orders", 0, 3),
        ("orders", 1, 0),
    ]


def test_a_partition_a_file_and_a_glob_mean_what_they_name(data):
    assert found(data / "orders-0") == [("orders", 0, 0), ("orders", 0, 3)]
    assert found(data / "orders-0" / f"{3:020d}.log") == [("orders", 0, 3)]
    assert found(data / "orders-*") == [("orders", 0, 0), ("orders", 0, 3), ("orders", 1, 0)]
    assert found(f"file://{data}/orders-1") == [("orders", 1, 0)]


def test_a_file_that_a_glob_matches_twice_is_read_once(data):
    for name in ("one", "two"):
        (data / name).symlink_to(data)
    assert found(data / "*" / "orders-1") == [("orders", 1, 0)]


def test_a_segment_ends_where_the_next_of_its_folder_begins(data):
    first, last = find_segments(str(data / "orders-0"))
    assert (first.next_offset, last.next_offset) == (3, MAX_OFFSET)


def test_files_outside_a_partitions_folder_need_a_name(data):
    folder = shutil.copytree(data / "orders-0", data / "backup")
    with pytest.raises(KafkaError, match="give the options topic and partition"):
        found(folder)
    assert found(folder, TopicPartition("x", 2)) == [("x", 2, 0), ("x", 2, 3)]


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(KafkaError, match="no segment file"):
        found(tmp_path)
    with pytest.raises(KafkaError, match="does not exist"):
        found(tmp_path / "missing")
    with pytest.raises(KafkaError, match="no segment file"):
        found(tmp_path / "*.log")


def positions(path, limit):
    (only,) = find_segments(str(path))
    pieces = split(only, limit)
    assert [piece.end for piece in pieces[:-1]] == [piece.start for piece in pieces[1:]]
    assert pieces[-1].end == path.stat().st_size
    return [piece.start for piece in pieces]


def test_a_large_file_is_split_where_batches_begin(path):
    assert positions(path, 4 * SIZE) == [0]
    assert positions(path, 2 * SIZE) == [0, 2 * SIZE]
    assert positions(path, 1) == [0, SIZE, 2 * SIZE, 3 * SIZE]


def test_the_offset_index_leads_to_the_places_of_a_split(path):
    index = OffsetIndex.ENTRY.pack(5, SIZE) + OffsetIndex.ENTRY.pack(11, 3 * SIZE)
    path.with_suffix(".index").write_bytes(index)
    assert positions(path, 1) == [0, SIZE, 3 * SIZE]


def test_an_index_that_leads_to_no_batch_is_not_believed(path):
    index = OffsetIndex.ENTRY.pack(5, SIZE) + OffsetIndex.ENTRY.pack(11, 3 * SIZE - 1)
    path.with_suffix(".index").write_bytes(index)
    assert positions(path, 1) == [0, SIZE]


def test_a_split_ends_before_damage(path):
    flip(path, 2 * SIZE + 16)
    assert positions(path, 1) == [0, SIZE]


def test_options_are_taken_in_any_case_and_have_defaults():
    options = parse_options(
        {"path": "/x", "startingoffsets": "7", "kafka.isolation.level": "read_committed"}
    )
    assert (options.starts, options.ends, options.committed) == (7, MAX_OFFSET, True)
    assert (options.level, options.failfast, options.headers) == ("records", True, False)
    assert not parse_options({"path": "/x", "level": "batches"}).failfast
    assert parse_options({"path": "/x", "level": "batches", "mode": "failfast"}).failfast


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name a folder"),
        ({"path": "/x", "startingOffset": "1"}, "did you mean startingOffsets"),
        ({"path": "/x", "mode": "lenient"}, "failfast or permissive, not 'lenient'"),
        ({"path": "/x", "partition": "-1"}, "partition takes a whole number"),
        ({"path": "/x", "endingOffsets": "soon"}, "endingOffsets takes JSON"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_a_remedy(given, said):
    with pytest.raises(ConfigError, match=said):
        parse_options(given)


def test_files_that_cannot_hold_what_is_wanted_are_left_out(data):
    first, last = find_segments(str(data / "orders-0"))
    late = last._replace(last_timestamp=1000)

    def wanted(segment, **options):
        return parse_options({"path": "/x", **options}).may_want(segment)

    assert wanted(first)
    assert not wanted(first, startingOffsets='{"orders": {"0": 3}}')
    assert wanted(first, startingOffsets='{"orders": {"1": 3}}')
    assert not wanted(last, endingOffsets="3")
    assert not wanted(last, topic="other")
    assert not wanted(last, partition="1")
    assert wanted(late, startingTimestamp="1000")
    assert not wanted(late, startingTimestamp="1001")
    assert wanted(last, startingTimestamp="1001")


def rows_of(path, **wanted):
    (only,) = find_segments(str(path))
    kinds = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
    found = records(split(only, 1 << 30)[0], RecordFilter(**wanted), kinds)
    return [row for batch in found for row in batch.to_pylist()]


def test_records_are_cut_at_offsets_and_times_inside_batches(path):
    assert [row["offset"] for row in rows_of(path)] == [*range(12)]
    assert [row["offset"] for row in rows_of(path, start_offset=4, end_offset=8)] == [4, 5, 6, 7]
    inside = rows_of(path, start_ms=NOW + 1, end_ms=NOW + 2)
    assert [row["offset"] for row in inside] == [1, 4, 7, 10]


def test_records_of_aborted_transactions_and_markers_are_not_shown(tmp_path):
    kinds = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    marker = build_marker(Marker(5, 0, commit=False, coordinator_epoch=0), NOW)
    assign(marker, 6, 0)
    path = segment(
        tmp_path / "orders-0",
        0,
        [
            batch(0, base_sequence=0, **kinds),
            batch(3),
            bytes(marker),
            batch(7, base_sequence=3, **kinds),
        ],
    )
    index = AbortedIndex(OsFiles(), str(path.with_suffix(".txnindex")), fresh=True)
    index.append(AbortedTransaction(5, first_offset=0, last_offset=6, last_stable_offset=7))
    index.save()
    aborted = aborted_in([str(path.parent)])
    assert [row["offset"] for row in rows_of(path)] == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert [row["offset"] for row in rows_of(path, aborted=aborted)] == [3, 4, 5, 7, 8, 9]


def test_a_time_that_microseconds_cannot_hold_is_null(tmp_path):
    path = segment(tmp_path / "orders-0", 0, [batch(0, count=1), batch(1, count=1, now=1 << 62)])
    assert [row["timestamp"] is None for row in rows_of(path)] == [False, True]


def test_records_that_do_not_decode_are_damage_though_the_checksum_is_right(tmp_path):
    broken = bytearray(batch(3))
    broken[HEADER_SIZE] ^= 4  # the length of the first record
    broken[17:21] = crc32c(broken[21:]).to_bytes(4)
    path = segment(tmp_path / "orders-0", 0, [batch(0), bytes(broken), batch(6)])
    with pytest.raises(KafkaError, match=f"damaged at position {SIZE}"):
        rows_of(path)
    assert [row["offset"] for row in rows_of(path, failfast=False)] == [0, 1, 2, 6, 7, 8]

import tracemalloc

import pytest

from headwater.errors import E, KafkaError
from headwater.records.batch import HEADER_SIZE, read_header
from headwater.records.builder import build_batch
from headwater.records.compression import Codec, compress
from headwater.records.control import Marker, build_marker
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record, decode_records
from headwater.records.varint import write_varint
from tests.unit.records.codecs import codec

__all__ = ["codec"]

NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW, b"key", b"value", (("h", b"1"), ("h", None), ("ключ", b""))),
    Record(1, NOW - 5, None, b"v" * 300),
    Record(2, NOW + 70_000, b"", None),
    Record(3, NOW, None, None),
    Record(4, NOW + 1, None, b"x" * 70_000),
    Record(5, NOW + 64, b"k" * 9_000, b""),
]
MIB = 1 << 20


def rows(records, kind=0):
    return [(record[0], record[1], kind, *record[2:]) for record in records]


def sealed(area, **fields):
    """A batch with a right checksum around this records area."""
    header = read_header(build_batch(RECORDS[:1], now=NOW))._replace(**fields)
    return complete_batch(tuple(header), area)


def refusal(codec, batch, **options):
    with pytest.raises(KafkaError) as refused:
        codec.decode_batch(batch, **options)
    reader = codec.ColumnReader()
    with pytest.raises(KafkaError) as again:
        reader.add(batch, **options)
    assert reader.count == reader.size == 0
    assert refused.value.code == again.value.code
    return refused.value.code


@pytest.mark.parametrize("compression", Codec)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batches_are_read_as_they_were_built(codec, compression, kind):
    batch = build_batch(RECORDS, now=NOW, codec=compression, base_offset=500)
    expected = [(500 + row[0], *row[1:]) for row in rows(RECORDS)]
    assert codec.decode_batch(kind(batch)) == (len(batch), expected)


def test_a_batch_is_read_where_it_stands(codec):
    batch = build_batch(RECORDS, now=NOW)
    assert codec.decode_batch(b"before" + batch + b"after", 6) == (len(batch), rows(RECORDS))


def test_under_log_append_time_every_record_bears_the_maximum(codec):
    batch = build_batch(RECORDS, now=NOW + 9, timestamp_type=1)
    stamped = [record._replace(timestamp=NOW + 9) for record in RECORDS]
    assert codec.decode_batch(batch)[1] == rows(stamped, 1)


def test_times_of_both_ends_of_64_bits_wrap_as_in_java(codec):
    extremes = [Record(0, -(2**63), b"k"), Record(1, 2**63 - 1, b"k"), Record(2, 0, b"k")]
    assert codec.decode_batch(build_batch(extremes, now=NOW))[1] == rows(extremes)


def test_offsets_of_a_compacted_batch_keep_their_gaps(codec):
    area = b"".join(_single(place) for place in (3, 70, 199))
    batch = sealed(area, base_offset=1000, last_offset_delta=199, count=3)
    offsets = [row[0] for row in codec.decode_batch(batch)[1]]
    assert offsets == [1003, 1070, 1199]


def _single(place, headers=b"\x00"):
    body = b"\x00\x00" + write_varint(place) + b"\x02k\x02v" + headers
    return write_varint(len(body)) + body


def test_a_batch_that_compaction_emptied_is_no_error(codec):
    batch = sealed(b"", count=0, last_offset_delta=9)
    assert codec.decode_batch(batch) == (HEADER_SIZE, [])


def test_control_batches_show_their_record_only_when_asked(codec):
    batch = build_marker(Marker(7, 0, True, 3), NOW)
    assert codec.decode_batch(batch) == (len(batch), [])
    assert codec.decode_batch(batch, control=True)[1] == rows(decode_records(batch))


def test_a_skipped_control_batch_is_checked_all_the_same(codec):
    batch = build_marker(Marker(7, 0, True, 3), NOW)
    batch[-1] ^= 1
    with pytest.raises(KafkaError):
        codec.decode_batch(batch)


def test_header_keys_that_are_no_utf_8_are_shown_with_replacement_characters(codec):
    batch = sealed(_single(0, b"\x02\x04a\xff\x02v"))
    assert codec.decode_batch(batch)[1][0][5] == (("a\ufffd", b"v"),)


def test_keys_and_values_outlive_the_buffer(codec):
    batch = build_batch(RECORDS, now=NOW)
    _, got = codec.decode_batch(memoryview(batch))
    batch[:] = bytes(len(batch))
    batch.append(0)  # nobody holds the buffer any more
    assert got == rows(RECORDS)


@pytest.mark.parametrize("compression", Codec)
def test_one_flipped_bit_anywhere_after_the_checksum_is_seen(codec, compression):
    batch = build_batch(RECORDS[:2], now=NOW, codec=compression)
    for position in range(17, len(batch)):
        batch[position] ^= 4
        assert refusal(codec, batch) == E.CORRUPT_MESSAGE
        batch[position] ^= 4


def test_the_checksum_can_be_left_to_another(codec):
    batch = build_batch(RECORDS, now=NOW)
    batch[17] ^= 1
    assert codec.decode_batch(batch, 0, False)[1] == rows(RECORDS)


@pytest.mark.parametrize("size", [0, 1, 11, 12, 60, 61, 100])
def test_a_cut_batch_is_corrupt(codec, size):
    assert refusal(codec, build_batch(RECORDS, now=NOW)[:size]) == E.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_senseless_lengths_are_corrupt(codec, length):
    batch = build_batch(RECORDS, now=NOW)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    assert refusal(codec, batch) == E.CORRUPT_MESSAGE


def test_a_position_outside_of_the_buffer_is_corrupt(codec):
    batch = build_batch(RECORDS, now=NOW)
    for pos in (-1, -(2**62), len(batch), 2**62):
        with pytest.raises(KafkaError):
            codec.decode_batch(batch, pos)


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, E.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (1, E.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (3, E.CORRUPT_MESSAGE),
        (255, E.CORRUPT_MESSAGE),
    ],
)
def test_other_formats_are_refused_by_name(codec, magic, code):
    batch = build_batch(RECORDS, now=NOW)
    batch[16] = magic
    assert refusal(codec, batch) == code


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 2, 2**31 - 1])
def test_a_count_that_is_not_that_of_the_records_is_refused_at_no_cost(codec, count):
    batch = sealed(_single(0), count=count)
    tracemalloc.start()
    assert refusal(codec, batch) == E.INVALID_RECORD
    assert tracemalloc.get_traced_memory()[1] < MIB
    tracemalloc.stop()


@pytest.mark.parametrize(
    "area",
    [
        pytest.param(b"\xff" * 5, id="length too long"),
        pytest.param(b"\x0b" + _single(0)[1:], id="length negative"),
        pytest.param(b"\x80", id="cut in its length"),
        pytest.param(_single(0)[:-1], id="cut in its headers"),
        pytest.param(_single(0) + b"\x00", id="a byte too much"),
        pytest.param(b"\x12\x00\x00\x00\x02k\x02v\x00\x00", id="a byte unused inside"),
        pytest.param(b"\x10\x00\x00\x00\x03\x02v\x00\x00", id="key length -2"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x03\x00", id="value length -2"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x7e\x00", id="value past the record"),
        pytest.param(b"\x14\x00\x00\x00\x01\xfe\xff\xff\xff\x0f\x00", id="value of 2 GiB"),
        pytest.param(_single(0, b"\x01"), id="headers -1"),
        pytest.param(_single(0, b"\xfe\xff\xff\xff\x0f"), id="headers by the billion"),
        pytest.param(_single(0, b"\x02\x01\x01"), id="a header without a key"),
        pytest.param(_single(0, b"\x02\x02a\x7e"), id="a header's value past the record"),
        pytest.param(_single(0, b"\x02\x02a\x01\x00"), id="a byte after the headers"),
        pytest.param(b"\x20\x00" + b"\xff" * 9 + b"\x02\x00\x01\x01\x00", id="time of 65 bits"),
        pytest.param(b"\x16\x00\x00\xff\xff\xff\xff\x1f\x01\x01\x00", id="number of 33 bits"),
    ],
)
def test_malformed_records_are_invalid(codec, area):
    assert refusal(codec, sealed(area)) == E.INVALID_RECORD


def test_offsets_that_leave_64_bits_are_invalid(codec):
    batch = sealed(_single(5), base_offset=2**63 - 3)
    assert refusal(codec, batch) == E.INVALID_RECORD
    batch = sealed(_single(-5), base_offset=-(2**63) + 3)
    assert refusal(codec, batch) == E.INVALID_RECORD


def test_the_last_offset_there_is_can_be_read(codec):
    batch = sealed(_single(2), base_offset=2**63 - 3)
    assert codec.decode_batch(batch)[1][0][0] == 2**63 - 1


@pytest.mark.parametrize("compression", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_goes_off_within_its_bounds(codec, compression):
    batch = sealed(compress(compression, bytes(64 * MIB)), attributes=int(compression))
    tracemalloc.start()
    assert refusal(codec, batch, limit=MIB) == E.MESSAGE_TOO_LARGE
    assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    tracemalloc.stop()


def test_what_is_not_compressed_has_no_limit(codec):
    batch = build_batch(RECORDS, now=NOW)
    assert codec.decode_batch(batch, limit=1) == codec.decode_batch(batch)
    assert codec.decode_columns(batch, limit=1).count == len(RECORDS)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unknown_codecs_are_refused(codec, number):
    assert refusal(codec, sealed(_single(0), attributes=number)) == E.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("compression", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_its_codec_cannot_undo_is_invalid(codec, compression):
    assert refusal(codec, sealed(b"rubbish", attributes=int(compression))) == E.INVALID_RECORD


def test_attributes_that_are_not_known_are_ignored(codec):
    batch = sealed(_single(0), attributes=0x4000)
    assert len(codec.decode_batch(batch)[1]) == 1


def test_what_is_no_buffer_is_a_type_error(codec):
    for wrong in (None, 5):
        with pytest.raises(TypeError):
            codec.decode_batch(wrong)

import pytest

from headwater.errors import E, KafkaError
from headwater.records.batch import read_header
from headwater.records.builder import build_batch
from headwater.records.compression import Codec
from headwater.records.record import Record, decode_records, encode_records

NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW, b"key", b"value", (("h", b"1"), ("h", None), ("ключ", b""))),
    Record(1, NOW - 5, None, b"v" * 300, ()),
    Record(2, NOW + 70_000, b"", None, ()),
    Record(3, NOW, None, None, ()),
]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_come_back_as_they_were_built(codec, kind):
    batch = build_batch(RECORDS, now=NOW, codec=codec)
    assert decode_records(kind(batch)) == RECORDS


def test_offsets_are_counted_from_the_base_offset():
    batch = build_batch(RECORDS, now=NOW, base_offset=2**63 - 10)
    assert [record.offset for record in decode_records(batch)] == [
        2**63 - 10 + place for place in range(4)
    ]


def test_under_log_append_time_every_record_bears_the_maximum():
    batch = build_batch(RECORDS, now=NOW + 9, timestamp_type=1)
    assert {record.timestamp for record in decode_records(batch)} == {NOW + 9}


def test_keys_and_values_are_bytes_that_outlive_the_buffer():
    batch = build_batch(RECORDS, now=NOW)
    records = decode_records(memoryview(batch))
    batch[:] = bytes(len(batch))
    assert records == RECORDS


def test_bytes_after_the_batch_are_none_of_its_records():
    batch = build_batch(RECORDS, now=NOW)
    assert decode_records(batch + b"the next batch") == RECORDS


def test_times_wrap_as_in_java():
    extremes = [Record(0, -(2**63), b"k"), Record(1, 2**63 - 1, b"k"), Record(2, 0, b"k")]
    assert decode_records(build_batch(extremes, now=NOW)) == extremes


def test_header_keys_that_are_no_utf_8_are_shown_with_replacement_characters():
    area = encode_records([Record(headers=(("ab", b"v"),))], -1)
    batch = build_batch([Record(headers=(("ab", b"v"),))], now=-1)
    batch[61:] = area.replace(b"ab", b"a\xff")
    assert decode_records(batch)[0].headers == (("a\ufffd", b"v"),)


def test_a_count_that_the_bytes_cannot_hold_allocates_nothing():
    batch = build_batch([Record()], now=NOW)
    batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(KafkaError) as refused:
        decode_records(batch)
    assert refused.value.code is E.INVALID_RECORD


@pytest.mark.parametrize(
    "area",
    [
        b"\x0c\x00\x00\x00\x03\x01\x00",  # key length -2
        b"\x0c\x00\x00\x00\x7e\x01\x00",  # key length 63
        b"\x0c\x00\x00\x00\x01\x7e\x00",  # value length 63
        b"\x0c\x00\x00\x00\x01\x01\x03",  # header count -2
        b"\x0c\x00\x00\x00\x01\x01\x7e",  # header count 63
        b"\x0e\x00\x00\x00\x01\x01\x02\x01",  # header key null
        b"\x0a\x00\x00\x00\x01\x01\x00",  # ends after its size
        b"\x0d\x00\x00\x00\x01\x01\x00",  # negative size
        b"\x0c\x00\x00\x00\x01\x01\x00\x00",  # a byte is left
    ],
)
def test_malformed_records_are_refused(area):
    batch = build_batch([Record()], now=NOW)[:61] + area
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    with pytest.raises(KafkaError) as refused:
        decode_records(batch)
    assert refused.value.code is E.INVALID_RECORD


@pytest.mark.parametrize("length", [-(2**31), -12, 48, 2**31 - 1])
def test_a_batch_of_senseless_length_is_refused(length):
    batch = build_batch(RECORDS, now=NOW)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(KafkaError, match="no whole record batch"):
        decode_records(batch)


def test_cut_batches_and_older_formats_are_refused():
    batch = build_batch(RECORDS, now=NOW)
    for size in range(len(batch)):
        with pytest.raises(KafkaError):
            decode_records(batch[:size])
    batch[16] = 1
    with pytest.raises(KafkaError):
        decode_records(batch)


def test_a_stored_batch_is_readable_however_well_it_is_compressed():
    zeros = [Record(place, NOW, value=bytes(1 << 20)) for place in range(9)]
    batch = build_batch(zeros, now=NOW, codec=Codec.ZSTD)
    assert len(batch) < 2000
    assert decode_records(batch) == zeros


def test_a_batch_needs_a_record():
    with pytest.raises(ValueError, match="at least one"):
        build_batch([], now=NOW)


def test_builder_gives_the_present_to_records_without_a_time():
    header = read_header(build_batch([Record(), Record(timestamp=NOW + 4)], now=NOW))
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 4)


def test_builder_writes_what_it_is_told_into_the_header():
    header = read_header(
        build_batch(
            [Record()] * 3,
            now=NOW,
            base_offset=7,
            leader_epoch=3,
            producer_id=11,
            producer_epoch=2,
            base_sequence=2**31 - 1,
            transactional=True,
        )
    )
    assert (header.base_offset, header.leader_epoch, header.count) == (7, 3, 3)
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (11, 2, 1)
    assert (header.transactional, header.control) == (True, False)

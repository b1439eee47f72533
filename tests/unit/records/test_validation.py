import struct

import pytest

from headwater.errors import E, KafkaError
from headwater.records.batch import CRC_START, HEADER, HEADER_SIZE
from headwater.records.builder import build_batch
from headwater.records.checksum import crc32c
from headwater.records.compression import Codec, compress
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record, encode_records
from headwater.records.rules import INT64_MAX, INT64_MIN, BatchRules
from headwater.records.validation import (
    OffsetsOutOfPlace,
    RecordsRefused,
    check_batch,
    check_records,
    needs_walk,
)
from headwater.records.varint import write_varint

NOW = 1_700_000_000_000
RULES = BatchRules()
FIELDS = [
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
]


def good(count: int = 2, **kwargs) -> memoryview:
    records = [Record(timestamp=NOW, key=b"k", value=b"v%d" % n) for n in range(count)]
    return memoryview(build_batch(records, now=NOW, **kwargs))


def patched(batch: memoryview, **fields: int) -> memoryview:
    """`batch` with header fields changed and its checksum made right again."""
    header = list(HEADER.unpack_from(batch))
    for name, value in fields.items():
        header[FIELDS.index(name)] = value
    HEADER.pack_into(batch, 0, *header)
    if "crc" not in fields:
        struct.pack_into(">I", batch, CRC_START - 4, crc32c(batch[CRC_START:]))
    return batch


def refusal(batch: memoryview, rules: BatchRules = RULES, zstd_known: bool = True) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        check_batch(batch, rules, NOW, zstd_known)
    return refused.value


@pytest.mark.parametrize("codec", Codec)
def test_a_good_batch_gives_its_thirteen_header_fields(codec):
    batch = good(codec=codec, producer_id=9, producer_epoch=1, base_sequence=2**31 - 1)
    assert check_batch(batch, RULES, NOW) == HEADER.unpack_from(batch)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"crc": 1}, E.CORRUPT_MESSAGE),
        ({"magic": 0}, E.INVALID_RECORD),
        ({"magic": 1}, E.INVALID_RECORD),
        ({"magic": 3}, E.CORRUPT_MESSAGE),
        ({"magic": -1}, E.CORRUPT_MESSAGE),
        ({"length": 48}, E.CORRUPT_MESSAGE),
        ({"length": -1}, E.CORRUPT_MESSAGE),
        ({"length": -(2**31)}, E.CORRUPT_MESSAGE),
        ({"length": 2**31 - 1}, E.INVALID_RECORD),
        ({"base_offset": 1}, E.INVALID_RECORD),
        ({"base_offset": -(2**63)}, E.INVALID_RECORD),
        ({"count": 3}, E.INVALID_RECORD),
        ({"count": 0, "last_offset_delta": -1}, E.INVALID_RECORD),
        ({"count": -(2**31), "last_offset_delta": -(2**31)}, E.INVALID_RECORD),
        ({"count": 2**31 - 1}, E.INVALID_RECORD),
        ({"count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, E.INVALID_RECORD),
        ({"count": 5, "last_offset_delta": 4}, E.INVALID_RECORD),
        (
            {"count": 2**31 - 1, "last_offset_delta": 2**31 - 2, "attributes": 4},
            E.INVALID_RECORD,
        ),
        ({"last_offset_delta": 2**31 - 1, "count": -(2**31)}, E.INVALID_RECORD),
        ({"attributes": 0x20}, E.INVALID_RECORD),
        ({"attributes": 0x30}, E.INVALID_RECORD),
        ({"attributes": 0x08}, E.INVALID_TIMESTAMP),
        ({"attributes": 0x40}, E.INVALID_RECORD),
        ({"attributes": -(2**15)}, E.INVALID_RECORD),
        ({"attributes": 5}, E.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7}, E.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 0x10}, E.INVALID_RECORD),
        ({"producer_id": 5}, E.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": 0}, E.INVALID_RECORD),
        ({"producer_id": 5, "base_sequence": 0}, E.INVALID_RECORD),
        ({"producer_id": -2, "producer_epoch": 0, "base_sequence": 0}, E.INVALID_RECORD),
        ({"max_timestamp": NOW + 3_600_001}, E.INVALID_TIMESTAMP),
        ({"max_timestamp": 2**63 - 1}, E.INVALID_TIMESTAMP),
        ({"base_timestamp": -(2**63)}, E.INVALID_TIMESTAMP),
    ],
)
def test_a_header_that_breaks_a_rule_is_refused_with_kafkas_code(fields, code):
    assert refusal(patched(good(), **fields)).code is code


def test_a_producer_with_id_epoch_and_sequence_is_taken_with_or_without_a_transaction():
    batch = good(producer_id=2**63 - 1, producer_epoch=2**15 - 1, base_sequence=0)
    check_batch(batch, RULES, NOW)
    check_batch(patched(batch, attributes=0x10), RULES, NOW)


def test_every_flipped_bit_after_the_crc_is_corruption():
    batch = good()
    for bit in range(CRC_START * 8, len(batch) * 8):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        assert refusal(memoryview(damaged)).code is E.CORRUPT_MESSAGE


def test_every_cut_is_refused_and_never_crashes():
    batch = good()
    for size in range(len(batch)):
        assert refusal(batch[:size]).code is E.INVALID_RECORD


def test_a_short_batch_that_says_so_itself_is_corrupt():
    fragment = bytearray(40)
    struct.pack_into(">i", fragment, 8, 20)
    assert refusal(memoryview(fragment)).code is E.CORRUPT_MESSAGE


def test_a_second_batch_is_refused():
    refused = refusal(memoryview(bytes(good()) + bytes(good())))
    assert refused.code is E.INVALID_RECORD
    assert "exactly one" in refused.message


def test_size_limits_are_inclusive_and_told_apart():
    batch = good()
    size = len(batch)
    check_batch(batch, BatchRules(max_message_bytes=size, segment_bytes=size), NOW)
    small = BatchRules(max_message_bytes=size - 1, segment_bytes=size - 1)
    assert refusal(batch, small).code is E.MESSAGE_TOO_LARGE
    assert refusal(batch, BatchRules(segment_bytes=size - 1)).code is E.RECORD_LIST_TOO_LARGE


def test_size_is_judged_before_the_checksum():
    batch = patched(good(), crc=1)
    assert refusal(batch, BatchRules(max_message_bytes=70)).code is E.MESSAGE_TOO_LARGE


def test_zstd_is_unknown_to_senders_of_old_produce_versions():
    assert refusal(good(codec=4), zstd_known=False).code is E.UNSUPPORTED_COMPRESSION_TYPE
    check_batch(good(codec=3), RULES, NOW, zstd_known=False)


def test_records_without_a_time_have_no_limits():
    rules = BatchRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=1000)
    batch = patched(good(), base_timestamp=-1, max_timestamp=-1)
    header = check_batch(batch, rules, NOW)
    assert check_records(batch, header, rules, NOW) == header


def test_timestamp_limits_are_inclusive_and_off_for_log_append_time():
    rules = BatchRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    for first, last in ((NOW - 1000, NOW), (NOW, NOW + 500)):
        check_batch(patched(good(), base_timestamp=first, max_timestamp=last), rules, NOW)
    for first, last in ((NOW - 1001, NOW), (NOW, NOW + 501)):
        batch = patched(good(), base_timestamp=first, max_timestamp=last)
        assert refusal(batch, rules).code is E.INVALID_TIMESTAMP
        check_batch(batch, BatchRules(log_append_time=True), NOW)


@pytest.mark.parametrize(
    ("count", "rules", "walked"),
    [
        (1, RULES, True),
        (4, RULES, True),
        (5, RULES, False),
        (5, BatchRules(keys_required=True), True),
        (500, BatchRules(validate_records=True), True),
    ],
)
def test_small_batches_and_strict_topics_are_walked(count, rules, walked):
    batch = good(count)
    assert needs_walk(check_batch(batch, rules, NOW), rules) is walked


def test_a_maximum_below_the_first_time_calls_for_a_walk():
    batch = patched(good(10), max_timestamp=NOW - 1)
    assert needs_walk(check_batch(batch, RULES, NOW), RULES)


def walked(batch: memoryview, rules: BatchRules = RULES) -> tuple[int, ...]:
    return check_records(batch, check_batch(batch, rules, NOW), rules, NOW)


def refused_walk(batch: memoryview, rules: BatchRules = RULES) -> KafkaError:
    header = check_batch(batch, rules, NOW)
    with pytest.raises(KafkaError) as refused:
        check_records(batch, header, rules, NOW)
    return refused.value


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [1, 3, 200])
def test_good_records_pass_the_walk_and_leave_the_batch_alone(codec, count):
    batch = good(count, codec=codec)
    before = bytes(batch)
    assert walked(batch) == HEADER.unpack(before[:HEADER_SIZE])
    assert batch == before


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("wrong", [NOW - 7, NOW + 7, -1, -(2**63)])
def test_a_wrong_maximum_timestamp_is_mended_in_place(codec, wrong):
    batch = patched(good(codec=codec), max_timestamp=wrong)
    header = walked(batch)
    assert header[8] == NOW
    assert check_batch(batch, RULES, NOW) == header


def test_a_wrong_maximum_stays_where_the_broker_sets_the_time_anyway():
    batch = patched(good(), max_timestamp=NOW - 7)
    assert walked(batch, BatchRules(log_append_time=True))[8] == NOW - 7


@pytest.mark.parametrize("codec", Codec)
def test_records_without_keys_are_named_to_a_compacted_topic(codec):
    records = [Record(timestamp=NOW, key=key) for key in (b"k", None, b"", None)]
    batch = memoryview(build_batch(records, now=NOW, codec=codec))
    walked(batch)
    refused = refused_walk(batch, BatchRules(keys_required=True))
    assert isinstance(refused, RecordsRefused)
    assert refused.code is E.INVALID_RECORD
    assert [index for index, _ in refused.record_errors] == [1, 3]


def test_records_outside_of_the_time_limits_are_named():
    rules = BatchRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    times = (NOW, NOW - 1001, NOW + 500, -1)
    batch = memoryview(build_batch([Record(timestamp=time) for time in times], now=-1))
    refused = refused_walk(batch, rules)
    assert isinstance(refused, RecordsRefused)
    assert refused.code is E.INVALID_TIMESTAMP
    assert [index for index, _ in refused.record_errors] == [1]


@pytest.mark.parametrize(
    ("base", "delta"),
    [(INT64_MAX - 5, 10), (NOW - INT64_MAX, -NOW - 2), (NOW - INT64_MAX, INT64_MIN)],
)
def test_times_that_leave_64_bits_are_refused_whatever_the_limits(base, delta):
    rules = BatchRules(timestamp_after_max_ms=INT64_MAX)
    area = encode_records([Record(timestamp=delta)], 0)
    header = list(HEADER.unpack_from(good(1)))
    header[7:9] = [base, base]
    refused = refused_walk(memoryview(complete_batch(tuple(header), area)), rules)
    assert refused.code is E.INVALID_TIMESTAMP
    assert "64 bits" in refused.message


def with_area(area: bytes, count: int, codec: int = 0) -> memoryview:
    header = list(HEADER.unpack_from(good(count)))
    header[5] = codec
    return memoryview(complete_batch(tuple(header), compress(codec, area)))


def raw_record(*parts: bytes) -> bytes:
    body = b"\x00" + b"".join(parts)
    return write_varint(len(body)) + body


ZERO, NULL = write_varint(0), write_varint(-1)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("area", "count"),
    [
        (b"", 1),
        (encode_records([Record()], -1), 2),
        (encode_records([Record(), Record()], -1), 1),
        (encode_records([Record(value=b"abc")], -1)[:-1], 1),
        (encode_records([Record()], -1) + b"\x00", 1),
        (write_varint(-5) + b"\x00\x00\x00\x01\x01\x00", 1),
        (write_varint(2**31 - 1) + b"\x00\x00\x00\x01\x01\x00", 1),
        (raw_record(ZERO, ZERO, write_varint(-2), NULL, ZERO), 1),
        (raw_record(ZERO, ZERO, NULL, write_varint(-(2**31)), ZERO), 1),
        (raw_record(ZERO, ZERO, write_varint(2**31 - 1), NULL, ZERO), 1),
        (raw_record(ZERO, ZERO, write_varint(5), b"abc", NULL, ZERO), 1),
        (raw_record(ZERO, ZERO, NULL, NULL, write_varint(-1)), 1),
        (raw_record(ZERO, ZERO, NULL, NULL, write_varint(2**31 - 1)), 1),
        (raw_record(ZERO, ZERO, NULL, NULL, write_varint(1), NULL, NULL), 1),
        (raw_record(ZERO, ZERO, NULL, NULL, write_varint(1), write_varint(-9), NULL), 1),
        (raw_record(ZERO, ZERO, NULL, NULL, write_varint(1), write_varint(9), b"k", NULL), 1),
        (raw_record(b"\xff" * 10, ZERO, NULL, NULL, ZERO), 1),
        (raw_record(ZERO, b"\xff" * 5, NULL, NULL, ZERO), 1),
    ],
)
def test_malformed_records_are_refused(codec, area, count):
    assert refused_walk(with_area(area, count, codec)).code is E.INVALID_RECORD


@pytest.mark.parametrize("codec", Codec)
def test_offset_deltas_that_do_not_count_from_zero_are_noticed(codec):
    area = encode_records([Record(timestamp=NOW, key=b"k")], NOW) * 2
    with pytest.raises(OffsetsOutOfPlace):
        walked(with_area(area, 2, codec))


def test_a_bomb_inside_a_batch_is_too_large():
    batch = with_area(encode_records([Record(value=bytes(9 << 20))], -1), 1, Codec.ZSTD)
    assert refused_walk(batch).code is E.MESSAGE_TOO_LARGE


def test_a_large_record_of_zeros_is_no_bomb_where_it_would_fit_uncompressed():
    rules = BatchRules(max_message_bytes=10 << 20)
    area = encode_records([Record(timestamp=NOW, value=bytes(9 << 20))], NOW)
    assert walked(with_area(area, 1, Codec.ZSTD), rules)[12] == 1


def test_a_null_key_in_more_bytes_than_it_needs_is_still_null():
    batch = with_area(raw_record(ZERO, ZERO, b"\x81\x00", NULL, ZERO), 1)
    walked(batch)
    refused = refused_walk(batch, BatchRules(keys_required=True))
    assert isinstance(refused, RecordsRefused)
    assert [index for index, _ in refused.record_errors] == [0]

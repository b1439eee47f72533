import aiokafka.record.default_records as aio
import kafka.record.default_records as kafka_python
import pytest

from headwater.errors import E, KafkaError
from headwater.records.batch import read_header
from headwater.records.builder import build_batch
from headwater.records.compression import Codec
from headwater.records.record import Record, decode_records
from tests.unit.records.codecs import codec

__all__ = ["codec"]

NOW = 1_700_000_000_000
NOBODY = (-1, -1, -1)
RECORDS = [
    Record(0, NOW, b"key", b"value", (("h", b"1"), ("h", None), ("ключ", b""))),
    Record(1, NOW - 5, None, b"v" * 300),
    Record(2, NOW + 70_000, b"", None),
    Record(3, NOW + 70_000, None, None),
    Record(4, NOW, None, b"x" * 70_000),
    Record(5, NOW, b"k" * 9_000, b""),
]


def filled(codec, records, limit=1 << 20):
    writer = codec.BatchWriter(limit)
    for number, record in enumerate(records):
        assert writer.append(*record[1:]) == number
    return writer


@pytest.mark.parametrize("compression", Codec)
def test_batches_are_those_of_the_builder(codec, compression):
    writer = filled(codec, RECORDS)
    assert writer.finish(compression, None, 7, 3, 12, True) == build_batch(
        RECORDS,
        now=NOW,
        codec=compression,
        producer_id=7,
        producer_epoch=3,
        base_sequence=12,
        transactional=True,
    )


@pytest.mark.parametrize("library", [kafka_python, aio], ids=["kafka-python", "aiokafka"])
def test_batches_are_those_of_other_clients(codec, library):
    theirs = library.DefaultRecordBatchBuilder(2, 0, 0, 77, 3, 12, 1 << 20)
    for record in RECORDS:
        theirs.append(*record[:4], list(record.headers))
    built = bytes(theirs.build())
    ours = filled(codec, RECORDS).finish(0, None, 77, 3, 12)
    ours[12:16] = built[12:16]  # kafka-python writes "no leader epoch" as 0
    assert ours == built


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200, 8191, 8192, 8193, 9000])
def test_record_numbers_of_every_width_are_written(codec, count):
    records = [Record(place, NOW, None, b"v") for place in range(count)]
    assert filled(codec, records).finish(0, None, *NOBODY) == build_batch(records, now=NOW)


@pytest.mark.parametrize("size", [0, 1, 52, 53, 54, 55, 56, 63, 64, 8180, 8181, 8182, 8191, 8192])
@pytest.mark.parametrize("key", [None, b"", b"k" * 63, b"k" * 64])
def test_size_is_exact_at_every_edge_of_the_numbers(codec, size, key):
    writer = codec.BatchWriter(1 << 20)
    for number in range(70):
        writer.append(NOW + number // 30, key, b"v" * size)
        assert writer.count == number + 1
    assert writer.size == len(writer.finish(0, None, *NOBODY))


def test_times_of_both_ends_of_64_bits_wrap_as_in_java(codec):
    records = [
        Record(0, -(2**63), None, b"a"),
        Record(1, 2**63 - 1, None, b"b"),
        Record(2, 0, None, b"c"),
    ]
    assert filled(codec, records).finish(0, None, *NOBODY) == build_batch(records, now=NOW)


def test_a_batch_takes_records_up_to_its_limit_and_not_a_byte_more(codec):
    exact = filled(codec, RECORDS[:3]).size
    writer = filled(codec, RECORDS[:2], exact - 1)
    assert writer.append(*RECORDS[2][1:]) == -1
    assert writer.append(*RECORDS[2][1:3], b"much more" * 1000) == -1
    assert (writer.size, writer.count) == (filled(codec, RECORDS[:2]).size, 2)
    assert decode_records(writer.finish(0, None, *NOBODY)) == RECORDS[:2]
    assert filled(codec, RECORDS[:3], exact).size == exact


def test_a_record_that_did_not_fit_leaves_no_trace(codec):
    writer = filled(codec, [Record(0, NOW, None, b"a")], 100)
    assert writer.append(NOW + 10**9, b"key", b"v" * 100, (("h", b""),)) == -1
    assert writer.append(NOW + 1, None, b"b") == 1
    records = [Record(0, NOW, None, b"a"), Record(1, NOW + 1, None, b"b")]
    assert writer.finish(0, None, *NOBODY) == build_batch(records, now=NOW)


def test_a_first_record_fits_however_large_it_is(codec):
    writer = codec.BatchWriter(16)
    assert writer.append(NOW, None, b"v" * 5000) == 0
    assert writer.append(NOW, None, b"") == -1
    assert writer.extend(NOW, [b""], 0) == 0
    assert decode_records(writer.finish(0, None, *NOBODY)) == [Record(0, NOW, None, b"v" * 5000)]


def test_an_empty_batch_cannot_be_finished(codec):
    with pytest.raises(ValueError, match="at least one"):
        codec.BatchWriter(100).finish(0, None, *NOBODY)


def test_after_finish_nothing_fits(codec):
    writer = filled(codec, RECORDS)
    writer.finish(0, None, *NOBODY)
    assert writer.append(NOW, None, b"late") == -1
    assert writer.extend(NOW, [b"late"], 0) == 0


@pytest.mark.parametrize("compression", [Codec.NONE, Codec.LZ4])
def test_a_batch_is_finished_again_for_another_identity(codec, compression):
    writer = filled(codec, RECORDS)
    first = writer.finish(compression, None, 1, 0, 5)
    kept = bytes(first)
    second = writer.finish(compression, None, 2, 1, 0)
    third = writer.finish(0, None, 2, 1, 0)
    assert first == kept
    assert read_header(second)[9:12] == (2, 1, 0)
    assert decode_records(second) == decode_records(third) == RECORDS


def test_what_finish_returned_may_be_patched_or_cut_without_harm(codec):
    writer = filled(codec, RECORDS)
    batch = writer.finish(0, None, 1, 0, 5)
    batch[:16] = bytes(16)
    assert decode_records(writer.finish(0, None, 2, 1, 0)) == RECORDS
    del batch[30:]
    try:
        assert decode_records(writer.finish(0, None, 2, 1, 0)) == RECORDS
    except ValueError as refused:
        assert "cut" in str(refused)  # noqa: PT017


@pytest.mark.parametrize("bad", ["text", 5, bytearray(b"x"), [b"x"]])
def test_only_bytes_are_keys_and_values_and_a_bad_one_harms_no_other(codec, bad):
    writer = filled(codec, RECORDS[:1])
    with pytest.raises(TypeError):
        writer.append(NOW, bad, b"v")
    with pytest.raises(TypeError):
        writer.append(NOW, None, bad)
    with pytest.raises((TypeError, ValueError, AttributeError)):
        writer.append(NOW, None, b"v", ((bad, bad),))
    with pytest.raises(TypeError):
        writer.extend(NOW, [bad, b"v"], 0)
    assert writer.finish(0, None, *NOBODY) == build_batch(RECORDS[:1], now=NOW)


@pytest.mark.parametrize("bad", [None, "now", 1.5])
def test_a_time_is_an_integer(codec, bad):
    writer = codec.BatchWriter(100)
    with pytest.raises(TypeError):
        writer.append(bad, None, b"v")
    with pytest.raises(TypeError):
        writer.extend(bad, [b"v"], 0)


def test_a_time_has_64_bits(codec):
    with pytest.raises(OverflowError):
        codec.BatchWriter(100).append(2**63, None, b"v")


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("limit", [61, 62, 1000, 16384, 200_000])
def test_extend_takes_exactly_what_append_would(codec, kind, limit):
    values = kind([b"v" * (number * 37 % 900) for number in range(3000)])
    one_by_one = codec.BatchWriter(limit)
    one_by_one.append(NOW, None, b"first")
    bulk = codec.BatchWriter(limit)
    bulk.append(NOW, None, b"first")
    start = 2000
    while start < len(values) and one_by_one.append(NOW, None, values[start]) >= 0:
        start += 1
    assert bulk.extend(NOW, values, 2000) == start - 2000
    assert bulk.size == one_by_one.size
    assert bulk.finish(0, None, *NOBODY) == one_by_one.finish(0, None, *NOBODY)


def test_extend_crosses_edges_and_times(codec):
    writer = codec.BatchWriter(1 << 20)
    values = [b"%d" % number for number in range(9000)]
    assert writer.extend(NOW, values, 0) == 9000
    assert writer.extend(NOW + 7, values, 8990) == 10
    assert writer.extend(NOW + 7, values, 9000) == 0
    records = [Record(0, NOW, None, value) for value in values]
    records += [Record(0, NOW + 7, None, value) for value in values[8990:]]
    assert writer.finish(0, None, *NOBODY) == build_batch(records, now=NOW)


def test_extend_stops_before_what_is_no_value(codec):
    writer = codec.BatchWriter(1 << 20)
    values = [b"a", None, b"b", "text", b"c"]
    assert writer.extend(NOW, values, 0) == 3
    with pytest.raises(TypeError):
        writer.extend(NOW, values, 3)
    assert [record.value for record in decode_records(writer.finish(0, None, *NOBODY))] == [
        b"a",
        None,
        b"b",
    ]


def test_the_level_reaches_the_compressor(codec):
    value = b"".join(b"%d," % (number * number) for number in range(5000))
    sizes = [
        len(filled(codec, [Record(0, NOW, None, value)]).finish(Codec.GZIP, level, *NOBODY))
        for level in (1, 9)
    ]
    assert sizes[1] < sizes[0]


def test_a_record_that_no_batch_can_hold_is_refused(codec):
    writer = codec.BatchWriter(1 << 40)
    huge = bytes(2**31 - 50)
    with pytest.raises(KafkaError) as refused:
        writer.append(NOW, None, huge)
    assert refused.value.code == E.MESSAGE_TOO_LARGE
    assert writer.append(NOW, None, b"small") == 0

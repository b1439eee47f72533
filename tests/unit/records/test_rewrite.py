import pytest

from headwater.errors import E, KafkaError
from headwater.records.batch import HEADER, read_header
from headwater.records.builder import build_batch
from headwater.records.compression import Codec, compress
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record, _encode, decode_records, encode_records
from headwater.records.rewrite import HEAVY_COUNT, HEAVY_OUTPUT, is_heavy, prepare
from headwater.records.rules import BatchRules
from headwater.records.validation import OutputTooLarge, check_batch
from headwater.records.varint import write_varint

NOW = 1_700_000_000_000
RECORDS = [
    Record(place, NOW + place, b"key", b"value %d " % place * 20, (("h", b"x"),))
    for place in range(10)
]


def prepared(rules: BatchRules, codec: int = 0, records: list[Record] = RECORDS, **kwargs):
    batch = memoryview(build_batch(records, now=NOW, codec=codec, **kwargs))
    return batch, *prepare(batch, check_batch(batch, rules, NOW), rules, NOW + 99)


def test_a_topic_without_wishes_leaves_the_batch_alone():
    given, batch, _ = prepared(BatchRules(), Codec.LZ4)
    assert batch is given


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", Codec)
def test_records_survive_a_change_of_codec(source, target):
    given, batch, header = prepared(
        BatchRules(codec=target),
        source,
        transactional=True,
        producer_id=4,
        producer_epoch=1,
        base_sequence=6,
    )
    assert (batch is given) is (source == target)
    assert check_batch(batch, BatchRules(), NOW) == header
    assert (read_header(batch).codec, read_header(batch).transactional) == (target, True)
    assert read_header(batch)._replace(attributes=0, length=0, crc=0) == read_header(
        given
    )._replace(attributes=0, length=0, crc=0)
    assert decode_records(batch) == RECORDS


def test_log_append_time_sets_the_bit_the_maximum_and_the_checksum_in_place():
    given, batch, header = prepared(BatchRules(log_append_time=True), Codec.GZIP)
    assert batch is given
    view = read_header(batch)
    assert tuple(view) == header
    assert (view.log_append_time, view.max_timestamp) == (True, NOW + 99)
    assert view.base_timestamp == NOW
    with pytest.raises(KafkaError, match="only the broker"):
        check_batch(batch, BatchRules(), NOW)
    assert {record.timestamp for record in decode_records(batch)} == {NOW + 99}


def test_log_append_time_and_another_codec_go_together():
    _, batch, _ = prepared(BatchRules(log_append_time=True, codec=Codec.ZSTD), Codec.SNAPPY)
    view = read_header(batch)
    assert (view.codec, view.max_timestamp) == (Codec.ZSTD, NOW + 99)
    assert [record.value for record in decode_records(batch)] == [r.value for r in RECORDS]


def test_a_batch_is_checked_before_it_is_recompressed():
    rules = BatchRules(codec=Codec.LZ4, keys_required=True)
    with pytest.raises(KafkaError) as refused:
        prepared(rules, records=[Record(timestamp=NOW)] * 10)
    assert refused.value.code is E.INVALID_RECORD


def test_a_batch_is_not_compressed_if_readers_would_not_decompress_it(monkeypatch):
    monkeypatch.setattr("headwater.records.rules.MAX_UNCOMPRESSED_BYTES", 1000)
    records = [Record(timestamp=NOW, value=bytes(1001))]
    prepared(BatchRules(codec=Codec.NONE), Codec.NONE, records)
    with pytest.raises(KafkaError, match="1000 is the most") as refused:
        prepared(BatchRules(codec=Codec.ZSTD), Codec.NONE, records)
    assert refused.value.code is E.MESSAGE_TOO_LARGE


def test_a_batch_that_outgrows_the_limit_by_recompression_is_too_large():
    records = [Record(timestamp=NOW, value=bytes(range(200)) * 2)]
    given = build_batch(records, now=NOW, codec=Codec.GZIP)
    rules = BatchRules(codec=Codec.NONE, max_message_bytes=len(given) + 10)
    with pytest.raises(KafkaError, match="in the topic's codec") as refused:
        prepared(rules, Codec.GZIP, records)
    assert refused.value.code is E.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("count", "size", "codec", "rules", "heavy"),
    [
        (1, 100, 0, BatchRules(), False),
        (1, 900_000, 0, BatchRules(), False),
        (1, 900_000, 2, BatchRules(), True),
        (9, 90_000, 2, BatchRules(), False),
        (9, 90_000, 2, BatchRules(codec=2), False),
        (9, 90_000, 0, BatchRules(codec=2), True),
        (9, 1_000, 0, BatchRules(codec=2), False),
        (9, 5_000, 0, BatchRules(codec=1), True),
        (HEAVY_COUNT + 1, 10_000, 0, BatchRules(), False),
        (HEAVY_COUNT + 1, 10_000, 0, BatchRules(keys_required=True), True),
    ],
)
def test_what_takes_milliseconds_is_known_beforehand(count, size, codec, rules, heavy):
    header = (0, size, -1, 2, 0, codec, count - 1, NOW, NOW, -1, -1, -1, count)
    assert is_heavy(header, rules) is heavy


@pytest.mark.parametrize("wrong", [[0, 0, 0], [2, 1, 0], [5, 70, 90_000], [-1, -2, -3]])
@pytest.mark.parametrize(
    "rules",
    [
        BatchRules(),
        BatchRules(log_append_time=True),
        BatchRules(codec=Codec.ZSTD),
        BatchRules(keys_required=True),
    ],
    ids=["plain", "append time", "recompressed", "compacted"],
)
@pytest.mark.parametrize("codec", Codec)
def test_offset_deltas_out_of_place_are_counted_again(wrong, rules, codec):
    rows = RECORDS[:3]
    good = build_batch(rows, now=NOW, codec=codec, producer_id=4, producer_epoch=1, base_sequence=6)
    header = tuple(read_header(good))
    parts = []
    for place, row in zip(wrong, rows, strict=True):
        encoded = _encode(row, place, NOW)
        parts += (write_varint(len(encoded)), encoded)
    given = memoryview(complete_batch(header, compress(codec, b"".join(parts))))
    batch, stored = prepare(given, check_batch(given, rules, NOW), rules, NOW + 99)
    assert read_header(batch).codec == (codec if rules.codec is None else rules.codec)
    found = decode_records(batch)
    assert [record.offset for record in found] == [0, 1, 2]
    assert [record.value for record in found] == [row.value for row in rows]
    assert stored[9:] == header[9:], "the producer's fields are its own"
    if not rules.log_append_time:
        assert check_batch(batch, BatchRules(), NOW) == stored
        assert [record.timestamp for record in found] == [row.timestamp for row in rows]


def test_a_batch_that_grows_beyond_the_limit_when_counted_again_is_refused():
    rows = [Record(0, NOW, b"k", b"v", ()) for _ in range(200)]
    area = encode_records(rows[:1], NOW) * 200
    header = tuple(read_header(build_batch(rows, now=NOW)))
    given = memoryview(complete_batch(header, area))
    rules = BatchRules(max_message_bytes=len(given), validate_records=True)
    with pytest.raises(KafkaError) as refused:
        prepare(given, check_batch(given, rules, NOW), rules, NOW)
    assert refused.value.code is E.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_becomes_large_is_not_looked_into_beyond_the_bound(codec):
    small, large = bytes(HEAVY_OUTPUT // 2), bytes(2 * HEAVY_OUTPUT)
    for value, fits in ((small, True), (large, False)):
        raw = bytearray(build_batch([Record(value=value)], now=NOW, codec=codec))
        before, header = bytes(raw), HEADER.unpack_from(raw)
        assert not is_heavy(header, BatchRules()), "its size does not tell"
        if fits:
            assert prepare(memoryview(raw), header, BatchRules(), NOW, HEAVY_OUTPUT)[1] == header
        else:
            with pytest.raises(OutputTooLarge):
                prepare(memoryview(raw), header, BatchRules(), NOW, HEAVY_OUTPUT)
            assert prepare(memoryview(raw), header, BatchRules(), NOW)[1] == header
        assert bytes(raw) == before


def test_a_level_for_the_topics_codec_is_not_used_for_the_clients():
    rows = RECORDS[:2]
    area = encode_records(rows[:1], NOW) * 2
    header = tuple(read_header(build_batch(rows, now=NOW, codec=Codec.GZIP)))
    given = memoryview(complete_batch(header, compress(Codec.GZIP, area)))
    rules = BatchRules(codec=Codec.ZSTD, level=22)
    batch, _ = prepare(given, check_batch(given, rules, NOW), rules, NOW)
    assert [record.offset for record in decode_records(batch)] == [0, 1]

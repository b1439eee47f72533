"""Our batches and those of other clients' codecs are the same bytes to each other."""

import aiokafka.record.default_records as aio
import kafka.record.default_records as kafka_python
import pytest

from headwater.records.builder import build_batch
from headwater.records.compression import Codec
from headwater.records.record import Record, decode_records
from headwater.records.rules import BatchRules
from headwater.records.validation import check_batch, check_records

NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW, b"key", b"value" * 50, (("h", b"1"), ("empty", b""))),
    Record(1, NOW + 1, None, b"x" * 70_000, ()),
    Record(2, NOW - 1, b"", b"", ()),
    Record(3, NOW + 2**33, b"tombstone", None, (("null", None),)),
]
LIBRARIES = pytest.mark.parametrize(
    "library", [kafka_python, aio], ids=["kafka-python", "aiokafka"]
)


@LIBRARIES
@pytest.mark.parametrize("codec", Codec)
def test_their_batches_pass_our_checks_and_decode_to_the_same_records(library, codec):
    builder = library.DefaultRecordBatchBuilder(2, int(codec), 0, 77, 3, 12, 1 << 20)
    for record in RECORDS:
        builder.append(*record[:4], list(record.headers))
    batch = memoryview(bytearray(builder.build()))
    rules = BatchRules(timestamp_after_max_ms=2**40)
    header = check_batch(batch, rules, NOW)
    assert check_records(batch, header, rules, NOW) == header
    assert header[9:] == (77, 3, 12, 4)
    assert decode_records(batch) == RECORDS


@LIBRARIES
@pytest.mark.parametrize("codec", Codec)
def test_our_batches_decode_with_theirs_to_the_same_records(library, codec):
    ours = build_batch(
        RECORDS,
        now=NOW,
        codec=codec,
        base_offset=500,
        producer_id=8,
        producer_epoch=0,
        base_sequence=0,
    )
    theirs = library.DefaultRecordBatch(bytes(ours))
    assert theirs.validate_crc()
    got = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert got == [(500 + r.offset, *r[1:]) for r in RECORDS]


@LIBRARIES
def test_uncompressed_bytes_are_identical(library):
    builder = library.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for record in RECORDS:
        builder.append(*record[:4], list(record.headers))
    theirs = bytearray(builder.build())
    ours = build_batch(RECORDS, now=NOW)
    ours[12:16] = theirs[12:16]  # a new batch has no leader epoch, which they write as 0
    assert ours == theirs

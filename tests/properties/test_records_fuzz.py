"""No bytes at all make this room raise anything but KafkaError, or let it grow past its bounds."""

import tracemalloc
from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.errors import KafkaError
from headwater.records.batch import HEADER, HEADER_SIZE, batches
from headwater.records.builder import build_batch
from headwater.records.compression import Codec, compress, decompress
from headwater.records.control import read_marker
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record, decode_records
from headwater.records.rewrite import prepare
from headwater.records.rules import BatchRules
from headwater.records.validation import check_batch

NOW = 1_700_000_000_000
MIB = 1 << 20
RULES = [
    BatchRules(),
    BatchRules(validate_records=True, max_message_bytes=1000),
    BatchRules(keys_required=True, codec=Codec.LZ4),
    BatchRules(log_append_time=True, codec=Codec.NONE),
    BatchRules(timestamp_before_max_ms=0, timestamp_after_max_ms=0, codec=Codec.ZSTD),
]


def number(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return st.one_of(st.sampled_from([low, low + 1, -2, -1, 0, 1, high]), st.integers(low, high))


@st.composite
def batch_like(draw: st.DrawFn) -> bytes:
    """A batch with a right checksum whose records or header fields are damaged in a few places."""
    count = draw(st.integers(1, 5))
    codec = draw(st.sampled_from(Codec))
    values = st.one_of(st.none(), st.binary(max_size=30))
    made = [
        Record(
            place, NOW, draw(values), draw(values), (("h", draw(values)),) * draw(st.integers(0, 2))
        )
        for place in range(count)
    ]
    batch = build_batch(made, now=NOW, codec=codec)
    area = bytearray(build_batch(made, now=NOW)[HEADER_SIZE:])
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(area)))
        area[position : position + draw(st.integers(0, 3))] = draw(st.binary(max_size=6))
    packed = bytearray(compress(codec, area))
    for _ in range(draw(st.integers(0, 2))):
        position = draw(st.integers(0, len(packed)))
        packed[position : position + draw(st.integers(0, 2))] = draw(st.binary(max_size=4))
    header = list(HEADER.unpack_from(batch))
    sizes = {5: 16, 6: 32, 7: 64, 8: 64, 9: 64, 10: 16, 11: 32, 12: 32}
    for index in draw(st.lists(st.sampled_from(sorted(sizes)), max_size=2)):
        header[index] = draw(number(sizes[index]))
    return bytes(complete_batch(tuple(header), packed))


def try_everything(data: bytes) -> None:
    for rules in RULES:
        batch = memoryview(bytearray(data))
        with suppress(KafkaError):
            prepare(batch, check_batch(batch, rules, NOW), rules, NOW)
    for pos in [0] + [pos for pos, _ in batches(data)]:
        with suppress(KafkaError):
            decode_records(data[pos:], MIB)
        with suppress(KafkaError):
            read_marker(data[pos:])


@given(batch_like())
@settings(max_examples=400)
def test_damaged_batches_are_refused_or_read_but_never_crash(data):
    try_everything(data)


@given(st.binary(max_size=300))
def test_garbage_is_refused(data):
    try_everything(data)


@given(batch_like())
def test_what_is_accepted_can_be_read_and_accepted_again(data):
    rules = BatchRules(validate_records=True)
    batch = memoryview(bytearray(data))
    try:
        prepared, header = prepare(batch, check_batch(batch, rules, NOW), rules, NOW)
    except KafkaError:
        return
    assert len(decode_records(prepared)) == header[12]
    again = memoryview(bytearray(prepared))
    assert prepare(again, check_batch(again, rules, NOW), rules, NOW) == (prepared, header)


@given(st.sampled_from([codec for codec in Codec if codec]), st.data())
@settings(max_examples=300)
def test_no_compressed_stream_makes_more_than_its_limit(codec, data):
    packed = bytearray(
        compress(codec, data.draw(st.binary(max_size=100)) * data.draw(st.integers(1, 3000)))
    )
    for _ in range(data.draw(st.integers(0, 4))):
        position = data.draw(st.integers(0, len(packed)))
        packed[position : position + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=5)
        )
    with suppress(KafkaError):
        assert len(decompress(codec, packed, 10_000)) <= 10_000


@given(st.sampled_from([codec for codec in Codec if codec]), st.binary(max_size=200))
@example(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f")
@example(Codec.ZSTD, bytes.fromhex("28b52ffd00c8") + b"\x02\x00\x10\x00" * 20)
@example(Codec.LZ4, bytes.fromhex("04224d18687000000000000000ff00"))
def test_memory_follows_the_bytes_at_hand_not_what_they_claim(codec, data):
    tracemalloc.start()
    try:
        with suppress(KafkaError):
            decompress(codec, data, 64 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * MIB

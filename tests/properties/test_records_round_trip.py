"""What goes into a batch comes out of it, over the whole range of every number."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.records.batch import BatchHeader, assign, batches, last_sequence, read_header
from headwater.records.builder import build_batch
from headwater.records.compression import Codec, compress, decompress
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record, decode_records
from headwater.records.rewrite import prepare
from headwater.records.rules import INT64_MAX, INT64_MIN, BatchRules
from headwater.records.validation import check_batch, check_records
from headwater.records.varint import INT64_BYTES, read_varint, write_varint

NOW = 1_700_000_000_000


def edges(low: int, high: int) -> st.SearchStrategy[int]:
    near = [low, low + 1, -1, 0, 1, 63, 64, 127, 128, 8191, 8192, high - 1, high]
    return st.one_of(
        st.sampled_from([value for value in near if low <= value <= high]), st.integers(low, high)
    )


INT64 = edges(INT64_MIN, INT64_MAX)
DATA = st.one_of(st.none(), st.binary(max_size=200), st.binary(min_size=60, max_size=70))
HEADERS = st.lists(st.tuples(st.text(max_size=20), DATA), max_size=4).map(tuple)
TIMES = st.one_of(INT64, st.integers(NOW - 10**6, NOW + 10**6)).filter(lambda time: time != -1)


def records(times: st.SearchStrategy[int]) -> st.SearchStrategy[list[Record]]:
    record = st.builds(Record, timestamp=times, key=DATA, value=DATA, headers=HEADERS)
    return st.lists(record, min_size=1, max_size=80).map(
        lambda made: [record._replace(offset=place) for place, record in enumerate(made)]
    )


CODECS = st.sampled_from(Codec)


@given(INT64)
def test_every_int64_survives_as_a_varint(value):
    encoded = write_varint(value)
    assert read_varint(encoded, 0, INT64_BYTES) == (value, len(encoded))


@given(records(TIMES), CODECS)
def test_records_come_back(made, codec):
    assert decode_records(build_batch(made, now=NOW, codec=codec)) == made


@given(records(st.integers(0, INT64_MAX)), CODECS)
def test_what_is_built_passes_every_check(made, codec):
    batch = memoryview(build_batch(made, now=NOW, codec=codec))
    rules = BatchRules(timestamp_after_max_ms=INT64_MAX, max_message_bytes=10**6)
    header = check_batch(batch, rules, NOW)
    assert check_records(batch, header, rules, NOW) == header


@given(records(st.integers(NOW - 10**6, NOW)), CODECS, INT64)
def test_a_wrong_maximum_is_corrected_to_the_true_one(made, codec, wrong):
    batch = build_batch(made, now=NOW, codec=codec)
    header = read_header(batch)
    lying = memoryview(complete_batch(tuple(header._replace(max_timestamp=wrong)), batch[61:]))
    rules = BatchRules(timestamp_after_max_ms=INT64_MAX)
    corrected = check_records(lying, check_batch(lying, rules, NOW), rules, NOW)
    assert lying == batch
    assert corrected == tuple(header)


@given(records(st.integers(NOW - 10**6, NOW)), CODECS, CODECS, st.booleans())
def test_prepared_batches_keep_keys_values_and_headers(made, source, target, stamped):
    rules = BatchRules(codec=target, log_append_time=stamped)
    batch = memoryview(build_batch(made, now=NOW, codec=source))
    prepared, header = prepare(batch, check_batch(batch, rules, NOW), rules, NOW + 1)
    assert tuple(read_header(prepared)) == header
    expected = [record._replace(timestamp=NOW + 1) for record in made] if stamped else made
    assert decode_records(prepared) == expected


@given(st.binary(max_size=5000), CODECS, st.integers(1, 40))
def test_any_bytes_survive_compression(data, codec, times):
    data *= times
    assert decompress(codec, compress(codec, data), len(data)) == data


@given(edges(0, 2**31 - 1), edges(0, 2**31 - 1))
def test_the_last_sequence_is_what_counting_with_wrap_gives(base, delta):
    last = last_sequence(base, delta)
    assert 0 <= last < 2**31
    assert (last - base) % 2**31 == delta


@given(st.lists(st.tuples(records(TIMES), INT64, edges(-(2**31), 2**31 - 1)), max_size=4))
@settings(max_examples=50)
def test_a_run_of_batches_is_walked_one_by_one(run):
    buffer = bytearray()
    expected = []
    for made, base_offset, epoch in run:
        batch = build_batch(made, now=NOW)
        assign(memoryview(batch), base_offset, epoch)
        expected.append((len(buffer), base_offset, epoch, len(made)))
        buffer += batch
    found: list[tuple[int, BatchHeader]] = list(batches(buffer))
    assert [(pos, h.base_offset, h.leader_epoch, h.count) for pos, h in found] == expected

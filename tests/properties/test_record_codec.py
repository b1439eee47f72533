"""Both record codecs agree with the plain reading of the format, on sense and on nonsense.

The compiled one gets structured damage by the thousand: batches whose checksum is right and whose
numbers lie. `python -X dev -m tests.properties.test_record_codec 200000` makes as many as one likes.
"""

import random
import sys
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import E, KafkaError
from headwater.records.batch import CONTROL, HEADER_SIZE, read_header
from headwater.records.builder import build_batch
from headwater.records.compression import Codec, compress
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record, decode_records
from headwater.records.rules import INT64_MAX, INT64_MIN
from headwater.records.varint import write_varint
from tests.unit.records.codecs import BOTH

NOW = 1_700_000_000_000
LIMIT = 1 << 20
IN_CI = 3_000
"""Damaged batches for each codec in an ordinary run."""

DATA = st.one_of(st.none(), st.binary(max_size=200), st.binary(min_size=60, max_size=70))
HEADERS = st.lists(st.tuples(st.text(max_size=20), DATA), max_size=3).map(tuple)
TIMES = st.one_of(
    st.integers(NOW, NOW + 3),
    st.integers(INT64_MIN, INT64_MAX),
    st.sampled_from([INT64_MIN, INT64_MAX, 0]),
).filter(lambda time: time != -1)
PLAIN = st.builds(
    lambda timestamp, value: Record(timestamp=timestamp, value=value),
    st.integers(NOW, NOW + 1),
    st.binary(max_size=80),
)
RECORDS = st.lists(
    st.one_of(PLAIN, st.builds(Record, st.just(0), TIMES, DATA, DATA, HEADERS)),
    min_size=1,
    max_size=90,
)


@pytest.fixture(params=BOTH, scope="module")
def codec(request):
    return import_module(f"headwater.records.{request.param}")


@settings(max_examples=60, deadline=None)
@given(made=RECORDS, compression=st.sampled_from(Codec), limit=st.integers(61, 4000))
def test_what_fits_is_written_as_the_builder_writes_it(codec, made, compression, limit):
    writer = codec.BatchWriter(limit)
    taken = [record for record in made if writer.append(*record[1:]) >= 0]
    assert writer.count == len(taken)
    assert writer.size == len(build_batch(taken, now=NOW))
    assert writer.size <= limit or writer.count == 1
    assert writer.finish(compression, None, -1, -1, -1) == build_batch(
        taken, now=NOW, codec=compression
    )


@settings(max_examples=60, deadline=None)
@given(made=RECORDS, compression=st.sampled_from(Codec), stamped=st.booleans())
def test_what_is_read_is_what_the_plain_reader_reads(codec, made, compression, stamped):
    batch = build_batch(made, now=NOW, codec=compression, timestamp_type=stamped, base_offset=7)
    expected = [(row[0], row[1], int(stamped), *row[2:]) for row in decode_records(batch)]
    assert codec.decode_batch(batch) == (len(batch), expected)


def test_damage_is_answered_as_by_the_plain_reader(codec):
    """Seeds are fixed: what fails here fails again."""
    for seed in range(IN_CI):
        compare(codec, damaged(random.Random(seed)))


def compare(codec, batch):
    """Both readings refuse the batch, or both give the same records; so do columns."""
    outcome = read(codec, batch)
    header = read_header(batch)
    if header.attributes & CONTROL:
        return
    try:
        records = decode_records(batch, LIMIT)
    except KafkaError:
        assert isinstance(outcome, KafkaError)
        return
    if any(not INT64_MIN <= record.offset <= INT64_MAX for record in records):
        assert outcome.code == E.INVALID_RECORD
        return
    kind = int(header.log_append_time)
    assert outcome == [(row[0], row[1], kind, *row[2:]) for row in records]


def read(codec, batch):
    """The rows of the batch, or why it is refused; the columns must say the same."""
    reader = codec.ColumnReader()
    options = {"limit": LIMIT, "from_offset": INT64_MIN}
    outcome = attempt(codec.decode_batch, batch, limit=LIMIT)
    if isinstance(outcome, KafkaError):
        assert attempt(reader.add, batch, **options).code == outcome.code
        assert reader.count == 0
        return outcome
    size, rows = outcome
    assert reader.add(batch, **options) == size == len(batch)
    assert reader.count == len(rows)
    columns = reader.finish()
    assert list(memoryview(columns.offsets).cast("q")) == [row[0] for row in rows]
    assert bytes(columns.values.data) == b"".join([row[4] or b"" for row in rows])
    return rows


def attempt(decode, batch, **options):
    try:
        return decode(batch, **options)
    except KafkaError as refused:
        return refused


NUMBERS = [-(2**31), -2, -1, 0, 1, 5, 63, 64, 8191, 2**31 - 1, 2**32, -(2**63), 2**63 - 1]
FIELDS = {
    "base_offset": [0, 5, 2**63 - 1, 2**63 - 5, -(2**63)],
    "attributes": [0, 1, 2, 3, 4, 5, 8, 16, 32, 0x7FFF, -1],
    "last_offset_delta": [0, -1, 2**31 - 1],
    "base_timestamp": [0, -1, NOW, 2**63 - 1, -(2**63)],
    "max_timestamp": [0, -1, 2**63 - 1],
    "count": [-1, 0, 1, 2, 3, 2**31 - 1, -(2**31)],
}


def damaged(chance):
    """A batch with a right checksum that lies in a few places."""
    made = [record(chance) for _ in range(chance.randrange(1, 6))]
    built = build_batch(made, now=NOW)
    area = built[HEADER_SIZE:]
    for _ in range(chance.randrange(4)):
        disturb(chance, area)
    header = read_header(built)
    compression = chance.choice([0, 0, 0, 1, 2, 3, 4])
    header = header._replace(attributes=compression)
    for name in chance.sample(sorted(FIELDS), chance.choice([0, 0, 0, 1, 2])):
        header = header._replace(**{name: chance.choice(FIELDS[name])})
    packed = bytearray(compress(compression, area))
    if chance.random() < 0.1:
        disturb(chance, packed)
    return complete_batch(tuple(header), packed)


def record(chance):
    def field():
        return chance.choice([None, b"", b"x", bytes(chance.randrange(90)), b"\xff" * 3])

    headers = tuple((chance.choice(["", "h", "ü"]), field()) for _ in range(chance.randrange(3)))
    return Record(0, NOW + chance.randrange(100), field(), field(), headers)


def disturb(chance, area):
    """Change, remove or insert a few bytes; most often a number becomes another."""
    place = chance.randrange(len(area) + 1)
    width = chance.choice([0, 1, 1, 1, 2, 9])
    kind = chance.randrange(4)
    if kind == 0:
        area[place : place + width] = chance.randbytes(chance.randrange(4))
    elif kind == 1:
        del area[place:]
    else:
        area[place : place + width] = write_varint(chance.choice(NUMBERS))


def main(count, seed):
    """As many damaged batches as asked for, against the compiled codec."""
    codec = import_module("headwater.records._codec")
    refused = 0
    for number in range(seed, seed + count):
        batch = damaged(random.Random(number))
        compare(codec, batch)
        refused += isinstance(read(codec, batch), KafkaError)
    print(f"{count} damaged batches, {refused} of them refused")  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)

"""Batches of records that are alike: read by columns, with the very result of reading one by one."""

import pytest

from headwater.errors import KafkaError
from headwater.records.batch import HEADER_SIZE, read_header
from headwater.records.codec import pure_reader
from headwater.records.codec.pure_reader import decode_batch
from headwater.records.codec.pure_runs import decode_run
from headwater.records.codec.pure_writer import BatchWriter
from headwater.records.codec.uniform_batches import uniform_columns


def batch(count, size, step=0, key=None):
    writer = BatchWriter(1 << 24)
    for number in range(count):
        writer.append(1000 + number * step, key, bytes([number & 0xFF]) * size)
    return bytes(writer.finish(0, None, -1, -1, -1))


def alike(data):
    return uniform_columns(data[HEADER_SIZE:], read_header(data))


def one_by_one(data):
    return pure_reader._rows(data[HEADER_SIZE:], read_header(data))


@pytest.mark.parametrize("size", [0, 1, 50, 56, 57, 58, 59, 60, 63, 64, 100, 8183, 8184, 8190])
@pytest.mark.parametrize("count", [6, 63, 64, 65, 300])
def test_columns_give_what_reading_one_by_one_gives(size, count) -> None:
    data = batch(count, size)
    assert alike(data) is not None
    assert decode_batch(data) == (len(data), one_by_one(data))


def test_times_may_differ_a_little() -> None:
    data = batch(24, 10, step=2)
    assert alike(data) is not None
    assert decode_batch(data)[1] == one_by_one(data)
    assert alike(batch(100, 10, step=3)) is None


def test_keys_other_sizes_and_few_records_are_read_one_by_one() -> None:
    assert alike(batch(40, 10, key=b"k")) is None
    assert alike(batch(5, 10)) is None
    writer = BatchWriter(1 << 20)
    for number in range(40):
        writer.append(0, None, b"x" * (10 + number % 2))
    assert alike(bytes(writer.finish(0, None, -1, -1, -1))) is None


def test_named_records_are_the_same_with_a_head() -> None:
    data = batch(40, 10)
    size, _, _, rows = decode_run(data, 0, True, tuple, ("t", 3), from_offset=0)
    assert (size, rows) == (len(data), [("t", 3, *row) for row in one_by_one(data)])
    assert decode_run(data, 0, True, tuple, (), from_offset=15)[3] == one_by_one(data)[15:]


@pytest.mark.parametrize("count", [30, 70])
def test_no_damaged_byte_is_read_in_another_way(count) -> None:
    whole = batch(count, 3)
    for at in range(HEADER_SIZE, len(whole)):
        for flip in (0x01, 0x02, 0x80):
            data = bytearray(whole)
            data[at] ^= flip
            assert outcome(decode_batch, bytes(data)) == outcome(one_by_one, bytes(data))


def test_a_key_that_looks_like_a_broken_number_is_read_one_by_one() -> None:
    writer = BatchWriter(1 << 20)
    for _ in range(30):
        writer.append(0, b"\x80\x80\x80\x80\x10", b"v")
    data = bytes(writer.finish(0, None, -1, -1, -1))
    assert decode_batch(data) == (len(data), one_by_one(data))


def test_a_layout_that_is_remembered_is_not_taken_for_another() -> None:
    """Both areas have as many records and bytes, but other values."""
    even, odd = BatchWriter(1 << 20), BatchWriter(1 << 20)
    for number in range(8):
        even.append(0, None, b"x" * 10)
        odd.append(0, None, b"x" * (9 + number % 2 * 2))
    first, second = (bytes(made.finish(0, None, -1, -1, -1)) for made in (even, odd))
    assert len(first) == len(second)
    for data in (first, second, first):
        assert decode_batch(data) == (len(data), one_by_one(data))


def outcome(read, data):
    try:
        return read(data, 0, False)[1] if read is decode_batch else read(data)
    except KafkaError as refused:
        return refused.code

import struct

import pytest

from headwater.records.batch import (
    HEADER,
    HEADER_SIZE,
    assign,
    batches,
    last_sequence,
    read_header,
)
from headwater.records.builder import build_batch
from headwater.records.checksum import crc32c
from headwater.records.record import Record

NOW = 1_700_000_000_000


def test_the_header_is_61_bytes_of_which_12_stand_before_what_the_length_counts():
    batch = build_batch([Record(value=b"one"), Record(value=b"two")], now=NOW, base_offset=40)
    header = read_header(batch)
    assert HEADER_SIZE == 61
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 41, 42)


def test_flags_are_read_from_the_attributes():
    plain = read_header(build_batch([Record()], now=NOW, codec=3))
    flagged = read_header(
        build_batch([Record()], now=NOW, transactional=True, control=True, timestamp_type=1)
    )
    assert (plain.codec, plain.transactional, plain.control, plain.log_append_time) == (
        3,
        False,
        False,
        False,
    )
    assert (flagged.codec, flagged.transactional, flagged.control, flagged.log_append_time) == (
        0,
        True,
        True,
        True,
    )


def test_a_delete_horizon_is_read_from_the_base_timestamp_only_when_its_bit_is_set():
    header = read_header(build_batch([Record(timestamp=77)], now=NOW))
    assert header.delete_horizon_ms is None
    assert header._replace(attributes=0x40).delete_horizon_ms == 77


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [
        (0, 0, 0),
        (5, 2, 7),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 2, 4, 2),
        (-1, 3, -1),
    ],
)
def test_sequences_wrap_past_the_largest_int32(base, delta, last):
    assert last_sequence(base, delta) == last


def test_assigning_a_place_changes_twelve_bytes_and_keeps_the_checksum_right():
    batch = build_batch([Record(value=b"x")], now=NOW)
    before = bytes(batch)
    assign(memoryview(batch), 2**63 - 10, 7)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (2**63 - 10, 7)
    assert batch[8:12] == before[8:12]
    assert batch[16:] == before[16:]
    assert crc32c(batch[21:]) == header.crc


def test_only_whole_batches_are_walked():
    first = build_batch([Record(value=b"1")], now=NOW)
    second = build_batch([Record(value=b"22")], now=NOW, base_offset=1)
    both = first + second
    assert [pos for pos, _ in batches(both)] == [0, len(first)]
    for cut in range(len(first), len(both)):
        assert [header.base_offset for _, header in batches(both[:cut])] == [0]


@pytest.mark.parametrize("length", [-(2**31), -13, -12, -1, 0, 48, 2**31 - 1])
def test_a_senseless_length_ends_the_walk(length):
    batch = build_batch([Record(value=b"1")], now=NOW)
    struct.pack_into(">i", batch, 8, length)
    assert list(batches(batch)) == []


def test_extreme_numbers_survive_the_header():
    low = (
        (-(2**63), 0, -(2**31), -128, 0, -(2**15), -(2**31))
        + (-(2**63),) * 3
        + (-(2**15),)
        + (-(2**31),) * 2
    )
    assert HEADER.unpack(HEADER.pack(*low)) == low

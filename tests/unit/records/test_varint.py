import pytest

from headwater.errors import E, KafkaError
from headwater.records.varint import INT32_BYTES, INT64_BYTES, read_varint, write_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_numbers_take_the_bytes_that_java_gives_them(value, encoded):
    raw = bytes.fromhex(encoded)
    assert write_varint(value) == raw
    assert read_varint(b"??" + raw + b"!", 2, INT64_BYTES) == (value, 2 + len(raw))


@pytest.mark.parametrize(
    ("raw", "longest"),
    [
        (b"\xff" * 10, INT32_BYTES),
        (b"\xff\xff\xff\xff\x10", INT32_BYTES),
        (b"\x80" * 5 + b"\x00", INT32_BYTES),
        (b"\xff" * 9 + b"\x02", INT64_BYTES),
        (b"\x80" * 10 + b"\x00", INT64_BYTES),
    ],
)
def test_a_number_of_too_many_bits_or_bytes_is_refused(raw, longest):
    with pytest.raises(KafkaError) as refused:
        read_varint(raw, 0, longest)
    assert refused.value.code is E.INVALID_RECORD


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\xff\xff", b"\xff\xff\xff\xff"])
def test_a_number_that_is_cut_is_an_index_error_for_the_walker_to_translate(raw):
    with pytest.raises(IndexError):
        read_varint(raw, 0)

import pytest

from headwater.wire.primitives import (
    NO_ITEMS,
    Packers,
    WireError,
    finish_uvarint,
    read_uvarint,
    uvarint,
)

EDGES = [0, 1, 127, 128, 300, 16383, 16384, 2097151, 2097152, 268435455, 268435456, (1 << 32) - 1]


@pytest.mark.parametrize("value", EDGES)
def test_a_varint_reads_back(value):
    data = uvarint(value)
    assert read_uvarint(b"?" + data + b"!", 1) == (value, 1 + len(data))


@pytest.mark.parametrize("value", [edge for edge in EDGES if edge > 127])
def test_a_varint_can_be_finished_after_its_first_byte(value):
    data = uvarint(value)
    assert finish_uvarint(data, 1, data[0]) == (value, len(data))


@pytest.mark.parametrize("data", [b"\xff" * 5 + b"\x01", b"\x80" * 6 + b"\x00"])
def test_a_varint_of_six_bytes_is_refused(data):
    with pytest.raises(WireError, match="five bytes"):
        read_uvarint(data, 0)
    with pytest.raises(WireError, match="five bytes"):
        finish_uvarint(data, 1, data[0])


def test_layouts_are_kept_for_small_counts_only():
    layouts = Packers("", "i", "pack")
    assert layouts[2](1, 2) == b"\x00\x00\x00\x01\x00\x00\x00\x02"
    assert layouts[1000](*range(1000))[-4:] == b"\x00\x00\x03\xe7"
    assert list(layouts) == [2]


def test_the_empty_array_that_long_requests_share_stays_empty():
    assert NO_ITEMS == []
    for change in ("append", "extend", "insert", "__iadd__"):
        with pytest.raises(TypeError, match="cannot be added to"):
            getattr(NO_ITEMS, change)([1])

"""Batches one behind the other, read as one run, by either codec."""

import pytest

from headwater.errors import E, KafkaError
from headwater.records.builder import build_batch
from headwater.records.checksum import crc32c
from headwater.records.compression import Codec
from headwater.records.control import Marker, build_marker
from headwater.records.record import Record
from tests.unit.records.codecs import codec

__all__ = ["codec"]

NOW = 1_700_000_000_000
LARGEST = 2**63 - 1


def batch(first, count, *, epoch=3, **options):
    records = [
        Record(offset, NOW, None, b"%d" % offset, (("h", b"1"),) if offset % 5 == 4 else ())
        for offset in range(first, first + count)
    ]
    return build_batch(records, base_offset=first, leader_epoch=epoch, now=NOW, **options)


def damaged(first, count):
    data = batch(first, count)
    data[-2] ^= 1
    return data


def wide(first, count, *, epoch=3, **options):
    """A batch of records of about 1 KB without headers."""
    records = [
        Record(offset, NOW, b"k" if offset % 3 else None, b"%d" % offset * 200)
        for offset in range(first, first + count)
    ]
    return build_batch(records, base_offset=first, leader_epoch=epoch, now=NOW, **options)


PAIR = bytes(batch(0, 3) + batch(3, 4))
LONG = bytes(b"".join(wide(first, 20) for first in range(0, 400, 20)))
"""More than the codec in C checks while it holds the GIL."""


def run(codec, data, pos=0, **options):
    """Where the run ends, and the offsets of its records; columns must say the same."""
    end, after, epoch, rows = codec.decode_run(data, pos, True, tuple, ("t",), **options)
    reader = codec.ColumnReader()
    wanted = options.pop("wanted", 1)
    assert reader.add_run(data, pos, True, rows=wanted, **options) == (end, after, epoch)
    columns = reader.finish()
    assert all(row[0] == "t" for row in rows)
    assert list(memoryview(columns.offsets).cast("q")) == [row[1] for row in rows]
    return end, after, epoch, [row[1] for row in rows]


def test_a_run_goes_on_until_there_are_enough_records(codec):
    data = PAIR + bytes(batch(7, 2))
    assert run(codec, data, wanted=1) == (len(batch(0, 3)), 3, 3, [0, 1, 2])
    assert run(codec, data, wanted=4) == (len(PAIR), 7, 3, list(range(7)))
    assert run(codec, data, wanted=99) == (len(data), 9, 3, list(range(9)))
    assert run(codec, data, pos=len(PAIR), wanted=99) == (len(data), 9, 3, [7, 8])


def test_records_before_the_first_one_wanted_are_passed_over(codec):
    assert run(codec, PAIR, from_offset=2, wanted=99) == (len(PAIR), 7, 3, [2, 3, 4, 5, 6])
    assert run(codec, PAIR, from_offset=7, wanted=99) == (len(PAIR), 7, 3, [])
    assert run(codec, PAIR, from_offset=9, wanted=99)[1] == 9


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(batch(7, 1, epoch=4), id="another epoch"),
        pytest.param(
            batch(7, 1, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0),
            id="transactional",
        ),
        pytest.param(
            (7).to_bytes(8) + build_marker(Marker(5, 0, True, 0), now=NOW)[8:], id="control"
        ),
        pytest.param(batch(7, 9)[:-1], id="cut"),
        pytest.param(batch(7, 9)[:60], id="cut in its header"),
        pytest.param(damaged(7, 9), id="damaged"),
        pytest.param(batch(7, 1)[:16] + b"\x01" + batch(7, 1)[17:], id="an old format"),
    ],
)
def test_a_run_ends_before_what_needs_a_look(codec, behind):
    data = PAIR + bytes(behind)
    assert run(codec, data, wanted=99) == (len(PAIR), 7, 3, list(range(7)))
    end, after, _, rows = run(codec, LONG + bytes(behind), wanted=9999)
    assert (end, after, rows) == (len(LONG), 400, list(range(400)))


@pytest.mark.parametrize(
    "between",
    [
        pytest.param([batch(400, 30)], id="headers"),
        pytest.param([wide(400, 30, codec=Codec.GZIP)], id="compressed"),
        pytest.param([batch(400, 10), wide(410, 10, codec=Codec.GZIP), batch(420, 10)], id="both"),
    ],
)
def test_a_long_run_has_what_its_batches_have(codec, between):
    behind = b"".join(wide(first, 20) for first in range(430, 630, 20))
    data = LONG + b"".join(map(bytes, between)) + behind
    assert run(codec, data, wanted=9999) == (len(data), 630, 3, list(range(630)))
    _, after, _, rows = run(codec, data, from_offset=7, wanted=425)
    assert after >= 425
    assert rows == list(range(7, after))
    one_by_one, pos = [], 0
    while pos < len(data):
        size, records = codec.decode_batch(data, pos)
        one_by_one += records
        pos += size
    assert codec.decode_run(data, 0, True, tuple, (), wanted=9999)[3] == one_by_one
    reader = codec.ColumnReader()
    reader.add_run(data, 0, True, from_offset=3, last=500, rows=9999)
    columns = reader.finish()
    wanted = [row for row in one_by_one if 3 <= row[0] <= 500]
    assert list(memoryview(columns.offsets).cast("q")) == [row[0] for row in wanted]
    assert bytes(columns.values.data) == b"".join(row[4] for row in wanted)
    assert bytes(columns.keys.data) == b"".join(row[3] or b"" for row in wanted)
    headers = sum(len(row[5]) for row in wanted)
    assert (columns.headers.count if columns.headers else 0) == headers


def test_a_malformed_batch_in_a_long_run_leaves_nothing_behind(codec):
    broken = bytearray(wide(400, 3))
    broken[57:61] = (4).to_bytes(4)  # one record more than there is
    broken[17:21] = crc32c(bytes(broken[21:])).to_bytes(4)
    data = LONG + bytes(broken) + LONG
    assert run(codec, data, wanted=9999) == (len(LONG), 400, 3, list(range(400)))


@pytest.mark.parametrize("size", [*range(1, 40), 383, 384, 385, 3071, 3072, 3073, 9_999, 70_000])
def test_checksums_match_at_every_length(codec, size):
    values = [b"\xa5" * size, bytes(range(256)) * 300]
    writer = codec.BatchWriter(1 << 20)
    writer.extend(NOW, values, 0)
    data = writer.finish(0, None, 7, 0, 0)
    assert int.from_bytes(data[17:21]) == crc32c(bytes(data[21:]))
    assert codec.decode_run(data, 0, True, tuple, ())[0] == len(data)
    data[len(data) // 2] ^= 4
    with pytest.raises(KafkaError, match="does not match its checksum"):
        codec.decode_run(data, 0, True, tuple, ())


def test_only_damage_in_the_first_batch_is_an_error(codec):
    data = PAIR + bytes(damaged(7, 2))
    with pytest.raises(KafkaError) as refused:
        codec.decode_run(data, len(PAIR), True, tuple, ())
    assert refused.value.code == E.CORRUPT_MESSAGE
    reader = codec.ColumnReader()
    with pytest.raises(KafkaError):
        reader.add_run(data, len(PAIR), True)
    assert reader.count == 0


def test_columns_of_a_run_stop_at_the_last_offset_wanted(codec):
    reader = codec.ColumnReader()
    data = PAIR + bytes(batch(7, 2))
    assert reader.add_run(data, 0, True, from_offset=1, last=4, rows=99) == (len(PAIR), 7, 3)
    columns = reader.finish()
    assert list(memoryview(columns.offsets).cast("q")) == [1, 2, 3, 4]
    assert bytes(columns.values.data) == b"1234"
    assert columns.headers.count == 1


def test_columns_of_a_run_stop_at_their_size(codec):
    reader = codec.ColumnReader()
    assert reader.add_run(PAIR, 0, True, rows=99, size=3)[1] == 3
    assert reader.count == 3


def test_the_end_is_after_the_last_whole_batch(codec):
    assert codec.read_end(PAIR, 0, -1) == (7, 3)
    assert codec.read_end(PAIR[:-1], 0, -1) == (3, 3)
    assert codec.read_end(PAIR, 9, -1) == (9, 3)
    assert codec.read_end(b"", 4, 2) == (4, 2)
    assert codec.read_end(bytes(60), 4, 2) == (4, 2)


def test_an_end_out_of_64_bits_is_none(codec):
    far = batch(0, 1)
    far[:8] = LARGEST.to_bytes(8)
    assert codec.read_end(PAIR + bytes(far), 0, -1) == (7, 3)


def test_other_classes_than_tuples_are_refused(codec):
    with pytest.raises(TypeError):
        codec.decode_run(PAIR, 0, True, list, ())


def walk(codec, data, *, pos=0, stop=LARGEST, offset=0, reach=LARGEST, gaps=False, known=None):
    """Where a walk over sound batches of epoch 3 ends: position, offset, batches and records."""
    known = {} if known is None else known
    return codec.sound_run(data, pos, stop, offset, reach, 3, known, gaps)[:4]


def test_a_walk_over_sound_batches_goes_to_the_last_whole_one(codec):
    assert walk(codec, PAIR) == (len(PAIR), 7, 2, 7)
    assert walk(codec, PAIR[:-1]) == (len(batch(0, 3)), 3, 1, 3)
    assert walk(codec, PAIR, pos=len(batch(0, 3)), offset=3) == (len(PAIR), 7, 1, 4)
    assert walk(codec, LONG)[1:3] == (400, 20)
    assert codec.sound_run(PAIR, 0, LARGEST, 0, LARGEST, 3, {}, False)[4] == NOW


def test_a_walk_over_sound_batches_ends_where_it_is_told(codec):
    first = len(batch(0, 3))
    assert walk(codec, PAIR, stop=1) == walk(codec, PAIR, stop=first) == (first, 3, 1, 3)
    assert walk(codec, PAIR, stop=0)[2] == 0
    assert [walk(codec, PAIR, reach=reach)[2] for reach in (2, 3, 6, 7)] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    "second", [damaged(3, 4), batch(4, 4), batch(2, 4), batch(3, 4, epoch=4), bytes(99)]
)
def test_a_walk_ends_before_a_batch_that_needs_a_closer_look(codec, second):
    assert walk(codec, bytes(batch(0, 3)) + bytes(second))[1:3] == (3, 1)


def test_a_walk_with_gaps_does_not_go_back(codec):
    assert walk(codec, bytes(batch(0, 3) + batch(5, 1)), gaps=True)[1:3] == (6, 2)
    assert walk(codec, bytes(batch(5, 3) + batch(7, 1)), offset=4, gaps=True)[1:3] == (8, 1)


@pytest.mark.parametrize(
    ("last", "epoch", "sequence", "goes_on"),
    [
        (6, 2, 7, True), (6, 2, 8, False), (6, 2, 6, False), (6, 1, 7, False), (6, 3, 0, False),
        ((1 << 31) - 1, 2, 0, True), ((1 << 32) - 1, 2, 0, False), (6, 2, -1, False), (None, 2, 0, False),
    ],
)  # fmt: skip
def test_a_walk_ends_before_a_producer_out_of_order(codec, last, epoch, sequence, goes_on):
    own = {"producer_id": 9, "producer_epoch": epoch, "base_sequence": sequence}
    known = {} if last is None else {9: 2 << 32 | last}
    data = bytes(batch(0, 3, **own))
    assert walk(codec, data, known=known)[2] == goes_on
    if goes_on:
        assert known == {9: 2 << 32 | (sequence + 2)}
    with_gaps = {} if last is None else {9: 2 << 32 | last}
    order_counts = last is not None and epoch == 2 and sequence >= 0
    assert walk(codec, data, known=with_gaps, gaps=True)[2] == order_counts

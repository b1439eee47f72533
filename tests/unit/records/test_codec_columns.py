from array import array

import pyarrow as pa
import pytest

from headwater.errors import E, KafkaError
from headwater.records.builder import build_batch
from headwater.records.codec.murmur import murmur2
from headwater.records.columns import Column
from headwater.records.compression import Codec
from headwater.records.control import Marker, build_marker
from headwater.records.record import Record, decode_records
from tests.unit.records.codecs import BOTH, codec

__all__ = ["codec"]

NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW, b"key", b"value", (("h", b"1"), ("h", None), ("ключ", b""))),
    Record(1, NOW - 5, None, b"v" * 300),
    Record(2, NOW + 70_000, b"", None, (("again", b"2"),)),
    Record(3, NOW, None, None),
]
PLAIN = [Record(place, NOW + place, b"%d" % place, b"v" * place) for place in range(20)]
NOBODY = (-1, -1, -1)


def numbers(buffer, kind):
    return pa.Array.from_buffers(
        kind, len(buffer) * 8 // kind.bit_width, [None, pa.py_buffer(buffer)]
    )


def fields(column, count, kind=None):
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind or pa.binary(), count, buffers)


def rows(columns):
    """The columns as pyarrow sees them, row by row."""
    offsets = numbers(columns.offsets, pa.int64())
    headers = [[]] * columns.count
    if columns.headers:
        keys = fields(columns.headers.keys, columns.headers.count, pa.string())
        values = fields(columns.headers.values, columns.headers.count)
        pairs = pa.StructArray.from_arrays([keys, values], ["key", "value"])
        kind = pa.list_(pairs.type)
        starts = [None, pa.py_buffer(columns.headers.offsets)]
        made = pa.Array.from_buffers(kind, columns.count, starts, children=[pairs])
        made.validate(full=True)
        headers = made.to_pylist()
    for column in (columns.keys, columns.values):
        fields(column, columns.count).validate(full=True)
    return list(
        zip(
            offsets.to_pylist(),
            numbers(columns.timestamps, pa.int64()).to_pylist(),
            numbers(columns.timestamp_types, pa.int8()).to_pylist(),
            fields(columns.keys, columns.count).to_pylist(),
            fields(columns.values, columns.count).to_pylist(),
            [tuple((pair["key"], pair["value"]) for pair in each) for each in headers],
            strict=True,
        )
    )


def expected(records, kind=0):
    return [(record[0], record[1], kind, *record[2:]) for record in records]


@pytest.mark.parametrize("compression", Codec)
def test_arrow_sees_the_records_that_were_sent(codec, compression):
    batch = build_batch(RECORDS, now=NOW, codec=compression)
    assert rows(codec.decode_columns(batch)) == expected(RECORDS)


def test_columns_without_nulls_or_headers_say_so(codec):
    columns = codec.decode_columns(build_batch(PLAIN, now=NOW))
    assert rows(columns) == expected(PLAIN)
    assert columns.keys.validity is columns.values.validity is columns.headers is None


def test_all_whole_batches_of_a_fetch_are_read(codec):
    fetched = b"".join(
        [
            build_batch(RECORDS, now=NOW, base_offset=100),
            build_marker(Marker(7, 0, True, 3), NOW),
            build_batch(PLAIN, now=NOW + 3, base_offset=200, codec=Codec.LZ4, timestamp_type=1),
            build_batch(PLAIN, now=NOW, base_offset=300)[:-1],
        ]
    )
    first = [(100 + row[0], *row[1:]) for row in expected(RECORDS)]
    second = [(200 + row[0], NOW + 3, 1, *row[3:]) for row in expected(PLAIN)]
    assert rows(codec.decode_columns(fetched)) == first + second


@pytest.mark.parametrize("fetched", [b"", b"short", bytes(61), b"\xff" * 100])
def test_no_whole_batch_is_no_rows(codec, fetched):
    columns = codec.decode_columns(fetched)
    assert (columns.count, rows(columns)) == (0, [])


def test_records_below_the_position_are_left_out(codec):
    batch = build_batch(RECORDS, now=NOW, base_offset=10)
    got = rows(codec.decode_columns(batch, from_offset=12))
    assert got == [(10 + row[0], *row[1:]) for row in expected(RECORDS)[2:]]


def test_a_reader_collects_batches_and_begins_anew(codec):
    reader = codec.ColumnReader()
    batch = build_batch(RECORDS, now=NOW)
    for _ in range(50):
        assert reader.add(batch) == len(batch)
    assert reader.count == 200
    assert reader.size == 50 * (3 + 5 + 300 + 1 + 1 + 8 + 1 + 5 + 1)
    assert rows(reader.finish()) == expected(RECORDS) * 50
    assert (reader.count, reader.size) == (0, 0)
    assert rows(reader.finish()) == []
    reader.add(build_batch(PLAIN, now=NOW))
    assert rows(reader.finish()) == expected(PLAIN)


@pytest.mark.parametrize("good", range(10))
def test_a_bad_batch_leaves_no_trace_in_the_columns(codec, good):
    some = [Record(place, NOW, b"k", b"v", (("h", b"w"),)) for place in range(good + 1)]
    reader = codec.ColumnReader()
    reader.add(build_batch(some, now=NOW))
    broken = build_batch(some * 3, now=NOW)
    broken[-2] = 0x7E  # the last header claims a value past its record
    with pytest.raises(KafkaError) as refused:
        reader.add(broken, check_crc=False)
    assert refused.value.code == E.INVALID_RECORD
    nulls = [Record(place, NOW) for place in range(9)]
    reader.add(build_batch(nulls, now=NOW))
    assert rows(reader.finish()) == expected(some) + expected(nulls)


def test_header_keys_in_columns_are_always_text(codec):
    batch = build_batch([Record(0, NOW, headers=(("ab", b"v"), ("é", b"w")))], now=NOW)
    batch[:] = batch.replace(b"ab", b"a\xff")
    got = rows(codec.decode_columns(batch, False))
    assert got[0][5] == (("a\ufffd", b"v"), ("é", b"w"))


def column_of(array_):
    validity, offsets, data = array_.buffers()
    return Column(offsets, data or b"", validity, array_.offset)


TABLE_KEYS = pa.array([b"a", None, b"", b"key" * 30, b"b"] * 30, pa.binary())
TABLE_VALUES = pa.array(
    [b"v" * number if number % 7 else None for number in range(150)], pa.binary()
)


def sent(codec, *arguments, limit=1 << 20):
    writer = codec.BatchWriter(limit)
    taken = codec.encode_columns(writer, *arguments)
    return taken, decode_records(writer.finish(0, None, *NOBODY)) if taken else []


def table_records(wanted, times=None):
    return [
        Record(
            place,
            times[row] if times else NOW,
            TABLE_KEYS[row].as_py(),
            TABLE_VALUES[row].as_py(),
        )
        for place, row in enumerate(wanted)
    ]


def test_rows_of_a_table_are_sent_as_records(codec):
    columns = column_of(TABLE_KEYS), column_of(TABLE_VALUES)
    assert sent(codec, NOW, *columns, 150) == (150, table_records(range(150)))


def test_a_slice_of_a_table_begins_at_its_own_row(codec):
    columns = column_of(TABLE_KEYS.slice(13, 40)), column_of(TABLE_VALUES.slice(13, 40))
    assert sent(codec, NOW, *columns, 40) == (40, table_records(range(13, 53)))


def test_chosen_rows_are_sent_in_their_order_with_their_times(codec):
    wanted = array("i", [149, 3, 3, 77, 0])
    times = array("q", [NOW + 11 * row for row in range(150)])
    columns = column_of(TABLE_KEYS), column_of(TABLE_VALUES)
    assert sent(codec, times, *columns, wanted, 1) == (4, table_records(wanted[1:], times))


def test_rows_that_do_not_fit_are_left_for_the_next_batch(codec):
    values = column_of(TABLE_VALUES)
    start = 0
    got = []
    while start < 150:
        writer = codec.BatchWriter(500)
        taken = codec.encode_columns(writer, NOW, None, values, 150, start)
        assert taken > 0
        assert writer.size <= 500 or writer.count == 1
        got += [record.value for record in decode_records(writer.finish(0, None, *NOBODY))]
        start += taken
    assert got == TABLE_VALUES.to_pylist()


def test_nothing_is_taken_past_the_last_row(codec):
    writer = codec.BatchWriter(500)
    assert codec.encode_columns(writer, NOW, None, column_of(TABLE_VALUES), 150, 150) == 0
    assert codec.encode_columns(writer, NOW, None, column_of(TABLE_VALUES), 150, 151) == 0


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (Column(array("i", [0, 5]), b"abc"), 1),
        (Column(array("i", [2, 1]), b"abc"), 1),
        (Column(array("i", [-1, 1]), b"abc"), 1),
        (Column(array("i", [0, 1]), b"abc"), 2),
        (Column(array("i", [0, 1]), b"abc", None, 1), 1),
        (Column(array("i", [0, 1]), b"abc", b""), 1),
        (Column(array("i", [0, 1, 2]), b"abc"), array("i", [-1])),
        (Column(array("i", [0, 1, 2]), b"abc"), array("i", [2])),
        (Column(b"", b""), 1),
    ],
)
def test_rows_outside_of_their_buffers_are_refused(codec, values, wanted):
    with pytest.raises(IndexError):
        codec.encode_columns(codec.BatchWriter(500), NOW, None, values, wanted)
    with pytest.raises(IndexError):
        codec.encode_columns(codec.BatchWriter(500), NOW, values, column_of(TABLE_VALUES), wanted)


def test_a_row_without_a_time_is_refused(codec):
    with pytest.raises(IndexError):
        codec.encode_columns(
            codec.BatchWriter(500), array("q", [NOW]), None, column_of(TABLE_VALUES), 2
        )


def test_rows_are_split_to_the_partitions_of_their_keys(codec):
    keys = [b"key-%d" % number if number % 5 else None for number in range(500)]
    *split, keyless = codec.split_rows(column_of(pa.array(keys, pa.binary())), 500, 7)
    assert list(array("i", bytes(keyless))) == list(range(0, 500, 5))
    for partition, chosen in enumerate(split):
        assert list(array("i", bytes(chosen))) == [
            row
            for row, key in enumerate(keys)
            if key is not None and (murmur2(key) & 0x7FFFFFFF) % 7 == partition
        ]


def test_rows_cannot_be_split_to_no_partition(codec):
    with pytest.raises(ValueError, match="partitions"):
        codec.split_rows(Column(array("i", [0, 1]), b"a"), 1, 0)


def test_the_sum_of_rows_depends_on_each_row_and_not_on_their_order(codec):
    def total(*rows):
        keys, values = (pa.array(column, pa.binary()) for column in zip(*rows, strict=True))
        return codec.sum_rows(column_of(keys), column_of(values), len(rows))

    rows = [(b"k", b"1"), (None, b"4"), (b"k", None), (b"", b"")]
    assert total(*rows) == total(*reversed(rows)) == 0xF13EAE89FB32E621
    others = [(b"k", b"2"), (b"4", None), (b"1", b"k"), (None, None), (None, b""), (b"", None)]
    assert len({total(row) for row in [*rows, *others]}) == len(rows) + len(others)
    values = column_of(pa.array([b"1", b"4"], pa.binary()))
    assert codec.sum_rows(None, values, 2) == total((None, b"1"), (None, b"4"))
    assert codec.sum_rows(None, values, 2) != total((None, b"2"), (None, b"3"))
    with pytest.raises(IndexError):
        codec.sum_rows(None, values, 3)


def large(first):
    """A batch whose columns are worth keeping the memory of."""
    records = [Record(n, NOW, b"k" * 9, b"%06d" % (first + n) * 9) for n in range(5000)]
    return build_batch(records, now=NOW, base_offset=first)


def values_of(columns):
    return fields(columns.values, columns.count)


def test_columns_that_somebody_holds_are_never_written_over(codec):
    """Arrow, slices of it and plain buffers all count as holding."""
    reader, batches = codec.ColumnReader(), [large(first) for first in range(0, 40_000, 5000)]
    held = []
    for batch in batches:
        reader.add(batch, 0, True)
        columns = reader.finish()
        held.append((rows(columns), values_of(columns).slice(100, 50), columns.offsets))
    for (expected, slice_, offsets), batch in zip(held, batches, strict=True):
        again = codec.ColumnReader()
        again.add(batch, 0, True)
        columns = again.finish()
        assert expected == rows(columns)
        assert slice_.to_pylist() == values_of(columns).slice(100, 50).to_pylist()
        assert bytes(offsets) == bytes(columns.offsets)


def test_columns_come_out_right_in_memory_that_was_used_before(codec):
    """Shorter and longer ones in turn, each let go of before the next."""
    reader = codec.ColumnReader()
    for batches in (
        [large(0), large(5000)],
        [large(0)],
        [build_batch(RECORDS, now=NOW)],
        [large(0)] * 3,
    ):
        fresh = codec.ColumnReader()
        for batch in batches:
            reader.add(batch, 0, True)
            fresh.add(batch, 0, True)
        assert rows(reader.finish()) == rows(fresh.finish())


@pytest.mark.parametrize("codec", BOTH[1:], indirect=True)
def test_compiled_columns_use_memory_again_that_came_back(codec):
    reader = codec.ColumnReader()
    places = []
    for _ in range(6):
        reader.add(large(0), 0, True)
        columns = reader.finish()
        places.append(pa.py_buffer(columns.values.data).address)
        del columns
    assert len(set(places)) < len(places)

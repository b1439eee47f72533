"""What a broker sent, taken apart: in order, without what is not for users, and without trust."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.consumer.fetching.completed_fetch import Aborted, CompletedFetch
from headwater.client.consumer.partition_state import PartitionState
from headwater.client.errors import CorruptRecordError
from headwater.model import TopicPartition
from headwater.records.batch import CONTROL, MAGIC, TRANSACTIONAL
from headwater.records.builder import build_batch
from headwater.records.codec import ColumnReader
from headwater.records.control import Marker, build_marker
from headwater.records.header_writing import complete_batch
from headwater.records.record import Record

HERE = TopicPartition("t", 3)


def place_at(offset):
    state = PartitionState(HERE)
    state.seek(offset)
    return state


def batch(first, *values, **options):
    rows = [Record(offset=n, value=value) for n, value in enumerate(values, start=first)]
    return bytes(build_batch(rows, base_offset=first, leader_epoch=7, now=0, **options))


def marker(offset, producer_id, commit):
    made = build_marker(Marker(producer_id, 0, commit, 0), now=0)
    made[:8] = offset.to_bytes(8)
    return bytes(made)


def fetched(data, state, *, aborted=None, check_crcs=True):
    return CompletedFetch(state, memoryview(data), aborted=aborted, check_crcs=check_crcs)


def all_of(source, limit=100):
    found = []
    while records := source.take_records(limit):
        found += records
    return found


def test_records_carry_their_place_and_move_the_position() -> None:
    state = place_at(0)
    source = fetched(batch(0, b"a", b"b") + batch(2, b"c"), state)
    assert (source.end_offset, source.end_epoch) == (3, 7)
    first = source.take_records(1)
    assert [(r.topic, r.partition, r.offset, r.value) for r in first] == [("t", 3, 0, b"a")]
    assert state.position == 1
    assert [r.value for r in source.take_records(100)] == [b"b"]
    assert [r.value for r in source.take_records(100)] == [b"c"]
    assert source.take_records(100) == []
    assert (state.position, state.epoch) == (3, 7)


def test_a_batch_that_began_earlier_is_cut_to_what_was_asked_for() -> None:
    state = place_at(2)
    assert [r.offset for r in all_of(fetched(batch(0, b"a", b"b", b"c", b"d"), state))] == [2, 3]


def test_the_position_passes_offsets_that_compaction_removed() -> None:
    data = bytearray(batch(0, b"a"))
    data[23:27] = (9).to_bytes(4)  # the last offset delta; the records behind it are gone
    state = place_at(0)
    source = fetched(bytes(data), state, check_crcs=False)
    assert len(all_of(source)) == 1
    assert state.position == source.end_offset == 10


def emptied(first, last, *, producer_id=-1, attributes=0):
    """A batch of which compaction kept the header alone, for its producer's last sequence."""
    header = (first, 0, 7, MAGIC, 0, attributes, last - first, 0, 0, producer_id, 0, 0, 0)
    return bytes(complete_batch(header, b""))


@pytest.mark.parametrize("aborted", [None, []], ids=["read_uncommitted", "read_committed"])
def test_the_position_passes_batches_that_compaction_emptied(aborted) -> None:
    data = (
        emptied(0, 4)
        + batch(5, b"plain")
        + emptied(6, 8, producer_id=1, attributes=TRANSACTIONAL)
        + batch(9, b"kept", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        + marker(10, 1, commit=True)
        + emptied(11, 11, producer_id=2, attributes=TRANSACTIONAL | CONTROL)
        + emptied(12, 20, producer_id=1, attributes=TRANSACTIONAL)
    )
    state = place_at(0)
    assert [record.value for record in all_of(fetched(data, state, aborted=aborted))] == [
        b"plain",
        b"kept",
    ]
    assert state.position == 21
    state = place_at(0)
    reader = ColumnReader()
    fetched(data, state, aborted=aborted).take_columns(reader, 100)
    assert (reader.count, state.position) == (2, 21)


def test_a_batch_that_was_cut_short_is_left_for_the_next_fetch() -> None:
    state = place_at(0)
    source = fetched(batch(0, b"a") + batch(1, b"b")[:-1], state)
    assert source.end_offset == 1
    assert [r.value for r in all_of(source)] == [b"a"]


def test_control_batches_are_never_shown() -> None:
    state = place_at(0)
    data = batch(0, b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    source = fetched(data + marker(1, 1, commit=False) + batch(2, b"b"), state)
    assert [r.offset for r in all_of(source)] == [0, 2]
    assert state.position == 3


def test_read_committed_drops_what_was_aborted_and_only_that() -> None:
    def of(producer_id, first, value):
        return batch(
            first, value, producer_id=producer_id, producer_epoch=0, base_sequence=0,
            transactional=True,
        )  # fmt: skip

    data = (
        of(1, 0, b"aborted") + of(2, 1, b"kept") + marker(2, 1, commit=False)
        + of(1, 3, b"a later one") + marker(4, 1, commit=True) + marker(5, 2, commit=True)
    )  # fmt: skip
    state = place_at(0)
    source = fetched(data, state, aborted=[Aborted(1, 0)])
    assert [r.value for r in all_of(source)] == [b"kept", b"a later one"]
    assert state.position == 6
    assert len(all_of(fetched(data, place_at(0)))) == 3


def of_transaction(producer_id, first, value):
    return batch(
        first, value, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )  # fmt: skip


@pytest.mark.parametrize("first_to_end", [1, 2])
def test_transactions_that_overlap_are_dropped_in_whatever_order_they_end(first_to_end) -> None:
    """Brokers list aborted transactions in the order of their ends, not of their first records."""
    last_to_end = 3 - first_to_end
    data = (
        of_transaction(1, 0, b"one") + of_transaction(2, 1, b"two") + of_transaction(3, 2, b"kept")
        + of_transaction(last_to_end, 3, b"more") + marker(4, first_to_end, commit=False)
        + of_transaction(last_to_end, 5, b"still more") + marker(6, last_to_end, commit=False)
        + marker(7, 3, commit=True) + of_transaction(first_to_end, 8, b"the next one")
    )  # fmt: skip
    firsts = {1: 0, 2: 1}
    listed = [
        Aborted(first_to_end, firsts[first_to_end]),
        Aborted(last_to_end, firsts[last_to_end]),
    ]
    shown = [b"kept", b"the next one"]
    assert [r.value for r in all_of(fetched(data, place_at(0), aborted=listed))] == shown
    assert [r.value for r in all_of(fetched(data, place_at(0), aborted=listed), limit=1)] == shown
    reader = ColumnReader()
    fetched(data, place_at(0), aborted=listed).take_columns(reader, 100)
    assert bytes(reader.finish().values.data) == b"".join(shown)


@given(st.data())
def test_read_committed_shows_exactly_the_committed_of_any_interleaving(data) -> None:
    log, committed, aborted, begun = b"", [], [], {}
    steps = data.draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from("wwca")), max_size=40))
    for offset, (producer, step) in enumerate(steps):
        if step == "w" or producer not in begun:
            begun.setdefault(producer, []).append(offset)
            log += of_transaction(producer, offset, b"%d" % offset)
        else:
            mine = begun.pop(producer)
            log += marker(offset, producer, commit=step == "c")
            if step == "c":
                committed += mine
            else:
                aborted.append(Aborted(producer, mine[0]))
    open_ones = [offset for mine in begun.values() for offset in mine]
    shown = sorted(committed + open_ones)  # the broker ends its answer before open transactions
    limit = data.draw(st.integers(1, 50))
    assert [r.offset for r in all_of(fetched(log, place_at(0), aborted=aborted), limit)] == shown
    reader = ColumnReader()
    fetched(log, place_at(0), aborted=aborted).take_columns(reader, 100)
    offsets = list(memoryview(reader.finish().offsets).cast("B").cast("q")) if reader.count else []
    assert offsets == shown


def test_damage_is_told_with_its_place_and_the_position_stays() -> None:
    data = bytearray(batch(0, b"a") + batch(1, b"b"))
    data[-1] ^= 1
    state = place_at(0)
    source = fetched(bytes(data), state)
    assert len(source.take_records(100)) == 1
    with pytest.raises(CorruptRecordError, match=r"t-3: the batch at offset 1 .*checksum.*seek"):
        source.take_records(100)
    assert state.position == 1
    reader = ColumnReader()
    with pytest.raises(CorruptRecordError):
        fetched(bytes(data), place_at(0)).take_columns(reader, 100)
    assert reader.count == 1


def test_checks_of_sums_can_be_left_out() -> None:
    data = bytearray(batch(0, b"a"))
    data[17] ^= 1
    assert len(all_of(fetched(bytes(data), place_at(0), check_crcs=False))) == 1


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 5, 2**31 - 1])
def test_impossible_lengths_end_in_an_error_or_in_nothing(length) -> None:
    data = bytearray(batch(0, b"a"))
    data[8:12] = length.to_bytes(4, signed=True)
    source = fetched(bytes(data), place_at(0))
    if length > 1000:
        assert all_of(source) == []
        assert source.end_offset == 0  # the fetcher sees that nothing came of it
    else:
        with pytest.raises(CorruptRecordError):
            all_of(source)


def test_offsets_at_the_end_of_64_bits_do_not_wrap() -> None:
    data = bytearray(batch(0, b"a"))
    data[:8] = (2**63 - 1).to_bytes(8)
    assert fetched(bytes(data), place_at(0)).end_offset == 0


def test_what_was_fetched_before_a_jump_is_stale() -> None:
    state = place_at(0)
    source = fetched(batch(0, b"a"), state)
    assert not source.stale
    state.seek(50)
    assert source.stale
    again = fetched(batch(50, b"a"), state)
    state.leaving = True
    assert again.stale


def test_columns_are_whole_batches_up_to_a_limit() -> None:
    state, reader = place_at(1), ColumnReader()
    source = fetched(batch(0, b"a", b"b") + batch(2, b"c") + batch(3, b"d"), state)
    source.take_columns(reader, 2)
    assert (reader.count, state.position) == (2, 3)
    columns = reader.finish()
    assert bytes(columns.values.data) == b"bc"

"""Origins, marks and what a repeated task recalls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipelines.topic_sink.origin import (
    HEADER,
    BatchState,
    FoundRecords,
    Mark,
    PartEntry,
    PriorWrites,
    RecordOrigin,
    claim_by,
    prior_writes,
    read_mark,
    read_part_entry,
    untold_writes,
    without_origin,
)

RUN, OTHER = "a1", "b2"


def test_a_header_names_query_batch_task_and_index():
    assert RecordOrigin("q", 3, 1).stem + b"7" == b"q/3/1/7"


def test_a_copied_record_loses_the_origin_it_had():
    assert without_origin([("a", b"1"), (HEADER, b"q/0/0/0"), ("b", None)]) == (
        ("a", b"1"),
        ("b", None),
    )


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (Mark(BatchState.DONE, 12), "done 12"),
        (Mark(BatchState.BEGUN, 0, RUN), "begun 0 a1"),
        (Mark(BatchState.DONE, 1, RUN, transactional=True), "done 1 a1 tx"),
        (Mark(BatchState.BEGUN, 2, RUN, (OTHER, "c3"), transactional=True), "begun 2 a1 tx b2 c3"),
        (Mark(BatchState.BEGUN, 2, RUN, (OTHER,), mixed=True), "begun 2 a1 plain b2"),
        (Mark(BatchState.BEGUN, 2, RUN, mixed=True), "begun 2 a1 plain"),
    ],
)
def test_a_mark_is_read_as_it_was_written(mark, text):
    assert mark.text() == text
    assert read_mark(text) == mark


@pytest.mark.parametrize("text", ["", "7", "done", "done x", "finished 3"])
def test_a_note_of_somebody_else_is_no_mark(text):
    assert read_mark(text) is None


@pytest.mark.parametrize(
    ("mark", "attempt", "expected"),
    [
        (None, 0, PriorWrites.NOTHING),
        (Mark(BatchState.DONE, 4), 0, PriorWrites.NOTHING),
        (Mark(BatchState.DONE, 4), 1, PriorWrites.PERHAPS),
        (Mark(BatchState.BEGUN, 5, RUN), 0, PriorWrites.NOTHING),
        (Mark(BatchState.BEGUN, 5, RUN), 1, PriorWrites.PERHAPS),
        (Mark(BatchState.BEGUN, 5, OTHER), 0, PriorWrites.PERHAPS),
        (Mark(BatchState.TORN, 5), 0, PriorWrites.PERHAPS),
        (Mark(BatchState.DONE, 5), 0, PriorWrites.EVERYTHING),
        (Mark(BatchState.DONE, 5), 3, PriorWrites.EVERYTHING),
        (Mark(BatchState.BEGUN, 6, OTHER), 0, PriorWrites.EVERYTHING),
    ],
)
def test_what_may_be_there_follows_from_the_mark(mark, attempt, expected):
    assert prior_writes(mark, 5, RUN, attempt) is expected


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (None, PriorWrites.NOTHING),
        (Mark(BatchState.BEGUN, 4, OTHER), PriorWrites.NOTHING),
        (Mark(BatchState.BEGUN, 5, OTHER, transactional=True), PriorWrites.NOTHING),
        (Mark(BatchState.BEGUN, 5, RUN), PriorWrites.PERHAPS),
        (Mark(BatchState.TORN, 5), PriorWrites.PERHAPS),
        (Mark(BatchState.DONE, 5), PriorWrites.EVERYTHING),
        (Mark(BatchState.DONE, 5, OTHER, transactional=True), PriorWrites.EVERYTHING),
        (Mark(BatchState.BEGUN, 6, OTHER, transactional=True), PriorWrites.EVERYTHING),
    ],
)
def test_only_what_was_written_without_transactions_is_not_in_part_entries(mark, expected):
    assert untold_writes(mark, 5) is expected


def test_a_run_that_claims_a_batch_replaces_those_before_it():
    mark = claim_by(None, 5, "one")
    assert mark == Mark(BatchState.BEGUN, 5, "one", transactional=True)
    assert claim_by(mark, 6, "one").earlier == ()
    mark = claim_by(claim_by(mark, 5, "two"), 6, "three")
    assert (mark.run, mark.earlier, mark.transactional) == ("three", ("two", "one"), True)
    for number in range(100):
        mark = claim_by(mark, 7, f"run-{number}")
    assert len(mark.text()) < 300
    begun = Mark(BatchState.TORN, 5)
    for run in ("one", "two"):
        begun = claim_by(begun, 5, run)
        assert not begun.transactional, "its records may have no part entry"
        assert begun.mixed
    assert claim_by(begun, 6, "two").transactional


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (Mark(BatchState.BEGUN, 5, RUN), False),
        (Mark(BatchState.TORN, 5), False),
        (Mark(BatchState.BEGUN, 4, RUN, transactional=True), False),
        (Mark(BatchState.DONE, 5, RUN, transactional=True), False),
        (Mark(BatchState.BEGUN, 5, RUN, transactional=True), True),
        (claim_by(Mark(BatchState.TORN, 5), 5, RUN), True),
        (claim_by(Mark(BatchState.BEGUN, 5, OTHER), 5, RUN), True),
    ],
)
def test_a_mark_tells_whether_an_unfinished_batch_has_transactions(mark, expected):
    again = read_mark(mark.text())
    assert again is not None
    assert again.has_transactions_of(5) is expected


def test_a_part_entry_is_read_as_it_was_written():
    entry = PartEntry(41, RUN, 3, 0xFF)
    assert entry.text() == "part 41 a1 3 00000000000000ff"
    assert read_part_entry(entry.text()) == entry
    for text in ("", "done 41", "part 41 a1 3", "part x a1 3 ff", "mark 41 a1 3 ff"):
        assert read_part_entry(text) is None


def test_each_record_found_stands_for_one_row():
    found = FoundRecords()
    found.add(4, b"k", b"v", ())
    assert not found.consume(b"k", b"other", ())
    assert not found.consume(b"k", b"v", (("h", b"1"),))
    assert found.consume(b"k", b"v", ())
    assert not found.consume(b"k", b"v", ())
    assert found.next_index == 5


rows = st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=12)


@given(rows, st.data())
def test_rows_in_any_order_and_cut_anywhere_are_written_once(values, data):
    stored = data.draw(st.permutations(values))[: data.draw(st.integers(0, len(values)))]
    found = FoundRecords()
    for index, value in enumerate(stored):
        found.add(index, None, value, ())
    again = [
        value for value in data.draw(st.permutations(values)) if not found.consume(None, value, ())
    ]
    assert sorted(map(repr, stored + again)) == sorted(map(repr, values))
    assert len(found) == 0


@given(rows, rows)
def test_rows_that_changed_are_written_and_none_is_lost(stored, values):
    found = FoundRecords()
    for index, value in enumerate(stored):
        found.add(index, None, value, ())
    again = [value for value in values if not found.consume(None, value, ())]
    for value in set(values):
        assert (stored + again).count(value) >= values.count(value)

"""Offsets: their JSON, and what a batch takes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.config.keys import ConfigError
from headwater.model import TopicPartition
from headwater.pipelines.topic_source.offsets import (
    OffsetRange,
    advance,
    backlog,
    from_json,
    parse_assign,
    parse_offsets,
    ranges,
    split,
    spread,
    to_json,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
offsets = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3)),
    st.integers(0, 1000),
    max_size=8,
)


def test_the_json_is_that_of_kafkas_connector():
    assert to_json({B0: 7, A1: 3, A0: 12}) == {"a": {"0": 12, "1": 3}, "b": {"0": 7}}


@given(offsets)
def test_json_and_back_is_the_same(known):
    assert from_json(to_json(known)) == known


def test_offsets_of_users_may_be_either_end():
    assert parse_offsets('{"a": {"0": 23, "1": -2}, "b": {"0": -1}}', "startingOffsets") == {
        A0: 23, A1: -2, B0: -1
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"a": 3}', '{"a": {"x": 3}}', '{"a": {"0": -3}}', '{"a": {"0": "3"}}',
     '{"a": {"0": true}}'],
)  # fmt: skip
def test_what_is_no_map_of_offsets_is_refused_by_the_name_of_its_option(text):
    with pytest.raises(ConfigError, match="startingOffsets takes JSON such as"):
        parse_offsets(text, "startingOffsets")


def test_assigned_partitions_come_once_and_in_order():
    assert parse_assign('{"b": [0], "a": [1, 0, 1]}') == (A0, A1, B0)


@pytest.mark.parametrize("text", ["{}", '{"a": []}', '{"a": 1}', '{"a": [-1]}', '{"a": ["0"]}'])
def test_assign_must_name_partitions(text):
    with pytest.raises(ConfigError, match="assign takes JSON"):
        parse_assign(text)


def test_a_limit_is_shared_by_backlog_and_starves_nobody():
    assert spread(100, {A0: 900, A1: 100, B0: 1}) == {A0: 89, A1: 9, B0: 1}


def test_a_limit_above_the_backlog_takes_all():
    assert spread(100, {A0: 60, A1: 40}) == {A0: 60, A1: 40}


@given(offsets, offsets, st.integers(1, 500))
def test_a_batch_never_goes_back_never_beyond_the_end_and_about_as_far_as_it_may(
    start, latest, limit
):
    latest = {where: max(end, start.get(where, 0)) for where, end in latest.items()}
    end = advance(start, latest, limit)
    assert end.keys() == latest.keys()
    assert all(start.get(where, 0) <= stop <= latest[where] for where, stop in end.items())
    taken = sum(one.size for one in ranges(start, end))
    assert taken <= max(limit, 0) + len(latest)
    if backlog(start, latest):
        assert taken > 0


def test_a_new_partition_is_read_from_its_beginning():
    end = advance({A0: 5}, {A0: 5, A1: 3}, None)
    assert ranges({A0: 5}, end) == [OffsetRange("a", 1, 0, 3)]


def test_a_topic_made_anew_is_read_from_its_beginning_although_it_grew_beyond_the_old_offset():
    start, read, latest = {A0: 10}, [], {A0: 25}
    end = advance(start, latest, None, [A0])
    read += ranges(start, end)
    assert end == {A0: 9}, "an end below the start tells a replay of this batch the same"
    read += ranges(end, advance(end, latest, None))
    assert read == [OffsetRange("a", 0, 0, 9), OffsetRange("a", 0, 9, 25)]


def test_an_empty_topic_made_anew_goes_back_to_zero():
    end = advance({A0: 10}, {A0: 0}, None, [A0])
    assert end == {A0: 0}
    assert ranges({A0: 10}, end) == []


def test_ranges_leave_out_what_is_empty():
    assert ranges({A0: 5, A1: 2}, {A0: 5, A1: 4}) == [OffsetRange("a", 1, 2, 4)]


def test_each_partition_is_a_task_unless_more_are_asked_for():
    whole = [OffsetRange("a", 0, 0, 1000), OffsetRange("a", 1, 0, 10)]
    assert split(whole, None) == whole
    assert split(whole, 2) == whole


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 500)), min_size=1, max_size=5),
    st.one_of(st.none(), st.integers(1, 20)),
    st.one_of(st.none(), st.integers(1, 200)),
)
def test_pieces_together_are_the_whole_and_none_is_empty_or_too_large(rows, at_least, largest):
    whole = [OffsetRange("a", n, start, start + size) for n, (start, size) in enumerate(rows)]
    pieces = split(whole, at_least, largest)
    for row in whole:
        mine = [piece for piece in pieces if piece.partition == row.partition]
        assert (mine[0].start, mine[-1].end) == (row.start, row.end)
        assert all(a.end == b.start for a, b in pairwise(mine))
        assert all(0 < piece.size <= (largest or row.size) for piece in mine)


def test_large_partitions_are_divided_into_about_as_many_tasks_as_asked():
    whole = [OffsetRange("a", 0, 0, 900), OffsetRange("a", 1, 0, 100)]
    assert [piece.size for piece in split(whole, 10)] == [100] * 10

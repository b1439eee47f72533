"""Batches of the length that was asked for."""

import pytest

from headwater.pipelines.topic_source.pace import FIRST_ROWS, LEAST_ROWS, Pace


def settled(rows_per_ms, fixed_ms=100, target_ms=5000, batches=20):
    pace = Pace(target_ms)
    for _ in range(batches):
        pace.took(pace.rows, int(fixed_ms + pace.rows / rows_per_ms), limited=True)
    return fixed_ms + pace.rows / rows_per_ms


@pytest.mark.parametrize("rows_per_ms", [1, 20, 800])
def test_the_length_of_a_batch_comes_to_the_target_whatever_a_row_costs(rows_per_ms):
    assert 4500 <= settled(rows_per_ms) <= 5500


def test_a_batch_is_at_most_four_times_the_last():
    pace = Pace(60_000)
    pace.took(FIRST_ROWS, 1, limited=True)
    assert pace.rows == 4 * FIRST_ROWS


def test_a_batch_that_found_little_to_read_does_not_move_the_pace():
    pace = Pace(5000)
    pace.took(10, 200, limited=False)
    assert pace.rows == FIRST_ROWS


def test_a_slow_batch_moves_it_even_if_small():
    pace = Pace(1000)
    pace.took(10_000, 4000, limited=False)
    assert pace.rows == 2500


def test_it_never_stops():
    pace = Pace(1)
    for _ in range(20):
        pace.took(pace.rows, 10_000, limited=True)
    assert pace.rows == LEAST_ROWS


def test_an_empty_batch_teaches_nothing():
    pace = Pace(1000)
    pace.took(0, 1, limited=False)
    assert pace.rows == FIRST_ROWS

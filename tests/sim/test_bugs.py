"""The checker can fail: each planted bug is found within some seeds."""

import pytest

from simulator.bugs import BUGS, simulate_buggy

ENOUGH_SEEDS = 120


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    seeds = range(BUGS[bug].first, BUGS[bug].first + ENOUGH_SEEDS)
    assert any(not simulate_buggy(seed, bug).good for seed in seeds)

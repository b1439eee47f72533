"""The checker can fail: each planted bug is found within a few seeds."""

import pytest

from headwater.sim.bugs import BUGS, planted
from headwater.sim.run import simulate

ENOUGH_SEEDS = 120


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    for seed in range(ENOUGH_SEEDS):
        with planted(bug):
            verdict = simulate(seed)
        if not verdict.good:
            return
    pytest.fail(f"{bug} was not found in {ENOUGH_SEEDS} seeds")

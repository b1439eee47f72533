"""Whole runs with crashes, power cuts, resets and full disks: no promise is ever broken."""

import pytest

from simulator.faults import KINDS
from simulator.run import simulate

SEEDS, PORTION = 200, 10


@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_no_promise_is_broken_whatever_goes_wrong(first):
    for seed in range(first, first + PORTION):
        verdict = simulate(seed)
        assert verdict.good, f"seed {seed} under {verdict.fault_plan}: {verdict.complaints}"


def test_the_seeds_together_meet_every_kind_of_trouble_and_acknowledge_records():
    verdicts = [simulate(seed) for seed in range(5)]
    assert all(verdict.lives >= 3 for verdict in verdicts)
    assert sum(verdict.acknowledged for verdict in verdicts) > 100
    assert len({kind for verdict in verdicts for kind in verdict.fault_plan.kinds}) == len(KINDS)

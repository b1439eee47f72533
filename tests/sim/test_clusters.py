"""Whole clusters: brokers, ZooKeeper and the real clients in one thread, under all kinds of trouble."""

import pytest

from simulator.cluster_bugs import simulate_buggy_cluster
from simulator.cluster_plan import FEWEST, KINDS
from simulator.cluster_run import simulate_cluster

SEEDS, PORTION = 500, 10
"""Six of seven seeds have transactions."""
ENOUGH_SEEDS = 40
FOUND_SOON = (
    "B1", "B2", "B4", "B7", "B8", "B9", "B28", "B29", "B30", "B31", "B32", "B33", "B34", "B35", "B40",
    "B42", "T2", "T3", "T4", "T5", "T6",
)  # fmt: skip
"""The bugs that a few seeds find; `tools.simulate clusters --hunt` looks for all of them."""


@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_a_cluster_keeps_its_promises_whatever_goes_wrong(first):
    verdicts = [simulate_cluster(seed) for seed in range(first, first + PORTION)]
    for verdict in verdicts:
        assert verdict.good, f"seed {verdict.seed} under {verdict.plan}: {verdict.complaints}"
    assert all(len(verdict.plan.troubles) >= FEWEST for verdict in verdicts)
    assert len(set().union(*(verdict.injected for verdict in verdicts))) > len(KINDS) // 3
    assert sum(verdict.acknowledged for verdict in verdicts) >= 10 * PORTION
    assert sum(verdict.plan.transactors > 0 for verdict in verdicts) >= PORTION * 6 // 7
    assert sum(verdict.committed for verdict in verdicts) >= 3 * PORTION


@pytest.mark.parametrize("bug", FOUND_SOON)
def test_a_planted_bug_is_found(bug):
    assert any(not simulate_buggy_cluster(seed, bug).good for seed in range(ENOUGH_SEEDS))

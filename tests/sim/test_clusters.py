"""Whole clusters: brokers, ZooKeeper and the real clients in one thread, under all kinds of trouble."""

from dataclasses import replace

import pytest

from simulator.cluster_bugs import CLUSTER_BUGS, plan_against, simulate_buggy_cluster
from simulator.cluster_plan import FEWEST, KINDS, SECURED, ClusterPlan, Trouble
from simulator.cluster_run import simulate_cluster

SEEDS, PORTION = 500, 10
"""Six of seven seeds have transactions; in one of thirty clients log in."""
ENOUGH_SEEDS = 40
FOUND_SOON = (
    "A1", "A9", "B1", "B2", "B4", "B7", "B8", "B9", "B26", "B27", "B28", "B29", "B30", "B31", "B32", "B33", "B34", "B35", "B36", "B40", "B42", "E1", "E2", "E4",
    "F1", "Q2", "R1", "R2", "T2", "T3", "T4", "T5", "T6", "T7",
)  # fmt: skip
"""The bugs that a few seeds find; `tools.simulate clusters --hunt` looks for all of them."""


def seeds_for(bug):
    first = CLUSTER_BUGS[bug].first
    return range(first, first + ENOUGH_SEEDS)


@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_a_cluster_keeps_its_promises_whatever_goes_wrong(first):
    verdicts = [simulate_cluster(seed) for seed in range(first, first + PORTION)]
    for verdict in verdicts:
        assert verdict.good, f"seed {verdict.seed} under {verdict.plan}: {verdict.complaints}"
    assert all(len(verdict.plan.troubles) >= FEWEST for verdict in verdicts)
    assert len(set().union(*(verdict.injected for verdict in verdicts))) > len(KINDS) // 3
    assert sum(verdict.acknowledged for verdict in verdicts) >= 10 * PORTION
    assert sum(verdict.plan.transactors > 0 for verdict in verdicts) >= PORTION * 6 // 7
    assert sum(verdict.plan.secured for verdict in verdicts) == (
        first % SECURED == SECURED - PORTION
    )
    assert sum(verdict.committed for verdict in verdicts) >= 3 * PORTION


def test_the_last_in_sync_replica_that_loses_power_leads_only_if_nobody_is_eligible():
    """The same schedule, with eligible leader replicas and without them (KIP-966)."""
    seed = next(one for one in seeds_for("E3") if not simulate_buggy_cluster(one, "E3").good)
    verdict = simulate_cluster(seed, plan=plan_against(seed, "E3"))
    assert verdict.good, verdict.complaints


@pytest.mark.parametrize("who", ["follower", "leader"])
def test_a_broker_whose_disk_is_full_leaves_the_in_sync_sets_long_before_the_lag_limit(who):
    plan = ClusterPlan.of(1)
    settings = {**plan.settings, "replica.lag.time.max.ms": "40000"}
    trouble = Trouble(2000, "full disk", who, 4000, 0)
    plan = replace(
        plan, troubles=(trouble,), settings=settings, recreated=False, records=30, moves=()
    )
    verdict = simulate_cluster(1, plan=plan)
    assert verdict.good, verdict.complaints
    assert verdict.injected == {"full disk": 1}


@pytest.mark.parametrize("bug", FOUND_SOON)
def test_a_planted_bug_is_found(bug):
    assert any(not simulate_buggy_cluster(seed, bug).good for seed in seeds_for(bug))

"""Whole clusters: brokers, ZooKeeper and the real clients in one thread."""

from dataclasses import replace

import pytest

from simulator.cluster_plan import ClusterPlan
from simulator.cluster_run import simulate_cluster


@pytest.mark.parametrize("seed", range(10))
def test_one_broker_on_zookeeper_serves_real_clients(seed):
    plan = replace(ClusterPlan.of(seed), brokers=1, min_insync=1, troubles=())
    verdict = simulate_cluster(seed, plan=plan)
    assert verdict.complaints == []
    assert verdict.acknowledged >= 15

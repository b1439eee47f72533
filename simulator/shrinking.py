"""Shortens a failing run: removes troubles, clients and records while it fails the same way."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from simulator.cluster_plan import ClusterPlan
from simulator.cluster_run import ClusterVerdict, simulate_cluster

Simulate = Callable[[int, ClusterPlan], ClusterVerdict]
MOST_RUNS = 120


def _simulate(seed: int, plan: ClusterPlan) -> ClusterVerdict:
    return simulate_cluster(seed, plan=plan)


def shortest(verdict: ClusterVerdict, simulate: Simulate = _simulate) -> ClusterVerdict:
    """Return the shortest run found that breaks the same promise as the broken `verdict`."""
    kind = kind_of(verdict)
    left = MOST_RUNS
    shrunk = True
    while shrunk and left:
        shrunk = False
        for plan in _smaller(verdict.plan):
            if not left:
                break
            left -= 1
            tried = simulate(verdict.seed, plan)
            if not tried.good and kind_of(tried) == kind:
                verdict, shrunk = tried, True
                break
    return verdict


def kind_of(verdict: ClusterVerdict) -> str:
    """Return the broken invariant: its number, and the first words of the complaint."""
    if verdict.good:
        return ""
    text = verdict.complaints[0].partition(" s: ")[2]
    number, _, rest = text.partition(": ")
    return f"{number}: {' '.join(rest.split()[:2])}"


def _smaller(plan: ClusterPlan) -> Iterator[ClusterPlan]:
    """Yield slightly smaller plans, the smallest first."""
    troubles = plan.troubles
    if len(troubles) > 3:
        half = len(troubles) // 2
        yield replace(plan, troubles=troubles[:half])
        yield replace(plan, troubles=troubles[half:])
    for index in range(len(troubles)):
        yield replace(plan, troubles=troubles[:index] + troubles[index + 1 :])
    for index in range(len(plan.moves)):
        yield replace(plan, moves=plan.moves[:index] + plan.moves[index + 1 :])
    yield from _with_fewer_clients(plan)
    if plan.cold or plan.short:
        yield replace(plan, cold=0.0, short=0.0)
    if plan.records > 3:
        yield replace(plan, records=plan.records // 2)
    if plan.transactors and plan.transactions > 1:
        yield replace(plan, transactions=plan.transactions // 2)


def _with_fewer_clients(plan: ClusterPlan) -> Iterator[ClusterPlan]:
    if plan.secured:
        yield replace(plan, secured=False)
    if plan.recreated:
        yield replace(plan, recreated=False)
    if plan.transactors:
        yield replace(plan, transactors=0, transformers=0)
    if plan.transactors > 1:
        yield replace(plan, transactors=plan.transactors - 1)
    if plan.transformers:
        yield replace(plan, transformers=plan.transformers - 1)
    if plan.members:
        yield replace(plan, members=plan.members - 1)
    if plan.producers > 1:
        yield replace(plan, producers=plan.producers - 1)

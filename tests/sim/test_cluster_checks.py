"""The rules that a simulated cluster is held against can fail."""

import pytest

from headwater.controller.store.metadata_store import Create, Set
from headwater.controller.store.tree import Caller, Tree
from headwater.controller.store.znodes import CONTROLLER_EPOCH, StateNode, TopicNode
from headwater.model import TopicPartition
from simulator.cluster_plan import KINDS, ClusterPlan
from simulator.cluster_run import ClusterVerdict, simulate_cluster
from simulator.committed import CommittedLogs
from simulator.shrinking import shortest
from simulator.store_checks import StoreChecks, StoreView

AT = TopicPartition("orders", 0)
FIRST = StateNode(leader=1, leader_epoch=3, isr=(1, 2), controller_epoch=7)


class Store:
    def __init__(self):
        self.tree = Tree()
        self.complaints = []
        self.checks = StoreChecks(self.tree, self.complaints.append)
        parents = ["/brokers", "/brokers/ids", "/brokers/topics", "/brokers/topics/orders"]
        parents += [f"/brokers/topics/orders/partitions{end}" for end in ("", "/0")]
        self.write(*[Create(path) for path in parents])
        self.write(Set("/brokers/topics/orders", TopicNode(bytes(16), {0: (1, 2, 3)}).encode()))
        self.write(Create(CONTROLLER_EPOCH, b"7"), Create(StateNode.path(*AT), FIRST.encode()))
        assert self.complaints == []

    def write(self, *ops):
        _, edits = self.tree.transact(ops, Caller())
        for edit in edits:
            self.checks.edited(edit)

    def state(self, **changes):
        values = {
            "leader": 1, "leader_epoch": 3, "isr": (1, 2), "controller_epoch": 7, **changes
        }  # fmt: skip
        self.write(Set(StateNode.path(*AT), StateNode(**values).encode()))
        return self.complaints


@pytest.fixture
def store():
    return Store()


@pytest.mark.parametrize(
    "changes",
    [
        {"isr": (1,)},
        {"isr": (1, 2, 3)},
        {"leader": 2, "leader_epoch": 4},
        {"leader": -1, "leader_epoch": 4},
        {"leader": -1, "leader_epoch": 4, "isr": (), "elr": (2,)},
        {"isr": (1,), "elr": (2,)},
    ],
)
def test_what_a_controller_may_write_is_accepted(store, changes):
    assert store.state(**changes) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"leader": 2}, "I13: orders-0 StateNode"),
        ({"leader_epoch": 2}, "I13: orders-0 StateNode"),
        ({"leader": 3, "leader_epoch": 4}, "which is not in"),
        ({"isr": ()}, "has in sync ()"),
        ({"isr": (1,), "elr": (1, 2)}, "eligible beside them (1, 2)"),
        ({"isr": (1,), "elr": (4,)}, "has in sync (1,) of"),
        ({"isr": (1, 4)}, "has in sync (1, 4)"),
        ({"controller_epoch": 6}, "controller of epoch 6 writes"),
        ({"leader": 3, "leader_epoch": 4, "isr": (3,)}, "none is left"),
    ],
)
def test_what_a_controller_must_not_write_is_noticed(store, changes, told):
    assert any(told in complaint for complaint in store.state(**changes))


def test_a_controller_epoch_that_does_not_grow_is_noticed(store):
    store.write(Set(CONTROLLER_EPOCH, b"7"))
    assert "controller epoch 7 after 7" in store.complaints[0]


def test_partitions_without_leader_or_replicas_are_named(store):
    assert StoreView(store.tree).unwell() == [f"orders-0 has no leader ({FIRST})"]
    store.write(Create("/brokers/ids/1", b""))
    assert StoreView(store.tree).unwell() == ["orders-0 has in sync (1, 2) of (1, 2, 3)"]


def test_a_partition_that_is_being_moved_is_named(store):
    store.write(Create("/brokers/ids/1", b""))
    store.state(isr=(1, 2, 3))
    assert StoreView(store.tree).unwell() == []
    node = TopicNode(bytes(16), {0: (1, 2, 3)}, removing={0: (3,)})
    store.write(Set("/brokers/topics/orders", node.encode()))
    assert StoreView(store.tree).unwell() == ["orders-0 is being moved"]


def test_a_plan_moves_partitions_beside_what_its_seed_meant_before():
    moved = [plan for seed in range(30) if (plan := ClusterPlan.of(seed)).moves]
    assert 5 <= len(moved) <= 15
    kinds = {one.kind for plan in moved for one in plan.moves}
    assert (kinds, "partitions moved" in KINDS) == ({"partitions moved"}, False)


def test_the_shortest_schedule_keeps_only_what_breaks_the_promise():
    plan = ClusterPlan.of(1)
    needed = {plan.troubles[1], plan.troubles[-1]}
    assert len(plan.troubles) > 3

    def simulate(seed, plan):
        broken = needed <= set(plan.troubles)
        complaints = ["1.0 s: I1: lost"] if broken else ["1.0 s: L1: another"]
        return ClusterVerdict(seed, "", complaints, plan, 0, 0.0, 0, 0, {}, [])

    found = shortest(simulate(1, plan), simulate).plan
    assert set(found.troubles) == needed
    assert (found.members, found.recreated, found.producers, found.transactors) == (0, False, 1, 0)


@pytest.mark.parametrize("seed", [2, 4])
def test_no_replica_changes_uncounted(monkeypatch, seed):
    """Replicas are compared only after events that set one of the counted attributes.

    The seeds have power cuts, crashes, and a topic that is created again.
    """
    look, compared = CommittedLogs.look, 0

    def look_and_compare(logs, node, life, context):
        nonlocal compared
        look(logs, node, life, context)
        for replica in context.replicas:
            compared += 1
            seen, partition = logs._seen[replica], replica.partition
            assert seen.log_end == replica.log.log_end_offset
            assert seen.high_watermark == partition.high_watermark
            assert seen.leader_epoch == partition.leader_epoch
            assert seen.role is partition.role

    monkeypatch.setattr(CommittedLogs, "look", look_and_compare)
    assert simulate_cluster(seed).good
    assert compared > 10_000

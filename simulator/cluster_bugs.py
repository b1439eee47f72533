"""Mistakes that brokers of this kind have made in replication, on demand.

The names are those of the catalogue of bugs (B1 is KIP-101, and so on). Each is planted into the
code under test for the length of one run, and the run must find it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

from headwater.controller.store.metadata_store import Check
from headwater.controller.store.zookeeper_store import ZooKeeperStore
from headwater.log.partition_log import PartitionLog
from headwater.replication.partition import Partition, Role
from simulator.cluster_plan import ClusterPlan, Trouble
from simulator.cluster_run import ClusterVerdict, simulate_cluster
from simulator.randomness import stream

Planting = Callable[[], AbstractContextManager[None]]


@contextmanager
def _leader_alone_commits() -> Iterator[None]:
    """The high watermark does not wait for the followers (B42 and kin)."""

    def advance(self: Partition, now_ms: int) -> Sequence[Any]:
        if self.role is Role.LEADER:
            return self._raise_to(self.log_end)
        return self._raise_to(min(self.leader_high_watermark, self.log_end))

    with patch.object(Partition, "_advance", advance):
        yield


@contextmanager
def _epoch_start_not_kept() -> Iterator[None]:
    """A leader that wrote nothing leaves no trace of its epoch (B4, KAFKA-7415)."""
    with patch.object(PartitionLog, "begin_epoch", lambda *_: None):
        yield


@contextmanager
def _joins_below_epoch_start() -> Iterator[None]:
    """A follower joins at a mark that is behind the true one (B5, KAFKA-7128)."""

    def may_join(self: Partition, replica: int, progress: Any) -> bool:
        return (
            replica not in self.isr
            and self.proposed_isr is None
            and progress.log_end >= self.high_watermark
        )

    with patch.object(Partition, "_may_join", may_join):
        yield


@contextmanager
def _old_controller_writes() -> Iterator[None]:
    """Nothing in a multi says that its writer must still be the controller (B32, KAFKA-6082)."""
    multi = ZooKeeperStore.multi

    def unchecked(self: ZooKeeperStore, ops: Sequence[Any], reply: Any) -> None:
        multi(self, [op for op in ops if not isinstance(op, Check)], reply)

    with patch.object(ZooKeeperStore, "multi", unchecked):
        yield


class ClusterBug(NamedTuple):
    """A mistake, and the troubles that bring it to light soonest."""

    plant: Planting
    kinds: tuple[str, ...]


CLUSTER_BUGS: dict[str, ClusterBug] = {
    "B4": ClusterBug(_epoch_start_not_kept, ("crash", "isolate", "pause")),
    "B5": ClusterBug(_joins_below_epoch_start, ("crash", "isolate", "pause")),
    "B32": ClusterBug(_old_controller_writes, ("pause", "isolate", "cut off from zookeeper")),
    "B42": ClusterBug(_leader_alone_commits, ("crash", "isolate", "one-way cut")),
}


def simulate_buggy_cluster(seed: int, name: str) -> ClusterVerdict:
    """One run of the code with a bug in it, under the troubles that the bug likes least."""
    bug = CLUSTER_BUGS[name]
    chance = stream(seed, "buggy cluster")
    plan = ClusterPlan.of(seed)
    troubles = tuple(_turned(trouble, chance.choice(bug.kinds)) for trouble in plan.troubles)
    with bug.plant():
        return simulate_cluster(seed, plan=replace(plan, troubles=troubles))


def _turned(trouble: Trouble, kind: str) -> Trouble:
    return replace(trouble, kind=kind)

"""Mistakes that brokers of this kind have made in replication, on demand.

The names are those of the catalogue of bugs (B1 is KIP-101, and so on). Each is planted into the
code under test for the length of one run, and some seeds must find it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

from headwater.broker.control_state import ControlState
from headwater.broker.follower_loop import ReplicaFetcher
from headwater.broker.registration import Registration
from headwater.controller.state import ClusterState
from headwater.controller.store.metadata_store import Check, Stat, StoreError
from headwater.controller.store.zookeeper_store import ZooKeeperStore
from headwater.errors import E
from headwater.log.staging import Staging
from headwater.replication.follower_fetch import CutDiverging, FollowerFetch
from headwater.replication.following import Following, LogPosition
from headwater.replication.leader_and_isr import LeaderAndIsr
from headwater.replication.partition import Partition, Role
from headwater.replication.replica import Replica
from simulator.cluster_plan import ClusterPlan
from simulator.cluster_run import ClusterVerdict, simulate_cluster
from simulator.randomness import stream

Planting = Callable[[], AbstractContextManager[None]]


@contextmanager
def _cuts_to_high_watermark() -> Iterator[None]:
    """A follower drops what is above its own mark, which lags (B1, KIP-101)."""
    become_follower = Replica.become_follower

    def careless(self: Replica, decided: LeaderAndIsr) -> None:
        if self.log.log_end_offset > self.high_watermark and not self.following.cutting:
            self.log.drop_staged()
            self.log.truncate_to(self.high_watermark)
            self.partition.truncated(self.log.log_end_offset)
        become_follower(self, decided)

    with patch.object(Replica, "become_follower", careless):
        yield


@contextmanager
def _history_not_compared() -> Iterator[None]:
    """A follower goes on where its log ends, whatever is in it (B2, KIP-101)."""
    position = Following.position.fget  # type: ignore[attr-defined]

    def blind(self: Following) -> LogPosition:
        found: LogPosition = position(self)
        return found._replace(last_epoch=-1)

    with patch.object(Following, "position", property(blind)):
        yield


@contextmanager
def _cuts_once() -> Iterator[None]:
    """The leader's answer is taken for the common end, though this log lacks its epoch (B3)."""

    def common_end(self: Following, epoch: int, end: int) -> int:
        return min(end, self._replica.log.log_end_offset)

    with patch.object(Following, "common_end", common_end):
        yield


@contextmanager
def _epoch_start_not_kept() -> Iterator[None]:
    """A leader does not remember where its epoch began (B4, KAFKA-7415)."""

    def begin_epoch(self: Staging, leader_epoch: int) -> None:
        self.epoch = leader_epoch

    with patch.object(Staging, "begin_epoch", begin_epoch):
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
def _any_epoch_counts() -> Iterator[None]:
    """A follower of an older epoch counts, and so does a leader (B6, KAFKA-7395)."""
    with patch.object(Replica, "check_epoch", lambda *_: None):
        yield


@contextmanager
def _mark_before_cut() -> Iterator[None]:
    """The leader's mark counts before the log agrees with the leader's (B9, KAFKA-14704)."""
    effect = FollowerFetch._effect
    marks: dict[int, int] = {}

    def noting(self: FollowerFetch, now_ms: int, followed: Any, answer: Any) -> Any:
        found = effect(self, now_ms, followed, answer)
        if isinstance(found, CutDiverging):
            marks[id(self)] = answer.high_watermark
        return found

    cut = ReplicaFetcher._cut

    def believing(self: ReplicaFetcher, replica: Replica, diverging: CutDiverging) -> None:
        mark = marks.get(id(self._fetch), 0)
        replica.carry_out(replica.partition.leader_hw_received(mark))
        cut(self, replica, diverging)

    with (
        patch.object(FollowerFetch, "_effect", noting),
        patch.object(ReplicaFetcher, "_cut", believing),
    ):
        yield


@contextmanager
def _old_controller_writes() -> Iterator[None]:
    """Nothing in a multi says that its writer must still be the controller (B32, KAFKA-6082)."""
    multi = ZooKeeperStore.multi

    def unchecked(self: ZooKeeperStore, ops: Sequence[Any], reply: Any) -> None:
        multi(self, [op for op in ops if not isinstance(op, Check)], reply)

    with patch.object(ZooKeeperStore, "multi", unchecked):
        yield


@contextmanager
def _former_life_is_own() -> Iterator[None]:
    """A broker takes the node of its former session for its own (B34, KAFKA-7165)."""

    def found(self: Registration, stat: Stat | StoreError | None) -> None:
        if isinstance(stat, Stat):
            self._on_epoch(stat.czxid)
        elif stat is None:
            self._register()

    with (
        patch.object(Registration, "_found", found),
        patch.object(Registration, "_node_changed", lambda *_: None),
    ):
        yield


@contextmanager
def _refusal_forgotten() -> Iterator[None]:
    """A leader whose proposal failed waits for its outcome forever (B35, KAFKA-2729)."""
    with (
        patch.object(Partition, "isr_refused", lambda _: None),
        patch.object(Partition, "isr_stored", lambda *_: ()),
    ):
        yield


@contextmanager
def _unclean_stop_forgiven() -> Iterator[None]:
    """A broker that may have lost records stays in sync (B37, KIP-966)."""
    with patch.object(ClusterState, "may_have_lost_records", lambda *_: False):
        yield


@contextmanager
def _leader_alone_commits() -> Iterator[None]:
    """The high watermark does not wait for the followers (B42)."""

    def advance(self: Partition, now_ms: int) -> Sequence[Any]:
        if self.role is Role.LEADER:
            return self._raise_to(self.log_end)
        return self._raise_to(min(self.leader_high_watermark, self.log_end))

    with patch.object(Partition, "_advance", advance):
        yield


@contextmanager
def _any_controller_obeyed() -> Iterator[None]:
    """A broker obeys every controller, and what was meant for its earlier registration (B33, KIP-380)."""
    with patch.object(ControlState, "refuse", lambda *_: E.NONE):
        yield


class ClusterBug(NamedTuple):
    """A mistake, and the troubles that bring it to light soonest."""

    plant: Planting
    kinds: tuple[str, ...]


CLUSTER_BUGS: dict[str, ClusterBug] = {
    "B1": ClusterBug(_cuts_to_high_watermark, ("crash", "crash of all", "restart")),
    "B2": ClusterBug(_history_not_compared, ("crash at an operation", "isolate", "pause")),
    "B3": ClusterBug(_cuts_once, ("crash at an operation", "isolate", "pause", "crash")),
    "B4": ClusterBug(_epoch_start_not_kept, ("crash at an operation", "isolate", "pause")),
    "B5": ClusterBug(_joins_below_epoch_start, ("crash", "isolate", "pause")),
    "B6": ClusterBug(_any_epoch_counts, ("pause", "isolate", "cut off from zookeeper")),
    "B9": ClusterBug(_mark_before_cut, ("crash at an operation", "isolate", "pause")),
    "B32": ClusterBug(_old_controller_writes, ("pause", "isolate", "cut off from zookeeper")),
    "B33": ClusterBug(_any_controller_obeyed, ("pause", "isolate", "new controller")),
    "B34": ClusterBug(_former_life_is_own, ("session expires", "crash", "pause")),
    "B35": ClusterBug(_refusal_forgotten, ("crash", "isolate")),
    "B37": ClusterBug(_unclean_stop_forgiven, ("power cut", "short pause")),
    "B42": ClusterBug(_leader_alone_commits, ("crash", "isolate", "one-way cut")),
}


def simulate_buggy_cluster(seed: int, name: str) -> ClusterVerdict:
    """One run of the code with a bug in it, under the troubles that the bug likes least."""
    bug = CLUSTER_BUGS[name]
    chance = stream(seed, "buggy cluster")
    plan = ClusterPlan.of(seed)
    troubles = tuple(
        replace(trouble, kind=chance.choice(bug.kinds), who=chance.choice(("leader", trouble.who)))
        for trouble in plan.troubles
    )
    with bug.plant():
        return simulate_cluster(seed, plan=replace(plan, troubles=troubles))

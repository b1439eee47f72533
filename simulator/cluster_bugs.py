"""Mistakes that brokers of this kind have made in replication and control, on demand.

The names are those of the catalogue of bugs (B1 is KIP-101, and so on). Each is planted into the
code under test for the length of one run, and some seeds must find it.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from headwater.broker.control_state import ControlState
from headwater.broker.follower_loop import ReplicaFetcher
from headwater.broker.handlers import control, fetch, fetch_parts
from headwater.broker.handlers.control import handle_update_metadata
from headwater.broker.registration import PreviousRegistration, Registration
from headwater.controller import election, leader_elections
from headwater.controller.election import Election
from headwater.controller.reassignments import Reassignments
from headwater.controller.state import ClusterState, PartitionRegistration
from headwater.controller.store.metadata_store import Check, Stat, StoreError
from headwater.controller.store.zookeeper_store import ZooKeeperStore
from headwater.errors import E
from headwater.log.staging import Staging
from headwater.model import NO_LEADER
from headwater.replication.follower_fetch import CutDiverging, FollowerFetch
from headwater.replication.following import Following, LogPosition
from headwater.replication.isolation import FetchIsolation
from headwater.replication.leader_and_isr import LeaderAndIsr
from headwater.replication.partition import Partition, Role
from headwater.replication.replica import Replica
from simulator.cluster_plan import FIRST_MOVE, ClusterPlan, Trouble
from simulator.cluster_run import ClusterVerdict, simulate_cluster
from simulator.group_bugs import GROUP_BUGS
from simulator.planting import ClusterBug
from simulator.randomness import stream
from simulator.security.bugs import SECURITY_BUGS
from simulator.transaction_bugs import TRANSACTION_BUGS


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
    """The leader's first answer is taken for the common end, though this log lacks its epoch (B3)."""
    position = Following.position.fget  # type: ignore[attr-defined]
    cut_in: dict[Following, int] = {}

    def common_end(self: Following, epoch: int, end: int) -> int:
        cut_in[self] = self._replica.leader_epoch
        return min(end, self._replica.log.log_end_offset)

    def sure(self: Following) -> LogPosition:
        found: LogPosition = position(self)
        return found._replace(last_epoch=-1) if _is_of(cut_in, self) else found

    with (
        patch.object(Following, "common_end", common_end),
        patch.object(Following, "position", property(sure)),
    ):
        yield


def _is_of(epochs: dict[Following, int], following: Following) -> bool:
    return epochs.get(following) == following._replica.leader_epoch


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
    """A follower of an older epoch counts with whatever it has (B6, KAFKA-7395)."""
    compare = fetch_parts.divergence

    def trusting(replica: Replica, want: Any) -> Any:
        older = -1 < want.current_leader_epoch < replica.leader_epoch
        return None if older else compare(replica, want)

    with (
        patch.object(Replica, "check_epoch", lambda *_: None),
        patch.object(fetch, "divergence", trusting),
    ):
        yield


@contextmanager
def _same_leader_not_compared() -> Iterator[None]:
    """A log that agreed with a broker agrees with it in every later epoch (B7, KAFKA-7164)."""
    position = Following.position.fget  # type: ignore[attr-defined]
    append = Following.append
    agreed: dict[Following, int] = {}

    def noting(self: Following, *args: Any, **kwargs: Any) -> int:
        end = append(self, *args, **kwargs)
        agreed[self] = self._replica.leader
        return end

    def trusting(self: Following) -> LogPosition:
        found: LogPosition = position(self)
        same = agreed.get(self) == self._replica.leader
        return found._replace(last_epoch=-1) if same else found

    with (
        patch.object(Following, "append", noting),
        patch.object(Following, "position", property(trusting)),
    ):
        yield


@contextmanager
def _empty_epoch_compared() -> Iterator[None]:
    """An epoch in which nothing was written is compared with the leader's (B8, KAFKA-10706)."""
    position = Following.position.fget  # type: ignore[attr-defined]

    def newest(self: Following) -> LogPosition:
        found: LogPosition = position(self)
        return found._replace(last_epoch=self._replica.log.epochs.latest)

    with patch.object(Following, "position", property(newest)):
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
            self._on_registered(stat)
        elif stat is None:
            self._register()

    def not_waiting(self: PreviousRegistration) -> None:
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()

    with (
        patch.object(PreviousRegistration, "_look", not_waiting),
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
def _unclean_stop_leaves_eligible() -> Iterator[None]:
    """A broker that may have lost records stays an eligible leader replica (E1, KIP-966)."""

    def all_of_them(partition: Any, state: Any) -> tuple[int, ...]:
        found: tuple[int, ...] = partition.elr
        return found

    def beside(partition: Any, isr: Any, state: Any, needed: int) -> tuple[int, ...]:
        former = {*partition.isr, *partition.elr}.difference(isr)
        return (
            () if len(isr) >= needed else tuple(one for one in partition.replicas if one in former)
        )

    with (
        patch.object(election, "surviving_elr", all_of_them),
        patch.object(leader_elections, "eligible_beside", beside),
    ):
        yield


@contextmanager
def _commits_below_min_insync() -> Iterator[None]:
    """The high watermark moves although too few replicas are in sync (E2, KIP-966)."""
    advance = Partition._advance

    def careless(self: Partition, now_ms: int) -> Sequence[Any]:
        before = self.enough_in_sync, self.elr
        self.enough_in_sync, self.elr = True, frozenset()
        try:
            return advance(self, now_ms)
        finally:
            self.enough_in_sync, self.elr = before

    with patch.object(Partition, "_advance", careless):
        yield


@contextmanager
def _nobody_is_eligible() -> Iterator[None]:
    """Only the last in-sync replica may lead, whatever it has lost (E3, KIP-966)."""
    with patch.object(leader_elections, "eligible_beside", lambda *_: ()):
        yield


@contextmanager
def _full_disk_not_eligible() -> Iterator[None]:
    """A replica whose disk is full leaves the in-sync set without staying eligible (E4, KIP-966)."""
    write_refused = Partition.write_refused

    def keeping_nothing(self: Partition, *, keeps_records: bool) -> Sequence[Any]:
        return write_refused(self, keeps_records=False)

    with patch.object(Partition, "write_refused", keeping_nothing):
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
    """A broker obeys every controller, and what was meant for its earlier registration (B33)."""

    def obey(self: ControlState, controller_epoch: int, broker_epoch: int) -> E:
        self.controller_epoch = controller_epoch
        return E.NONE

    with patch.object(ControlState, "refuse", obey):
        yield


@contextmanager
def _late_metadata_counts() -> Iterator[None]:
    """Brokers tell clients what a deposed controller says of leaders (M1)."""
    refuse = ControlState.refuse

    def careless(self: ControlState, controller_epoch: int, broker_epoch: int) -> E:
        refusal = refuse(self, controller_epoch, broker_epoch)
        if sys._getframe(1).f_code is handle_update_metadata.__code__:
            return E.NONE
        return refusal

    with patch.object(ControlState, "refuse", careless):
        yield


@contextmanager
def _followers_serve_all() -> Iterator[None]:
    """A follower serves consumers what its leader may not have committed (F1, KIP-392)."""
    read = Replica.read

    def eager(self: Replica, offset: int, isolation: FetchIsolation, *limits: Any) -> Any:
        return read(self, offset, isolation if self.is_leader else FetchIsolation.LOG_END, *limits)

    with patch.object(Replica, "read", eager):
        yield


@contextmanager
def _former_replicas_kept() -> Iterator[None]:
    """A replica that moved away while its broker had no session stays in service (R1)."""
    with patch.object(control, "_set_strays_aside", lambda _: None):
        yield


@contextmanager
def _moves_end_early() -> Iterator[None]:
    """A partition leaves its old replicas before the new ones have its records (R2)."""

    def leaving(self: Reassignments, partition: Any) -> Election:
        target = tuple(one for one in partition.target if one in self._state.brokers)
        return Election(target[0] if target else NO_LEADER, target)

    with (
        patch.object(PartitionRegistration, "caught_up", True),
        patch.object(Reassignments, "_leaving_old", leaving),
    ):
        yield


_MOVED_OFTEN = MappingProxyType(
    {
        "moves": tuple(
            Trouble(1000 * number, "partitions moved", "any", 50, FIRST_MOVE + number)
            for number in range(10)
        )
    }
)
_DIVERGE = ("leaders moved", "leaders moved", "cut off from brokers", "one-way ring", "pause")
_SHORT_MS = (50, 300, 1000)
_ALONE = ("chained crash", "unseen power cut", "bridge")
_ELIGIBLE = MappingProxyType({"min_insync": 2, "producers": 2, "records": 50, "pause_ms": 200})
_RUSH = MappingProxyType({"producers": 3, "records": 150, "pause_ms": 60})
_NEAREST = MappingProxyType({**_RUSH, "follower_reads": True, "transactors": 0})

CLUSTER_BUGS: dict[str, ClusterBug] = {
    "B1": ClusterBug(_cuts_to_high_watermark, ("crash", "chained crash", "leaders moved")),
    "B2": ClusterBug(_history_not_compared, ("crash at an operation", "isolate", "pause")),
    "B3": ClusterBug(
        _cuts_once, ("leaders swapped", "leaders swapped", "slow links of brokers"),
        lasts_ms=(3500, 5000), plan=_RUSH,
    ),
    "B4": ClusterBug(_epoch_start_not_kept, ("crash at an operation", "isolate", "pause")),
    "B5": ClusterBug(
        _joins_below_epoch_start,
        ("cut off from brokers", "crash of all"), ("follower",), (3500,), _RUSH,
    ),
    "B6": ClusterBug(_any_epoch_counts, _DIVERGE, ("follower", "controller")),
    "B7": ClusterBug(_same_leader_not_compared, _DIVERGE, ("follower", "leader"), first=6),
    "B8": ClusterBug(_empty_epoch_compared, ("leaders moved", "isolate", "session expires")),
    "B9": ClusterBug(_mark_before_cut, ("crash at an operation", "isolate", "pause"), first=4),
    "B32": ClusterBug(
        _old_controller_writes, ("unheard new controller", "leaders moved", "leaders swapped"),
        lasts_ms=(1000, 2000), first=3,
    ),
    "B33": ClusterBug(
        _any_controller_obeyed,
        ("late control requests", "leaders moved"), ("follower",),
    ),
    "M1": ClusterBug(_late_metadata_counts, ("late control requests", "leaders swapped", "leaders swapped"), ("follower",)),
    "B34": ClusterBug(_former_life_is_own, ("crash",), lasts_ms=_SHORT_MS),
    "B35": ClusterBug(_refusal_forgotten, ("crash", "isolate")),
    "B37": ClusterBug(_unclean_stop_forgiven, ("unseen power cut",), ("leader",), _SHORT_MS),
    "E1": ClusterBug(
        _unclean_stop_leaves_eligible,
        ("cut off from brokers", "unseen power cut", "chained crash"), ("follower", "leader"),
        (1000, 3500), _ELIGIBLE,
    ),
    "E2": ClusterBug(
        _commits_below_min_insync, _ALONE, ("follower", "leader"), plan=_ELIGIBLE, first=8
    ),
    "E3": ClusterBug(_nobody_is_eligible, _ALONE, ("follower", "leader"), (1000, 3500), _ELIGIBLE),
    "E4": ClusterBug(
        _full_disk_not_eligible, ("full disk", "full disk", "unseen power cut"),
        ("leader", "follower"), (2000, 3500), _ELIGIBLE,
    ),
    "F1": ClusterBug(
        _followers_serve_all, ("isolate", "cut off from brokers", "one-way ring", "crash"),
        ("leader", "follower"), (2000, 3500), _NEAREST,
    ),
    "R1": ClusterBug(
        _former_replicas_kept, ("deaf to zookeeper", "session expires"),
        lasts_ms=(2000, 3500), plan=_MOVED_OFTEN, first=2,
    ),
    "R2": ClusterBug(_moves_end_early, ("crash", "slow links of brokers"), plan=_MOVED_OFTEN),
    "B42": ClusterBug(_leader_alone_commits, ("crash", "isolate", "one-way cut")),
    **GROUP_BUGS,
    **TRANSACTION_BUGS,
    **SECURITY_BUGS,
}  # fmt: skip


def simulate_buggy_cluster(seed: int, name: str) -> ClusterVerdict:
    """One run of the code with a bug in it, under the troubles that the bug likes least."""
    with CLUSTER_BUGS[name].plant():
        return simulate_cluster(seed, plan=plan_against(seed, name))


def plan_against(seed: int, name: str) -> ClusterPlan:
    """The plan that looks for a bug; without the bug it must break nothing."""
    bug = CLUSTER_BUGS[name]
    chance = stream(seed, "buggy cluster")
    plan = ClusterPlan.of(seed)
    troubles = tuple(
        replace(
            trouble,
            kind=chance.choice(bug.kinds),
            who=chance.choice((*bug.who, *bug.who, trouble.who)),
            lasts_ms=chance.choice(bug.lasts_ms or (trouble.lasts_ms,)),
        )
        for trouble in plan.troubles
    )
    return replace(plan, troubles=troubles, **{"moves": (), **bug.plan})

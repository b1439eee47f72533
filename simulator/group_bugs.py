"""Mistakes that coordinators and members of groups have made, on demand.

The names are those of the catalogue of bugs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from headwater.client.consumer.assignors import sticky
from headwater.client.consumer.assignors.sticky import CooperativeStickyAssignor
from headwater.client.consumer.group.membership import Membership
from headwater.coordination.groups.classic import ClassicGroup
from headwater.coordination.groups.offsets import Retention
from headwater.coordination.groups.states import GroupState
from headwater.coordination.runtime_loop import CoordinatorRuntime
from headwater.model import TopicPartition
from simulator.planting import ClusterBug


@contextmanager
def _offsets_of_active_groups_expire() -> Iterator[None]:
    """Offsets expire after their time, although the group reads on (B28, KAFKA-4682)."""
    with patch.object(ClassicGroup, "retention", lambda _: Retention()):
        yield


@contextmanager
def _coordinator_keeps_its_cache() -> Iterator[None]:
    """A coordinator that leads again goes on with what it knew before (B29, KAFKA-5600)."""
    elected = CoordinatorRuntime.elected

    def reuse(self: CoordinatorRuntime[Any, Any], partition: int, leader_epoch: int) -> None:
        if partition not in self._shards:
            elected(self, partition, leader_epoch)

    with (
        patch.object(CoordinatorRuntime, "elected", reuse),
        patch.object(CoordinatorRuntime, "resigned", lambda *_: None),
    ):
        yield


@contextmanager
def _sync_waits_forever() -> Iterator[None]:
    """A group waits for the assignment of a leader that is gone (B30, KAFKA-12890)."""
    session_expired, join_known = ClassicGroup._session_expired, ClassicGroup._join_known

    def patient(self: ClassicGroup, now: Any, member_id: str, out: Any) -> None:
        if self.state is not GroupState.COMPLETING_REBALANCE:
            session_expired(self, now, member_id, out)

    def told_again(self: ClassicGroup, now: Any, command: Any, token: Any, out: Any) -> None:
        member = self.members.by_id.get(command.member_id)
        if member is not None and self.state is GroupState.COMPLETING_REBALANCE:
            out.reply(token, self.current.joined(member))
        else:
            join_known(self, now, command, token, out)

    with (
        patch.object(ClassicGroup, "_join_known", told_again),
        patch.object(ClassicGroup, "_session_expired", patient),
        patch.object(ClassicGroup, "_sync_phase_expired", lambda *_: None),
    ):
        yield


@contextmanager
def _stale_owner_believed() -> Iterator[None]:
    """A member that was put out keeps what it had, and its claim counts (B31, KAFKA-14639)."""
    claim = CooperativeStickyAssignor.claim

    def ageless(self: CooperativeStickyAssignor, member: Any) -> Any:
        owned, _ = claim(self, member)
        return owned, -1

    def first(partitions: Any, claims: Any) -> dict[TopicPartition, str]:
        kept: dict[TopicPartition, str] = {}
        for member, had, _ in claims:
            for name in had:
                kept.setdefault(name, member.member_id)
        return kept

    with (
        patch.object(Membership, "_give_up_first", lambda *_: None),
        patch.object(CooperativeStickyAssignor, "claim", ageless),
        patch.object(sticky, "_kept", first),
    ):
        yield


_GROUP = MappingProxyType({"members": 2, "recreated": False})
_RANGE = MappingProxyType({**_GROUP, "strategy": "range"})
_COOPERATIVE = MappingProxyType({**_GROUP, "strategy": "cooperative-sticky"})
_RETURNING = MappingProxyType(
    {**_GROUP, "records": 50, "settings": {"leader.imbalance.check.interval.seconds": "1"}}
)
_IDLE = MappingProxyType({**_GROUP, "idle_s": 70})

GROUP_BUGS: dict[str, ClusterBug] = {
    "B28": ClusterBug(_offsets_of_active_groups_expire, ("crash", "restart"), plan=_IDLE),
    "B29": ClusterBug(
        _coordinator_keeps_its_cache, ("isolate", "session expires"), ("coordinator",),
        (2000, 3500), _RETURNING,
    ),
    "B30": ClusterBug(_sync_waits_forever, ("member crash while joining",), plan=_RANGE),
    "B31": ClusterBug(
        _stale_owner_believed, ("client pause", "client pause", "member crash"),
        lasts_ms=(3500, 5000), plan=_COOPERATIVE, first=9,
    ),
}  # fmt: skip

"""What a shard needs of a group, whatever protocol its members speak."""

from collections.abc import Collection
from typing import Protocol, TypeAlias

from headwater.coordination.deadlines import Now
from headwater.coordination.groups.commands import Described
from headwater.coordination.groups.offsets import Retention
from headwater.coordination.groups.records import CoordinatorRecord
from headwater.coordination.groups.states import GroupKind, GroupState
from headwater.coordination.shard import Outcome, Token
from headwater.errors import E

DeadlineKey: TypeAlias = tuple[str, str, str]
"""Group, what for, member (empty if the deadline is the whole group's)."""

GroupOutcome: TypeAlias = Outcome[CoordinatorRecord]


class CoordinatorGroup(Protocol):
    """One group of any kind. All kinds share one namespace of group ids."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def state(self) -> GroupState: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def vacant(self) -> bool:
        """Whether it has no members and expects none."""

    def validate_commit(self, member_id: str, instance_id: str | None, generation: int) -> E:
        """Whether this member may commit offsets now."""

    def validate_delete(self) -> E:
        """Whether the group may be deleted."""

    def validate_offset_delete(self) -> E:
        """Whether offsets of topics that nobody reads may be deleted."""

    def subscribed_among(self, topics: Collection[str]) -> frozenset[str]:
        """Those of `topics` that a member reads; all of them if the group cannot tell."""

    def committed_by(self, now: Now, member_id: str) -> None:
        """Take a commit as a sign of life."""

    def retention(self) -> Retention | None:
        """Which offsets may expire; None if none may."""

    def describe(self) -> Described:
        """The group as DescribeGroups shows it."""

    def expire(self, now: Now, what: str, member_id: str, out: GroupOutcome) -> None:
        """Do what a deadline of the group asks for."""

    def parked(self) -> list[Token]:
        """The tokens that wait in this group."""

    def close(self) -> None:
        """Drop every deadline: the group was deleted."""

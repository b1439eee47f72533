"""The interface of a group to its shard, independent of the group protocol."""

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
"""Group, purpose, member (empty for a deadline of the whole group)."""

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

    def validate_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool
    ) -> E:
        """Return NONE if this member may commit offsets now.

        Older clients do not say who they are when they commit in a transaction.
        """

    def validate_delete(self) -> E:
        """Return NONE if the group may be deleted."""

    def validate_offset_delete(self) -> E:
        """Return NONE if offsets of topics without subscribers may be deleted."""

    def subscribed_among(self, topics: Collection[str]) -> frozenset[str]:
        """Return the `topics` that a member subscribes to; all if a subscription is unknown."""

    def committed_by(self, now: Now, member_id: str) -> None:
        """Extend the session of a member that committed."""

    def retention(self) -> Retention | None:
        """Which offsets may expire; None if none may."""

    def describe(self) -> Described:
        """The group as DescribeGroups shows it."""

    def expire(self, now: Now, what: str, member_id: str, out: GroupOutcome) -> None:
        """Handle a deadline of the group."""

    def parked(self) -> list[Token]:
        """Return the tokens that wait in this group."""

    def close(self) -> None:
        """Drop every deadline: the group was deleted."""

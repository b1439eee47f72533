"""The interface of an assignor. Pure: members and partition counts in, assignments out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headwater.model import TopicPartition

Shares = dict[str, list[TopicPartition]]
"""Partitions by member id."""


class GroupMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None

    @property
    def rank(self) -> tuple[bool, str]:
        """The sort key of members: static ones first, by instance id."""
        static = self.instance_id is not None
        return (not static, self.instance_id or self.member_id)


class Assignor(ABC):
    """Derive from this for your own assignor; every member of the group must have it."""

    name: str
    """The name on which the members of a group vote."""
    cooperative: bool = False
    """Whether members keep their partitions during a rebalance and give up only what moves."""

    @abstractmethod
    def assign(self, partitions: Mapping[str, int], members: Sequence[GroupMember]) -> Shares:
        """Assign all partitions; `partitions` has the partition count of each existing topic."""

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """Return bytes for the leader, in addition to topics and owned partitions."""
        return None


def subscribers(members: Sequence[GroupMember]) -> dict[str, list[GroupMember]]:
    """Return the members that subscribe to each topic, in their order."""
    found: dict[str, list[GroupMember]] = {}
    for member in sorted(members, key=lambda one: one.rank):
        for topic in member.topics:
            found.setdefault(topic, []).append(member)
    return found

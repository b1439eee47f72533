"""What an assignor is. Pure: members and partition counts in, shares out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headwater.model import TopicPartition

Shares = dict[str, list[TopicPartition]]
"""For each member id its partitions."""


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
        """The order of members: static ones first, by their lasting names."""
        static = self.instance_id is not None
        return (not static, self.instance_id or self.member_id)


class Assignor(ABC):
    """Derive from this for an assignor of your own; every member of the group must have it."""

    name: str
    """What the group votes on."""
    cooperative: bool = False
    """Members keep their partitions during a rebalance and give up only what moves."""

    @abstractmethod
    def assign(self, partitions: Mapping[str, int], members: Sequence[GroupMember]) -> Shares:
        """Share out all partitions; `partitions` has the count of each topic that exists."""

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """What to tell the leader beside topics and owned partitions."""
        return None


def subscribers(members: Sequence[GroupMember]) -> dict[str, list[GroupMember]]:
    """For each topic the members that want it, in their order."""
    found: dict[str, list[GroupMember]] = {}
    for member in sorted(members, key=lambda one: one.rank):
        for topic in member.topics:
            found.setdefault(topic, []).append(member)
    return found

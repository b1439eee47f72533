"""The current generation of a classic group: its number, its protocol and its members.

It answers the members and refuses members of another generation. Independent of states, time and
replies.
"""

from collections.abc import Collection

from headwater.coordination.groups.commands import (
    NO_MEMBER,
    Described,
    Joined,
    JoinGroup,
    Synced,
    SyncGroup,
)
from headwater.coordination.groups.members import Member, Members
from headwater.coordination.groups.records import StoredGroup
from headwater.coordination.groups.states import GroupState
from headwater.coordination.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from headwater.errors import E


class Generation:
    """Number, protocol and members of the group; the number grows with every rebalance."""

    def __init__(self) -> None:
        self.number = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = Members()

    def restore(self, stored: StoredGroup) -> None:
        """Take over the generation that the log holds."""
        self.number = stored.generation
        self.protocol_type = stored.protocol_type or None
        self.protocol = stored.protocol
        for member in stored.members:
            self.members.add(Member.stored(member, stored.protocol))
        if stored.leader in self.members.by_id:
            self.members.leader = stored.leader

    def to_stored(self, state_timestamp: int) -> StoredGroup:
        return StoredGroup(
            self.protocol_type or "",
            self.number,
            self.protocol,
            self.members.leader,
            state_timestamp,
            tuple(member.to_stored(self.protocol) for member in self.members.by_id.values()),
        )

    # -- answers

    def joined(self, member: Member) -> Joined:
        """Return the response to a member's join; only the leader gets the members."""
        leader = self.members.leader or NO_MEMBER
        leads = leader == member.member_id
        return Joined(
            E.NONE,
            member.member_id,
            self.number,
            self.protocol_type,
            self.protocol,
            leader,
            self.members.for_leader(self.protocol) if leads else (),
        )

    def synced(self, member: Member) -> Synced:
        return Synced(E.NONE, self.protocol_type, self.protocol, member.assignment)

    def described(self, state: GroupState) -> Described:
        """Describe the group for DescribeGroups: metadata only while it is Stable."""
        protocol = self.protocol if state is GroupState.STABLE else None
        members = self.members.described(protocol)
        return Described(E.NONE, state.value, self.protocol_type or "", protocol or "", members)

    # -- validating

    def speaks(self, command: JoinGroup) -> bool:
        """Whether a client that joins has a protocol in common with all members."""
        if not command.protocol_type or not command.protocols:
            return False
        if not self.members.by_id:
            return True
        candidates = self.members.candidates()
        return self.protocol_type == command.protocol_type and any(
            name in candidates for name, _ in command.protocols
        )

    def validate(self, member_id: str, instance_id: str | None, generation: int) -> E:
        """Return NONE for a member of this generation."""
        refusal = self.members.validate(member_id, instance_id)
        if refusal is not E.NONE:
            return refusal
        return E.NONE if generation == self.number else E.ILLEGAL_GENERATION

    def validate_sync(self, command: SyncGroup) -> E:
        """Return NONE if the command matches the member, its generation and, if set, its protocol."""
        refusal = self.validate(command.member_id, command.instance_id, command.generation)
        if refusal is not E.NONE:
            return refusal
        of_type = _differs(command.protocol_type, self.protocol_type)
        if of_type or _differs(command.protocol, self.protocol):
            return E.INCONSISTENT_GROUP_PROTOCOL
        return E.NONE

    # -- subscriptions

    @property
    def of_consumers(self) -> bool:
        """Whether the members are consumers, which subscribe to topics."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that the members subscribe to; None if that is unknown."""
        return self.members.subscribed_topics(self.protocol) if self.of_consumers else None

    def subscribed_among(self, topics: Collection[str]) -> frozenset[str]:
        """Return the `topics` that a member subscribes to; all if a subscription is unknown."""
        known = self.subscribed_topics()
        if known is None:
            return frozenset(topics if self.of_consumers else ())
        return known.intersection(topics)


def _differs(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known

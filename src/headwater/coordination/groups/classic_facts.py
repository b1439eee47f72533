"""What a classic group is: its state and the questions one may ask of it. Nothing here changes it."""

from collections.abc import Collection

from headwater.coordination.deadlines import Now
from headwater.coordination.groups.commands import (
    NO_MEMBER,
    Described,
    DescribedMember,
    Joined,
    Synced,
    SyncGroup,
)
from headwater.coordination.groups.members import Member, Members
from headwater.coordination.groups.offsets import Retention
from headwater.coordination.groups.records import StoredGroup
from headwater.coordination.groups.states import GroupKind, GroupState
from headwater.coordination.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from headwater.coordination.shard import Token
from headwater.errors import E

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE


class ClassicFacts:
    """The state of one group."""

    kind = GroupKind.CLASSIC

    def __init__(self, group_id: str, now: Now) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.state_timestamp = now.wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = Members()
        self.pending: dict[str, None] = {}  # ids given out that have not joined yet

    # May one?

    def validate_member(self, member_id: str, instance_id: str | None) -> E:
        """Whether this is a member; one whose static identity was taken over is fenced."""
        if instance_id is not None:
            holder = self.members.static_member_id(instance_id)
            if holder is None:
                return E.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return E.FENCED_INSTANCE_ID
        return E.NONE if member_id in self.members else E.UNKNOWN_MEMBER_ID

    def validate_commit(self, member_id: str, instance_id: str | None, generation: int) -> E:
        """Whether offsets may be committed: by a member of this generation, or by anyone while Empty."""
        if generation < 0 and self.state is EMPTY:
            return E.NONE
        if generation < 0 and member_id == NO_MEMBER and instance_id is None:
            return E.UNKNOWN_MEMBER_ID
        refusal = self.validate_member(member_id, instance_id)
        if refusal is not E.NONE:
            return refusal
        if generation != self.generation:
            return E.ILLEGAL_GENERATION
        return E.REBALANCE_IN_PROGRESS if self.state is COMPLETING else E.NONE

    def validate_delete(self) -> E:
        """Whether the group may be deleted."""
        return E.NONE if self.state is EMPTY else E.NON_EMPTY_GROUP

    def validate_offset_delete(self) -> E:
        """Whether single offsets may be deleted: what a consumer subscribes to is looked up later."""
        if self.state is EMPTY or self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            return E.NONE
        return E.NON_EMPTY_GROUP

    def validate_sync(self, command: SyncGroup) -> E:
        """Whether this is a member of this generation, and of this protocol if it names one."""
        refusal = self.validate_member(command.member_id, command.instance_id)
        if refusal is not E.NONE:
            return refusal
        if command.generation != self.generation:
            return E.ILLEGAL_GENERATION
        if _differs(command.protocol_type, self.protocol_type) or _differs(
            command.protocol, self.protocol
        ):
            return E.INCONSISTENT_GROUP_PROTOCOL
        return E.REBALANCE_IN_PROGRESS if self.state is PREPARING else E.NONE

    # What is it?

    def subscribed_among(self, topics: Collection[str]) -> frozenset[str]:
        """Those of `topics` that a member reads; all, where a consumer group cannot be asked."""
        known = self.subscribed_topics()
        if known is None:
            unknown = self.protocol_type == CONSUMER_PROTOCOL_TYPE
            return frozenset(topics if unknown else ())
        return known.intersection(topics)

    def subscribed_topics(self) -> frozenset[str] | None:
        """All topics the members read, or None when it cannot be known."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members.by_id:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        for member in self.members.by_id.values():
            found = subscribed_topics(member.metadata(self.protocol))
            if found is None:
                return None
            topics |= found
        return frozenset(topics)

    def retention(self) -> Retention | None:
        """Which offsets may expire, or None: never those of a group at work or in a rebalance."""
        if self.protocol_type is None:
            return Retention()
        if self.state is EMPTY:
            return Retention(since_ms=self.state_timestamp)
        topics = self.subscribed_topics()
        if self.state is not STABLE or topics is None:
            return None
        return Retention(kept_topics=topics)

    def describe(self) -> Described:
        """The group as DescribeGroups shows it: metadata only while it is Stable."""
        protocol = self.protocol if self.state is STABLE else None
        return Described(
            E.NONE,
            self.state.value,
            self.protocol_type or "",
            protocol or "",
            tuple(
                DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(protocol) if protocol else b"",
                    member.assignment,
                )
                for member in self.members.by_id.values()
            ),
        )

    def to_stored(self) -> StoredGroup:
        """What of the group survives a restart."""
        return StoredGroup(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.members.leader,
            self.state_timestamp,
            tuple(member.to_stored(self.protocol) for member in self.members.by_id.values()),
        )

    def joined(self, member: Member) -> Joined:
        """What a member is told of the current generation."""
        leader = self.members.leader or NO_MEMBER
        leads = leader == member.member_id
        return Joined(
            E.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            leader,
            self.members.described(self.protocol) if leads else (),
        )

    def synced(self, member: Member) -> Synced:
        """What a member is told of its share."""
        return Synced(E.NONE, self.protocol_type, self.protocol, member.assignment)

    def parked(self) -> list[Token]:
        """The tokens that wait in this group."""
        members = self.members.by_id.values()
        tokens = [member.join_token for member in members] + [each.sync_token for each in members]
        return [token for token in tokens if token is not None]


def _differs(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known

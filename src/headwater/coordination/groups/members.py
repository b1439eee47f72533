"""The members of a classic group: their protocols, the leader, and the static identities.

Always consistent: one leader while there are members, one member per instance id. Independent of
states and time.
"""

from collections import Counter
from dataclasses import dataclass

from headwater.coordination.groups.commands import (
    DescribedMember,
    Joined,
    JoinedMember,
    JoinGroup,
    Synced,
)
from headwater.coordination.groups.group import GroupOutcome
from headwater.coordination.groups.records import StoredMember
from headwater.coordination.groups.subscriptions import subscribed_topics
from headwater.coordination.shard import Token
from headwater.errors import E

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class Member:
    """One live member. A token is set exactly while its request is parked."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False  # parked in its first join: it cannot send heartbeats yet

    @classmethod
    def joining(cls, member_id: str, command: JoinGroup) -> "Member":
        """A member that joins for the first time."""
        member = cls(member_id, command.instance_id, "", "", 0, 0, (), is_new=True)
        member.update(command)
        return member

    @classmethod
    def stored(cls, stored: StoredMember, protocol: str | None) -> "Member":
        """A member as it was before a restart."""
        return cls(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout_ms,
            stored.rebalance_timeout_ms,
            ((protocol or "", stored.subscription),),
            stored.assignment,
        )

    def update(self, command: JoinGroup) -> None:
        """Apply a later join."""
        self.client_id = command.client_id
        self.client_host = command.client_host
        self.session_timeout_ms = command.session_timeout_ms
        self.rebalance_timeout_ms = command.rebalance_timeout_ms
        self.protocols = command.protocols

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for `protocol`."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Its first choice among `candidates`."""
        return next(name for name, _ in self.protocols if name in candidates)

    def to_stored(self, protocol: str | None) -> StoredMember:
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            self.assignment,
        )


class Members:
    """The members of one group, in the order in which they joined.

    Waiting members and supported protocols are counted as they change: a join must not iterate over
    the members before it.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.leader: str | None = None
        self._by_instance: dict[str, str] = {}
        self._waiting = 0
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.by_id

    def add(self, member: Member) -> None:
        """Add a member; the first one becomes the leader."""
        self.by_id[member.member_id] = member
        self._waiting += member.join_token is not None
        self._supporters.update(_names(member))
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        """Remove a member; the next oldest becomes the leader if it led."""
        member = self.by_id.pop(member_id)
        self._waiting -= member.join_token is not None
        self._supporters.subtract(_names(member))
        self._supporters += Counter()  # drops protocols without supporters
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.by_id), None)
        return member

    def replace(self, old_id: str, new_id: str) -> Member:
        """Change the id of a static member, which keeps its position, assignment and leadership."""
        member = self.by_id[old_id]
        member.member_id = new_id
        member.is_new = False
        self.by_id = {each.member_id: each for each in self.by_id.values()}
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def update(self, member: Member, command: JoinGroup, token: Token) -> None:
        """Apply a later join of a member, and park it."""
        if member.protocols != command.protocols:
            self._supporters.subtract(_names(member))
            self._supporters.update({name for name, _ in command.protocols})
            self._supporters += Counter()
        self._waiting += member.join_token is None
        member.update(command)
        member.join_token = token

    def pop_join_token(self, member: Member) -> Token | None:
        """Remove and return the token of a member's parked join."""
        token = member.join_token
        if token is not None:
            member.join_token = None
            self._waiting -= member.member_id in self.by_id
        return token

    def answer_join(self, member: Member, answer: Joined, out: GroupOutcome) -> None:
        """Answer a member's parked join, if there is one."""
        token = self.pop_join_token(member)
        if token is not None:
            out.reply(token, answer)

    def answer_sync(self, member: Member, answer: Synced, out: GroupOutcome) -> bool:
        """Answer a member's parked sync; return whether there was one."""
        token, member.sync_token = member.sync_token, None
        if token is None:
            return False
        out.reply(token, answer)
        return True

    def static_member_id(self, instance_id: str | None) -> str | None:
        """The member id behind a static identity."""
        return None if instance_id is None else self._by_instance.get(instance_id)

    def validate(self, member_id: str, instance_id: str | None) -> E:
        """Whether this is a member; one whose static identity was taken over is fenced."""
        if instance_id is not None:
            holder = self.static_member_id(instance_id)
            if holder is None:
                return E.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return E.FENCED_INSTANCE_ID
        return E.NONE if member_id in self.by_id else E.UNKNOWN_MEMBER_ID

    def elect_joined_leader(self) -> bool:
        """Keep or choose a leader that waits for the new generation; False if no member does."""
        current = self.by_id.get(self.leader or "")
        if current is not None and current.join_token is not None:
            return True
        for member in self.by_id.values():
            if member.join_token is not None:
                self.leader = member.member_id
                return True
        return False

    def all_joined(self) -> bool:
        """Whether every member waits for the new generation."""
        return self._waiting == len(self.by_id)

    def waiting(self) -> int:
        return self._waiting

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member."""
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)

    def candidates(self) -> set[str]:
        """The protocols that all members support."""
        everyone = len(self.by_id)
        return {name for name, count in self._supporters.items() if count == everyone}

    def choose_protocol(self) -> str:
        """The candidate that most members vote for; of equals, the oldest member's."""
        candidates = self.candidates()
        votes = Counter(member.vote(candidates) for member in self.by_id.values())
        return votes.most_common(1)[0][0]

    def for_leader(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """What the leader needs to assign partitions."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.by_id.values()
        )

    def described(self, protocol: str | None) -> tuple[DescribedMember, ...]:
        """The members as DescribeGroups shows them; without a protocol their metadata is empty."""
        return tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol) if protocol else b"",
                member.assignment,
            )
            for member in self.by_id.values()
        )

    def subscribed_topics(self, protocol: str | None) -> frozenset[str] | None:
        """All topics that consumers subscribe to; None if it cannot be known."""
        if not self.by_id:
            return frozenset()
        if protocol is None:
            return None
        topics: set[str] = set()
        for member in self.by_id.values():
            found = subscribed_topics(member.metadata(protocol))
            if found is None:
                return None
            topics |= found
        return frozenset(topics)

    def parked(self) -> list[Token]:
        """The tokens of all parked joins and syncs."""
        members = self.by_id.values()
        tokens = [member.join_token for member in members] + [each.sync_token for each in members]
        return [token for token in tokens if token is not None]


def _names(member: Member) -> set[str]:
    return {name for name, _ in member.protocols}

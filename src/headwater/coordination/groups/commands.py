"""Commands and answers of the classic protocol.

Plain values without wire versions: the handler translates what a version implies (`needs_member_id`,
`may_skip_assignment`), so that the state machine never branches on version numbers.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from headwater.errors import E
from headwater.model import NO_GENERATION

NO_MEMBER = ""
SHOWN_MEMBERS = 5


class JoinGroup(NamedTuple):
    """A client joins, or a member requests a new generation."""

    group_id: str
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    needs_member_id: bool
    may_skip_assignment: bool
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to JoinGroup; only the leader gets `members`."""

    error: E = E.NONE
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncGroup(NamedTuple):
    """A member requests its assignment; the leader sends the assignments of all members."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


class Synced(NamedTuple):
    """The answer to SyncGroup."""

    error: E = E.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Heartbeat(NamedTuple):
    """A member is alive. Answered with an `E`."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class Leaver(NamedTuple):
    """A leaving member; an administrator names a static member by its instance id alone."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeaveGroup(NamedTuple):
    """Members leave."""

    group_id: str
    members: tuple[Leaver, ...]


class Left(NamedTuple):
    """The answer to LeaveGroup: one error for the group, then one per member, in order."""

    error: E = E.NONE
    members: tuple[tuple[Leaver, E], ...] = ()


class DescribedMember(NamedTuple):
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Described(NamedTuple):
    """A group as DescribeGroups shows it."""

    error: E
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class Listed(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


class RebalanceReason(Enum):
    """Why a rebalance began."""

    JOIN = "a new member joined"
    LEAVE = "a member left"
    POLL_TIMEOUT = "a member left because it did not poll within max.poll.interval.ms"
    SESSION = "a member's session expired"
    SYNC = "members did not fetch their assignment in time"
    METADATA = "a member changed its subscription"
    LEADER = "the leader requested a new assignment"
    TOPICS = "subscribed topics were created, deleted or given more partitions"
    STATIC = "a static member came back during a rebalance or with other protocols"
    CAPACITY = "the group is over group.max.size"
    TOO_LARGE = "the group is too large to be stored"


def leave_reason(client_reason: str | None) -> RebalanceReason:
    """Return why members left; clients that polled too slowly give that reason."""
    return (
        RebalanceReason.POLL_TIMEOUT
        if _mentions(client_reason, _POLL_TIMEOUT)
        else RebalanceReason.LEAVE
    )


def rejoin_reason(client_reason: str | None, *, unchanged_leader: bool) -> RebalanceReason:
    """Return why a member joins again: its own reason, or the change that it made."""
    if _mentions(client_reason, _TOPICS_CHANGED):
        return RebalanceReason.TOPICS
    return RebalanceReason.LEADER if unchanged_leader else RebalanceReason.METADATA


_POLL_TIMEOUT = ("poll timeout", "max.poll.interval.ms", "poll interval")
_TOPICS_CHANGED = ("metadata has changed", "more partitions", "match the pattern")


def _mentions(client_reason: str | None, phrases: tuple[str, ...]) -> bool:
    given = (client_reason or "").lower()
    return any(phrase in given for phrase in phrases)


class RebalanceStarted(NamedTuple):
    """An effect: a rebalance to log and count."""

    group_id: str
    reason: RebalanceReason
    member_id: str
    client_reason: str


def shown_ids(members: set[str]) -> str:
    """Return a few ids and the number of the others, for the log."""
    shown = sorted(members)[:SHOWN_MEMBERS]
    more = len(members) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")

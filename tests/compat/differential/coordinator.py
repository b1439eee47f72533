"""Groups for scenes: a coordinator that is ready, and members without a client around them."""

from typing import Any

from headwater.wire.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.compat.differential.scene import Scene

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
"""Version 0 of the consumer protocol: the topic `t`, no user data."""
ASSIGNMENT = b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\0\0\0\0"
_Protocol = JoinGroupRequest.JoinGroupRequestProtocol


def coordinator(s: Scene) -> None:
    """Return when groups are coordinated: the first question makes the offsets topic."""
    find = FindCoordinatorRequest(key="nobody", coordinator_keys=[])
    while s.peer.call(find, 3).error_code:
        pass
    beat = HeartbeatRequest(group_id="nobody", generation_id=1, member_id="nobody")
    while s.peer.call(beat, 3).error_code in (14, 15, 16):
        pass


def join(
    group: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: tuple[str, ...] = ("range",),
    metadata: bytes = SUBSCRIPTION,
    protocol_type: str = "consumer",
    session_ms: int = 10_000,
    rebalance_ms: int = 10_000,
) -> JoinGroupRequest:
    """A JoinGroup request of a consumer."""
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[_Protocol(name=name, metadata=metadata) for name in protocols],
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
    )


def sync(
    group: str, generation: int, member_id: str, *to: str, instance: str | None = None, **more: Any
) -> SyncGroupRequest:
    """A SyncGroup request that gives the same assignment to every member in `to`."""
    given = SyncGroupRequest.SyncGroupRequestAssignment
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        assignments=[given(member_id=it, assignment=ASSIGNMENT) for it in to],
        **{"protocol_type": "consumer", "protocol_name": "range", **more},
    )


def beat(
    group: str, generation: int, member_id: str, instance: str | None = None
) -> HeartbeatRequest:
    """A Heartbeat request."""
    return HeartbeatRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
    )


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    """A LeaveGroup request for (member id, instance id) pairs."""
    rows = [
        LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
        for member_id, instance in members
    ]
    return LeaveGroupRequest(group_id=group, members=rows)


def admitted(s: Scene, group: str, *, instance: str | None = None, **more: Any) -> Any:
    """A member that is alone in a stable group of generation 1; the answer to its join."""
    joined = s.peer.call(join(group, instance=instance, **more), 9)
    if joined.error_code == 79:
        joined = s.peer.call(join(group, joined.member_id, instance=instance, **more), 9)
    assert joined.error_code == 0, joined
    me = joined.member_id
    kind = more.get("protocol_type", "consumer")
    given = sync(group, joined.generation_id, me, me, instance=instance, protocol_type=kind)
    synced = s.peer.call(given, 5)
    assert synced.error_code == 0, synced
    return joined

"""Groups: coordinators (10), the classic membership protocol (11-14), and their administration."""

from headwater.wire.schema import Struct, i8, i16, i32, since


class FindCoordinatorRequest(Struct, api_key=10, versions="0-6", flexible="3+"):
    """Ask who coordinates groups or transactions.

    1: key type.
    4: several keys at once.
    6: share groups.
    """

    key: str = since("0-3", default="")
    key_type: i8 = since("1+", default=0)
    coordinator_keys: list[str] = since("4+", default=[])


class FindCoordinatorResponse(Struct, api_key=10, versions="0-6", flexible="3+"):
    """The coordinators.

    1: error message.
    4: several.
    """

    class Coordinator(Struct):
        """One key's coordinator."""

        key: str = ""
        node_id: i32 = 0
        host: str = ""
        port: i32 = 0
        error_code: i16 = 0
        error_message: str | None = ""

    throttle_time_ms: i32 = since("1+", default=0, ignorable=True)
    error_code: i16 = since("0-3", default=0)
    error_message: str | None = since("1-3", default="", ignorable=True)
    node_id: i32 = since("0-3", default=0)
    host: str = since("0-3", default="")
    port: i32 = since("0-3", default=0)
    coordinators: list[Coordinator] = since("4+", default=[])


class JoinGroupRequest(Struct, api_key=11, versions="0-9", flexible="6+"):
    """Join a classic group.

    1: rebalance timeout.
    4: an unknown member is given its id first (KIP-394).
    5: static members.
    8: reason.
    """

    class JoinGroupRequestProtocol(Struct):
        """A way of assigning that the member knows."""

        name: str = ""
        metadata: bytes = b""

    group_id: str = ""
    session_timeout_ms: i32 = 0
    rebalance_timeout_ms: i32 = since("1+", default=-1, ignorable=True)
    member_id: str = ""
    group_instance_id: str | None = since("5+", default=None)
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = since(default=[])
    reason: str | None = since("8+", default=None, ignorable=True)


class JoinGroupResponse(Struct, api_key=11, versions="0-9", flexible="6+"):
    """The generation that was formed; only the leader sees the members.

    5: static members.
    7: protocol type.
    9: the leader need not assign again.
    """

    class JoinGroupResponseMember(Struct):
        """A member and its subscription."""

        member_id: str = ""
        group_instance_id: str | None = since("5+", default=None, ignorable=True)
        metadata: bytes = b""

    throttle_time_ms: i32 = since("2+", default=0, ignorable=True)
    error_code: i16 = 0
    generation_id: i32 = -1
    protocol_type: str | None = since("7+", default=None, ignorable=True)
    protocol_name: str | None = since(default="", nullable="7+")
    leader: str = ""
    skip_assignment: bool = since("9+", default=False)
    member_id: str = ""
    members: list[JoinGroupResponseMember] = since(default=[])


class HeartbeatRequest(Struct, api_key=12, versions="0-4", flexible="4+"):
    """Stay in a classic group.

    3: static members.
    """

    group_id: str = ""
    generation_id: i32 = 0
    member_id: str = ""
    group_instance_id: str | None = since("3+", default=None)


class HeartbeatResponse(Struct, api_key=12, versions="0-4", flexible="4+"):
    """Whether the member is still in, or must rejoin.

    1: throttle time.
    """

    throttle_time_ms: i32 = since("1+", default=0, ignorable=True)
    error_code: i16 = 0


class LeaveGroupRequest(Struct, api_key=13, versions="0-5", flexible="4+"):
    """Leave a classic group.

    3: several members, static ones too.
    5: reason.
    """

    class MemberIdentity(Struct):
        """A member that leaves."""

        member_id: str = ""
        group_instance_id: str | None = None
        reason: str | None = since("5+", default=None, ignorable=True)

    group_id: str = ""
    member_id: str = since("0-2", default="")
    members: list[MemberIdentity] = since("3+", default=[])


class LeaveGroupResponse(Struct, api_key=13, versions="0-5", flexible="4+"):
    """Who left.

    3: one result per member.
    """

    class MemberResponse(Struct):
        """One member's result."""

        member_id: str = ""
        group_instance_id: str | None = ""
        error_code: i16 = 0

    throttle_time_ms: i32 = since("1+", default=0, ignorable=True)
    error_code: i16 = 0
    members: list[MemberResponse] = since("3+", default=[])


class SyncGroupRequest(Struct, api_key=14, versions="0-5", flexible="4+"):
    """Hand in the assignments (leader) and ask for one's own (all).

    3: static members.
    5: protocol type and name, to be checked.
    """

    class SyncGroupRequestAssignment(Struct):
        """One member's share, as the leader wrote it."""

        member_id: str = ""
        assignment: bytes = b""

    group_id: str = ""
    generation_id: i32 = 0
    member_id: str = ""
    group_instance_id: str | None = since("3+", default=None)
    protocol_type: str | None = since("5+", default=None, ignorable=True)
    protocol_name: str | None = since("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = since(default=[])


class SyncGroupResponse(Struct, api_key=14, versions="0-5", flexible="4+"):
    """The member's assignment.

    5: protocol type and name.
    """

    throttle_time_ms: i32 = since("1+", default=0, ignorable=True)
    error_code: i16 = 0
    protocol_type: str | None = since("5+", default=None, ignorable=True)
    protocol_name: str | None = since("5+", default=None, ignorable=True)
    assignment: bytes = b""


class DescribeGroupsRequest(Struct, api_key=15, versions="0-6", flexible="5+"):
    """Describe classic groups.

    3: authorized operations.
    """

    groups: list[str] = since(default=[])
    include_authorized_operations: bool = since("3+", default=False)


class DescribeGroupsResponse(Struct, api_key=15, versions="0-6", flexible="5+"):
    """Groups and their members.

    3: authorized operations.
    4: static members.
    6: an unknown group is an error with a message (KIP-1043).
    """

    class DescribedGroup(Struct):
        """A group."""

        error_code: i16 = 0
        error_message: str | None = since("6+", default=None)
        group_id: str = ""
        group_state: str = ""
        protocol_type: str = ""
        protocol_data: str = ""
        members: "list[DescribeGroupsResponse.DescribedGroupMember]" = since(default=[])
        authorized_operations: i32 = since("3+", default=-(1 << 31))

    class DescribedGroupMember(Struct):
        """A member."""

        member_id: str = ""
        group_instance_id: str | None = since("4+", default=None, ignorable=True)
        client_id: str = ""
        client_host: str = ""
        member_metadata: bytes = b""
        member_assignment: bytes = b""

    throttle_time_ms: i32 = since("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = since(default=[])


class ListGroupsRequest(Struct, api_key=16, versions="0-5", flexible="3+"):
    """List the groups of this coordinator.

    4: by state.
    5: by type.
    """

    states_filter: list[str] = since("4+", default=[])
    types_filter: list[str] = since("5+", default=[])


class ListGroupsResponse(Struct, api_key=16, versions="0-5", flexible="3+"):
    """Groups by name.

    4: state.
    5: type.
    """

    class ListedGroup(Struct):
        """A group."""

        group_id: str = ""
        protocol_type: str = ""
        group_state: str = since("4+", default="", ignorable=True)
        group_type: str = since("5+", default="", ignorable=True)

    throttle_time_ms: i32 = since("1+", default=0, ignorable=True)
    error_code: i16 = 0
    groups: list[ListedGroup] = since(default=[])


class DeleteGroupsRequest(Struct, api_key=42, versions="0-3", flexible="2+"):
    """Delete empty groups."""

    groups_names: list[str] = since(default=[])


class DeleteGroupsResponse(Struct, api_key=42, versions="0-3", flexible="2+"):
    """What was deleted.

    3: error message.
    """

    class DeletableGroupResult(Struct):
        """One group's result."""

        group_id: str = ""
        error_code: i16 = 0
        error_message: str | None = since("3+", default=None, ignorable=True)

    throttle_time_ms: i32 = 0
    results: list[DeletableGroupResult] = since(default=[])

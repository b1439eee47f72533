"""Translates between group requests and the commands of a group shard.

Handles version differences here, so that the shard is independent of versions. If the group is on
another broker or still loading, the response has an error; the connection stays open.
"""

from itertools import chain, islice
from typing import cast

from headwater.broker.context import Context
from headwater.broker.handlers.named_once import once
from headwater.broker.handlers.shard_calls import Gather, call_shard
from headwater.broker.request import Request
from headwater.broker.turns import ELEMENTS_A_TURN, Steps, drained, each
from headwater.coordination.groups.commands import (
    Described,
    DescribedMember,
    Heartbeat,
    Joined,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Left,
    Listed,
    Synced,
    SyncGroup,
)
from headwater.coordination.groups.shard import GroupShard, ListGroups
from headwater.errors import E, KafkaError
from headwater.model import CONSUMER_OFFSETS
from headwater.records.rules import BatchRules
from headwater.security.acls import AclResourceType
from headwater.security.rights import DELETE_GROUP, DESCRIBE_CLUSTER, DESCRIBE_GROUP
from headwater.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

FIRST_JOIN_WITH_MEMBER_ID_REQUIRED = 4
FIRST_JOIN_WITH_NULL_PROTOCOL = 7
FIRST_JOIN_WITH_SKIP_ASSIGNMENT = 9
FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_LEAVE_OF_SEVERAL = 3
FIRST_DESCRIBE_WITH_NOT_FOUND = 6

MOST_PROTOCOLS = 64
"""Far more protocols than any client has; each is compared with those of other members."""
MOST_RECORDS = 8
"""How many times as large as a record of a group a request to join may be: it has metadata for each
protocol, and one of them is stored."""
_LIMIT = f"max.message.bytes of {CONSUMER_OFFSETS}"
_REMEDY = "let it subscribe to fewer topics, or raise that limit"


# -- membership


def handle_join_group(
    context: Context, request: Request, body: JoinGroupRequest
) -> JoinGroupResponse | None:
    """Park the member until its generation is complete."""
    partition = context.groups.partition_of(body.group_id)
    log = None if partition is None else context.replicas.get(CONSUMER_OFFSETS, partition)
    if log is not None and (problem := _too_large(body, log.policy.rules.max_message_bytes)):
        source = f"{request.connection.host} ({request.client_id})"
        context.peer_log.warning(
            "groups", source, f"refused a member of {body.group_id}: {problem}"
        )
        return _join_response(request, Joined(E.INVALID_REQUEST, body.member_id))
    call_shard(
        context,
        body.group_id,
        GroupShard.join,
        _join_command(request, body),
        lambda error: Joined(error, body.member_id),
        lambda joined: request.reply_in_turns(_join_response(request, joined)),
    )
    return None


def large_join_problem(context: Context, size: int) -> str:
    """Return why a request of `size` bytes is not decoded: what it has could not be stored."""
    log = next(iter(context.replicas.of_topic(CONSUMER_OFFSETS)), None)
    rules = BatchRules() if log is None else log.policy.rules
    limit = MOST_RECORDS * rules.max_message_bytes
    return "" if size <= limit else f"it has {size} bytes, {_LIMIT} allows {limit}; {_REMEDY}"


def _too_large(body: JoinGroupRequest, largest: int) -> str:
    """Return what is too large to be compared with other members, or to be stored with the group."""
    if len(body.protocols) > MOST_PROTOCOLS:
        return f"it has {len(body.protocols)} protocols, {MOST_PROTOCOLS} are the most"
    size = max((len(one.metadata) for one in body.protocols), default=0)
    return (
        ""
        if size <= largest
        else f"its metadata has {size} bytes, {_LIMIT} is {largest}; {_REMEDY}"
    )


def refuse_join(request: Request, body: JoinGroupRequest, error: E) -> JoinGroupResponse:
    """Return the response for a client without the right to the group."""
    return _join_response(request, Joined(error, ""))


def _join_command(request: Request, body: JoinGroupRequest) -> JoinGroup:
    rebalance_timeout_ms = body.rebalance_timeout_ms
    return JoinGroup(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.protocol_type,
        tuple((it.name, bytes(it.metadata)) for it in body.protocols),
        body.session_timeout_ms,
        body.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        request.client_id or "",
        f"/{request.connection.host}",  # with Java's slash, as tools print it
        request.version >= FIRST_JOIN_WITH_MEMBER_ID_REQUIRED,
        request.version >= FIRST_JOIN_WITH_SKIP_ASSIGNMENT,
        body.reason,
    )


def _join_response(request: Request, joined: Joined) -> JoinGroupResponse:
    nullable = request.version >= FIRST_JOIN_WITH_NULL_PROTOCOL
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol if nullable else joined.protocol or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=each(joined.members, _joined_member),
    )


def _joined_member(member: JoinedMember) -> JoinGroupResponse.JoinGroupResponseMember:
    return JoinGroupResponse.JoinGroupResponseMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        metadata=member.metadata,
    )


def group_of_sync(request: Request, body: SyncGroupRequest) -> str | None:
    """Return the group, unless the request lacks the protocol that its version requires."""
    lacks_protocol = request.version >= FIRST_SYNC_WITH_PROTOCOL and None in (
        body.protocol_type,
        body.protocol_name,
    )
    return None if lacks_protocol else body.group_id


def handle_sync_group(
    context: Context, request: Request, body: SyncGroupRequest
) -> SyncGroupResponse | None:
    """Store the leader's assignments; park the other members until they arrive."""
    if group_of_sync(request, body) is None:
        return SyncGroupResponse(error_code=E.INCONSISTENT_GROUP_PROTOCOL)
    command = SyncGroup(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id,
        body.protocol_type,
        body.protocol_name,
        {it.member_id: bytes(it.assignment) for it in body.assignments},
    )
    call_shard(
        context,
        body.group_id,
        GroupShard.sync,
        command,
        _refuse_sync,
        lambda synced: request.reply(_sync_response(synced)),
    )
    return None


def _refuse_sync(error: E) -> Synced:
    """Map the error of a loading coordinator: the rebalance is lost, and the member must rejoin."""
    loading = error is E.COORDINATOR_LOAD_IN_PROGRESS
    return Synced(E.REBALANCE_IN_PROGRESS if loading else error)


def _sync_response(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


def handle_heartbeat(context: Context, request: Request, body: HeartbeatRequest) -> None:
    """Extend a member's session."""
    command = Heartbeat(body.group_id, body.member_id, body.group_instance_id, body.generation_id)
    call_shard(
        context,
        body.group_id,
        GroupShard.heartbeat,
        command,
        _refuse_heartbeat,
        lambda error: request.reply(HeartbeatResponse(error_code=error)),
    )


def _refuse_heartbeat(error: E) -> E:
    """Accept heartbeats while the group is loading: no session runs then."""
    return E.NONE if error is E.COORDINATOR_LOAD_IN_PROGRESS else error


def handle_leave_group(
    context: Context, request: Request, body: LeaveGroupRequest
) -> Steps[LeaveGroupResponse | None]:
    """Remove members, some hundred at a time."""
    members = body.members
    if request.version < FIRST_LEAVE_OF_SEVERAL:
        members = [LeaveGroupRequest.MemberIdentity(member_id=body.member_id)]

    def done(parts: list[Left]) -> None:
        error = next((part.error for part in parts if part.error is not E.NONE), E.NONE)
        left = Left(error, tuple(chain.from_iterable(part.members for part in parts)))
        request.reply_in_turns(_leave_response(request, left))

    starts = range(0, max(1, len(members)), ELEMENTS_A_TURN)
    gather = Gather(len(starts), done)
    each_member = drained(members)
    for place in range(len(starts)):
        leavers = []
        for one in islice(each_member, ELEMENTS_A_TURN):
            leavers.append(Leaver(one.member_id, one.group_instance_id, one.reason))
            yield
        command = LeaveGroup(body.group_id, tuple(leavers))
        call_shard(context, body.group_id, GroupShard.leave, command, Left, gather.slot(place))
    return None


def _leave_response(request: Request, left: Left) -> LeaveGroupResponse:
    if request.version < FIRST_LEAVE_OF_SEVERAL:
        errors = [left.error, *(error for _, error in left.members)]
        return LeaveGroupResponse(error_code=errors[-1])
    return LeaveGroupResponse(
        error_code=left.error,
        members=each(
            left.members,
            lambda it: LeaveGroupResponse.MemberResponse(
                member_id=it[0].member_id,
                group_instance_id=it[0].instance_id,
                error_code=it[1],
            ),
        ),
    )


# -- administration


def handle_describe_groups(
    context: Context, request: Request, body: DescribeGroupsRequest
) -> Steps[None]:
    """Describe each requested group, in order."""

    def done(answers: list[Described]) -> None:
        def of_group(place: int) -> DescribeGroupsResponse.DescribedGroup:
            return _described_group(context, request, body, body.groups[place], answers[place])

        groups = each(range(len(answers)), of_group)
        request.reply_in_turns(DescribeGroupsResponse(groups=groups))

    body.groups = yield from once(body.groups, str)
    gather = Gather(len(body.groups), done)
    for place, group_id in enumerate(body.groups):
        if context.permits(request, DESCRIBE_GROUP, group_id):
            call_shard(
                context,
                group_id,
                GroupShard.describe,
                group_id,
                lambda error: Described(error, ""),
                gather.slot(place),
            )
        else:
            gather.slot(place)(Described(DESCRIBE_GROUP.refusal, ""))
        yield


def _described_group(
    context: Context,
    request: Request,
    body: DescribeGroupsRequest,
    group_id: str,
    described: Described,
) -> DescribeGroupsResponse.DescribedGroup:
    error = described.error
    if error is E.GROUP_ID_NOT_FOUND and request.version < FIRST_DESCRIBE_WITH_NOT_FOUND:
        error = E.NONE  # older clients recognize a missing group by its state, Dead
    group = DescribeGroupsResponse.DescribedGroup(
        error_code=error,
        group_id=group_id,
        group_state=described.state,
        protocol_type=described.protocol_type,
        protocol_data=described.protocol,
        members=each(described.members, _described_member),
    )
    if error is E.GROUP_ID_NOT_FOUND:
        group.error_message = f"group {group_id!r} does not exist"
    if body.include_authorized_operations and error is E.NONE:
        group.authorized_operations = context.authorized_operations(
            request, AclResourceType.GROUP, group_id
        )
    return group


def _described_member(member: DescribedMember) -> DescribeGroupsResponse.DescribedGroupMember:
    return DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )


def handle_list_groups(
    context: Context, request: Request, body: ListGroupsRequest
) -> Steps[ListGroupsResponse | None]:
    """List the groups of this broker that the client may see."""
    states = yield from _in_lower_case(body.states_filter)
    kinds = yield from _in_lower_case(body.types_filter)
    sees_all = context.sees(request, DESCRIBE_CLUSTER)

    def sees(group: Listed) -> bool:
        return sees_all or context.sees(request, DESCRIBE_GROUP, group.group_id)

    def done(answers: list[object]) -> None:
        failures = [answer.code for answer in answers if isinstance(answer, KafkaError)]
        if failures:
            request.reply(ListGroupsResponse(error_code=failures[0]))
        else:
            request.reply_in_turns(listed(answers))

    def listed(answers: list[object]) -> Steps[ListGroupsResponse]:
        visible = []
        for group in chain.from_iterable(cast("list[list[Listed]]", answers)):
            if sees(group):
                visible.append(group)
            yield
        return ListGroupsResponse(groups=each(visible, _listed_group))

    try:
        context.groups.submit_to_all(GroupShard.list_groups, ListGroups(states, kinds), done)
    except KafkaError as loading:
        return ListGroupsResponse(error_code=loading.code)
    return None


def _in_lower_case(names: list[str]) -> Steps[frozenset[str]]:
    """Return the names of a filter as shards compare them; clients may send thousands."""
    found = set()
    for name in names:
        found.add(name.lower())
        yield
    return frozenset(found)


def _listed_group(group: Listed) -> ListGroupsResponse.ListedGroup:
    return ListGroupsResponse.ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state,
        group_type=group.kind,
    )


def handle_delete_groups(
    context: Context, request: Request, body: DeleteGroupsRequest
) -> Steps[None]:
    """Delete empty groups, each with its own result."""

    def done(answers: list[E]) -> None:
        def of_group(place: int) -> DeleteGroupsResponse.DeletableGroupResult:
            return DeleteGroupsResponse.DeletableGroupResult(
                group_id=body.groups_names[place], error_code=answers[place]
            )

        results = each(range(len(answers)), of_group)
        request.reply_in_turns(DeleteGroupsResponse(results=results))

    gather = Gather(len(body.groups_names), done)
    for place, group_id in enumerate(body.groups_names):
        if context.permits(request, DELETE_GROUP, group_id):
            call_shard(
                context,
                group_id,
                GroupShard.delete_group,
                group_id,
                lambda error: error,
                gather.slot(place),
            )
        else:
            gather.slot(place)(DELETE_GROUP.refusal)
        yield

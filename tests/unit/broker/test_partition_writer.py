"""The log of a coordinator on a broker: what it takes."""

from headwater.errors import E
from headwater.wire.messages.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.unit.broker.live import until

GROUP = "large assignments"


def joined(client, member_id=""):
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")]
    return client.ask(
        JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=6000, rebalance_timeout_ms=6000,
            member_id=member_id, protocol_type="consumer", protocols=protocols,
        ),
        JoinGroupResponse, 3,
    )  # fmt: skip


def synced(client, member, size):
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(
        member_id=member.member_id, assignment=bytes(size)
    )
    return client.ask(
        SyncGroupRequest(
            group_id=GROUP, generation_id=member.generation_id, member_id=member.member_id,
            assignments=[assignment],
        ),
        SyncGroupResponse, 3,
    )  # fmt: skip


def test_a_group_is_stored_up_to_the_limit_of_its_topic(client):
    """As in Kafka, that is the broker's message.max.bytes unless the topic has its own."""
    wanted = FindCoordinatorRequest(key=GROUP, key_type=0)
    client.ask(wanted, FindCoordinatorResponse, 2)
    members = []

    def is_member():
        members.append(joined(client))
        return members[-1].error_code == E.NONE

    until(is_member)
    member = members[-1]
    assert synced(client, member, 1_048_588).error_code == E.UNKNOWN_SERVER_ERROR
    again = joined(client, member.member_id)
    assert (again.error_code, again.generation_id) == (E.NONE, member.generation_id + 1)
    assert synced(client, again, 1_048_000).error_code == E.NONE

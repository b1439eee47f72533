"""The consumer protocol: subscriptions and assignments of group members, as bytes.

Versions 0 to 3 are those of Java; each appends fields. Bytes of other members are not trusted.
"""

from collections.abc import Iterable, Mapping, Sequence

from headwater.client.consumer.assignors import GroupMember
from headwater.client.wait_warnings import Warnings
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from headwater.wire import codec
from headwater.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from headwater.wire.messages.groups import JoinGroupResponse, SyncGroupRequest

_NEWEST = 3
_VERSION_SIZE = 2
_ASSIGNMENT_VERSION = 1


def encode_subscription(
    topics: Sequence[str],
    user_data: bytes | None,
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
) -> bytes:
    """Encode a member's subscription, for the leader."""
    told = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(owned).items()
        ],
        generation_id=generation,
        rack_id=rack,
    )
    return _NEWEST.to_bytes(_VERSION_SIZE) + codec.encode_bytes(told, _NEWEST)


def decode_subscription(member_id: str, instance_id: str | None, blob: bytes) -> GroupMember:
    """Decode a member's subscription."""
    version = _version(blob)
    try:
        told, _ = codec.decode(ConsumerProtocolSubscription, version, blob, _VERSION_SIZE)
    except codec.WireError as malformed:
        raise _malformed(f"the subscription of member {member_id}") from malformed
    owned = tuple(
        TopicPartition(row.topic, number)
        for row in told.owned_partitions
        for number in row.partitions
    )
    return GroupMember(
        member_id,
        frozenset(told.topics),
        owned,
        told.generation_id,
        instance_id,
        told.rack_id,
        told.user_data,
    )


def read_subscriptions(
    group: str, joined: JoinGroupResponse, warnings: Warnings
) -> list[GroupMember]:
    """Decode all subscriptions; an unreadable one is empty, so that the other members continue."""
    members = []
    for row in joined.members:
        try:
            member = decode_subscription(row.member_id, row.group_instance_id, row.metadata)
        except KafkaError as problem:
            text = f"member {row.member_id} of group {group} gets no partitions: {problem}"
            warnings.warn(f"the subscription of {row.member_id} in {group}", "%s", text)
            member = GroupMember(row.member_id, frozenset(), instance_id=row.group_instance_id)
        members.append(member)
    return members


def encode_assignments(
    assignments: Mapping[str, Iterable[TopicPartition]], members: Iterable[GroupMember]
) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
    """Encode what an assignor returned: each member gets an assignment, maybe an empty one."""
    return [
        SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=member.member_id,
            assignment=encode_assignment(assignments.get(member.member_id, [])),
        )
        for member in members
    ]


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode a member's assignment."""
    told = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    )
    return _ASSIGNMENT_VERSION.to_bytes(_VERSION_SIZE) + codec.encode_bytes(
        told, _ASSIGNMENT_VERSION
    )


def decode_assignment(blob: bytes) -> list[TopicPartition]:
    """Decode a member's assignment; empty bytes are an empty assignment."""
    if not blob:
        return []
    version = _version(blob)
    try:
        told, _ = codec.decode(ConsumerProtocolAssignment, version, blob, _VERSION_SIZE)
    except codec.WireError as malformed:
        raise _malformed("this member's assignment") from malformed
    return [
        TopicPartition(row.topic, number)
        for row in told.assigned_partitions
        for number in row.partitions
    ]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partition numbers by topic."""
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def _version(blob: bytes) -> int:
    """Return the version to decode with: newer versions begin like the newest known one."""
    if len(blob) < _VERSION_SIZE:
        raise _malformed("what a member of the group sent")
    version = int.from_bytes(blob[:_VERSION_SIZE], signed=True)
    if version < 0:
        raise _malformed("what a member of the group sent")
    return min(version, _NEWEST)


def _malformed(what: str) -> KafkaError:
    return KafkaError(
        E.INCONSISTENT_GROUP_PROTOCOL,
        f"{what} cannot be read; does something other than a consumer use this group?",
    )

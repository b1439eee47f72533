"""The records in `__consumer_offsets`, and their bytes.

A key is the int16 type of the record and a body, a value the int16 version and a body; a null value
deletes. The formats are Kafka's: its tools read our topic, and we read a topic that it wrote. Types
of other group protocols decode to None: the loader counts and skips them.
"""

import struct
from typing import NamedTuple, TypeAlias

from headwater.model import NO_EPOCH, NO_TIMESTAMP, ZERO_UUID, Uuid
from headwater.wire import codec
from headwater.wire.messages.internal import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

LEGACY_OFFSET_COMMIT = 0
OFFSET_COMMIT = 1
GROUP_METADATA = 2

OFFSET_VALUE_WITH_TOPIC_ID = 4
OFFSET_VALUE_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
KEY_VERSION = 0  # the type in front of a key gives its layout; the layouts never changed

_INT16 = struct.Struct(">h")
_OFFSET_KEY_PREFIX = _INT16.pack(OFFSET_COMMIT)
_GROUP_KEY_PREFIX = _INT16.pack(GROUP_METADATA)


class CommittedOffset(NamedTuple):
    """How far a group has read one partition."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp: int = NO_TIMESTAMP
    expire_timestamp: int = NO_TIMESTAMP  # set only by a commit with its own retention
    topic_id: Uuid = ZERO_UUID


class StoredMember(NamedTuple):
    """What a restart keeps of a member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """What a restart keeps of a classic group: Stable with members, Empty without."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int
    members: tuple[StoredMember, ...] = ()


class OffsetRecord(NamedTuple):
    """A commit, or with None its deletion."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


class GroupRecord(NamedTuple):
    """A group's metadata, or with None its deletion."""

    group_id: str
    stored: StoredGroup | None


CoordinatorRecord: TypeAlias = OffsetRecord | GroupRecord


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """The key and value of `record`."""
    if isinstance(record, OffsetRecord):
        return _offset_key(record), _offset_value(record.committed)
    key = codec.encode_bytes(GroupMetadataKey(group=record.group_id), KEY_VERSION)
    return _GROUP_KEY_PREFIX + key, _group_value(record.stored)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Read what `encode`, or Kafka, wrote; None for a record of another kind of group."""
    if len(key) < _INT16.size:
        return None
    (kind,) = _INT16.unpack_from(key)
    if kind in (LEGACY_OFFSET_COMMIT, OFFSET_COMMIT):
        found, _ = codec.decode(OffsetCommitKey, KEY_VERSION, key, 2)
        return OffsetRecord(found.group, found.topic, found.partition, _read_offset(value))
    if kind == GROUP_METADATA:
        group, _ = codec.decode(GroupMetadataKey, KEY_VERSION, key, 2)
        return GroupRecord(group.group, _read_group(value))
    return None


def _offset_key(record: OffsetRecord) -> bytes:
    key = OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
    return _OFFSET_KEY_PREFIX + codec.encode_bytes(key, KEY_VERSION)


def _offset_value(committed: CommittedOffset | None) -> bytes | None:
    if committed is None:
        return None
    expires = committed.expire_timestamp != NO_TIMESTAMP
    version = OFFSET_VALUE_WITH_EXPIRY if expires else OFFSET_VALUE_WITH_TOPIC_ID
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp,
        expire_timestamp=committed.expire_timestamp,
        topic_id=committed.topic_id,
    )
    return _INT16.pack(version) + codec.encode_bytes(value, version)


def _read_offset(value: bytes | None) -> CommittedOffset | None:
    if value is None:
        return None
    version = _version(value)
    found, _ = codec.decode(OffsetCommitValue, version, value, 2)
    return CommittedOffset(
        found.offset,
        found.leader_epoch,
        found.metadata,
        found.commit_timestamp,
        found.expire_timestamp,
        found.topic_id,
    )


def _group_value(stored: StoredGroup | None) -> bytes | None:
    if stored is None:
        return None
    value = GroupMetadataValue(
        protocol_type=stored.protocol_type,
        generation=stored.generation,
        protocol=stored.protocol,
        leader=stored.leader,
        current_state_timestamp=stored.state_timestamp,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in stored.members
        ],
    )
    return _INT16.pack(GROUP_VALUE_VERSION) + codec.encode_bytes(value, GROUP_VALUE_VERSION)


def _read_group(value: bytes | None) -> StoredGroup | None:
    if value is None:
        return None
    version = _version(value)
    found, _ = codec.decode(GroupMetadataValue, version, value, 2)
    return StoredGroup(
        found.protocol_type,
        found.generation,
        found.protocol,
        found.leader,
        found.current_state_timestamp,
        tuple(_read_member(member) for member in found.members),
    )


def _version(value: bytes) -> int:
    if len(value) < _INT16.size:
        raise codec.WireError(f"a value of {len(value)} bytes has no version")
    (version,) = _INT16.unpack_from(value)
    return int(version)


def _read_member(member: GroupMetadataValue.MemberMetadata) -> StoredMember:
    rebalance_timeout_ms = member.rebalance_timeout
    if rebalance_timeout_ms < 0:  # version 0 has only the session timeout
        rebalance_timeout_ms = member.session_timeout
    return StoredMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        rebalance_timeout_ms,
        member.session_timeout,
        bytes(member.subscription),
        bytes(member.assignment),
    )

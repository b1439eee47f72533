"""Records of `__consumer_offsets` and `__transaction_state`, and blobs that live in log files."""

from headwater.model import ZERO_UUID
from headwater.wire.schema import EMPTY, Struct, Uuid, i8, i16, i32, i64, since, u32


class LegacyOffsetCommitKey(Struct, record_type=0, versions="0"):
    """An offset's key as the first brokers wrote it."""

    group: str = ""
    topic: str = ""
    partition: i32 = 0


class LegacyOffsetCommitValue(Struct, versions="0"):
    """An offset as the first brokers wrote it."""

    offset: i64 = 0
    metadata: str = ""
    commit_timestamp: i64 = 0


class OffsetCommitKey(Struct, record_type=1, versions="0"):
    """The key of a committed offset."""

    group: str = ""
    topic: str = ""
    partition: i32 = 0


class OffsetCommitValue(Struct, versions="0-4", flexible="4+"):
    """A committed offset.

    1: expiry chosen by the client.
    3: leader epoch.
    4: topic id.
    """

    offset: i64 = 0
    leader_epoch: i32 = since("3+", default=-1, ignorable=True)
    metadata: str = ""
    commit_timestamp: i64 = 0
    expire_timestamp: i64 = since("1", default=-1, ignorable=True)
    topic_id: Uuid = since("4+", default=ZERO_UUID, tag=0, ignorable=True)


class GroupMetadataKey(Struct, record_type=2, versions="0"):
    """The key of a classic group."""

    group: str = ""


class GroupMetadataValue(Struct, versions="0-4", flexible="4+"):
    """A classic group's generation.

    1: rebalance timeouts.
    2: when its state last changed.
    3: static members.
    """

    class MemberMetadata(Struct):
        """A member of the generation."""

        member_id: str = ""
        group_instance_id: str | None = since("3+", default=None, ignorable=True)
        client_id: str = ""
        client_host: str = ""
        rebalance_timeout: i32 = since("1+", default=-1, ignorable=True)
        session_timeout: i32 = 0
        subscription: bytes = b""
        assignment: bytes = b""

    protocol_type: str = ""
    generation: i32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: i64 = since("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = since(default=[])


class ConsumerGroupMetadataKey(Struct, record_type=3, versions="0"):
    """The key of a consumer group (KIP-848)."""

    group_id: str = ""


class ConsumerGroupMetadataValue(Struct, versions="0", flexible="0+"):
    """A consumer group's epoch."""

    epoch: i32 = 0
    metadata_hash: i64 = since(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Struct, record_type=4, versions="0"):
    """The key of a consumer group's view of its topics."""

    group_id: str = ""


class ConsumerGroupPartitionMetadataValue(Struct, versions="0", flexible="0+"):
    """The topics a group was assigned from; written up to Kafka 4.0."""

    class TopicMetadata(Struct):
        """A topic as the group saw it."""

        topic_id: Uuid = ZERO_UUID
        topic_name: str = ""
        num_partitions: i32 = 0
        partition_metadata: "list[ConsumerGroupPartitionMetadataValue.PartitionMetadata]" = since(
            default=[]
        )

    class PartitionMetadata(Struct):
        """Racks of one partition."""

        partition: i32 = 0
        racks: list[str] = since(default=[])

    topics: list[TopicMetadata] = since(default=[])


class ConsumerGroupMemberMetadataKey(Struct, record_type=5, versions="0"):
    """The key of a member."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupMemberMetadataValue(Struct, versions="0", flexible="0+"):
    """What a member said about itself."""

    class ClassicMemberMetadata(Struct):
        """Settings of a member that still speaks the classic protocol."""

        session_timeout_ms: i32 = 0
        supported_protocols: "list[ConsumerGroupMemberMetadataValue.ClassicProtocol]" = since(
            default=[]
        )

    class ClassicProtocol(Struct):
        """A classic protocol that the member supports."""

        name: str = ""
        metadata: bytes = b""

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = since(default=[])
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: i32 = -1
    server_assignor: str | None = ""
    classic_member_metadata: ClassicMemberMetadata | None = since(default=EMPTY, tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Struct, record_type=6, versions="0"):
    """The key of a group's target assignment."""

    group_id: str = ""


class ConsumerGroupTargetAssignmentMetadataValue(Struct, versions="0", flexible="0+"):
    """The epoch of the target assignment."""

    assignment_epoch: i32 = 0
    assignment_timestamp: i64 = since(default=0, tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Struct, record_type=7, versions="0"):
    """The key of a member's target assignment."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupTargetAssignmentMemberValue(Struct, versions="0", flexible="0+"):
    """The partitions that a member should get."""

    class TopicPartition(Struct):
        """Partitions of one topic."""

        topic_id: Uuid = ZERO_UUID
        partitions: list[i32] = since(default=[])

    topic_partitions: list[TopicPartition] = since(default=[])


class ConsumerGroupCurrentMemberAssignmentKey(Struct, record_type=8, versions="0"):
    """The key of a member's current assignment."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupCurrentMemberAssignmentValue(Struct, versions="0", flexible="0+"):
    """The partitions that a member has now."""

    class TopicPartitions(Struct):
        """Partitions of one topic."""

        topic_id: Uuid = ZERO_UUID
        partitions: list[i32] = since(default=[])
        assignment_epochs: list[i32] | None = since(default=[], tag=0)

    member_epoch: i32 = 0
    previous_member_epoch: i32 = 0
    state: i8 = 0
    assigned_partitions: list[TopicPartitions] = since(default=[])
    partitions_pending_revocation: list[TopicPartitions] = since(default=[])


class ConsumerGroupRegularExpressionKey(Struct, record_type=16, versions="0"):
    """The key of a group's regular expression."""

    group_id: str = ""
    regular_expression: str = ""


class ConsumerGroupRegularExpressionValue(Struct, versions="0", flexible="0+"):
    """The topics an expression matched."""

    topics: list[str] = since(default=[])
    version: i64 = 0
    timestamp: i64 = 0


class TransactionLogKey(Struct, record_type=0, versions="0"):
    """The key of a transaction's state."""

    transactional_id: str = ""


class TransactionLogValue(Struct, versions="0-1", flexible="1+"):
    """A transaction's state.

    1: ids before and after a bump, and the client's transaction version, in tags (KIP-890).
    """

    class PartitionsSchema(Struct):
        """Partitions of one topic in the transaction."""

        topic: str = ""
        partition_ids: list[i32] = since(default=[])

    producer_id: i64 = 0
    previous_producer_id: i64 = since("1+", default=-1, tag=0)
    next_producer_id: i64 = since("1+", default=-1, tag=1)
    producer_epoch: i16 = 0
    next_producer_epoch: i16 = since("1+", default=-1, tag=3)
    transaction_timeout_ms: i32 = 0
    transaction_status: i8 = 0
    transaction_partitions: list[PartitionsSchema] | None = since(default=[])
    transaction_last_update_timestamp_ms: i64 = 0
    transaction_start_timestamp_ms: i64 = 0
    client_transaction_version: i16 = since("1+", default=0, tag=2)


class ControlRecordTypeSchema(Struct, versions="0"):
    """The type in a control record's key: abort 0, commit 1, leader change 2."""

    type: i16 = 0


class EndTxnMarker(Struct, versions="0"):
    """The value of a control record that ends a transaction."""

    coordinator_epoch: i32 = 0


class AbortedTxn(Struct, versions="0"):
    """An entry of a `.txnindex` file, after its version."""

    producer_id: i64 = 0
    first_offset: i64 = 0
    last_offset: i64 = 0
    last_stable_offset: i64 = 0


class ProducerSnapshot(Struct, versions="1"):
    """A `.snapshot` file, after its version."""

    class ProducerEntry(Struct):
        """What a partition remembers of one producer."""

        producer_id: i64 = 0
        epoch: i16 = 0
        last_sequence: i32 = 0
        last_offset: i64 = 0
        offset_delta: i32 = 0
        timestamp: i64 = 0
        coordinator_epoch: i32 = 0
        current_txn_first_offset: i64 = 0

    crc: u32 = 0
    producer_entries: list[ProducerEntry] = since(default=[])

"""The asyncio clients; everything else is the same as in `headwater`.

    from headwater.aio import Consumer

    async with Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            print(record.offset, record.value)

Names are imported when they are first used: a program that only produces loads no consumer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import headwater

if TYPE_CHECKING:
    from headwater import (
        AbortableTransactionError,
        AclBinding,
        AclFilter,
        AclOperation,
        AclPatternType,
        AclPermission,
        AclResourceType,
        AlterConfigOp,
        ArrowMissingError,
        Assignor,
        AuthenticationError,
        AuthorizationError,
        BufferExhaustedError,
        ClientError,
        ClosedError,
        ClusterDescription,
        CommitFailedError,
        ConcurrentUseError,
        ConfigChange,
        ConfigEntry,
        ConfigError,
        ConfigResource,
        ConfigResourceType,
        ConsumerGroupMetadata,
        ConsumerInterceptor,
        ConsumerRecord,
        CorruptRecordError,
        DelegationToken,
        DeliveryTimeoutError,
        FatalTransactionError,
        FencedInstanceIdError,
        ForkedError,
        GroupDescription,
        GroupListing,
        GroupMember,
        GroupNotEmptyError,
        IllegalStateError,
        InvalidTopicError,
        KafkaError,
        LogDirDescription,
        LogTruncationError,
        LoopDiedError,
        MemberDescription,
        NetworkError,
        NewTopic,
        NoOffsetForPartitionError,
        NotEnoughReplicasError,
        NoTokenError,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OffsetChange,
        OffsetOutOfRangeError,
        OutOfOrderSequenceError,
        PartitionLag,
        ProcessingError,
        ProducerFencedError,
        ProducerInterceptor,
        ProducerRecord,
        ProducerState,
        QuotaEntity,
        RebalanceListener,
        RecordMetadata,
        Records,
        RecordTooLargeError,
        ResetTo,
        RetriableTransactionError,
        SendFuture,
        SentMany,
        SerializationError,
        SkippedRecordsError,
        SqlOffsets,
        StaleOffsetsError,
        TimedOutError,
        TopicPartition,
        TransactionAbortedError,
        TransactionDescription,
        TransactionListing,
        UnknownTopicOrPartitionError,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
        WakeupError,
    )
    from headwater.client.admin import Admin
    from headwater.client.consumer.consumer import Consumer
    from headwater.client.producer.producer import Producer
    from headwater.client.transforming.transform import transform

__all__ = [
    "AbortableTransactionError",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "AlterConfigOp",
    "ArrowMissingError",
    "Assignor",
    "AuthenticationError",
    "AuthorizationError",
    "BufferExhaustedError",
    "ClientError",
    "ClosedError",
    "ClusterDescription",
    "CommitFailedError",
    "ConcurrentUseError",
    "ConfigChange",
    "ConfigEntry",
    "ConfigError",
    "ConfigResource",
    "ConfigResourceType",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "CorruptRecordError",
    "DelegationToken",
    "DeliveryTimeoutError",
    "FatalTransactionError",
    "FencedInstanceIdError",
    "ForkedError",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupNotEmptyError",
    "IllegalStateError",
    "InvalidTopicError",
    "KafkaError",
    "LogDirDescription",
    "LogTruncationError",
    "LoopDiedError",
    "MemberDescription",
    "NetworkError",
    "NewTopic",
    "NoOffsetForPartitionError",
    "NoTokenError",
    "NotEnoughReplicasError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetChange",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PartitionLag",
    "ProcessingError",
    "Producer",
    "ProducerFencedError",
    "ProducerInterceptor",
    "ProducerRecord",
    "ProducerState",
    "QuotaEntity",
    "RebalanceListener",
    "RecordMetadata",
    "RecordTooLargeError",
    "Records",
    "ResetTo",
    "RetriableTransactionError",
    "SendFuture",
    "SentMany",
    "SerializationError",
    "SkippedRecordsError",
    "SqlOffsets",
    "StaleOffsetsError",
    "TimedOutError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionDescription",
    "TransactionListing",
    "UnknownTopicOrPartitionError",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "WakeupError",
    "transform",
]

_HOMES = {
    "Admin": "headwater.client.admin",
    "Consumer": "headwater.client.consumer.consumer",
    "Producer": "headwater.client.producer.producer",
    "transform": "headwater.client.transforming.transform",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return getattr(headwater, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

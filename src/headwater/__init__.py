"""Event streaming in Python that speaks the Kafka protocol.

    from headwater import Admin, Consumer, NewTopic, Producer

    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topics([NewTopic("orders", partitions=6)])

    with Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("orders", b"a book", key=b"alice")

    with Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.offset, record.value)

Producer, Consumer and Admin block the calling thread; `headwater.aio` has the same three for
asyncio. Settings are Kafka's, with underscores for dots: `linger_ms=20`. Every error is a
KafkaError; all of them are here and in `headwater.errors`. `headwater.testing` starts a broker for
tests. On a command line, `headwater --help` lists the tools.

Names are imported when they are first used: a program that only produces loads no consumer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater import (
        aio,
        errors,
        testing,
    )
    from headwater.client.admin import (
        AclBinding,
        AclFilter,
        AclOperation,
        AclPatternType,
        AclPermission,
        AclResourceType,
        AlterConfigOp,
        ClusterDescription,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        ConfigResourceType,
        DelegationToken,
        GroupDescription,
        GroupListing,
        LogDirDescription,
        MemberDescription,
        NewTopic,
        OffsetChange,
        PartitionLag,
        ProducerState,
        QuotaEntity,
        ResetTo,
        TransactionDescription,
        TransactionListing,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from headwater.client.admin.blocking import Admin
    from headwater.client.consumer.assignors import Assignor, GroupMember
    from headwater.client.consumer.blocking import Consumer
    from headwater.client.consumer.interceptors import ConsumerInterceptor
    from headwater.client.consumer.listener import RebalanceListener
    from headwater.client.consumer.record import (
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        Records,
    )
    from headwater.client.group_metadata import ConsumerGroupMetadata
    from headwater.client.offsets_sql import SqlOffsets
    from headwater.client.producer.blocking import Producer
    from headwater.client.producer.bulk import SentMany
    from headwater.client.producer.futures import RecordMetadata, SendFuture
    from headwater.client.producer.interceptors import ProducerInterceptor, ProducerRecord
    from headwater.client.transforming.blocking import transform
    from headwater.errors import (
        AbortableTransactionError,
        ArrowMissingError,
        AuthenticationError,
        AuthorizationError,
        BufferExhaustedError,
        ClientError,
        ClosedError,
        CommitFailedError,
        ConcurrentUseError,
        ConfigError,
        CorruptRecordError,
        DeliveryTimeoutError,
        FatalTransactionError,
        FencedInstanceIdError,
        ForkedError,
        GroupNotEmptyError,
        IllegalStateError,
        InvalidTopicError,
        KafkaError,
        LogTruncationError,
        LoopDiedError,
        NetworkError,
        NoOffsetForPartitionError,
        NotEnoughReplicasError,
        NoTokenError,
        OffsetOutOfRangeError,
        OutOfOrderSequenceError,
        ProcessingError,
        ProducerFencedError,
        RecordTooLargeError,
        RetriableTransactionError,
        SerializationError,
        SkippedRecordsError,
        StaleOffsetsError,
        TimedOutError,
        TransactionAbortedError,
        UnknownTopicOrPartitionError,
        WakeupError,
    )
    from headwater.model import TopicPartition

__version__ = "0.1.0"
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
    "__version__",
    "aio",
    "codec",
    "errors",
    "testing",
    "transform",
]

codec: str
"""Which record codec the clients of this process use: "compiled" or "pure"."""

_HOMES = {
    "AclBinding": "headwater.client.admin",
    "AclFilter": "headwater.client.admin",
    "AclOperation": "headwater.client.admin",
    "AclPatternType": "headwater.client.admin",
    "AclPermission": "headwater.client.admin",
    "AclResourceType": "headwater.client.admin",
    "Admin": "headwater.client.admin.blocking",
    "AlterConfigOp": "headwater.client.admin",
    "Assignor": "headwater.client.consumer.assignors",
    "ClusterDescription": "headwater.client.admin",
    "ConfigChange": "headwater.client.admin",
    "ConfigEntry": "headwater.client.admin",
    "ConfigResource": "headwater.client.admin",
    "ConfigResourceType": "headwater.client.admin",
    "Consumer": "headwater.client.consumer.blocking",
    "ConsumerGroupMetadata": "headwater.client.group_metadata",
    "ConsumerInterceptor": "headwater.client.consumer.interceptors",
    "ConsumerRecord": "headwater.client.consumer.record",
    "DelegationToken": "headwater.client.admin",
    "GroupDescription": "headwater.client.admin",
    "GroupListing": "headwater.client.admin",
    "GroupMember": "headwater.client.consumer.assignors",
    "LogDirDescription": "headwater.client.admin",
    "MemberDescription": "headwater.client.admin",
    "NewTopic": "headwater.client.admin",
    "OffsetAndMetadata": "headwater.client.consumer.record",
    "OffsetAndTimestamp": "headwater.client.consumer.record",
    "OffsetChange": "headwater.client.admin",
    "PartitionLag": "headwater.client.admin",
    "Producer": "headwater.client.producer.blocking",
    "ProducerInterceptor": "headwater.client.producer.interceptors",
    "ProducerRecord": "headwater.client.producer.interceptors",
    "ProducerState": "headwater.client.admin",
    "QuotaEntity": "headwater.security.quotas",
    "RebalanceListener": "headwater.client.consumer.listener",
    "RecordMetadata": "headwater.client.producer.futures",
    "Records": "headwater.client.consumer.record",
    "ResetTo": "headwater.client.admin",
    "SendFuture": "headwater.client.producer.futures",
    "SentMany": "headwater.client.producer.bulk",
    "SqlOffsets": "headwater.client.offsets_sql",
    "TopicPartition": "headwater.model",
    "TransactionDescription": "headwater.client.admin",
    "TransactionListing": "headwater.client.admin",
    "UserScramCredentialDeletion": "headwater.client.admin",
    "UserScramCredentialUpsertion": "headwater.client.admin",
    "transform": "headwater.client.transforming.blocking",
}
_SUBMODULES = ("aio", "errors", "testing")


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _SUBMODULES:
        return import_module(f"headwater.{name}")
    if name == "codec":
        return import_module("headwater.records.codec").NAME
    if name.endswith("Error") and name in __all__:
        return getattr(import_module("headwater.errors"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""Transactions: partitions and offsets (24, 25, 28), ends and markers (26, 27), descriptions (65, 66)."""

from headwater.model import ZERO_UUID
from headwater.wire.schema import Struct, Uuid, i8, i16, i32, i64, since


class AddPartitionsToTxnRequest(Struct, api_key=24, versions="0-5", flexible="3+"):
    """Add partitions to transactions, or verify that they were added.

    0-3: a client adds partitions to its transaction.
    4: a broker adds or verifies partitions of several transactions.
    5: the client may have to abort (KIP-890).
    """

    class AddPartitionsToTxnTransaction(Struct):
        """One transaction."""

        transactional_id: str = ""
        producer_id: i64 = 0
        producer_epoch: i16 = 0
        verify_only: bool = False
        topics: "list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]" = since(default=[])

    class AddPartitionsToTxnTopic(Struct):
        """Partitions of one topic."""

        name: str = ""
        partitions: list[i32] = since(default=[])

    transactions: list[AddPartitionsToTxnTransaction] = since("4+", default=[])
    v3_and_below_transactional_id: str = since("0-3", default="")
    v3_and_below_producer_id: i64 = since("0-3", default=0)
    v3_and_below_producer_epoch: i16 = since("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = since("0-3", default=[])


class AddPartitionsToTxnResponse(Struct, api_key=24, versions="0-5", flexible="3+"):
    """The result of each partition.

    4: several transactions.
    """

    class AddPartitionsToTxnResult(Struct):
        """One transaction's results."""

        transactional_id: str = ""
        topic_results: "list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]" = since(
            default=[]
        )

    class AddPartitionsToTxnTopicResult(Struct):
        """One topic's results."""

        name: str = ""
        results_by_partition: "list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]" = since(
            default=[]
        )

    class AddPartitionsToTxnPartitionResult(Struct):
        """One partition's result."""

        partition_index: i32 = 0
        partition_error_code: i16 = 0

    throttle_time_ms: i32 = 0
    error_code: i16 = since("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = since("4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = since("0-3", default=[])


class AddOffsetsToTxnRequest(Struct, api_key=25, versions="0-4", flexible="3+"):
    """Add a group's offsets to a transaction.

    4: the client may have to abort (KIP-890).
    """

    transactional_id: str = ""
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Struct, api_key=25, versions="0-4", flexible="3+"):
    """Whether the offsets were added."""

    throttle_time_ms: i32 = 0
    error_code: i16 = 0


class EndTxnRequest(Struct, api_key=26, versions="0-5", flexible="3+"):
    """Commit or abort a transaction.

    5: every end bumps the producer's epoch (KIP-890).
    """

    transactional_id: str = ""
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    committed: bool = False


class EndTxnResponse(Struct, api_key=26, versions="0-5", flexible="3+"):
    """Whether the transaction ends that way.

    5: the producer id and epoch of the next transaction.
    """

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    producer_id: i64 = since("5+", default=-1, ignorable=True)
    producer_epoch: i16 = since("5+", default=-1, ignorable=True)


class WriteTxnMarkersRequest(Struct, api_key=27, versions="0-2", flexible="1+"):
    """Write the markers that end transactions in partitions.

    2: the transaction version says how to check the epoch.
    """

    class WritableTxnMarker(Struct):
        """One transaction's end."""

        producer_id: i64 = 0
        producer_epoch: i16 = 0
        transaction_result: bool = False
        topics: "list[WriteTxnMarkersRequest.WritableTxnMarkerTopic]" = since(default=[])
        coordinator_epoch: i32 = 0
        transaction_version: i8 = since("2+", default=0, ignorable=True)

    class WritableTxnMarkerTopic(Struct):
        """Partitions of one topic."""

        name: str = ""
        partition_indexes: list[i32] = since(default=[])

    markers: list[WritableTxnMarker] = since(default=[])


class WriteTxnMarkersResponse(Struct, api_key=27, versions="0-2", flexible="1+"):
    """The result of each marker."""

    class WritableTxnMarkerResult(Struct):
        """One producer's results."""

        producer_id: i64 = 0
        topics: "list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]" = since(default=[])

    class WritableTxnMarkerTopicResult(Struct):
        """One topic's results."""

        name: str = ""
        partitions: "list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]" = since(
            default=[]
        )

    class WritableTxnMarkerPartitionResult(Struct):
        """One partition's result."""

        partition_index: i32 = 0
        error_code: i16 = 0

    markers: list[WritableTxnMarkerResult] = since(default=[])


class TxnOffsetCommitRequest(Struct, api_key=28, versions="0-6", flexible="3+"):
    """Commit a group's offsets when the transaction commits.

    2: leader epochs.
    3: the member that owns the partitions.
    4: the client may have to abort (KIP-890).
    5: adds the group's offsets to the transaction (KIP-890).
    6: topics by id; not stable.
    """

    class TxnOffsetCommitRequestTopic(Struct):
        """Offsets of one topic."""

        name: str = since("0-5", default="", ignorable=True)
        topic_id: Uuid = since("6+", default=ZERO_UUID, ignorable=True)
        partitions: "list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]" = since(
            default=[]
        )

    class TxnOffsetCommitRequestPartition(Struct):
        """One partition's offset."""

        partition_index: i32 = 0
        committed_offset: i64 = 0
        committed_leader_epoch: i32 = since("2+", default=-1, ignorable=True)
        committed_metadata: str | None = ""

    transactional_id: str = ""
    group_id: str = ""
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    generation_id: i32 = since("3+", default=-1)
    member_id: str = since("3+", default="")
    group_instance_id: str | None = since("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = since(default=[])


class TxnOffsetCommitResponse(Struct, api_key=28, versions="0-6", flexible="3+"):
    """The result of each partition."""

    class TxnOffsetCommitResponseTopic(Struct):
        """One topic's results."""

        name: str = since("0-5", default="", ignorable=True)
        topic_id: Uuid = since("6+", default=ZERO_UUID, ignorable=True)
        partitions: "list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition]" = since(
            default=[]
        )

    class TxnOffsetCommitResponsePartition(Struct):
        """One partition's result."""

        partition_index: i32 = 0
        error_code: i16 = 0

    throttle_time_ms: i32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = since(default=[])


class DescribeTransactionsRequest(Struct, api_key=65, versions="0", flexible="0+"):
    """Ask for transactions by their ids."""

    transactional_ids: list[str] = since(default=[])


class DescribeTransactionsResponse(Struct, api_key=65, versions="0", flexible="0+"):
    """What the coordinator knows of each transaction."""

    class TransactionState(Struct):
        """One transaction."""

        error_code: i16 = 0
        transactional_id: str = ""
        transaction_state: str = ""
        transaction_timeout_ms: i32 = 0
        transaction_start_time_ms: i64 = 0
        producer_id: i64 = 0
        producer_epoch: i16 = 0
        topics: "list[DescribeTransactionsResponse.TopicData]" = since(default=[])

    class TopicData(Struct):
        """Partitions of one topic."""

        topic: str = ""
        partitions: list[i32] = since(default=[])

    throttle_time_ms: i32 = 0
    transaction_states: list[TransactionState] = since(default=[])


class ListTransactionsRequest(Struct, api_key=66, versions="0-2", flexible="0+"):
    """Ask which transactional ids this coordinator has.

    1: only transactions that run longer than a duration.
    2: only ids that match a pattern.
    """

    state_filters: list[str] = since(default=[])
    producer_id_filters: list[i64] = since(default=[])
    duration_filter: i64 = since("1+", default=-1)
    transactional_id_pattern: str | None = since("2+", default=None)


class ListTransactionsResponse(Struct, api_key=66, versions="0-2", flexible="0+"):
    """The transactional ids, with the states that the request misspelled."""

    class TransactionState(Struct):
        """One transactional id."""

        transactional_id: str = ""
        producer_id: i64 = 0
        transaction_state: str = ""

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    unknown_state_filters: list[str] = since(default=[])
    transaction_states: list[TransactionState] = since(default=[])

"""Producers: their ids (22) and what a partition remembers of them (61)."""

from headwater.wire.schema import Struct, i16, i32, i64, since


class InitProducerIdRequest(Struct, api_key=22, versions="0-6", flexible="2+"):
    """Ask for a producer id and epoch.

    3: bump the epoch of a known id.
    4: fenced producers are told so.
    6: two-phase commit (KIP-939); not stable.
    """

    transactional_id: str | None = ""
    transaction_timeout_ms: i32 = 0
    producer_id: i64 = since("3+", default=-1)
    producer_epoch: i16 = since("3+", default=-1)
    enable_2pc: bool = since("6+", default=False)
    keep_prepared_txn: bool = since("6+", default=False)


class InitProducerIdResponse(Struct, api_key=22, versions="0-6", flexible="2+"):
    """The producer id and epoch.

    6: a prepared transaction that is still open.
    """

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    producer_id: i64 = -1
    producer_epoch: i16 = 0
    ongoing_txn_producer_id: i64 = since("6+", default=-1)
    ongoing_txn_producer_epoch: i16 = since("6+", default=-1)


class DescribeProducersRequest(Struct, api_key=61, versions="0", flexible="0+"):
    """Ask what partitions remember of producers."""

    class TopicRequest(Struct):
        """Partitions of one topic."""

        name: str = ""
        partition_indexes: list[i32] = since(default=[])

    topics: list[TopicRequest] = since(default=[])


class DescribeProducersResponse(Struct, api_key=61, versions="0", flexible="0+"):
    """Active producers."""

    class TopicResponse(Struct):
        """One topic's partitions."""

        name: str = ""
        partitions: "list[DescribeProducersResponse.PartitionResponse]" = since(default=[])

    class PartitionResponse(Struct):
        """One partition's producers."""

        partition_index: i32 = 0
        error_code: i16 = 0
        error_message: str | None = None
        active_producers: "list[DescribeProducersResponse.ProducerState]" = since(default=[])

    class ProducerState(Struct):
        """A producer."""

        producer_id: i64 = 0
        producer_epoch: i32 = 0
        last_sequence: i32 = -1
        last_timestamp: i64 = -1
        coordinator_epoch: i32 = 0
        current_txn_start_offset: i64 = -1

    throttle_time_ms: i32 = 0
    topics: list[TopicResponse] = since(default=[])

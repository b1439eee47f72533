"""Produce (0): record batches on their way to the log."""

from headwater.model import ZERO_UUID
from headwater.wire.schema import EMPTY, Records, Struct, Uuid, i16, i32, i64, since


class ProduceRequest(Struct, api_key=0, versions="0-13", flexible="9+"):
    """Append batches to partitions.

    0-2: batches older than format v2; a broker closes the connection.
    3: batch format v2, transactional id.
    7: zstd allowed.
    12: a transactional batch may add its partition itself (KIP-890).
    13: topics by id.
    """

    class TopicProduceData(Struct):
        """One topic's batches."""

        name: str = since("0-12", default="", ignorable=True)
        topic_id: Uuid = since("13+", default=ZERO_UUID, ignorable=True)
        partition_data: "list[ProduceRequest.PartitionProduceData]" = since(default=[])

    class PartitionProduceData(Struct):
        """One partition's batch."""

        index: i32 = 0
        records: Records = None

    transactional_id: str | None = since("3+", default=None)
    acks: i16 = 0
    timeout_ms: i32 = 0
    topic_data: list[TopicProduceData] = since(default=[])


class ProduceResponse(Struct, api_key=0, versions="0-13", flexible="9+"):
    """Where each batch went.

    2: log append time.
    5: log start offset.
    8: which records were at fault, and why.
    10: the new leader and its address beside NOT_LEADER_OR_FOLLOWER (KIP-951).
    13: topics by id.
    """

    class TopicProduceResponse(Struct):
        """One topic's results."""

        name: str = since("0-12", default="", ignorable=True)
        topic_id: Uuid = since("13+", default=ZERO_UUID, ignorable=True)
        partition_responses: "list[ProduceResponse.PartitionProduceResponse]" = since(default=[])

    class PartitionProduceResponse(Struct):
        """One partition's result."""

        index: i32 = 0
        error_code: i16 = 0
        base_offset: i64 = 0
        log_append_time_ms: i64 = since("2+", default=-1, ignorable=True)
        log_start_offset: i64 = since("5+", default=-1, ignorable=True)
        record_errors: "list[ProduceResponse.BatchIndexAndErrorMessage]" = since(
            "8+", default=[], ignorable=True
        )
        error_message: str | None = since("8+", default=None, ignorable=True)
        current_leader: "ProduceResponse.LeaderIdAndEpoch" = since("10+", default=EMPTY, tag=0)

    class BatchIndexAndErrorMessage(Struct):
        """A record that was refused."""

        batch_index: i32 = 0
        batch_index_error_message: str | None = None

    class LeaderIdAndEpoch(Struct):
        """Who leads now."""

        leader_id: i32 = -1
        leader_epoch: i32 = -1

    class NodeEndpoint(Struct):
        """Where a leader can be reached."""

        node_id: i32 = 0
        host: str = ""
        port: i32 = 0
        rack: str | None = None

    responses: list[TopicProduceResponse] = since(default=[])
    throttle_time_ms: i32 = since("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = since("10+", default=[], tag=0)

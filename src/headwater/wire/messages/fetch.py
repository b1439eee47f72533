"""Fetch (1): record batches on their way out, to consumers and to followers."""

from headwater.model import ZERO_UUID
from headwater.wire.schema import EMPTY, Records, Struct, Uuid, i8, i16, i32, i64, since


class FetchRequest(Struct, api_key=1, versions="0-18", flexible="12+"):
    """Read batches from partitions.

    4: isolation level, batch format v2; the oldest that is served.
    7: incremental sessions (KIP-227).
    9: the reader's leader epoch, to fence it.
    11: rack, for reading from a near replica.
    12: last fetched epoch, so that divergence is found while fetching (KIP-595).
    13: topics by id.
    15: the follower names itself in a tag, with its epoch.
    17: directory id; 18: the follower's high watermark.
    """

    class ReplicaState(Struct):
        """The follower that asks; -1 for a consumer."""

        replica_id: i32 = -1
        replica_epoch: i64 = -1

    class FetchTopic(Struct):
        """Partitions of one topic to read."""

        topic: str = since("0-12", default="", ignorable=True)
        topic_id: Uuid = since("13+", default=ZERO_UUID, ignorable=True)
        partitions: "list[FetchRequest.FetchPartition]" = since(default=[])

    class FetchPartition(Struct):
        """From where to read one partition, and how much."""

        partition: i32 = 0
        current_leader_epoch: i32 = since("9+", default=-1, ignorable=True)
        fetch_offset: i64 = 0
        last_fetched_epoch: i32 = since("12+", default=-1)
        log_start_offset: i64 = since("5+", default=-1, ignorable=True)
        partition_max_bytes: i32 = 0
        replica_directory_id: Uuid = since("17+", default=ZERO_UUID, tag=0, ignorable=True)
        high_watermark: i64 = since("18+", default=0x7FFFFFFFFFFFFFFF, tag=1, ignorable=True)

    class ForgottenTopic(Struct):
        """Partitions that leave the session."""

        topic: str = since("7-12", default="", ignorable=True)
        topic_id: Uuid = since("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[i32] = since(default=[])

    cluster_id: str | None = since("12+", default=None, tag=0, ignorable=True)
    replica_id: i32 = since("0-14", default=-1)
    replica_state: ReplicaState = since("15+", default=EMPTY, tag=1)
    max_wait_ms: i32 = 0
    min_bytes: i32 = 0
    max_bytes: i32 = since("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: i8 = since("4+", default=0, ignorable=True)
    session_id: i32 = since("7+", default=0, ignorable=True)
    session_epoch: i32 = since("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = since(default=[])
    forgotten_topics_data: list[ForgottenTopic] = since("7+", default=[])
    rack_id: str = since("11+", default="", ignorable=True)


class FetchResponse(Struct, api_key=1, versions="0-18", flexible="12+"):
    """The batches found.

    4: last stable offset and aborted transactions.
    5: log start offset.
    7: session.
    11: a nearer replica to read from.
    12: divergence, leader hints.
    13: topics by id.
    16: the leaders' addresses (KIP-951).
    """

    class FetchableTopicResponse(Struct):
        """One topic's data."""

        topic: str = since("0-12", default="", ignorable=True)
        topic_id: Uuid = since("13+", default=ZERO_UUID, ignorable=True)
        partitions: "list[FetchResponse.PartitionData]" = since(default=[])

    class PartitionData(Struct):
        """One partition's data and ends."""

        partition_index: i32 = 0
        error_code: i16 = 0
        high_watermark: i64 = 0
        last_stable_offset: i64 = since("4+", default=-1, ignorable=True)
        log_start_offset: i64 = since("5+", default=-1, ignorable=True)
        diverging_epoch: "FetchResponse.EpochEndOffset" = since("12+", default=EMPTY, tag=0)
        current_leader: "FetchResponse.LeaderIdAndEpoch" = since("12+", default=EMPTY, tag=1)
        snapshot_id: "FetchResponse.SnapshotId" = since("12+", default=EMPTY, tag=2)
        aborted_transactions: "list[FetchResponse.AbortedTransaction] | None" = since(
            "4+", default=[], ignorable=True
        )
        preferred_read_replica: i32 = since("11+", default=-1)
        records: Records = None

    class EpochEndOffset(Struct):
        """The last epoch that both logs share, and where it ends at the leader."""

        epoch: i32 = -1
        end_offset: i64 = -1

    class LeaderIdAndEpoch(Struct):
        """Who leads now."""

        leader_id: i32 = -1
        leader_epoch: i32 = -1

    class SnapshotId(Struct):
        """A snapshot to start from (KRaft only)."""

        end_offset: i64 = -1
        epoch: i32 = -1

    class AbortedTransaction(Struct):
        """A producer whose batches from `first_offset` on are to be dropped."""

        producer_id: i64 = 0
        first_offset: i64 = 0

    class NodeEndpoint(Struct):
        """Where a leader can be reached."""

        node_id: i32 = 0
        host: str = ""
        port: i32 = 0
        rack: str | None = None

    throttle_time_ms: i32 = since("1+", default=0, ignorable=True)
    error_code: i16 = since("7+", default=0, ignorable=True)
    session_id: i32 = since("7+", default=0)
    responses: list[FetchableTopicResponse] = since(default=[])
    node_endpoints: list[NodeEndpoint] = since("16+", default=[], tag=0)

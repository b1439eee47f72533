"""Offsets: of the log (ListOffsets 2, OffsetForLeaderEpoch 23) and of groups (8, 9, 47)."""

from headwater.model import ZERO_UUID
from headwater.wire.schema import Struct, Uuid, i8, i16, i32, i64, since


class ListOffsetsRequest(Struct, api_key=2, versions="0-11", flexible="6+"):
    """Find offsets by time, or a log's ends.

    0: segment starts, a list; not served.
    2: isolation level.
    4: leader epoch.
    7: timestamp -3, the offset of the newest timestamp.
    8: -4, the earliest local; 9: -5, the latest tiered.
    10: how long to wait for remote storage.
    11: -6, the earliest not yet uploaded.
    """

    class ListOffsetsTopic(Struct):
        """Partitions of one topic to ask about."""

        name: str = ""
        partitions: "list[ListOffsetsRequest.ListOffsetsPartition]" = since(default=[])

    class ListOffsetsPartition(Struct):
        """What to look for in one partition."""

        partition_index: i32 = 0
        current_leader_epoch: i32 = since("4+", default=-1, ignorable=True)
        timestamp: i64 = 0
        max_num_offsets: i32 = since("0", default=1)

    replica_id: i32 = 0
    isolation_level: i8 = since("2+", default=0)
    topics: list[ListOffsetsTopic] = since(default=[])
    timeout_ms: i32 = since("10+", default=0, ignorable=True)


class ListOffsetsResponse(Struct, api_key=2, versions="0-11", flexible="6+"):
    """The offsets found.

    1: one offset with its timestamp instead of a list.
    4: leader epoch.
    """

    class ListOffsetsTopicResponse(Struct):
        """One topic's answers."""

        name: str = ""
        partitions: "list[ListOffsetsResponse.ListOffsetsPartitionResponse]" = since(default=[])

    class ListOffsetsPartitionResponse(Struct):
        """One partition's answer."""

        partition_index: i32 = 0
        error_code: i16 = 0
        old_style_offsets: list[i64] = since("0", default=[])
        timestamp: i64 = since("1+", default=-1)
        offset: i64 = since("1+", default=-1)
        leader_epoch: i32 = since("4+", default=-1)

    throttle_time_ms: i32 = since("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = since(default=[])


class OffsetCommitRequest(Struct, api_key=8, versions="0-10", flexible="8+"):
    """Store a group's offsets.

    1: generation and member.
    2-4: retention chosen by the client.
    6: leader epoch.
    7: static members.
    9: answers of the consumer protocol (KIP-848).
    10: topics by id.
    """

    class OffsetCommitRequestTopic(Struct):
        """One topic's offsets."""

        name: str = since("0-9", default="", ignorable=True)
        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        partitions: "list[OffsetCommitRequest.OffsetCommitRequestPartition]" = since(default=[])

    class OffsetCommitRequestPartition(Struct):
        """One partition's offset."""

        partition_index: i32 = 0
        committed_offset: i64 = 0
        committed_leader_epoch: i32 = since("6+", default=-1, ignorable=True)
        commit_timestamp: i64 = since("1", default=-1)
        committed_metadata: str | None = ""

    group_id: str = ""
    generation_id_or_member_epoch: i32 = since("1+", default=-1, ignorable=True)
    member_id: str = since("1+", default="", ignorable=True)
    group_instance_id: str | None = since("7+", default=None)
    retention_time_ms: i64 = since("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = since(default=[])


class OffsetCommitResponse(Struct, api_key=8, versions="0-10", flexible="8+"):
    """What became of each offset.

    10: topics by id.
    """

    class OffsetCommitResponseTopic(Struct):
        """One topic's results."""

        name: str = since("0-9", default="", ignorable=True)
        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        partitions: "list[OffsetCommitResponse.OffsetCommitResponsePartition]" = since(default=[])

    class OffsetCommitResponsePartition(Struct):
        """One partition's result."""

        partition_index: i32 = 0
        error_code: i16 = 0

    throttle_time_ms: i32 = since("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = since(default=[])


class OffsetFetchRequest(Struct, api_key=9, versions="0-10", flexible="6+"):
    """Read a group's offsets.

    1: from the offsets topic (0 read ZooKeeper).
    2: null topics means all.
    7: wait for open transactions.
    8: several groups at once.
    9: member and epoch; 10: topics by id.
    """

    class OffsetFetchRequestTopic(Struct):
        """One topic, up to version 7."""

        name: str = ""
        partition_indexes: list[i32] = since(default=[])

    class OffsetFetchRequestGroup(Struct):
        """One group to read."""

        group_id: str = ""
        member_id: str | None = since("9+", default=None, ignorable=True)
        member_epoch: i32 = since("9+", default=-1, ignorable=True)
        topics: "list[OffsetFetchRequest.OffsetFetchRequestTopics] | None" = since(default=[])

    class OffsetFetchRequestTopics(Struct):
        """One topic of a group."""

        name: str = since("8-9", default="", ignorable=True)
        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        partition_indexes: list[i32] = since(default=[])

    group_id: str = since("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = since("0-7", default=[], nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = since("8+", default=[])
    require_stable: bool = since("7+", default=False)


class OffsetFetchResponse(Struct, api_key=9, versions="0-10", flexible="6+"):
    """The offsets stored.

    2: an error for the whole group.
    5: leader epoch.
    8: several groups.
    10: topics by id.
    """

    class OffsetFetchResponseTopic(Struct):
        """One topic, up to version 7."""

        name: str = ""
        partitions: "list[OffsetFetchResponse.OffsetFetchResponsePartition]" = since(default=[])

    class OffsetFetchResponsePartition(Struct):
        """One partition, up to version 7."""

        partition_index: i32 = 0
        committed_offset: i64 = 0
        committed_leader_epoch: i32 = since("5-7", default=-1, ignorable=True)
        metadata: str | None = ""
        error_code: i16 = 0

    class OffsetFetchResponseGroup(Struct):
        """One group's offsets."""

        group_id: str = ""
        topics: "list[OffsetFetchResponse.OffsetFetchResponseTopics]" = since(default=[])
        error_code: i16 = 0

    class OffsetFetchResponseTopics(Struct):
        """One topic of a group."""

        name: str = since("8-9", default="", ignorable=True)
        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        partitions: "list[OffsetFetchResponse.OffsetFetchResponsePartitions]" = since(default=[])

    class OffsetFetchResponsePartitions(Struct):
        """One partition of a group."""

        partition_index: i32 = 0
        committed_offset: i64 = 0
        committed_leader_epoch: i32 = -1
        metadata: str | None = ""
        error_code: i16 = 0

    throttle_time_ms: i32 = since("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = since("0-7", default=[])
    error_code: i16 = since("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = since("8+", default=[])


class OffsetForLeaderEpochRequest(Struct, api_key=23, versions="0-4", flexible="4+"):
    """Ask where epochs end, to find where two logs part.

    2: the asker's own epoch, to fence it.
    3: who asks.
    """

    class OffsetForLeaderTopic(Struct):
        """Partitions of one topic."""

        topic: str = ""
        partitions: "list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]" = since(default=[])

    class OffsetForLeaderPartition(Struct):
        """The epoch asked about."""

        partition: i32 = 0
        current_leader_epoch: i32 = since("2+", default=-1, ignorable=True)
        leader_epoch: i32 = 0

    replica_id: i32 = since("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = since(default=[])


class OffsetForLeaderEpochResponse(Struct, api_key=23, versions="0-4", flexible="4+"):
    """Where each epoch ends.

    1: the epoch that was found.
    """

    class OffsetForLeaderTopicResult(Struct):
        """One topic's answers."""

        topic: str = ""
        partitions: "list[OffsetForLeaderEpochResponse.EpochEndOffset]" = since(default=[])

    class EpochEndOffset(Struct):
        """The largest epoch up to the one asked for, and its end."""

        error_code: i16 = 0
        partition: i32 = 0
        leader_epoch: i32 = since("1+", default=-1, ignorable=True)
        end_offset: i64 = -1

    throttle_time_ms: i32 = since("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = since(default=[])


class OffsetDeleteRequest(Struct, api_key=47, versions="0"):
    """Forget offsets of a group."""

    class OffsetDeleteRequestTopic(Struct):
        """Partitions of one topic."""

        name: str = ""
        partitions: "list[OffsetDeleteRequest.OffsetDeleteRequestPartition]" = since(default=[])

    class OffsetDeleteRequestPartition(Struct):
        """One partition to forget."""

        partition_index: i32 = 0

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = since(default=[])


class OffsetDeleteResponse(Struct, api_key=47, versions="0"):
    """What was forgotten."""

    class OffsetDeleteResponseTopic(Struct):
        """One topic's results."""

        name: str = ""
        partitions: "list[OffsetDeleteResponse.OffsetDeleteResponsePartition]" = since(default=[])

    class OffsetDeleteResponsePartition(Struct):
        """One partition's result."""

        partition_index: i32 = 0
        error_code: i16 = 0

    error_code: i16 = 0
    throttle_time_ms: i32 = 0
    topics: list[OffsetDeleteResponseTopic] = since(default=[])

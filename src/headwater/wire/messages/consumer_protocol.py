"""What consumers of a classic group tell each other inside join and sync."""

from headwater.wire.schema import Struct, i32, since


class ConsumerProtocolSubscription(Struct, versions="0-3"):
    """What a member wants.

    1: what it owns.
    2: since which generation.
    3: rack.
    """

    class TopicPartition(Struct):
        """Partitions of one topic that the member owns."""

        topic: str = ""
        partitions: list[i32] = since(default=[])

    topics: list[str] = since(default=[])
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = since("1+", default=[], ignorable=True)
    generation_id: i32 = since("2+", default=-1, ignorable=True)
    rack_id: str | None = since("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Struct, versions="0-3"):
    """What a member gets."""

    class TopicPartition(Struct):
        """Partitions of one topic."""

        topic: str = ""
        partitions: list[i32] = since(default=[])

    assigned_partitions: list[TopicPartition] = since(default=[])
    user_data: bytes | None = None

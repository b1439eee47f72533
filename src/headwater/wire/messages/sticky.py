"""What members of a group with the sticky assignor tell its leader."""

from headwater.wire.schema import Struct, i32, since


class StickyUserData(Struct, versions="0-1"):
    """What a member had.

    1: in which generation.
    """

    class TopicAssignment(Struct):
        """Partitions of one topic."""

        topic: str = ""
        partitions: list[i32] = since(default=[])

    previous_assignment: list[TopicAssignment] = since(default=[])
    generation: i32 = since("1+", default=-1, ignorable=True)

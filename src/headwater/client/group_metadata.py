"""A member of a consumer group, as a producer names it when it commits offsets for the group."""

from typing import NamedTuple

from headwater.model import NO_GENERATION


class ConsumerGroupMetadata(NamedTuple):
    """The group of a consumer and its membership; `Consumer.group_metadata()` returns it."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


def checked_group(given: object) -> ConsumerGroupMetadata:
    """Return the metadata of a group; TypeError for anything else, such as its name."""
    if isinstance(given, ConsumerGroupMetadata):
        return given
    raise TypeError(f"group_metadata is {given!r}: give what consumer.group_metadata() returns")

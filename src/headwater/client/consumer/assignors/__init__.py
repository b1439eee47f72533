"""Assignors: how the leader of a group distributes partitions; one per file."""

from collections.abc import Callable, Sequence

from headwater.client.consumer.assignors.assignor import Assignor, GroupMember
from headwater.client.consumer.assignors.range import RangeAssignor
from headwater.client.consumer.assignors.round_robin import RoundRobinAssignor
from headwater.client.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from headwater.config.keys import ConfigError, nearest

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "assignors_named",
]

BY_NAME: dict[str, Callable[[], Assignor]] = {
    kind.name: kind
    for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def assignors_named(names: Sequence[str]) -> list[Assignor]:
    """Return the assignors that `partition_assignment_strategy` names."""
    for name in names:
        if name not in BY_NAME:
            raise ConfigError(
                f"partition_assignment_strategy knows no {name!r}{nearest(name, BY_NAME)}; "
                "give your own as assignors=[...]"
            )
    if not names:
        raise ConfigError("partition_assignment_strategy is empty: name at least one")
    return [BY_NAME[name]() for name in names]

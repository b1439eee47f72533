"""Counts the changes of the replicas, so that a check after an event that changed none can be left out.

Python calls `__setattr__` for every attribute that is set. The compiled path of a produce request writes
some attributes without it, none of those that are counted.
"""

from typing import Any

from headwater.log.partition_log import PartitionLog
from headwater.replication.partition import Partition

COUNTED: dict[type, frozenset[str]] = {
    Partition: frozenset({"role", "leader_epoch", "high_watermark"}),
    PartitionLog: frozenset({"log_end_offset"}),
}
"""The attributes that are counted. A new replica sets them all."""


class Writes:
    """How often one of the attributes was set so far, in all simulated clusters of this process."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


WRITES = Writes()


def _count(kind: type, names: frozenset[str]) -> None:
    store, writes = object.__setattr__, WRITES

    def set_and_count(self: object, name: str, value: Any) -> None:
        if name in names:
            writes.count += 1
        store(self, name, value)

    kind.__setattr__ = set_and_count  # type: ignore[method-assign, assignment]


for _kind, _names in COUNTED.items():
    _count(_kind, _names)

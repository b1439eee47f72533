"""Detects when a consumer has read up to the end offsets: for `read_to_end`, of both faces."""

from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.model import TopicPartition


class EndTracker:
    """The end offset of each partition when it was first seen."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._ends: dict[TopicPartition, int] = {}

    def unknown(self) -> list[TopicPartition]:
        """Return assigned partitions whose end must be looked up."""
        return [name for name in self._core.subscription.partitions if name not in self._ends]

    def found(self, ends: dict[TopicPartition, int]) -> None:
        """Store the ends that were looked up."""
        self._ends.update(ends)

    @property
    def reached(self) -> bool:
        """Return whether partitions are assigned and all of them were read up to their ends."""
        states = dict(self._core.subscription.partitions)
        return bool(states) and all(
            name in self._ends
            and (self._ends[name] == 0 or (state.position or 0) >= self._ends[name])
            for name, state in states.items()
        )

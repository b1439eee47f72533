"""When a consumer has read everything that was there: for `read_to_end`, of both faces."""

from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.model import TopicPartition


class EndTracker:
    """The ends of partitions as they were when each was first seen."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._ends: dict[TopicPartition, int] = {}

    def unknown(self) -> list[TopicPartition]:
        """Assigned partitions whose end is to be looked up."""
        return [name for name in self._core.subscription.partitions if name not in self._ends]

    def found(self, ends: dict[TopicPartition, int]) -> None:
        """The looked up ends."""
        self._ends.update(ends)

    @property
    def reached(self) -> bool:
        """Whether something is assigned and all of it was read up to its end."""
        states = dict(self._core.subscription.partitions)
        return bool(states) and all(
            name in self._ends
            and (self._ends[name] == 0 or (state.position or 0) >= self._ends[name])
            for name, state in states.items()
        )

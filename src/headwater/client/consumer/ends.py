"""When a consumer has read everything that was there: for `read_to_end`, of both faces."""

from headwater.client.consumer.consuming import Consuming
from headwater.model import TopicPartition


class Ends:
    """The ends of partitions as they were when each was first seen."""

    def __init__(self, core: Consuming) -> None:
        self._core = core
        self._ends: dict[TopicPartition, int] = {}

    def unknown(self) -> list[TopicPartition]:
        """Assigned partitions whose end is to be looked up."""
        return [name for name in self._core.subscription.places if name not in self._ends]

    def found(self, ends: dict[TopicPartition, int]) -> None:
        """The looked up ends."""
        self._ends.update(ends)

    @property
    def reached(self) -> bool:
        """Whether something is assigned and all of it was read up to its end."""
        places = dict(self._core.subscription.places)
        return bool(places) and all(
            name in self._ends
            and (self._ends[name] == 0 or (place.position or 0) >= self._ends[name])
            for name, place in places.items()
        )

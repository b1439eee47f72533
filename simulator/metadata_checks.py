"""Checks what brokers tell clients about leaders: it never goes back to an earlier leader epoch (I14).

A client that hears of an older leader than before would go to a deposed one. A restart forgets what was
told; clients compare epochs themselves then (KIP-320).
"""

from headwater.broker.context import Context
from headwater.model import Uuid
from simulator.node import Life
from simulator.partition_promises import Complain


class MetadataChecks:
    """Watches the metadata caches of all brokers."""

    def __init__(self, complain: Complain) -> None:
        self._complain = complain
        self._generations: dict[Life, int] = {}
        self._epochs: dict[Life, dict[tuple[Uuid, int], int]] = {}
        """The highest leader epoch of each partition that a life of a broker has known."""

    def look(self, host: str, life: Life, context: Context) -> None:
        """Check what an event of this broker changed."""
        if context.generation != self._generations.get(life):
            self._generations[life] = context.generation
            self._changed(host, context, self._epochs.setdefault(life, {}))

    def _changed(self, host: str, context: Context, known: dict[tuple[Uuid, int], int]) -> None:
        for name, topic in context.metadata.topics.items():
            for index, partition in topic.partitions.items():
                key = (topic.topic_id, index)
                before = known.get(key, -1)
                if partition.leader_epoch < before:
                    self._complain(
                        f"I14: {host} says that {partition.leader} leads {name}-{index} in epoch "
                        f"{partition.leader_epoch}, after epoch {before}"
                    )
                known[key] = max(before, partition.leader_epoch)

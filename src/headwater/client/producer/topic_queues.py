"""The queues of one topic, and the sticky one for records without a key. Pure."""

from collections.abc import Sequence

from headwater.client.producer.accumulator import Accumulator, PartitionQueue, ProducerBatch
from headwater.client.producer.partitioner import Below, pick_sticky


class TopicQueues:
    """Replaced as a whole when the number of partitions changes."""

    __slots__ = (
        "_accumulator",
        "_adaptive",
        "_available",
        "_below",
        "_filled",
        "_last",
        "count",
        "queues",
        "sticky",
        "used_ms",
    )  # fmt: skip

    def __init__(
        self,
        queues: Sequence[PartitionQueue],
        accumulator: Accumulator,
        adaptive: bool,
        below: Below,
        now_ms: int,
    ) -> None:
        self.queues = tuple(queues)
        self.count = len(self.queues)
        self.used_ms = now_ms
        """When the last batch was begun."""
        self._available = self.queues
        self._accumulator = accumulator
        self._adaptive = adaptive
        self._below = below
        self._filled = 0
        self._last: ProducerBatch | None = None
        self.sticky = self._pick()
        """The queue for records without a key."""

    def led(self, partitions: Sequence[int]) -> None:
        """Send records without a key only to these partitions, which have leaders."""
        self._available = tuple(self.queues[partition] for partition in partitions) or self.queues

    def rotate(self, full: bool) -> PartitionQueue:
        """Choose the sticky partition for a new batch: another one after batch.size bytes."""
        if self._last is not None:
            self._filled += self._last.filled
            self._last = None
        if full or self._filled >= self._accumulator.batch_size:
            self._filled = 0
            self.sticky = self._pick()
        return self.sticky

    def began(self, batch: ProducerBatch, now_ms: int) -> None:
        """Note a new batch in one of the queues."""
        self.used_ms = now_ms
        if batch.queue is self.sticky:
            self._last = batch

    def _pick(self) -> PartitionQueue:
        loads = [queue.load for queue in self._available]
        return self._available[pick_sticky(loads, self._adaptive, self._below)]

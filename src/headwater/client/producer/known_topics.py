"""The topics that a producer has used, and which of them take the fast path of `send`. Pure.

Callers hold the producer's lock to change anything.
"""

from collections.abc import Callable, Iterable, Mapping

from headwater.client.producer.accumulator import Accumulator
from headwater.client.producer.topic_queues import TopicQueues
from headwater.client.topology import TopicView
from headwater.config.client import ProducerSettings


class KnownTopics:
    """The topics of one producer."""

    def __init__(
        self,
        settings: ProducerSettings,
        accumulator: Accumulator,
        below: Callable[[int], int],
        *,
        takes_plain: bool,
    ) -> None:
        self.by_name: dict[str, TopicQueues] = {}
        self.plain: dict[str, TopicQueues] = {}
        """The topics whose records take the fast path; empty if records need more work."""
        self._settings = settings
        self._accumulator = accumulator
        self._below = below
        self._takes_plain = takes_plain
        self._open = settings.transactional_id is None
        # The last metadata of each topic: an update of one topic costs no work for the others.
        self._followed: dict[str, TopicView] = {}

    def open_fast_path(self) -> None:
        """Let records take the fast path, unless they need more work."""
        self._open = True
        if self._takes_plain:
            self.plain.update(self.by_name)

    def close_fast_path(self) -> None:
        """Let every record take the slow path, which checks whether it may be sent."""
        self._open = False
        self.plain.clear()

    def update(self, view: TopicView, now_ms: int) -> TopicQueues:
        """Create or update the queues of a topic from its metadata."""
        known = self.by_name.get(view.name)
        if known is None or known.count != len(view.partitions):
            queues = [
                self._accumulator.queue(view.name, number) for number in range(len(view.partitions))
            ]
            adaptive = self._settings.partitioner_adaptive_partitioning_enable
            known = TopicQueues(queues, self._accumulator, adaptive, self._below, now_ms)
            self.by_name[view.name] = known
            if self._takes_plain and self._open:
                self.plain[view.name] = known
        known.led([row.partition for row in view.partitions if row.leader >= 0])
        self._followed[view.name] = view
        return known

    def outdated(self, views: Mapping[str, TopicView]) -> list[TopicView]:
        """Return the metadata of used topics that `update` has not seen."""
        return [
            view
            for name in list(self.by_name)
            if (view := views.get(name)) is not None
            and view.partitions
            and view is not self._followed.get(name)
        ]

    def idle(self, now_ms: int) -> list[str]:
        """Return the topics unused for metadata.max.idle.ms."""
        since = now_ms - self._settings.metadata_max_idle_ms
        return [
            name
            for name, known in list(self.by_name.items())
            if known.used_ms < since and not any(queue.load for queue in known.queues)
        ]

    def forget(self, topics: Iterable[str]) -> None:
        """Remove topics."""
        for name in topics:
            self.plain.pop(name, None)
            self.by_name.pop(name, None)
            self._followed.pop(name, None)

    def clear(self) -> None:
        """Forget every topic."""
        self.plain.clear()
        self.by_name.clear()

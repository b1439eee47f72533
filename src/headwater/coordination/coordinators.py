"""The coordinators of this broker, by the topic that stores their records.

Replicas and control requests report events of all partitions; this table passes each event to the
coordinator that owns the partition's topic, if there is one.
"""

from typing import Any

from headwater.coordination.runtime_loop import CoordinatorRuntime
from headwater.coordination.shard import InternalTopic
from headwater.model import TopicPartition


class Coordinators:
    """The table {topic: runtime}."""

    def __init__(self) -> None:
        self._by_topic: dict[str, CoordinatorRuntime[Any, Any]] = {}

    def add(self, runtime: CoordinatorRuntime[Any, Any]) -> None:
        """Register `runtime` as the owner of its topic."""
        self._by_topic[runtime.topic.name] = runtime

    def internal_topic(self, name: str) -> InternalTopic | None:
        """Return the topic of a coordinator by its name."""
        runtime = self._by_topic.get(name)
        return None if runtime is None else runtime.topic

    def elected(self, at: TopicPartition, leader_epoch: int) -> None:
        """Load the shard of a partition: this broker became its leader."""
        if runtime := self._by_topic.get(at.topic):
            runtime.elected(at.partition, leader_epoch)

    def resigned(self, at: TopicPartition) -> None:
        """Close the shard of a partition that this broker no longer leads."""
        if runtime := self._by_topic.get(at.topic):
            runtime.resigned(at.partition)

    def high_watermark_advanced(self, at: TopicPartition, high_watermark: int) -> None:
        """Send the replies that waited for the high watermark."""
        if runtime := self._by_topic.get(at.topic):
            runtime.high_watermark_advanced(at.partition, high_watermark)

    def append_failed(self, at: TopicPartition) -> None:
        """Reload a shard whose staged records did not reach the log."""
        if runtime := self._by_topic.get(at.topic):
            runtime.append_failed(at.partition)

    def topics_deleted(self, names: dict[str, None]) -> None:
        """Let every coordinator drop its state of deleted topics."""
        for runtime in self._by_topic.values():
            runtime.topics_deleted(names)

    def close(self) -> None:
        """Close every shard: the broker stops."""
        for runtime in self._by_topic.values():
            runtime.close()

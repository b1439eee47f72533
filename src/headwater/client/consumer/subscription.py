"""The subscription of a consumer, by topics, pattern or partitions, and its assigned partitions.

The three ways exclude each other; within one, the last call wins. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum

from headwater.client.consumer.partition_state import PartitionState
from headwater.client.errors import IllegalStateError
from headwater.model import TopicPartition, topic_name_problem


class SubscriptionType(Enum):
    """How a consumer gets its partitions."""

    NONE = "nothing"
    TOPICS = "topics by name"
    PATTERN = "topics by pattern"
    ASSIGNED = "partitions by hand"


class Subscription:
    """The subscription and the assigned partitions."""

    def __init__(self) -> None:
        self.type = SubscriptionType.NONE
        self.topics: tuple[str, ...] = ()
        """Subscribed topics; for a pattern, those that it currently matches."""
        self.pattern: re.Pattern[str] | None = None
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.revision = 0
        """Incremented by every change of the set of partitions."""

    # -- wishes

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to topics."""
        if isinstance(topics, str):
            raise TypeError(f"subscribe takes a list: subscribe([{topics!r}])")
        for name in topics:
            problem = topic_name_problem(name)
            if problem:
                raise ValueError(problem)
        self._choose(SubscriptionType.TOPICS)
        self.pattern, self.topics = None, tuple(sorted(set(topics)))

    def subscribe_pattern(self, pattern: str | re.Pattern[str]) -> None:
        """Subscribe to all topics whose whole name matches."""
        compiled = re.compile(pattern)
        self._choose(SubscriptionType.PATTERN)
        self.pattern, self.topics = compiled, ()

    def match(self, names: Iterable[str]) -> bool:
        """Match the pattern against the cluster's topics; return whether the result changed."""
        assert self.pattern is not None
        found = tuple(sorted(name for name in names if self.pattern.fullmatch(name)))
        news, self.topics = found != self.topics, found
        return news

    def wants(self, topic: str) -> bool:
        """Return whether `topic` is subscribed to or assigned, even if it does not exist yet."""
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return topic in self.topics or any(name.topic == topic for name in self.partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Assign exactly these partitions; return the new ones. The others keep their states."""
        self._choose(SubscriptionType.ASSIGNED)
        return self.set_partitions(partitions)

    def unsubscribe(self) -> None:
        """Drop the subscription and all partitions."""
        self.type, self.topics, self.pattern = SubscriptionType.NONE, (), None
        self.set_partitions(())

    def check_type(self, kind: SubscriptionType) -> None:
        """Raise if the current type of subscription excludes `kind`."""
        if self.type not in (kind, SubscriptionType.NONE):
            raise IllegalStateError(
                f"this consumer has {self.type.value}, which excludes {kind.value}: "
                "call unsubscribe() first"
            )

    def _choose(self, kind: SubscriptionType) -> None:
        self.check_type(kind)
        self.type = kind

    # -- states

    def set_partitions(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Set the partitions; return the states of the new ones."""
        wanted = dict.fromkeys(partitions)
        added = [PartitionState(name) for name in wanted if name not in self.partitions]
        new = {state.key: state for state in added}
        self.partitions = {name: self.partitions.get(name) or new[name] for name in wanted}
        self.revision += 1
        return added

    def state_of(self, partition: TopicPartition) -> PartitionState:
        """Return the state of `partition`; raise IllegalStateError if it is not assigned."""
        found = self.partitions.get(partition)
        if found is None:
            raise IllegalStateError(
                f"{partition} is not assigned to this consumer: assign() it, or wait for "
                "on_assigned after subscribe()"
            )
        return found

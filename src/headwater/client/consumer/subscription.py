"""What a consumer wants and what it has: topics, a pattern, or partitions by hand.

The three ways exclude each other; within one, the last call wins. Pure: knows no broker.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum

from headwater.client.consumer.places import Place
from headwater.client.errors import ClientError
from headwater.errors import E
from headwater.model import TopicPartition, topic_name_problem


class Way(Enum):
    """How partitions come to a consumer."""

    NONE = "nothing"
    TOPICS = "topics by name"
    PATTERN = "topics by pattern"
    ASSIGNED = "partitions by hand"


class IllegalStateError(ClientError, RuntimeError):
    """The call does not fit what was called before it; the message says what to do."""

    CODE = E.INVALID_REQUEST


class Subscription:
    """The wish and the places."""

    def __init__(self) -> None:
        self.way = Way.NONE
        self.topics: tuple[str, ...] = ()
        """Names subscribed to; for a pattern, those it matches now."""
        self.pattern: re.Pattern[str] | None = None
        self.places: dict[TopicPartition, Place] = {}
        self.revision = 0
        """Rises with every change of the set of places."""

    # -- wishes

    def subscribe(self, topics: Sequence[str]) -> None:
        """Want these topics."""
        if isinstance(topics, str):
            raise TypeError(f"subscribe takes a list: subscribe([{topics!r}])")
        for name in topics:
            problem = topic_name_problem(name)
            if problem:
                raise ValueError(problem)
        self._choose(Way.TOPICS)
        self.pattern, self.topics = None, tuple(sorted(set(topics)))

    def subscribe_pattern(self, pattern: str | re.Pattern[str]) -> None:
        """Want all topics whose whole name matches."""
        compiled = re.compile(pattern)
        self._choose(Way.PATTERN)
        self.pattern, self.topics = compiled, ()

    def match(self, names: Iterable[str]) -> bool:
        """See which of the cluster's topics the pattern wants; whether that is news."""
        assert self.pattern is not None
        found = tuple(sorted(name for name in names if self.pattern.fullmatch(name)))
        news, self.topics = found != self.topics, found
        return news

    def wants(self, topic: str) -> bool:
        """Whether records of `topic` come to this consumer, now or once it exists."""
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return topic in self.topics or any(name.topic == topic for name in self.places)

    def assign(self, partitions: Iterable[TopicPartition]) -> list[Place]:
        """Have exactly these partitions; those that stay keep their places. Returns the new."""
        self._choose(Way.ASSIGNED)
        return self.hold(partitions)

    def unsubscribe(self) -> None:
        """Want nothing and have nothing."""
        self.way, self.topics, self.pattern = Way.NONE, (), None
        self.hold(())

    def check_way(self, way: Way) -> None:
        """Raise where what was asked for before excludes `way`."""
        if self.way not in (way, Way.NONE):
            raise IllegalStateError(
                f"this consumer has {self.way.value}, which excludes {way.value}: "
                "call unsubscribe() first"
            )

    def _choose(self, way: Way) -> None:
        self.check_way(way)
        self.way = way

    # -- places

    def hold(self, partitions: Iterable[TopicPartition]) -> list[Place]:
        """Have exactly these; returns the places that are new."""
        wanted = dict.fromkeys(partitions)
        added = [Place(name) for name in wanted if name not in self.places]
        new = {place.key: place for place in added}
        self.places = {name: self.places.get(name) or new[name] for name in wanted}
        self.revision += 1
        return added

    def place(self, partition: TopicPartition) -> Place:
        """The place in `partition`; an error that says what is missing where there is none."""
        found = self.places.get(partition)
        if found is None:
            raise IllegalStateError(
                f"{partition} is not assigned to this consumer: assign() it, or wait for "
                "on_assigned after subscribe()"
            )
        return found

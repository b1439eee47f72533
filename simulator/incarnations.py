"""Topics that share a name: each is known by its id, and owns what was acknowledged in its life.

A record sent by id belongs to that topic. A record sent by name belongs to the topic of that name
that lived while the request was under way; where two did, nothing is concluded from the answer.
A record may appear only in a topic that lived during one of the attempts to send it.
"""

from dataclasses import dataclass, field

from simulator.partition_promises import PartitionPromises

STRAY_US = 1_000_000
"""How long a request of a broken connection may still be under way."""


@dataclass(slots=True)
class Attempt:
    """One request to a topic: to which id (None: by name), and while which time it was under way."""

    topic_id: bytes | None
    sent_us: int
    ended_us: int | None = None

    def answered(self, now_us: int) -> None:
        """The answer is here."""
        self.ended_us = now_us

    def broken_off(self, now_us: int) -> None:
        """The connection is gone; the broker may still receive the request."""
        if self.ended_us is None:
            self.ended_us = now_us + STRAY_US


@dataclass(slots=True)
class Incarnation:
    """One topic among those that had its name."""

    name: str
    born_us: int
    """When its creation was first asked for."""
    topic_id: bytes | None = None
    """None until somebody was told."""
    partitions: list[PartitionPromises] = field(default_factory=list)
    doomed: bool = False
    """Whether its deletion was asked for."""
    gone_us: int | None = None
    """When its deletion was acknowledged."""

    def lived_during(self, attempt: Attempt) -> bool:
        """Whether the request can have reached this topic."""
        if attempt.topic_id is not None:
            return attempt.topic_id == self.topic_id
        ended_us = attempt.ended_us
        return (ended_us is None or self.born_us <= ended_us) and (
            self.gone_us is None or self.gone_us >= attempt.sent_us
        )


class Name:
    """All topics that had one name, in the order of their lives."""

    def __init__(self) -> None:
        self.incarnations: list[Incarnation] = []
        self.attempts: dict[bytes, list[Attempt]] = {}
        """By record: the attempts to send it."""

    @property
    def newest(self) -> Incarnation:
        """The last one that was asked for."""
        return self.incarnations[-1]

    def target(self, attempt: Attempt) -> Incarnation | None:
        """The topic that answered a request; None where that is not known."""
        lived = [one for one in self.incarnations if one.lived_during(attempt)]
        return lived[0] if len(lived) == 1 else None

    def may_hold(self, incarnation: Incarnation, value: bytes) -> bool:
        """Whether a record was ever on its way to that topic."""
        return any(incarnation.lived_during(one) for one in self.attempts.get(value, ()))

    def with_id(self, topic_id: bytes) -> Incarnation | None:
        """The topic of this id; the newest one if nobody was told its id before."""
        for one in self.incarnations:
            if one.topic_id == topic_id:
                return one
        if self.newest.topic_id is None:
            self.newest.topic_id = topic_id
            return self.newest
        return None

"""Topics that share a name: each has its id, and owns what was acknowledged while it existed.

A record sent by id belongs to that topic. A record sent by name belongs to the topic of that name
that existed while the request was in flight; if two did, nothing is concluded from the answer. A
record may appear only in a topic that existed during one of the attempts to send it.
"""

from dataclasses import dataclass, field

from simulator.partition_promises import PartitionPromises

STRAY_US = 1_000_000
"""How long a request of a broken connection may still be in flight."""


@dataclass(slots=True)
class Attempt:
    """One request to a topic: its id (None: by name), and the time in which it was in flight."""

    topic_id: bytes | None
    sent_us: int
    ended_us: int | None = None

    def answered(self, now_us: int) -> None:
        """Note the answer."""
        self.ended_us = now_us

    def broken_off(self, now_us: int) -> None:
        """Note that the connection is gone; the broker may still receive the request."""
        if self.ended_us is None:
            self.ended_us = now_us + STRAY_US


@dataclass(slots=True)
class Incarnation:
    """One topic among those that had its name."""

    name: str
    born_us: int
    """When its creation was first requested."""
    topic_id: bytes | None = None
    """None until a client learned it."""
    partitions: list[PartitionPromises] = field(default_factory=list)
    doomed: bool = False
    """Whether its deletion was requested."""
    gone_us: int | None = None
    """When its deletion was acknowledged."""

    def lived_during(self, attempt: Attempt) -> bool:
        """Return whether the request can have reached this topic."""
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
        """The attempts to send each record."""

    @property
    def newest(self) -> Incarnation:
        """The topic that was requested last."""
        return self.incarnations[-1]

    def target(self, attempt: Attempt) -> Incarnation | None:
        """Return the topic that answered a request; None if it is unknown."""
        lived = [one for one in self.incarnations if one.lived_during(attempt)]
        return lived[0] if len(lived) == 1 else None

    def may_hold(self, incarnation: Incarnation, value: bytes) -> bool:
        """Return whether a record was ever sent to that topic."""
        return any(incarnation.lived_during(one) for one in self.attempts.get(value, ()))

    def with_id(self, topic_id: bytes) -> Incarnation | None:
        """Return the topic with this id; the newest one if its id was unknown."""
        for one in self.incarnations:
            if one.topic_id == topic_id:
                return one
        if self.newest.topic_id is None:
            self.newest.topic_id = topic_id
            return self.newest
        return None

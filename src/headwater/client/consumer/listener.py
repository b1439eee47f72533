"""Callbacks of a rebalance into the application."""

from collections.abc import Awaitable
from enum import Enum
from typing import NamedTuple

from headwater.model import TopicPartition


class RebalanceListener:
    """Derive from this and override what is needed.

    Called inside poll(), close() and unsubscribe(), in the caller's thread, revoked before
    assigned. The methods may use the consumer (commit, seek); with the asyncio face they may be
    coroutines.
    """

    def on_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called with partitions that are new to this member, before they are read; it may seek."""

    def on_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called with partitions that this member must give up; it may still commit them."""

    def on_lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called with partitions that the group already gave to others: commits for them fail."""
        return self.on_revoked(partitions)


class RebalanceEvent(Enum):
    """The kinds of listener calls."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class ListenerCall(NamedTuple):
    """A call of the listener that is due."""

    event: RebalanceEvent
    partitions: list[TopicPartition]

    def invoke(self, listener: RebalanceListener) -> Awaitable[None] | None:
        """Make the call."""
        if self.event is RebalanceEvent.ASSIGNED:
            return listener.on_assigned(self.partitions)
        if self.event is RebalanceEvent.REVOKED:
            return listener.on_revoked(self.partitions)
        return listener.on_lost(self.partitions)

"""Tracks which partitions of a follower's fetch session have changed: a fetch checks only those.

A follower of 10,000 partitions fetches many times a second, and most of them do not change. A
partition is *quiet* while its follower is in sync and has the whole log. It is watched until it
changes: it grows, its high watermark moves, its in-sync set changes, or it stops. Each fetch of the
session also counts as a fetch of every quiet partition: when one changes, the follower had all of it at
the time of the session's last fetch.
"""

from typing import Protocol

from headwater.broker.fetch_session import CachedSession, FetchPartition, Key
from headwater.broker.handlers.fetch_parts import Part
from headwater.replication.isolation import FetchIsolation
from headwater.replication.replica import Replica


class StirredFetch(Protocol):
    """The fetch of the session that waits."""

    def stir(self, want: FetchPartition, replica: Replica) -> None:
        """A partition of the session has changed."""


class FollowerWatch:
    """The watcher of one follower's session."""

    __slots__ = (
        "_broker_epoch", "_follower", "_replicas", "_session", "_stirred", "_wants", "fetch",
    )  # fmt: skip

    def __init__(self, follower: int, broker_epoch: int, session: CachedSession) -> None:
        self._follower = follower
        self._broker_epoch = broker_epoch
        self._session = session
        self._stirred: dict[Key, FetchPartition] = dict(session.partitions)
        self._replicas: dict[Key, Replica] = {}
        self._wants: dict[Replica, FetchPartition] = {}
        self.fetch: StirredFetch | None = None

    # -- the session

    def listed(self, want: FetchPartition) -> None:
        """The follower requests another offset, or a new partition."""
        self._stirred[want.key] = want

    def forgotten(self, key: Key) -> None:
        """The partition leaves the session."""
        self._stirred.pop(key, None)
        self._unwatch(key)

    def pending(self) -> list[FetchPartition]:
        """Return the partitions that the next fetch must check."""
        return list(self._stirred.values())

    def is_of(self, broker_epoch: int) -> bool:
        """Whether the follower had this registration at its last fetch."""
        return broker_epoch == self._broker_epoch

    def registered_again(self, broker_epoch: int) -> list[FetchPartition]:
        """Return all partitions: the next proposals of their leader must have the new epoch."""
        self._broker_epoch = broker_epoch
        self._stirred = dict(self._session.partitions)
        return self.pending()

    def closed(self) -> None:
        """The session ends."""
        for key in list(self._replicas):
            self._unwatch(key)

    # -- fetches

    def look_at(self, part: Part) -> None:
        """A fetch has checked the partition: watch it, and skip it while it is quiet."""
        want, replica = part.want, part.replica
        if replica is None:
            return
        if self._replicas.get(want.key) is not replica:
            self._unwatch(want.key)
            self._replicas[want.key], self._wants[replica] = replica, want
            replica.end_watchers[self] = None
        if part.found is not None:
            self._stirred[want.key] = self._stirred.pop(want.key, want)  # the others come first
        elif self._is_quiet(part, replica):
            self._stirred.pop(want.key, None)

    def _is_quiet(self, part: Part, replica: Replica) -> bool:
        return (
            part.failure is None
            and part.divergence is None
            and replica.readable_end(FetchIsolation.LOG_END) <= part.want.fetch_offset
            and replica.leading.is_in_sync(self._follower)
        )

    def wake(self, replica: Replica) -> None:
        """The partition has changed."""
        want = self._wants[replica]
        if want.key not in self._stirred:
            at_ms = self._session.last_used_ms
            replica.leading.follower_had_all(self._follower, want.fetch_offset, at_ms)
            self._stirred[want.key] = want
        if self.fetch is not None:
            self.fetch.stir(want, replica)

    def _unwatch(self, key: Key) -> None:
        replica = self._replicas.pop(key, None)
        if replica is not None:
            del self._wants[replica]
            replica.end_watchers.pop(self, None)

"""Tracks how far each follower has fetched, and whether it is in sync (KIP-16, KIP-497)."""

from dataclasses import dataclass
from typing import NamedTuple


class IsrState(NamedTuple):
    """How complete an in-sync set is."""

    under_replicated: bool
    under_min: bool
    """Whether acks=all is refused."""
    at_min: bool
    """Whether acks=all is refused if one more replica leaves the set."""


@dataclass(slots=True)
class FollowerProgress:
    """The progress of one follower, as the leader sees it.

    `caught_up_ms` is the last time at which the follower had everything the leader had. A follower
    that always fetches a little late still counts: when it reaches the end that the leader had at
    the previous fetch, `caught_up_ms` moves to the time of that fetch.
    """

    broker_epoch: int = -1
    """The registration of the follower's broker, -1 if it did not say."""
    log_start: int = -1
    log_end: int = -1
    caught_up_ms: int = 0
    previous_fetch_ms: int = 0
    end_at_previous_fetch: int = -1

    def fetched(self, now_ms: int, offset: int, leader_end: int) -> None:
        """Record a fetch from `offset`: the follower has everything below it."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.end_at_previous_fetch >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.previous_fetch_ms)
        self.log_end = offset
        self.previous_fetch_ms = now_ms
        self.end_at_previous_fetch = leader_end

    def fetched_again(self, at_ms: int) -> None:
        """The follower, which had everything, asked for the same offset at that time."""
        self.caught_up_ms = max(self.caught_up_ms, at_ms)
        self.previous_fetch_ms = max(self.previous_fetch_ms, at_ms)

    def in_sync(self, now_ms: int, leader_end: int, lag_limit_ms: int) -> bool:
        """Return whether the follower is caught up, or was within the limit."""
        return self.log_end >= leader_end or now_ms - self.caught_up_ms <= lag_limit_ms

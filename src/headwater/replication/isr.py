"""How far each follower has come, and whether it counts as in sync (KIP-16, KIP-497)."""

from dataclasses import dataclass


@dataclass(slots=True)
class FollowerProgress:
    """What the leader knows of one follower.

    `caught_up_ms` is the last moment at which the follower had everything the leader had; a
    follower that always fetches a little late still counts, because reaching the end that the
    leader had at the previous fetch moves it to the time of that fetch.
    """

    broker_epoch: int = -1
    """The registration of the follower's broker, -1 if it did not say."""
    log_start: int = -1
    log_end: int = -1
    caught_up_ms: int = 0
    previous_fetch_ms: int = 0
    end_at_previous_fetch: int = -1

    def fetched(self, now_ms: int, offset: int, leader_end: int) -> None:
        """The follower asks for `offset`: it has everything below."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.end_at_previous_fetch >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.previous_fetch_ms)
        self.log_end = offset
        self.previous_fetch_ms = now_ms
        self.end_at_previous_fetch = leader_end

    def in_sync(self, now_ms: int, leader_end: int, lag_limit_ms: int) -> bool:
        """Whether it has everything, or had within the limit."""
        return self.log_end >= leader_end or now_ms - self.caught_up_ms <= lag_limit_ms

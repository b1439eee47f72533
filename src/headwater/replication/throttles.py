"""Replication throttles (KIP-73): how many bytes per second catching up may take. Pure.

A throttle has a rate and the replicas that it covers. Its user decides which of these it applies to:
replicas that are in sync are never held back, so a throttle cannot remove one from the in-sync set.
The rate is a mean over some windows of time, as in Kafka: a replica may take much at once and then
waits until the mean is below the limit.
"""

from collections import deque
from collections.abc import Sequence

from headwater.config.keys import INT64_MAX
from headwater.model import TopicPartition

UNLIMITED = INT64_MAX
ALL_PARTITIONS = "*"
LONGEST_WAIT_MS = 1000
"""A throttle is looked at again after this time: its rate may have been raised."""


class ReplicationThrottle:
    """One rate and the replicas of this broker that share it."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self.limit = UNLIMITED
        """Bytes per second."""
        self._windows = windows
        self._window_ms = window_ms
        self._sums: deque[tuple[int, int]] = deque()
        # The partitions of each topic whose replica here is covered; None for all of them.
        self._covered: dict[str, frozenset[int] | None] = {}

    # -- what it covers

    @property
    def active(self) -> bool:
        """Whether it can hold anything back."""
        return bool(self._covered) and self.limit != UNLIMITED

    def cover(self, topic: str, replicas: Sequence[str], node_id: int) -> None:
        """Cover the replicas of a topic: `*`, or partition:broker pairs, of which this broker's count."""
        if tuple(replicas) == (ALL_PARTITIONS,):
            self._covered[topic] = None
            return
        pairs = (replica.partition(":") for replica in replicas)
        here = frozenset(int(index) for index, _, broker in pairs if int(broker) == node_id)
        if here:
            self._covered[topic] = here
        else:
            self._covered.pop(topic, None)

    def covers(self, at: TopicPartition) -> bool:
        if at.topic not in self._covered:
            return False
        partitions = self._covered[at.topic]
        return partitions is None or at.partition in partitions

    # -- the rate

    def record(self, now_ms: int, size: int) -> None:
        """Count bytes of a covered replica."""
        sums = self._sums
        if sums and now_ms < sums[-1][0] + self._window_ms:
            began, before = sums[-1]
            sums[-1] = (began, before + size)
        else:
            sums.append((now_ms, size))
        self._drop_old(now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Return whether the mean rate is above the limit."""
        return self.active and self.wait_ms(now_ms) > 0

    def wait_ms(self, now_ms: int) -> int:
        """Return how long to wait until the mean rate is at the limit; 0 if it is not above it."""
        self._drop_old(now_ms)
        if not self._sums:
            return 0
        total = sum(size for _, size in self._sums)
        elapsed_ms = max(now_ms - self._sums[0][0], self._window_ms)
        if total * 1000 <= self.limit * elapsed_ms:
            return 0
        if not self.limit:
            return LONGEST_WAIT_MS
        return min(LONGEST_WAIT_MS, -(-total * 1000 // self.limit) - elapsed_ms)

    def _drop_old(self, now_ms: int) -> None:
        oldest = now_ms - self._windows * self._window_ms
        while self._sums and self._sums[0][0] <= oldest:
            self._sums.popleft()


class ReplicationThrottles:
    """The throttles of this broker: what it sends as a leader, fetches, and copies between its dirs."""

    def __init__(
        self,
        node_id: int,
        windows: int,
        window_ms: int,
        log_dir_windows: tuple[int, int] = (11, 1000),
    ) -> None:
        self._node_id = node_id
        self.leader = ReplicationThrottle(windows, window_ms)
        self.follower = ReplicationThrottle(windows, window_ms)

        self.log_dirs = ReplicationThrottle(*log_dir_windows)
        """Of copies between log dirs: it has a rate only, and covers them all."""

    def use_rates(self, leader: int, follower: int, log_dirs: int = UNLIMITED) -> None:
        """Set the limits, in bytes per second."""
        self.leader.limit, self.follower.limit = leader, follower
        self.log_dirs.limit = log_dirs

    def cover(self, topic: str, of_leader: Sequence[str], of_follower: Sequence[str]) -> None:
        """Apply the lists in the settings of a topic."""
        self.leader.cover(topic, of_leader, self._node_id)
        self.follower.cover(topic, of_follower, self._node_id)

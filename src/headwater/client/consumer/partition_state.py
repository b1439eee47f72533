"""The position of a consumer in each of its partitions: pure bookkeeping.

A `PartitionState` has two offsets: `position`, the next record to return, and `fetch_offset`, the
next to fetch, which is ahead. Every seek increments `version`, which makes earlier fetches stale.
The caller's thread writes `position` and `drained`, the loop's thread `fetch_offset` and `fetched`:
neither needs a lock.
"""

from headwater.model import TopicPartition, Uuid


class PartitionState:
    """One partition."""

    __slots__ = (
        "drained",
        "epoch",
        "fetch_epoch",
        "fetch_offset",
        "fetched",
        "high_watermark",
        "last_stable",
        "leaving",
        "log_start",
        "partition",
        "paused",
        "position",
        "replica",
        "reset",
        "resting_until_ms",
        "topic",
        "topic_id",
        "version",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.topic, self.partition = partition
        self.topic_id: Uuid | None = None
        """The id of its topic: a recreated topic has another one."""
        self.position: int | None = None
        """The next offset to return; None until it is known."""
        self.epoch = -1
        """The leader epoch of the last returned record."""
        self.fetch_offset = 0
        self.fetch_epoch = -1
        self.version = 0
        self.reset: int | None = None
        """The timestamp whose offset will become the position."""
        self.paused = False
        self.leaving = False
        """Whether it is about to be revoked: no more of its records are returned."""
        self.high_watermark: int | None = None
        self.last_stable: int | None = None
        self.log_start: int | None = None
        self.fetched = 0
        self.drained = 0
        self.resting_until_ms = 0
        self.replica: int | None = None
        """The preferred read replica, if the leader named one."""

    @property
    def key(self) -> TopicPartition:
        """Its name."""
        return TopicPartition(self.topic, self.partition)

    @property
    def buffered(self) -> int:
        """Bytes fetched and not returned yet."""
        return self.fetched - self.drained

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Continue at `offset`; earlier fetches become stale."""
        self.version += 1
        self.position = self.fetch_offset = offset
        self.epoch = self.fetch_epoch = epoch
        self.drained = self.fetched
        self.reset = None
        self.resting_until_ms = 0

    def seek_to_timestamp(self, timestamp: int) -> None:
        """Continue at the offset of `timestamp`, once it is known."""
        self.seek(0)
        self.position, self.reset = None, timestamp

    def update_ends(self, high_watermark: int, last_stable: int, log_start: int) -> None:
        """Store the ends of the partition that a broker reported."""
        self.high_watermark = high_watermark
        self.last_stable = last_stable if last_stable >= 0 else high_watermark
        if log_start >= 0:
            self.log_start = log_start

    def lag(self, committed_only: bool) -> int | None:
        """Return the records between the position and the end; None until an end is known."""
        end = self.last_stable if committed_only else self.high_watermark
        if end is None or self.position is None:
            return None
        return max(end - self.position, 0)

    def lead(self) -> int | None:
        """Return the records between the start of the log and the position."""
        if self.log_start is None or self.position is None:
            return None
        return max(self.position - self.log_start, 0)

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition} at {self.position}, fetching {self.fetch_offset}>"

"""The position of a consumer in each of its partitions: pure bookkeeping.

A `PartitionState` has two offsets: `position`, the next record to hand out, and `fetch_offset`, the next to
ask the broker for, which runs ahead. Every seek raises `version`, which marks what was fetched before it as
stale. The caller's thread writes `position` and `drained`, the loop's
thread `fetch_offset` and `fetched`: neither needs a lock.
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
        """The topic it was found in: one of the same name made later is another."""
        self.position: int | None = None
        """The next offset to hand out; None until it is known."""
        self.epoch = -1
        """The leader epoch of the last record handed out."""
        self.fetch_offset = 0
        self.fetch_epoch = -1
        self.version = 0
        self.reset: int | None = None
        """The timestamp whose offset is to become the position."""
        self.paused = False
        self.leaving = False
        """It is about to be given up: nothing more of it is handed out."""
        self.high_watermark: int | None = None
        self.last_stable: int | None = None
        self.log_start: int | None = None
        self.fetched = 0
        self.drained = 0
        self.resting_until_ms = 0
        self.replica: int | None = None
        """A near replica to read from, where the leader named one."""

    @property
    def key(self) -> TopicPartition:
        """Its name."""
        return TopicPartition(self.topic, self.partition)

    @property
    def buffered(self) -> int:
        """Bytes fetched and not handed out."""
        return self.fetched - self.drained

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Go on at `offset`; whatever was fetched before is stale."""
        self.version += 1
        self.position = self.fetch_offset = offset
        self.epoch = self.fetch_epoch = epoch
        self.drained = self.fetched
        self.reset = None
        self.resting_until_ms = 0

    def seek_to_timestamp(self, timestamp: int) -> None:
        """Go on where `timestamp` is, once that is known."""
        self.seek(0)
        self.position, self.reset = None, timestamp

    def update_ends(self, high_watermark: int, last_stable: int, log_start: int) -> None:
        """Remember the ends of the partition, as a broker reported them."""
        self.high_watermark = high_watermark
        self.last_stable = last_stable if last_stable >= 0 else high_watermark
        if log_start >= 0:
            self.log_start = log_start

    def lag(self, committed_only: bool) -> int | None:
        """Records between the position and the end; None until an end is known."""
        end = self.last_stable if committed_only else self.high_watermark
        if end is None or self.position is None:
            return None
        return max(end - self.position, 0)

    def lead(self) -> int | None:
        """Records between the start and the position: near zero, retention is about to win."""
        if self.log_start is None or self.position is None:
            return None
        return max(self.position - self.log_start, 0)

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition} at {self.position}, fetching {self.fetch_offset}>"

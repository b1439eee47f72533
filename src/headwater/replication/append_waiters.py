"""Staged batches whose producers wait: for the write, or for the high watermark."""

from collections import deque

from headwater.errors import E, KafkaError
from headwater.replication.replica_host import Pending


class AppendWaiters:
    """The waiters of one replica, in the order of their offsets."""

    __slots__ = ("committing", "writing")

    def __init__(self) -> None:
        # Batches of acks=0 and acks=1.
        self.writing: deque[Pending] = deque()
        # Batches of acks=all.
        self.committing: deque[Pending] = deque()

    def complete_written(self, end: int) -> None:
        """Complete the batches below the log's durable end."""
        writing = self.writing
        while writing and writing[0].last_offset < end:
            writing.popleft().complete()

    def complete_committed(self, high_watermark: int, enough_in_sync: bool) -> None:
        """Complete the batches below the high watermark; fail them if too few replicas are in sync."""
        committing = self.committing
        while committing and committing[0].last_offset < high_watermark:
            pending = committing.popleft()
            if enough_in_sync:
                pending.complete()
            else:
                pending.fail(KafkaError(E.NOT_ENOUGH_REPLICAS_AFTER_APPEND))

    def park(self) -> None:
        """Set a deadline for the batches that outlive their tick."""
        for waiting in (self.committing, self.writing):
            for pending in reversed(waiting):
                if pending.parked:
                    break
                pending.park()

    def pop_from(self, start: int) -> list[Pending]:
        """Remove and return the waiters of batches from offset `start` on."""
        popped: list[Pending] = []
        for waiting in (self.writing, self.committing):
            kept = [pending for pending in waiting if pending.last_offset < start]
            popped += (pending for pending in waiting if pending.last_offset >= start)
            waiting.clear()
            waiting.extend(kept)
        return popped

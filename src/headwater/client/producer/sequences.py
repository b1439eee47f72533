"""Idempotence: the sequence numbers by which a broker stores each batch once and in order.

Pure. A partition's unacknowledged batches are in `unacked` in the order of their numbers. A batch
keeps its number through retries. A broker remembers the last five batches, so at most five are
numbered from the oldest unacknowledged one on, and a retried batch is sent alone: the broker still
remembers it then.

When a batch is lost (refused, or expired), the batches after it follow a gap and need new numbers.
The partition is then *resetting*: nothing new is sent, and a batch with an unknown outcome is
retried under its old number until the broker reports stored or not stored. Once every outcome is
known, the epoch is incremented and the remaining batches get new numbers, from 0, as they are sent.
So nothing is stored twice.

A topic may be deleted and recreated meanwhile. Requests that name its id never reach the new topic,
which accepts any first number; the batches go there one after the other until one is stored.

A batch is known to be stored after its acknowledgment, or that of a higher number of the same
epoch, because a broker stores a partition's numbers without gaps. It is known not to be stored if
no attempt can have been appended, or after OUT_OF_ORDER_SEQUENCE_NUMBER while the broker would
still remember it.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.client.producer.accumulator import PartitionQueue, ProducerBatch
from headwater.errors import E
from headwater.model import NO_SEQUENCE, ZERO_UUID, TopicPartition, Uuid

MAX_UNACKED = 5
LAST_EPOCH = 32_766
_SEQUENCES = 1 << 31

LOST = frozenset({E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID, E.INVALID_PRODUCER_EPOCH})
"""Errors that refuse the sequence number of a batch, not its content."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NO_PRODUCER_ID = ProducerIdAndEpoch(-1, -1)


@dataclass(slots=True)
class _Numbers:
    identity: ProducerIdAndEpoch
    topic_id: Uuid = ZERO_UUID
    next: int = 0
    proven: bool = False
    """Whether the broker has stored something under this identity. Before that it accepts any
    number, so the first batch is sent alone: if it failed and a second one succeeded, the order
    would be lost."""
    resetting: bool = False
    unacked: list[ProducerBatch] = field(default_factory=list)
    window: deque[ProducerBatch] = field(default_factory=deque)
    """All numbered batches, from the oldest unacknowledged one on."""
    acked_end: int = NO_SEQUENCE
    """The number after the highest acknowledged one."""

    def restart(self, identity: ProducerIdAndEpoch) -> None:
        """Begin again from 0 under another identity."""
        self.identity, self.next, self.proven = identity, 0, False
        self.acked_end = NO_SEQUENCE
        self.window.clear()

    def topic_recreated(self, topic_id: Uuid) -> None:
        """Forget what was stored: the new topic knows nothing of this producer."""
        self.topic_id, self.proven = topic_id, False
        self.acked_end = NO_SEQUENCE

    def trim(self) -> None:
        """Drop the acknowledged prefix."""
        while self.window and self.window[0] not in self.unacked:
            self.window.popleft()


class Sequences:
    """The sequence numbers of one producer."""

    def __init__(self) -> None:
        self.identity = NO_PRODUCER_ID
        self._partitions: dict[TopicPartition, _Numbers] = {}

    @property
    def ready(self) -> bool:
        """Whether there is a producer id."""
        return self.identity != NO_PRODUCER_ID

    def identified(self, producer_id: int, epoch: int) -> None:
        """Store the id that the broker assigned."""
        self.identity = ProducerIdAndEpoch(producer_id, epoch)

    def choose(self, queue: PartitionQueue, topic_id: Uuid = ZERO_UUID) -> ProducerBatch | None:
        """Return the batch of `queue` that may be sent now, if any; `number` comes next."""
        numbers = self._partitions.get(queue.key)
        if numbers is None:
            return queue.head()
        if topic_id != numbers.topic_id and topic_id != ZERO_UUID:
            numbers.topic_recreated(topic_id)
        if numbers.resetting:
            waiting = (batch for batch in numbers.unacked if not batch.in_flight)
            return next((batch for batch in waiting if batch.uncertain), None)
        batch = queue.head()
        if batch is None or not numbers.unacked:
            return batch
        if batch.base_sequence != NO_SEQUENCE:
            # A retry waits until all earlier batches are decided, so that it is not refused again.
            return batch if batch is numbers.unacked[0] else None
        if len(numbers.window) >= MAX_UNACKED or not numbers.proven:
            return None
        if any(sent.attempts > 1 for sent in numbers.unacked):
            return None  # a retry is sent alone
        return batch if numbers.identity == self.identity else None

    def number(self, batch: ProducerBatch) -> None:
        """Give `batch` the next number of its partition, unless it has one."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        numbers = self._partitions.setdefault(
            batch.queue.key, _Numbers(self.identity, batch.topic_id)
        )
        if numbers.identity != self.identity:
            numbers.restart(self.identity)
        batch.renumber(*numbers.identity, numbers.next)
        numbers.next = self.after(numbers.next, batch.count)
        numbers.unacked.append(batch)
        numbers.window.append(batch)

    def acknowledged(self, batch: ProducerBatch) -> None:
        """Note that the broker has stored `batch`."""
        numbers = self._forget(batch)
        if numbers is not None and numbers.topic_id == batch.topic_id:
            numbers.proven = True
            end = self.after(batch.base_sequence, batch.count)
            if numbers.acked_end == NO_SEQUENCE or _before(numbers.acked_end, end):
                numbers.acked_end = end

    def proves_stored(self, batch: ProducerBatch) -> bool:
        """Return whether a higher number than that of `batch` was acknowledged."""
        numbers = self._partitions.get(batch.queue.key)
        if numbers is None or batch not in numbers.unacked or numbers.acked_end == NO_SEQUENCE:
            return False
        return _before(batch.base_sequence, numbers.acked_end)

    def given_up(self, batch: ProducerBatch) -> None:
        """Note that `batch` failed: the numbers after it are invalid."""
        numbers = self._forget(batch)
        if numbers is not None:
            numbers.resetting = True
            self._end_reset(numbers)

    def split(self, batch: ProducerBatch, _parts: list[ProducerBatch]) -> None:
        """Note that parts without numbers replace `batch`."""
        self.given_up(batch)

    @staticmethod
    def after(sequence: int, count: int) -> int:
        """Return the number that follows `count` records from `sequence` on."""
        return (sequence + count) % _SEQUENCES

    def refused(self, batch: ProducerBatch, error: E) -> bool:
        """Handle one of the errors in `LOST`; return whether `batch` may be retried.

        After an undecided batch OUT_OF_ORDER is expected, and the number stays valid. A batch that
        an earlier attempt may have stored cannot be retried once the broker does not know its
        number: it might be stored twice.
        """
        numbers = self._partitions.get(batch.queue.key)
        if numbers is None or batch not in numbers.unacked:
            return True
        if error == E.INVALID_PRODUCER_EPOCH and numbers.identity == self.identity:
            self.identity = NO_PRODUCER_ID
        if error != E.OUT_OF_ORDER_SEQUENCE_NUMBER:
            numbers.resetting = True
            return not batch.uncertain
        if numbers.resetting or numbers.unacked[0] is batch:
            numbers.resetting = True
            batch.uncertain = False  # the broker would remember it among its last five
        return True

    def end_reset_if_due(self, batch: ProducerBatch) -> None:
        """End the reset of the partition of `batch` if every outcome is known."""
        numbers = self._partitions.get(batch.queue.key)
        if numbers is not None:
            self._end_reset(numbers)

    def end_resets(self) -> None:
        """Let partitions that waited for a new id continue."""
        for numbers in self._partitions.values():
            self._end_reset(numbers)

    def _end_reset(self, numbers: _Numbers) -> None:
        if not numbers.resetting or not self.ready:
            return
        if any(batch.in_flight or batch.uncertain for batch in numbers.unacked):
            return
        if numbers.identity == self.identity and not self._raise_epoch():
            return
        numbers.resetting = False
        for batch in numbers.unacked:
            batch.renumber(*NO_PRODUCER_ID, NO_SEQUENCE)
        numbers.unacked.clear()
        numbers.restart(self.identity)

    def _raise_epoch(self) -> bool:
        producer_id, epoch = self.identity
        # After the last epoch a new id is needed; the sender requests it.
        self.identity = (
            ProducerIdAndEpoch(producer_id, epoch + 1) if epoch < LAST_EPOCH else NO_PRODUCER_ID
        )
        return self.ready

    def _forget(self, batch: ProducerBatch) -> _Numbers | None:
        numbers = self._partitions.get(batch.queue.key)
        if numbers is None or batch not in numbers.unacked:
            return None
        numbers.unacked.remove(batch)
        numbers.trim()
        return numbers


def _before(sequence: int, other: int) -> bool:
    """Whether `sequence` comes before `other`; they start again from 0 after 2**31 - 1."""
    return 0 < (other - sequence) % _SEQUENCES < _SEQUENCES // 2

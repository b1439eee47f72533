"""Idempotence: the numbers by which a broker stores each batch once and in order.

Pure. A partition's unacknowledged batches are in `unacked` in the order of their numbers. A batch
keeps its number through repetitions. A broker remembers its last five batches, so no more than five
are numbered from the oldest unacknowledged one on, and a batch that is repeated goes alone: the
broker then still knows it.

When a batch is lost for good (refused, or given up), those behind it have a gap before them and
need new numbers. The partition is then *resetting*: nothing new is sent, a batch whose fate is not
known is repeated under its old number until the broker says stored or not, and once every fate is
known the epoch is raised and what is left gets new numbers, from 0, as it is sent. So nothing is
stored twice.

What proves that a batch is stored: its acknowledgement, or that of a higher number of the same
epoch, because a broker stores a partition's numbers without gaps. What proves that it is not
stored: that no attempt can have been appended, or OUT_OF_ORDER_SEQUENCE_NUMBER while the broker
would still remember it.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.client.producer.accumulator import PartitionQueue, ProducerBatch
from headwater.errors import E
from headwater.model import NO_SEQUENCE, TopicPartition

MAX_UNACKED = 5
LAST_EPOCH = 32_766
_SEQUENCES = 1 << 31

LOST = frozenset({E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID, E.INVALID_PRODUCER_EPOCH})
"""Answers that refuse the number of a batch, and not what is in it."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NO_PRODUCER_ID = ProducerIdAndEpoch(-1, -1)


@dataclass(slots=True)
class _Numbers:
    identity: ProducerIdAndEpoch
    next: int = 0
    proven: bool = False
    """The broker has stored something under this identity. Before that it takes any number, so one
    batch goes alone: if it failed and a second one did not, their order would be lost."""
    resetting: bool = False
    unacked: list[ProducerBatch] = field(default_factory=list)
    window: deque[ProducerBatch] = field(default_factory=deque)
    """All that were numbered from the oldest unacknowledged batch on."""
    acked_end: int = NO_SEQUENCE
    """The number after the highest acknowledged one."""

    def restart(self, identity: ProducerIdAndEpoch) -> None:
        """Begin again from 0 under another identity."""
        self.identity, self.next, self.proven = identity, 0, False
        self.acked_end = NO_SEQUENCE
        self.window.clear()

    def trim(self) -> None:
        """Forget what is acknowledged and has nothing unacknowledged before it."""
        while self.window and self.window[0] not in self.unacked:
            self.window.popleft()


class Sequences:
    """The numbers of one producer."""

    def __init__(self) -> None:
        self.identity = NO_PRODUCER_ID
        self._partitions: dict[TopicPartition, _Numbers] = {}

    @property
    def ready(self) -> bool:
        """Whether there is a producer id to number with."""
        return self.identity != NO_PRODUCER_ID

    def identified(self, producer_id: int, epoch: int) -> None:
        """The broker gave an id."""
        self.identity = ProducerIdAndEpoch(producer_id, epoch)

    def choose(self, queue: PartitionQueue) -> ProducerBatch | None:
        """The batch of `queue` that may be sent now, if any; `number` comes next."""
        numbers = self._partitions.get(queue.key)
        if numbers is None:
            return queue.head()
        if numbers.resetting:
            waiting = (batch for batch in numbers.unacked if not batch.in_flight)
            return next((batch for batch in waiting if batch.uncertain), None)
        batch = queue.head()
        if batch is None or not numbers.unacked:
            return batch
        if batch.base_sequence != NO_SEQUENCE:
            # A repetition goes when all before it are settled, so that it is not refused again.
            return batch if batch is numbers.unacked[0] else None
        if len(numbers.window) >= MAX_UNACKED or not numbers.proven:
            return None
        if any(sent.attempts > 1 for sent in numbers.unacked):
            return None  # a repetition goes alone
        return batch if numbers.identity == self.identity else None

    def number(self, batch: ProducerBatch) -> None:
        """Give `batch` the next number of its partition, unless it has one."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        numbers = self._partitions.setdefault(batch.queue.key, _Numbers(self.identity))
        if numbers.identity != self.identity:
            numbers.restart(self.identity)
        batch.renumber(*numbers.identity, numbers.next)
        numbers.next = (numbers.next + batch.count) % _SEQUENCES
        numbers.unacked.append(batch)
        numbers.window.append(batch)

    def acknowledged(self, batch: ProducerBatch) -> None:
        """The broker has stored `batch`."""
        numbers = self._forget(batch)
        if numbers is not None:
            numbers.proven = True
            end = (batch.base_sequence + batch.count) % _SEQUENCES
            if numbers.acked_end == NO_SEQUENCE or _before(numbers.acked_end, end):
                numbers.acked_end = end

    def proves_stored(self, batch: ProducerBatch) -> bool:
        """Whether a higher number than that of `batch` was acknowledged."""
        numbers = self._partitions.get(batch.queue.key)
        if numbers is None or batch not in numbers.unacked or numbers.acked_end == NO_SEQUENCE:
            return False
        return _before(batch.base_sequence, numbers.acked_end)

    def given_up(self, batch: ProducerBatch) -> None:
        """`batch` failed for good: the numbers behind it are of no use."""
        numbers = self._forget(batch)
        if numbers is not None:
            numbers.resetting = True
            self._end_reset(numbers)

    def refused(self, batch: ProducerBatch, error: E) -> bool:
        """The broker answered with one of `LOST`; whether `batch` may be repeated.

        Behind a batch that is not settled OUT_OF_ORDER was to be expected, and the number stays good.
        A batch that an earlier attempt may have stored cannot be repeated once the broker knows
        nothing of its number: it might be stored twice.
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
            batch.uncertain = False  # it would be among the five that the broker remembers
        return True

    def end_reset_if_due(self, batch: ProducerBatch) -> None:
        """Something of the partition of `batch` was answered: end the reset if that is due."""
        numbers = self._partitions.get(batch.queue.key)
        if numbers is not None:
            self._end_reset(numbers)

    def end_resets(self) -> None:
        """A new id came: partitions that waited for it can go on."""
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
        # Past the last epoch only another id helps; the sender asks for it.
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

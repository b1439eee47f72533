"""Idempotence: the numbers by which a broker stores each batch once and in order.

Pure. A partition's unacknowledged batches stand in `unacked` in the order of their numbers, at most
five, because a broker remembers its last five. A batch keeps its number through repetitions.

When a batch is lost for good (refused, or given up), those behind it have a gap before them and
need new numbers. The partition is then *resetting*: nothing new is sent, a batch whose fate is not
known is repeated under its old number until the broker says stored or not, and once every fate is
known the epoch is raised and what is left is numbered anew, from 0, as it is sent. So nothing is
stored twice.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.client.producer.accumulator import NO_SEQUENCE, Batch, PartitionQueue
from headwater.errors import E
from headwater.model import TopicPartition

MAX_UNACKED = 5
LAST_EPOCH = 32_766
_SEQUENCES = 1 << 31

LOST = frozenset({E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID, E.INVALID_PRODUCER_EPOCH})
"""Answers that say: not stored, and its number is of no more use."""


class Identity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)


@dataclass(slots=True)
class _Numbers:
    identity: Identity
    next: int = 0
    proven: bool = False
    """The broker has stored something under this identity. Before that it takes any number, so one
    batch goes alone: if it failed and a second one did not, their order would be lost."""
    resetting: bool = False
    unacked: list[Batch] = field(default_factory=list)


class Sequences:
    """The numbers of one producer."""

    def __init__(self) -> None:
        self.identity = NOBODY
        self._partitions: dict[TopicPartition, _Numbers] = {}

    @property
    def ready(self) -> bool:
        """Whether there is a producer id to number with."""
        return self.identity != NOBODY

    def identified(self, producer_id: int, epoch: int) -> None:
        """The broker gave an id."""
        self.identity = Identity(producer_id, epoch)

    def choose(self, queue: PartitionQueue) -> Batch | None:
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
        if len(numbers.unacked) >= MAX_UNACKED or not numbers.proven:
            return None
        return batch if numbers.identity == self.identity else None

    def number(self, batch: Batch) -> None:
        """Give `batch` the next number of its partition, unless it has one."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        numbers = self._partitions.setdefault(batch.queue.key, _Numbers(self.identity))
        if numbers.identity != self.identity:
            numbers.identity, numbers.next, numbers.proven = self.identity, 0, False
        batch.renumber(*numbers.identity, numbers.next)
        numbers.next = (numbers.next + batch.count) % _SEQUENCES
        numbers.unacked.append(batch)

    def acknowledged(self, batch: Batch) -> None:
        """The broker has stored `batch`."""
        numbers = self._forget(batch)
        if numbers is not None:
            numbers.proven = True

    def given_up(self, batch: Batch) -> None:
        """`batch` failed for good: the numbers behind it are of no use."""
        numbers = self._forget(batch)
        if numbers is not None:
            numbers.resetting = True
            self._settle(numbers)

    def refused(self, batch: Batch, error: E) -> None:
        """The broker answered with one of `LOST`; `batch` is repeated.

        Behind a batch that is not settled that was to be expected, and its number stays good.
        """
        numbers = self._partitions.get(batch.queue.key)
        if numbers is None or batch not in numbers.unacked:
            return
        if numbers.unacked[0] is batch or error != E.OUT_OF_ORDER_SEQUENCE_NUMBER:
            numbers.resetting = True
        if error == E.INVALID_PRODUCER_EPOCH and numbers.identity == self.identity:
            self.identity = NOBODY

    def settle(self, batch: Batch) -> None:
        """Something of the partition of `batch` was answered: end the reset if that is due."""
        numbers = self._partitions.get(batch.queue.key)
        if numbers is not None:
            self._settle(numbers)

    def settle_all(self) -> None:
        """A new id came: partitions that waited for it can go on."""
        for numbers in self._partitions.values():
            self._settle(numbers)

    def _settle(self, numbers: _Numbers) -> None:
        if not numbers.resetting or not self.ready:
            return
        if any(batch.in_flight or batch.uncertain for batch in numbers.unacked):
            return
        if numbers.identity == self.identity and not self._raise_epoch():
            return
        numbers.identity, numbers.next, numbers.proven = self.identity, 0, False
        numbers.resetting = False
        for batch in numbers.unacked:
            batch.renumber(*NOBODY, NO_SEQUENCE)
        numbers.unacked.clear()

    def _raise_epoch(self) -> bool:
        producer_id, epoch = self.identity
        # Past the last epoch only another id helps; the sender asks for it.
        self.identity = Identity(producer_id, epoch + 1) if epoch < LAST_EPOCH else NOBODY
        return self.ready

    def _forget(self, batch: Batch) -> _Numbers | None:
        numbers = self._partitions.get(batch.queue.key)
        if numbers is None or batch not in numbers.unacked:
            return None
        numbers.unacked.remove(batch)
        return numbers

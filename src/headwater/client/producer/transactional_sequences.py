"""Sequence numbers inside transactions. Pure.

A batch that is lost ends its transaction: nothing of it is ever visible, so nothing is sent again
under another number. The epoch that follows the abort begins from 0.
"""

from headwater.client.producer.accumulator import ProducerBatch
from headwater.client.producer.sequences import Sequences
from headwater.errors import E


class TransactionalSequences(Sequences):
    """The sequence numbers of one transactional producer."""

    def __init__(self) -> None:
        super().__init__()
        self.first_is_zero = False
        """Whether brokers refuse any other first number of an epoch: transaction.version 2."""

    def number(self, batch: ProducerBatch) -> None:
        """Give `batch` the next number of its partition, unless it has one."""
        super().number(batch)
        if self.first_is_zero:  # no need to send the first batch alone
            self._partitions[batch.queue.key].proven = True

    def refused(self, batch: ProducerBatch, error: E) -> bool:
        """Return whether to retry: only while an earlier batch may still be stored."""
        numbers = self._partitions.get(batch.queue.key)
        if numbers is None or batch not in numbers.unacked:
            return True
        return error == E.OUT_OF_ORDER_SEQUENCE_NUMBER and numbers.unacked[0] is not batch

    def given_up(self, batch: ProducerBatch) -> None:
        """Note that `batch` failed."""
        self._forget(batch)

    def split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Number the parts that replace `batch`: together they have as many records."""
        numbers = self._partitions.get(batch.queue.key)
        if numbers is None or batch not in numbers.unacked:
            return
        sequence = batch.base_sequence
        for part in parts:
            part.renumber(batch.producer_id, batch.epoch, sequence)
            sequence = self.after(sequence, part.count)
        place = numbers.unacked.index(batch)
        numbers.unacked[place : place + 1] = parts
        place = numbers.window.index(batch)
        numbers.window.remove(batch)
        for part in reversed(parts):
            numbers.window.insert(place, part)

"""Which transactions a pass has read batches of: this decides about their batches and markers.

The records of an aborted transaction go at once. A marker stays while a batch of its transaction is in
the log, even an empty one: without the marker the transaction would be open again after a restart.
The pass in which no such batch was found gives the marker a delete horizon (KIP-534).
"""

from collections.abc import Iterable

from headwater.log.aborted_index import AbortedTransaction
from headwater.log.segment import DamagedSegment
from headwater.records.batch import TRANSACTIONAL, Buffer, RawHeader
from headwater.records.control import read_marker
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    PRODUCER_ID,
)


class CleanedTransactions:
    """The transactions of the batches read so far; batches come in the order of their offsets."""

    __slots__ = ("_aborted", "_at", "_committed", "_pending", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # Those that begin after the last batch read, in the order of their first offsets.
        self._pending = sorted(aborted, key=lambda row: row.first_offset)
        self._at = 0
        # By producer: the aborted transaction, and whether a batch of it was read.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        # Producers whose transaction was read, and was not aborted.
        self._committed: set[int] = set()
        # Aborted transactions whose markers were read and stay in the index.
        self.kept: list[AbortedTransaction] = []

    def is_aborted(self, header: RawHeader) -> bool:
        """Note a batch of records; return whether its transaction was aborted."""
        self._begin_up_to(header[BASE_OFFSET] + header[LAST_OFFSET_DELTA])
        if not header[ATTRIBUTES] & TRANSACTIONAL:
            return False
        producer_id = header[PRODUCER_ID]
        found = self._aborted.get(producer_id)
        if found is None:
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = (found[0], True)
        return True

    def is_over(self, header: RawHeader, batch: Buffer) -> bool:
        """Note a control batch; return whether it is a marker without batches left before it."""
        self._begin_up_to(header[BASE_OFFSET] + header[LAST_OFFSET_DELTA])
        marker = read_marker(batch)
        if marker is None:
            # Compaction emptied the batch, or it is of another kind.
            return not header[-1]
        producer_id = header[PRODUCER_ID]
        if marker.commit:
            read = producer_id in self._committed
            self._committed.discard(producer_id)
            return not read
        found = self._aborted.pop(producer_id, None)
        if found is None and producer_id in self._committed:
            raise DamagedSegment(
                f"the transaction that producer {producer_id} aborted at {header[BASE_OFFSET]} is "
                "not in the index of aborted transactions"
            )
        if found is None or not found[1]:
            return True
        self.kept.append(found[0])
        return False

    def _begin_up_to(self, offset: int) -> None:
        pending = self._pending
        while self._at < len(pending) and pending[self._at].first_offset <= offset:
            begun = pending[self._at]
            self._aborted.setdefault(begun.producer_id, (begun, False))
            self._at += 1

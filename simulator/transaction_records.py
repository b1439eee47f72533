"""What the records of `__transaction_state` say about the epochs of producers, read from the files alone.

Each step of a transactional id bumps the epoch of its producer once at most. A coordinator that keeps a
bump which its log refused bumps again at each retry, until no epoch is left (KAFKA-9666).
"""

from headwater.coordination.transactions.records import TransactionRecord, decode
from headwater.records.batch import batches
from headwater.records.record import decode_records
from simulator.disk import File, Folder
from simulator.node import Node


class StoredEpochs:
    """The epochs of transactional ids in one log, from its records in order (L2)."""

    def __init__(self) -> None:
        self._epochs: dict[tuple[str, int], int] = {}

    def add(self, record: TransactionRecord) -> str:
        """Take the next record; return what is wrong with it, or nothing."""
        if record.metadata is None:
            return ""
        producer_id, epoch = record.metadata.producer_id, record.metadata.producer_epoch
        before = self._epochs.get((record.transactional_id, producer_id), epoch)
        self._epochs[record.transactional_id, producer_id] = epoch
        if before <= epoch <= before + 1:
            return ""
        return f"{record.transactional_id} goes from epoch {before} to {epoch} of producer {producer_id}"


def skipped_epochs(node: Node, directory: str) -> list[str]:
    """Return the steps in one log that do not bump an epoch once or not at all."""
    folder = node.disk.find(directory)
    assert isinstance(folder, Folder)
    epochs, found = StoredEpochs(), []
    for name in sorted(name for name in folder.entries if name.endswith(".log")):
        file = folder.entries[name]
        assert isinstance(file, File)
        content = bytes(file.data)
        for position, header in batches(content):
            for record in decode_records(content[position : position + header.size]):
                known = None if record.key is None else decode(record.key, record.value)
                found.append("" if known is None else epochs.add(known))
    return [wrong for wrong in found if wrong]

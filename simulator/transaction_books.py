"""What transactional clients of a run asked for, what they were told, and what readers may see.

A transaction whose commit was acknowledged is visible whole and once (I7); one that was aborted, or
whose commit nobody asked for, is never visible (I6); if the outcome is unknown, it is one of the two.
Offsets that it sent to a group are committed if and only if it is visible. The results of a
transformation are visible once for each record below the committed offset of their source.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.model import TopicPartition
from simulator.committed import Committed
from simulator.log_transactions import Batch, BatchKind
from simulator.partition_promises import Complain

Contents = dict[TopicPartition, dict[int, bytes]]
"""Values by partition and offset."""


class RecordName(NamedTuple):
    """Which record of which transaction a value is."""

    transactional_id: str
    transaction: int
    number: int

    def encode(self, padding: int = 0) -> bytes:
        """Return the value of the record."""
        head = f"{self.transactional_id}/{self.transaction}/{self.number}/".encode()
        return head + bytes(padding)

    @classmethod
    def decode(cls, value: bytes) -> "RecordName":
        """Return the name in a value."""
        transactional_id, transaction, number, _ = value.split(b"/", 3)
        return cls(transactional_id.decode(), int(transaction), int(number))


@dataclass
class Transaction:
    """One transaction of a producer."""

    transactional_id: str
    number: int
    sent: dict[RecordName, TopicPartition] = field(default_factory=dict)
    with_offset: bool = False
    """Whether it commits its number plus one for the group named like its transactional id."""
    asked_to_commit: bool = False
    committed: bool | None = None
    """What the producer was told; None as long as nothing is certain."""

    def add(self, at: TopicPartition) -> RecordName:
        """Note a record that is about to be sent."""
        name = RecordName(self.transactional_id, self.number, len(self.sent))
        self.sent[name] = at
        return name

    @property
    def must_be_hidden(self) -> bool:
        """Whether no reader of committed transactions may see it."""
        return not self.asked_to_commit or self.committed is False

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.transactional_id}"


class TransactionBooks:
    """The transactions of a run."""

    def __init__(self, complain: Complain, unwatched: str) -> None:
        self._complain = complain
        self._unwatched = unwatched
        """A topic that is deleted while it is in use: what it holds is not compared."""
        self.transactions: dict[tuple[str, int], Transaction] = {}
        self.owners: dict[str, object] = {}
        """The newest process of each transactional id."""
        self._begun: dict[str, int] = defaultdict(int)
        self._epochs: dict[int, int] = {}
        """By producer id: the epoch below which nothing more may be written."""
        self.read: Contents = defaultdict(dict)
        """What a reader that follows has got."""
        self.transformed: set[tuple[int, int]] = set()
        """Partitions and offsets of the source whose results were read."""

    # -- what clients do

    def begun(self, transactional_id: str) -> int:
        """Return how many transactions have begun."""
        return self._begun[transactional_id]

    def begin(self, transactional_id: str) -> Transaction:
        """Note the begin of the next transaction."""
        number = self._begun[transactional_id]
        self._begun[transactional_id] += 1
        transaction = Transaction(transactional_id, number)
        self.transactions[transactional_id, number] = transaction
        return transaction

    def initialized(self, producer_id: int, epoch: int) -> None:
        """Note that a producer got an epoch: earlier ones write nothing from now on."""
        self._epochs[producer_id] = max(self._epochs.get(producer_id, 0), epoch)

    def committed(self, books: Committed, batch: Batch) -> None:
        """Check a batch that a leader commits."""
        newest = self._epochs.get(batch.producer_id, -1)
        if batch.kind is BatchKind.DATA and batch.producer_epoch < newest:
            self._complain(f"I7: {books.at} got {batch}, whose producer is fenced by {newest}")

    def took(self, at: TopicPartition, offset: int, value: bytes) -> None:
        """Note and check what a reader of committed transactions got."""
        before = self.read[at].setdefault(offset, value)
        if before != value:
            self._complain(f"I2: {at} offset {offset} was {before[:24]!r}, is {value[:24]!r}")
        name = RecordName.decode(value)
        transaction = self.transactions.get((name.transactional_id, name.transaction))
        if transaction is None:
            self.transformed.add((name.transaction, name.number))
        elif transaction.must_be_hidden:
            self._complain(f"I6: {at} offset {offset} shows {name}, which is not committed")

    # -- the audit

    def audit(self, content: Contents, offsets: dict[str, int]) -> None:
        """Check everything that is visible in the end, and the offsets committed by group."""
        for at, read in self.read.items():
            if read != content.get(at, {}):
                missed = sorted(set(content.get(at, {})) ^ set(read))
                self._complain(f"I6: {at} was followed with other records at {missed[:5]}")
        visible: dict[tuple[str, int], list[RecordName]] = defaultdict(list)
        for at, values in content.items():
            self._audit_order(at, values)
            for value in values.values():
                name = RecordName.decode(value)
                visible[name.transactional_id, name.transaction].append(name)
        for key, transaction in self.transactions.items():
            self._audit_transaction(transaction, visible.get(key, []))
        self._audit_offsets(visible, offsets)

    def _audit_order(self, at: TopicPartition, values: dict[int, bytes]) -> None:
        newest: dict[str, RecordName] = {}
        for _, value in sorted(values.items()):
            name = RecordName.decode(value)
            if (name.transactional_id, name.transaction) in self.transactions:
                before = newest.get(name.transactional_id)
                if before is not None and name <= before:
                    self._complain(f"I3: {at} has {name} after {before}")
                newest[name.transactional_id] = name

    def _audit_transaction(self, transaction: Transaction, visible: list[RecordName]) -> None:
        wanted = {name for name, at in transaction.sent.items() if at.topic != self._unwatched}
        if transaction.must_be_hidden:
            if visible:
                self._complain(f"I6: {transaction} is not committed, visible are {visible}")
        elif (visible or transaction.committed) and sorted(visible) != sorted(wanted):
            told = "committed" if transaction.committed else "of an unknown outcome"
            self._complain(
                f"I7: {transaction} is {told} and torn: sent {len(wanted)}, visible are {visible}"
            )

    def _audit_offsets(
        self, visible: dict[tuple[str, int], list[RecordName]], offsets: dict[str, int]
    ) -> None:
        """Compare the offsets of groups with those of the last visible transaction of each."""
        expected: dict[str, int] = {}
        for (transactional_id, number), transaction in self.transactions.items():
            if transaction.with_offset and (transactional_id, number) in visible:
                expected[transactional_id] = number + 1
        for group, offset in offsets.items():
            if offset != expected.get(group, -1):
                self._complain(
                    f"I7: group {group} has {offset} committed, its last visible transaction said "
                    f"{expected.get(group, -1)}"
                )

    def audit_results(self, content: Contents, offsets: dict[int, int]) -> None:
        """Check that each record of the source below its committed offset has one result."""
        found: dict[tuple[int, int], int] = defaultdict(int)
        for values in content.values():
            for value in values.values():
                name = RecordName.decode(value)
                found[name.transaction, name.number] += 1
        for (partition, offset), times in found.items():
            if times > 1 or offset >= offsets.get(partition, 0):
                self._complain(
                    f"I7: offset {offset} of partition {partition} has {times} results, "
                    f"{offsets.get(partition)} is committed"
                )
        for partition, end in offsets.items():
            missing = [offset for offset in range(end) if (partition, offset) not in found]
            if missing:
                self._complain(
                    f"I7: partition {partition} is committed up to {end}, without results are "
                    f"{missing[:5]}"
                )

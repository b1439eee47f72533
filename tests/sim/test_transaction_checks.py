"""The rules that the transactions of a simulated cluster are held against can fail."""

import pytest

from headwater.coordination.transactions.metadata import TransactionMetadata
from headwater.coordination.transactions.records import TransactionRecord
from headwater.model import TopicPartition
from simulator.committed import Committed
from simulator.log_transactions import Batch, BatchKind, LogSequences, LogTransactions
from simulator.transaction_books import RecordName, TransactionBooks
from simulator.transaction_records import StoredEpochs

ONE, OTHER = TopicPartition("accounts", 0), TopicPartition("accounts", 1)
PRODUCER = 7


def batch(offset: int, kind: BatchKind, epoch: int = 0, producer_id: int = PRODUCER) -> Batch:
    return Batch(offset, offset, 0, 0, kind, producer_id, epoch)


class Told:
    """Books with one transaction of two records, one in each partition."""

    def __init__(self, *, asked: bool = True, committed: bool | None = True) -> None:
        self.complaints: list[str] = []
        self.books = TransactionBooks(self.complaints.append, "drafts")
        transaction = self.books.begin("tx")
        self.values = [transaction.add(at).encode() for at in (ONE, OTHER)]
        transaction.with_offset = True
        transaction.asked_to_commit, transaction.committed = asked, committed

    def audit(self, *visible: int, offset: int = 1) -> list[str]:
        places = [(ONE, OTHER)[number] for number in visible]
        content = {at: {3: self.values[n]} for at, n in zip(places, visible, strict=True)}
        self.books.audit(content, {"tx": offset})
        return self.complaints


def test_a_committed_transaction_is_whole() -> None:
    assert Told().audit(0, 1) == []
    assert "torn" in Told().audit(0)[0]
    assert "torn" in Told().audit(offset=-1)[0]


def test_a_transaction_that_did_not_commit_is_hidden() -> None:
    assert Told(committed=False).audit(offset=-1) == []
    assert "is not committed, visible are" in Told(committed=False).audit(0, 1)[0]
    assert "is not committed, visible are" in Told(asked=False, committed=None).audit(0, 1)[0]


def test_an_unknown_outcome_is_one_of_the_two() -> None:
    assert Told(committed=None).audit(0, 1) == []
    assert Told(committed=None).audit(offset=-1) == []
    assert "of an unknown outcome and torn" in Told(committed=None).audit(1)[0]


def test_offsets_are_committed_with_their_transaction() -> None:
    assert "group tx has -1 committed" in Told().audit(0, 1, offset=-1)[0]
    assert "group tx has 1 committed" in Told(committed=False).audit(offset=1)[0]


def test_a_reader_gets_no_record_of_an_aborted_transaction() -> None:
    told = Told(committed=None)
    told.books.took(ONE, 3, told.values[0])
    assert told.complaints == []
    assert "was followed with other records at [3]" in told.audit(offset=-1)[0]
    told = Told(committed=False)
    told.books.took(ONE, 3, told.values[0])
    assert "which is not committed" in told.complaints[0]


def test_records_of_a_producer_keep_their_order_and_are_there_once() -> None:
    told = Told()
    again = {3: told.values[0], 4: told.values[0]}
    told.books.audit({ONE: again, OTHER: {3: told.values[1]}}, {"tx": 1})
    assert any("I3: " in complaint for complaint in told.complaints)


def test_a_fenced_producer_writes_nothing() -> None:
    told = Told()
    told.books.initialized(PRODUCER, 4)
    log = Committed(ONE, (bytes(16), 0))
    told.books.committed(log, batch(9, BatchKind.DATA, epoch=4))
    told.books.committed(log, batch(9, BatchKind.ABORT, epoch=3))
    assert told.complaints == []
    told.books.committed(log, batch(9, BatchKind.DATA, epoch=3))
    assert "is fenced by 4" in told.complaints[0]


@pytest.mark.parametrize(
    ("visible", "offsets", "told"),
    [
        ([0, 1], {0: 2}, ""),
        ([0, 1, 1], {0: 2}, "has 2 results"),
        ([0, 1], {0: 1}, "offset 1 of partition 0 has 1 results, 1 is committed"),
        ([0], {0: 2}, "without results are [1]"),
    ],
)
def test_each_record_below_the_committed_offset_has_one_result(visible, offsets, told) -> None:
    complaints: list[str] = []
    values = {at: RecordName("result", 0, offset).encode() for at, offset in enumerate(visible)}
    TransactionBooks(complaints.append, "drafts").audit_results({ONE: values}, offsets)
    assert told in "".join(complaints)
    assert bool(complaints) == bool(told)


def test_the_model_of_a_log_knows_what_is_stable() -> None:
    log = LogTransactions()
    assert not any(
        log.add(one)
        for one in (
            batch(0, BatchKind.PLAIN), batch(1, BatchKind.DATA), batch(2, BatchKind.DATA, 0, 8),
            batch(3, BatchKind.COMMIT), batch(4, BatchKind.PLAIN), batch(5, BatchKind.ABORT, 1, 8),
            batch(6, BatchKind.DATA, 1),
        )
    )  # fmt: skip
    assert [log.stable(mark) for mark in (0, 1, 3, 4, 5, 6, 7)] == [0, 1, 1, 2, 2, 6, 6]
    assert [ended.committed for ended in log.ended] == [True, False]
    assert "comes after epoch 1" in log.add(batch(7, BatchKind.DATA, 0))


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([(0, 0, 1), (0, 1, 3), (0, 4, 1)], ""),
        ([(0, (1 << 31) - 1, 2), (0, 1, 1)], "sequence 0 is due"),
        ([(0, 0, 1), (1, 0, 1), (0, -1, 1)], ""),
        ([(0, 1, 1)], "sequence 0 is due"),
        ([(0, 0, 1), (0, 2, 1)], "sequence 1 is due"),
        ([(0, 0, 2), (0, 0, 2)], "sequence 2 is due"),
        ([(0, 0, 1), (1, 1, 1)], "sequence 0 is due"),
    ],
)
def test_the_sequences_of_a_producer_have_no_gap_and_nothing_twice(rows, told) -> None:
    log, offset, complaints = LogSequences(created_again=False), 0, []
    for epoch, sequence, count in rows:
        last = offset + count - 1
        kind = BatchKind.PLAIN
        complaints.append(log.add(Batch(offset, last, 0, 0, kind, PRODUCER, epoch, sequence)))
        offset = last + 1
    assert told in "".join(complaints)
    assert bool("".join(complaints)) == bool(told)


def test_in_a_topic_that_is_created_again_a_producer_goes_on_where_it_was() -> None:
    log = LogSequences(created_again=True)
    first, later, twice = (Batch(at, at, 0, 0, producer_id=7, producer_epoch=0, base_sequence=n)
                           for at, n in ((0, 5), (1, 6), (2, 6)))  # fmt: skip
    assert log.add(first) == log.add(later) == ""
    assert "sequence 7 is due" in log.add(twice)


def test_an_epoch_that_nobody_got_is_noticed() -> None:
    """Each step of a transactional id bumps the epoch of its producer once at most."""

    def record(epoch: int, producer_id: int = PRODUCER) -> TransactionRecord:
        return TransactionRecord("tx", TransactionMetadata(producer_id, epoch, 1000))

    epochs = StoredEpochs()
    steps = [record(0), record(0), record(1), TransactionRecord("tx", None), record(0, 8)]
    assert [epochs.add(one) for one in steps] == [""] * 5
    assert "goes from epoch 0 to 2 of producer 8" in epochs.add(record(2, 8))
    assert "goes from epoch 2 to 1 of producer 8" in epochs.add(record(1, 8))


def test_the_outcome_of_a_record_is_that_of_the_next_marker() -> None:
    log = Committed(ONE, (bytes(16), 0))
    log.batches += [
        batch(0, BatchKind.DATA), batch(1, BatchKind.PLAIN), batch(2, BatchKind.ABORT),
        batch(3, BatchKind.DATA), batch(4, BatchKind.COMMIT), batch(5, BatchKind.DATA),
    ]  # fmt: skip
    outcomes = [log.outcome(offset) for offset in (0, 1, 3, 5)]
    assert outcomes == [BatchKind.ABORT, BatchKind.COMMIT, BatchKind.COMMIT, None]

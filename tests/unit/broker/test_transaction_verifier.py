"""The questions of partitions to coordinators: who is asked, together with what, and how often."""

from types import SimpleNamespace

import pytest

from headwater.broker.transaction_verifier import MOST_QUESTIONS, TransactionVerifier
from headwater.errors import E
from headwater.model import TopicPartition
from headwater.replication.replica_host import TransactionalWrite
from tests.unit.coordination.runtime_harness import Clock

HERE = 1
A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Stage:
    """A broker whose own coordinator answers by hand."""

    def __init__(self):
        self.clock = Clock()
        self.coordinator = HERE
        self.asked = []  # (partitions, put)
        self.answers = {}
        context = SimpleNamespace(
            node_id=HERE,
            settings=SimpleNamespace(transaction_partition_verification_enable=True),
            transactions=SimpleNamespace(partition_of=lambda _: 0),
            metadata=SimpleNamespace(partition=lambda *_: SimpleNamespace(leader=self.coordinator)),
        )
        self.verifier = TransactionVerifier(
            context, self.connect, self.ask_here, self.clock.call_later
        )

    def connect(self, broker, purpose):
        raise AssertionError("no other broker coordinates")

    def ask_here(self, transaction, partitions, put):
        self.asked.append((transaction, partitions, put))

    def verify(self, *partitions, adds=True):
        write = TransactionalWrite("t", adds_partitions=adds, knows_abortable=True)
        for at in partitions:
            self.verifier.verify(at, 5, 0, write, lambda why, at=at: self.answers.update({at: why}))
        self.clock.advance(0)

    def answer(self, **errors):
        _, partitions, put = self.asked.pop(0)
        put({at: errors.get(at.topic, E.NONE) for at in partitions})
        self.clock.advance(0)


@pytest.fixture
def stage():
    return Stage()


def test_the_partitions_of_a_transaction_share_a_question(stage):
    stage.verify(A, B)
    ((transaction, partitions, _),) = stage.asked
    assert (transaction.transactional_id, partitions) == ("t", {A, B})
    stage.answer()
    assert stage.answers == {A: None, B: None}


def test_a_coordinator_that_completes_the_last_transaction_is_asked_again(stage):
    stage.verify(A, B)
    stage.answer(b=E.CONCURRENT_TRANSACTIONS)
    assert stage.answers == {A: None}
    ((_, partitions, _),) = stage.asked
    assert partitions == {B}
    stage.answer()
    assert stage.answers == {A: None, B: None}


def test_a_transaction_that_never_completes_is_told_to_the_client_in_the_end(stage):
    stage.verify(A)
    for _ in range(MOST_QUESTIONS):
        stage.answer(a=E.CONCURRENT_TRANSACTIONS)
    assert stage.answers == {}
    stage.answer(a=E.CONCURRENT_TRANSACTIONS)
    assert stage.answers[A].code is E.CONCURRENT_TRANSACTIONS
    assert stage.asked == []


def test_a_coordinator_that_moved_away_meanwhile_is_not_asked_again(stage):
    stage.verify(A)
    stage.coordinator = -1
    stage.answer(a=E.CONCURRENT_TRANSACTIONS)
    assert stage.answers[A].code is E.CONCURRENT_TRANSACTIONS


def test_older_clients_are_told_at_once(stage):
    stage.verify(A, adds=False)
    stage.answer(a=E.CONCURRENT_TRANSACTIONS)
    assert stage.answers[A].code is E.CONCURRENT_TRANSACTIONS

"""A topic that is deleted during a transaction ends it, and nothing else."""

from collections.abc import Iterator

import pytest

import headwater
from headwater.errors import AbortableTransactionError, E
from headwater.wire.messages.transactions import AddPartitionsToTxnRequest, TxnOffsetCommitRequest
from tests.clients.fake_cluster import FakeCluster, serving
from tests.clients.fake_transactions import FakeTransactions

LIMIT_S = 60
MEMBER = headwater.ConsumerGroupMetadata("g", 1, "member")
SOURCE = headwater.TopicPartition("source", 0)
GONE = E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(params=[1, 2], ids=["transaction.version 1", "transaction.version 2"])
def transactions(request) -> Iterator[FakeTransactions]:
    with serving(FakeCluster(2, partitions=2)) as cluster:
        yield FakeTransactions(cluster, request.param)


@pytest.fixture
def producer(transactions) -> Iterator[headwater.Producer]:
    with headwater.Producer(
        bootstrap_servers=transactions.cluster.bootstrap,
        transactional_id="x",
        retry_backoff_ms=1,
        delivery_timeout_ms=200,
        request_timeout_ms=100,
        linger_ms=0,
    ) as made:
        made.init_transactions()
        yield made


def refuse(transactions, kind) -> None:
    transactions.fault = lambda it: GONE if isinstance(it.request, kind) else None


def commit_one(producer, transactions) -> None:
    transactions.cluster.fault = transactions.fault = lambda _: None
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.commit_transaction()
    assert transactions.visible("t", 0) == [b"v"]


def test_offsets_that_no_coordinator_takes_have_the_transaction_aborted(producer, transactions):
    producer.begin_transaction()
    refuse(transactions, TxnOffsetCommitRequest)
    with pytest.raises(AbortableTransactionError, match="source-0: ") as told:
        producer.send_offsets_to_transaction({SOURCE: 1}, MEMBER)
    assert told.value.code is GONE
    producer.abort_transaction()
    commit_one(producer, transactions)


def test_a_partition_that_was_never_added_does_not_hold_up_the_abort(producer, transactions):
    producer.begin_transaction()
    transactions.cluster.fault = lambda _: GONE
    refuse(transactions, AddPartitionsToTxnRequest)
    assert producer.send("t", b"lost", partition=0).exception(LIMIT_S) is not None
    producer.abort_transaction()
    commit_one(producer, transactions)

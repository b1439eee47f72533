"""Transactions of the producer, both faces, on the scriptable cluster."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import pytest

import headwater
from headwater import aio
from headwater.client.cluster import Cluster
from headwater.client.producer.transaction_loop import TransactionLoop
from headwater.client.producer.transaction_manager import TransactionManager
from headwater.errors import (
    AbortableTransactionError,
    CommitFailedError,
    E,
    FatalTransactionError,
    IllegalStateError,
    LoopDiedError,
    ProducerFencedError,
    RecordTooLargeError,
    RetriableTransactionError,
    TransactionAbortedError,
)
from headwater.wire.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from tests.clients.broker_under_test import until
from tests.clients.faces import asyncio_client, both_faces
from tests.clients.fake_cluster import FakeCluster, serving
from tests.clients.fake_transactions import FakeTransactions

LIMIT_S = 60
LATER_MS = 1000 * LIMIT_S
MEMBER = headwater.ConsumerGroupMetadata("g", 1, "member")
SOURCE = headwater.TopicPartition("source", 0)


@pytest.fixture(params=[1, 2], ids=["transaction.version 1", "transaction.version 2"])
def version(request) -> int:
    return request.param


@pytest.fixture
def transactions(version) -> Iterator[FakeTransactions]:
    with serving(FakeCluster(2, partitions=2)) as cluster:
        yield FakeTransactions(cluster, version)


@pytest.fixture
def producer_of(transactions, face):
    with contextlib.ExitStack() as made:

        def make(**options):
            options = {
                "bootstrap_servers": transactions.cluster.bootstrap,
                "transactional_id": "x",
                **options,
            }
            if face == "asyncio":
                return made.enter_context(asyncio_client(aio.Producer, **options))
            return made.enter_context(headwater.Producer(**options))

        yield make


@pytest.fixture
def producer(producer_of):
    made = producer_of(linger_ms=LATER_MS, delivery_timeout_ms=2 * LATER_MS)
    made.init_transactions()
    return made


@both_faces
def test_records_are_visible_once_their_transaction_is_committed(producer, transactions) -> None:
    for number in range(3):
        producer.begin_transaction()
        sent = [producer.send("t", b"%d" % number, partition=at) for at in (0, 1)]
        producer.commit_transaction()
        assert [future.done() for future in sent] == [True, True]
    for partition in (0, 1):
        assert transactions.visible("t", partition) == [b"0", b"1", b"2"]


@both_faces
def test_an_aborted_transaction_leaves_nothing_visible(producer, transactions) -> None:
    producer.begin_transaction()
    stored = producer.send("t", b"stored", partition=0)
    producer.flush(LIMIT_S)
    unsent = producer.send("t", b"unsent", partition=0)
    producer.abort_transaction()
    assert stored.exception() is None
    with pytest.raises(TransactionAbortedError, match="its transaction was aborted"):
        unsent.result(LIMIT_S)
    assert transactions.cluster.values("t") == [b"stored"]
    assert transactions.visible("t", 0) == []


@both_faces
def test_calls_that_do_not_fit_say_what_to_do(producer_of) -> None:
    producer = producer_of()
    with pytest.raises(IllegalStateError, match=r"call init_transactions\(\) first"):
        producer.begin_transaction()
    with pytest.raises(IllegalStateError, match=r"call init_transactions\(\) first"):
        producer.send("t", b"v")
    producer.init_transactions()
    for call in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(IllegalStateError, match=r"call begin_transaction\(\) first"):
            call()
    with pytest.raises(IllegalStateError, match=r"call begin_transaction\(\) first"):
        producer.send("t", b"v")
    with pytest.raises(IllegalStateError, match=r"call begin_transaction\(\) first"):
        producer.send_many("t", [b"v"])
    with pytest.raises(IllegalStateError, match=r"call begin_transaction\(\) first"):
        producer.send_offsets_to_transaction({SOURCE: 1}, MEMBER)
    producer.begin_transaction()
    producer.send("t", b"v")
    with pytest.raises(IllegalStateError, match="commit or abort it first"):
        producer.begin_transaction()
    with pytest.raises(TypeError, match=r"consumer.group_metadata\(\)"):
        producer.send_offsets_to_transaction({SOURCE: 1}, "g")
    with pytest.raises(TypeError, match=r"give a dict, such as \{\('orders', 0\): 42\}"):
        producer.send_offsets_to_transaction([SOURCE], MEMBER)
    producer.commit_transaction()
    with pytest.raises(IllegalStateError, match=r"call begin_transaction\(\) first"):
        producer.send("t", b"v")


def test_without_a_transactional_id_there_are_no_transactions(transactions) -> None:
    with (
        headwater.Producer(bootstrap_servers=transactions.cluster.bootstrap) as producer,
        pytest.raises(IllegalStateError, match="set transactional_id"),
    ):
        producer.begin_transaction()


@both_faces
def test_a_record_that_cannot_be_stored_ends_its_transaction_alone(producer, transactions) -> None:
    transactions.cluster.fault = lambda attempt: (
        E.MESSAGE_TOO_LARGE if b"large" in attempt.values else None
    )
    producer.begin_transaction()
    producer.send("t", b"large", partition=0)
    with pytest.raises(AbortableTransactionError, match=r"call abort_transaction\(\)") as told:
        producer.commit_transaction()
    assert isinstance(told.value.__cause__, RecordTooLargeError)
    for call in (lambda: producer.send("t", b"v"), producer.commit_transaction):
        with pytest.raises(AbortableTransactionError):
            call()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"small", partition=0)
    producer.commit_transaction()
    assert transactions.visible("t", 0) == [b"small"]


@both_faces
def test_a_second_producer_fences_the_first(producer, producer_of, transactions) -> None:
    producer.begin_transaction()
    producer.send("t", b"zombie", partition=0)
    producer.flush(LIMIT_S)
    second = producer_of()
    second.init_transactions()
    with pytest.raises(ProducerFencedError, match=r"a newer producer with the transactional\.id x"):
        producer.commit_transaction()
    for call in (
        lambda: producer.send("t", b"v"),
        producer.abort_transaction,
        producer.begin_transaction,
    ):
        with pytest.raises(FatalTransactionError):
            call()
    second.begin_transaction()
    second.send("t", b"live", partition=0)
    second.commit_transaction()
    assert transactions.visible("t", 0) == [b"live"]


@both_faces
def test_a_transaction_that_was_open_for_too_long_is_aborted(producer, transactions) -> None:
    producer.begin_transaction()
    late = producer.send("t", b"v", partition=0)
    producer.flush(LIMIT_S)
    transactions.time_out("x")
    with pytest.raises((AbortableTransactionError, ProducerFencedError)) as told:
        producer.commit_transaction()
    assert late.exception() is None
    if transactions.version < 2:
        assert isinstance(told.value, ProducerFencedError)
        assert "transaction.timeout.ms (60000 ms)" in str(told.value)
        return
    assert "it was open for over 60000 ms" in str(told.value)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"next", partition=0)
    producer.commit_transaction()
    assert transactions.visible("t", 0) == [b"next"]


@both_faces
def test_a_call_that_takes_too_long_can_be_repeated(producer_of, transactions) -> None:
    producer = producer_of(max_block_ms=50, retry_backoff_ms=5)
    transactions.fault = lambda _: E.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(RetriableTransactionError, match=r"call it again to wait for it"):
        producer.init_transactions()
    transactions.fault = lambda _: None
    insist(producer.init_transactions)
    producer.begin_transaction()
    insist(lambda: producer.send("t", b"v", partition=0))
    transactions.cluster.fault = lambda _: E.NOT_ENOUGH_REPLICAS
    with pytest.raises(RetriableTransactionError):
        producer.commit_transaction()
    with pytest.raises(IllegalStateError, match=r"repeat commit_transaction\(\)"):
        producer.abort_transaction()
    transactions.cluster.fault = lambda _: None
    insist(producer.commit_transaction)
    assert transactions.visible("t", 0) == [b"v"]


@both_faces
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_repeated_call_returns_what_came_of_it_meanwhile(producer_of, transactions, end) -> None:
    producer = producer_of(max_block_ms=50, retry_backoff_ms=5)
    insist(producer.init_transactions)
    call = getattr(producer, f"{end}_transaction")
    for value in (b"first", b"second"):
        producer.begin_transaction()
        insist(lambda value=value: producer.send("t", value, partition=0))
        insist(producer.flush)
        transactions.fault = lambda it: (
            E.COORDINATOR_LOAD_IN_PROGRESS if isinstance(it.request, EndTxnRequest) else None
        )
        with pytest.raises(RetriableTransactionError):
            call()
        transactions.fault = lambda _: None
        until("the transaction ends", lambda: transactions.ids["x"].state != "Ongoing")
        insist(call)
    assert transactions.visible("t", 0) == ([b"first", b"second"] if end == "commit" else [])


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_cancelled_call_can_be_repeated(transactions, end) -> None:
    async def main() -> None:
        async with aio.Producer(
            bootstrap_servers=transactions.cluster.bootstrap,
            transactional_id="x",
            retry_backoff_ms=5,
        ) as producer:
            await producer.init_transactions()
            call = getattr(producer, f"{end}_transaction")
            for value in (b"first", b"second"):
                asked = asyncio.Event()
                loop = asyncio.get_running_loop()

                def fault(it, *, asked=asked, loop=loop):
                    if not isinstance(it.request, EndTxnRequest):
                        return None
                    loop.call_soon_threadsafe(asked.set)
                    return E.COORDINATOR_LOAD_IN_PROGRESS

                await producer.begin_transaction()
                await producer.send_and_wait("t", value, partition=0)
                transactions.fault = fault
                ending = asyncio.create_task(call())
                await asked.wait()
                ending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await ending
                transactions.fault = lambda _: None
                await asyncio.to_thread(
                    until,
                    "the transaction ends",
                    lambda: transactions.ids["x"].state != "Ongoing",
                )
                await call()

    asyncio.run(asyncio.wait_for(main(), 2 * LIMIT_S))
    assert transactions.visible("t", 0) == ([b"first", b"second"] if end == "commit" else [])


def insist(call) -> None:
    """Repeat a call that ran out of its time on a busy machine."""
    while True:
        with contextlib.suppress(headwater.TimedOutError):
            call()
            return


@both_faces
def test_a_transactional_id_that_is_not_allowed_is_fatal(producer_of, transactions) -> None:
    transactions.fault = lambda _: E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producer = producer_of()
    with pytest.raises(FatalTransactionError, match="ask for an ACL") as told:
        producer.init_transactions()
    assert isinstance(told.value.__cause__, headwater.AuthorizationError)


# -- offsets


@both_faces
def test_offsets_are_committed_with_the_transaction(producer, transactions) -> None:
    for offset, end in ((3, producer.abort_transaction), (5, producer.commit_transaction)):
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        producer.send_offsets_to_transaction({SOURCE: offset}, MEMBER)
        producer.send_offsets_to_transaction({("source", 1): offset}, MEMBER)
        assert transactions.offsets == {}
        end()
    assert transactions.offsets == {("g", "source", 0): 5, ("g", "source", 1): 5}


@both_faces
def test_a_member_that_left_its_group_cannot_commit_offsets(producer, transactions) -> None:
    producer.begin_transaction()
    with pytest.raises(AbortableTransactionError, match="partitions to other members") as told:
        producer.send_offsets_to_transaction({SOURCE: 1}, MEMBER._replace(generation_id=7))
    assert isinstance(told.value.__cause__, CommitFailedError)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({SOURCE: 2}, MEMBER)
    producer.commit_transaction()
    assert transactions.offsets == {("g", "source", 0): 2}


@both_faces
def test_a_call_that_takes_too_long_names_the_reason(producer_of, transactions) -> None:
    producer = producer_of(max_block_ms=50, retry_backoff_ms=5)
    insist(producer.init_transactions)
    producer.begin_transaction()
    transactions.fault = lambda it: (
        E.UNSTABLE_OFFSET_COMMIT if isinstance(it.request, TxnOffsetCommitRequest) else None
    )

    def refused() -> bool:
        with pytest.raises(RetriableTransactionError) as told:
            producer.send_offsets_to_transaction({SOURCE: 1}, MEMBER)
        return f"source-0: {E.UNSTABLE_OFFSET_COMMIT.text}" in str(told.value)

    until("the coordinator of the group has answered", refused)
    transactions.fault = lambda _: None
    insist(producer.abort_transaction)


# -- blocks


def give_up(_: object) -> None:
    raise ZeroDivisionError


def test_a_block_commits_at_its_end_and_aborts_on_an_exception(transactions) -> None:
    with headwater.Producer(
        bootstrap_servers=transactions.cluster.bootstrap, transactional_id="x"
    ) as producer:
        with producer.transaction():
            producer.send("t", b"kept", partition=0)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            give_up(producer.send_and_wait("t", b"given up", partition=0))
        with producer.transaction():
            producer.send("t", b"kept too", partition=0)
    assert transactions.visible("t", 0) == [b"kept", b"kept too"]


def test_a_block_of_the_asyncio_face_aborts_when_it_is_cancelled(transactions) -> None:
    async def main() -> None:
        async with aio.Producer(
            bootstrap_servers=transactions.cluster.bootstrap, transactional_id="x"
        ) as producer:

            async def work() -> None:
                async with producer.transaction():
                    await producer.send_and_wait("t", b"given up", partition=0)
                    begun.set()
                    await asyncio.Event().wait()

            begun = asyncio.Event()
            task = asyncio.create_task(work())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                await producer.send("t", b"kept", partition=0)

    asyncio.run(main())
    assert transactions.visible("t", 0) == [b"kept"]


def test_a_block_that_cannot_commit_aborts_and_says_so(transactions) -> None:
    transactions.cluster.fault = lambda attempt: (
        E.INVALID_RECORD if b"bad" in attempt.values else None
    )
    with headwater.Producer(
        bootstrap_servers=transactions.cluster.bootstrap, transactional_id="x"
    ) as producer:
        with pytest.raises(AbortableTransactionError), producer.transaction():
            producer.send("t", b"bad", partition=0)
        with producer.transaction():
            producer.send("t", b"good", partition=0)
    assert transactions.visible("t", 0) == [b"good"]


# -- the end


@both_faces
def test_close_aborts_an_open_transaction(producer, transactions) -> None:
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.flush(LIMIT_S)
    producer.close()
    assert transactions.ids["x"].state == "CompleteAbort"
    assert transactions.visible("t", 0) == []


@both_faces
def test_a_fenced_producer_closes_quietly(producer, producer_of, transactions) -> None:
    producer.begin_transaction()
    producer.send("t", b"zombie", partition=0)
    producer.flush(LIMIT_S)
    producer_of().init_transactions()
    producer.close()
    assert transactions.visible("t", 0) == []


def test_records_of_several_threads_are_in_the_transaction_or_refused(transactions) -> None:
    refused, sent, stop = [], [], threading.Event()

    def send_on(producer: headwater.Producer) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                sent.append(producer.send("t", b"%d" % number, partition=0))
            except IllegalStateError:
                refused.append(number)

    with headwater.Producer(
        bootstrap_servers=transactions.cluster.bootstrap, transactional_id="x", linger_ms=0
    ) as producer:
        producer.init_transactions()
        thread = threading.Thread(target=send_on, args=(producer,), daemon=True)
        producer.begin_transaction()
        thread.start()
        for _ in range(10):
            until("a record was sent", lambda: sent)
            producer.commit_transaction()
            count = len(transactions.visible("t", 0))
            assert count == len(transactions.cluster.values("t"))
            producer.begin_transaction()
        stop.set()
        thread.join(LIMIT_S)
        producer.commit_transaction()
    assert len(transactions.visible("t", 0)) == len(sent)


@both_faces
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (TransactionManager, "answered"),
        (TransactionManager, "newest_version_of"),
        (Cluster, "coordinator"),
        (TransactionLoop, "_backoff_soon"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
@pytest.mark.parametrize("call", ["init", "offsets", "commit", "abort"])
def test_a_bug_in_the_transactions_of_a_producer_ends_every_call_and_is_logged(
    producer_of, monkeypatch, caplog, owner, name, call
) -> None:
    def broken(*_, **__):
        raise ZeroDivisionError("on purpose")

    producer = producer_of()
    if call == "init":
        monkeypatch.setattr(owner, name, broken)
        with pytest.raises(LoopDiedError, match="internal error of the producer in a transaction"):
            producer.init_transactions()
    else:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v", partition=0).result(LIMIT_S)
        monkeypatch.setattr(owner, name, broken)
        work = {
            "offsets": lambda: producer.send_offsets_to_transaction({SOURCE: 1}, MEMBER),
            "commit": producer.commit_transaction,
            "abort": producer.abort_transaction,
        }
        with pytest.raises(LoopDiedError, match="internal error of the producer in a transaction"):
            work[call]()
    with pytest.raises(LoopDiedError, match="internal error"):
        producer.send("t", b"later")
    assert "on purpose" in caplog.text

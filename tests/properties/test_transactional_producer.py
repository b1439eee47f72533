"""The whole transactional producer on virtual time against a cluster that fails in every known way.

Whatever happens: a transaction is visible as a whole or not at all, its offsets with it; what was
committed is there once, in order and where the futures say; what was aborted is never visible; and
as long as nobody fences the producer, it can go on.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import aio
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.errors import (
    AbortableTransactionError,
    E,
    FatalTransactionError,
    KafkaError,
    ProducerFencedError,
    RetriableTransactionError,
)
from headwater.model import TopicPartition
from headwater.wire.messages.transactions import AddPartitionsToTxnRequest, TxnOffsetCommitRequest
from simulator.clock import SimClock
from simulator.loop import Scheduler
from simulator.network import SimNetwork
from simulator.randomness import SimRandomness, stream
from simulator.trace import Trace
from tests.clients.fake_cluster import HOST, FakeCluster, Fault
from tests.clients.fake_transactions import FakeTransactions
from tests.properties.test_idempotent_producer import Loop

TOPIC = "t"
ABOUT_TOPICS = (AddPartitionsToTxnRequest, TxnOffsetCommitRequest)
GROUP = ConsumerGroupMetadata("g", 1, "member")
RECORDS = 8
PARTITIONS = 3
BATCH_FAULTS: list[Fault] = [
    "cut before", "cut after", "no answer", "left out",
    E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER, ("after", E.REQUEST_TIMED_OUT),
    ("after", E.NOT_ENOUGH_REPLICAS_AFTER_APPEND), E.CONCURRENT_TRANSACTIONS,
    E.INVALID_RECORD, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE, E.MESSAGE_TOO_LARGE,
]  # fmt: skip
CALL_FAULTS: list[Fault] = [
    "cut before", "cut after", "no answer",
    E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS,
    E.CONCURRENT_TRANSACTIONS, ("after", E.REQUEST_TIMED_OUT), ("after", E.NOT_COORDINATOR),
]  # fmt: skip


@dataclass
class Run:
    """One producer that tries some transactions, one after the other."""

    plan: list[str]
    """For each transaction whether it is to "commit" or to "abort"."""
    version: int = 2
    seed: int = 0
    options: dict[str, object] = field(default_factory=dict)
    gone: int | None = None
    """The transaction during which no broker knows a topic: they were deleted."""
    ended: dict[int, str] = field(default_factory=dict)
    """How each transaction ended: "committed", "aborted" or "unknown"."""
    stored: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """The record, partition and offset that the futures of each transaction told."""
    fatal: KafkaError | None = None

    def __post_init__(self) -> None:
        self.cluster = FakeCluster(2, PARTITIONS)
        self.transactions = FakeTransactions(self.cluster, self.version)
        self.scheduler = Scheduler(Trace())

    def play(self) -> "Run":
        Loop(self.scheduler, "client", HOST).run(self._main(), 36_000)
        assert self.scheduler.complaints == []
        return self

    async def _main(self) -> None:
        self.network = SimNetwork(self.scheduler, stream(self.seed, "network"), 4)
        await self.cluster.serve(self.network)
        async with self.producer() as producer:
            try:
                await self.insist(producer.init_transactions)
                for number, wanted in enumerate(self.plan):
                    await self.transact(producer, number, wanted)
                self.heal()
                await self.transact(producer, len(self.plan), "commit")
            except FatalTransactionError as fatal:
                self.fatal = fatal

    def heal(self) -> None:
        """Let nothing fail any more."""
        self.cluster.fault = self.transactions.fault = lambda _: None

    def producer(self, seed: str = "client") -> aio.Producer:
        given: dict[str, object] = {
            "batch_size": 90, "linger_ms": 1, "retry_backoff_ms": 20, "retry_backoff_max_ms": 40,
            "request_timeout_ms": 500, "delivery_timeout_ms": 5000, "max_block_ms": 3000,
            "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 10,
        }  # fmt: skip
        return aio.Producer(
            bootstrap_servers=self.cluster.bootstrap,
            transactional_id="x",
            clock=SimClock(self.scheduler),
            network=self.network,
            randomness=SimRandomness(stream(self.seed, seed)),
            **{**given, **self.options},
        )

    async def insist(self, call) -> None:
        """Repeat a call as its error asks for."""
        while True:
            try:
                return await call()
            except RetriableTransactionError:
                pass

    def delete_topics(self) -> None:
        """Let every broker refuse what is about a topic."""
        self.cluster.fault = lambda _: E.UNKNOWN_TOPIC_OR_PARTITION
        self.transactions.fault = lambda call: (
            E.UNKNOWN_TOPIC_OR_PARTITION if isinstance(call.request, ABOUT_TOPICS) else None
        )

    async def transact(self, producer: aio.Producer, number: int, wanted: str) -> None:
        if number == self.gone:
            self.delete_topics()
        await self._transact(producer, number, wanted)
        if number == self.gone:
            self.heal()

    async def _transact(self, producer: aio.Producer, number: int, wanted: str) -> None:
        self.ended[number] = "unknown"
        try:
            await producer.begin_transaction()
            await self._fill(producer, number)
            if wanted == "commit":
                await self.insist(producer.commit_transaction)
                self.ended[number] = "committed"
                return
        except AbortableTransactionError:
            pass
        await self.insist(producer.abort_transaction)
        self.ended[number] = "aborted"

    async def _fill(self, producer: aio.Producer, number: int) -> None:
        told = self.stored.setdefault(number, [])

        def noting(record: int):
            return lambda metadata, error: (
                metadata and told.append((record, metadata.partition, metadata.offset))
            )

        for index in range(RECORDS):
            record = number * RECORDS + index
            await producer.send(
                TOPIC, b"%d" % record, partition=index % PARTITIONS, on_delivery=noting(record)
            )
            if index % 3 == 2:
                await asyncio.sleep(0.01)
        offsets = {TopicPartition("source", 0): number + 1}
        if number % 2:
            await self.insist(lambda: producer.send_offsets_to_transaction(offsets, GROUP))

    def check(self) -> None:
        seen = [self.transactions.visible(TOPIC, number) for number in range(PARTITIONS)]
        visible = Counter(int(value) for values in seen for value in values)
        assert [record for record, times in visible.items() if times > 1] == []
        for values in seen:
            assert [int(value) for value in values] == sorted(int(value) for value in values)
        for number, ended in self.ended.items():
            records = range(number * RECORDS, (number + 1) * RECORDS)
            there = [record for record in records if record in visible]
            assert there in ([], list(records)), f"transaction {number} is torn: {there}"
            assert ended == "unknown" or bool(there) == (ended == "committed"), number
            if ended == "committed":
                assert sorted(record for record, _, _ in self.stored[number]) == list(records)
                for record, partition, offset in self.stored[number]:
                    values = self.cluster.values(TOPIC, partition)
                    assert offset < 0 or values[offset] == b"%d" % record
        self._check_offsets()

    def _check_offsets(self) -> None:
        with_offsets = [number for number in self.ended if number % 2]
        ends = [number for number in with_offsets if self.ended[number] == "committed"]
        allowed = {(ends[-1] + 1) if ends else None} | {
            number + 1 for number in with_offsets if self.ended[number] == "unknown"
        }
        assert self.transactions.offsets.get(("g", "source", 0)) in allowed


def per_call(faults: dict[int, Fault]):
    return lambda call: faults.get(call.number)


def per_batch(faults: dict[int, Fault]):
    """For each number of an attempt its fault."""
    return lambda attempt: faults.get(attempt.number)


PLAN = st.lists(st.sampled_from(["commit", "commit", "abort"]), min_size=3, max_size=7)


@settings(max_examples=150, deadline=None)
@given(
    PLAN,
    st.sampled_from([1, 2]),
    st.dictionaries(st.integers(1, 40), st.sampled_from(BATCH_FAULTS), max_size=6),
    st.dictionaries(st.integers(1, 30), st.sampled_from(CALL_FAULTS), max_size=6),
    st.sampled_from([0, 0, 3]),
    st.sampled_from([90, 400]),
    st.sampled_from([None, None, 0, 1]),
    st.integers(0, 1 << 20),
)
def test_a_transaction_is_visible_as_a_whole_or_not_at_all(
    plan: list[str],
    version: int,
    batches: dict[int, Fault],
    calls: dict[int, Fault],
    completing: int,
    batch_size: int,
    gone: int | None,
    seed: int,
) -> None:
    run = Run(plan, version, seed, options={"batch_size": batch_size}, gone=gone)
    run.cluster.fault = per_batch(batches)
    run.transactions.fault = per_call(calls)
    run.transactions.completing = completing
    run.play().check()
    assert run.fatal is None
    assert "unknown" not in run.ended.values()
    assert run.ended[len(plan)] == "committed"
    assert all(known.state != "Ongoing" for known in run.transactions.ids.values())
    if not batches:
        assert all(
            run.ended[number] == ("committed" if wanted == "commit" else "aborted")
            for number, wanted in enumerate(plan)
            if number != gone
        )
    assert gone is None or run.ended[gone] == "aborted"


class Zombie(Run):
    """A producer that goes on after a second one with its transactional id has begun."""

    successors = 0

    async def transact(self, producer: aio.Producer, number: int, wanted: str) -> None:
        if number == len(self.plan) // 2:
            async with self.producer("successor") as successor:
                await producer.begin_transaction()
                await self._fill(producer, number)
                self.ended[number] = "unknown"
                await self.insist(successor.init_transactions)
                await super().transact(successor, 100 + number, "commit")
            self.successors += 1
            await (producer.commit_transaction() if wanted == "commit" else producer.flush())
            await self.insist(producer.abort_transaction)
        else:
            await super().transact(producer, number, wanted)


@settings(max_examples=60, deadline=None)
@given(
    PLAN,
    st.sampled_from([1, 2]),
    st.dictionaries(st.integers(1, 30), st.sampled_from(CALL_FAULTS), max_size=4),
    st.integers(0, 1 << 20),
)
def test_a_producer_whose_successor_has_begun_changes_nothing_and_is_told_so(
    plan: list[str], version: int, calls: dict[int, Fault], seed: int
) -> None:
    run = Zombie(plan, version, seed)
    run.transactions.fault = per_call(calls)
    run.play().check()
    assert run.successors
    assert isinstance(run.fatal, ProducerFencedError)
    left = len(plan) // 2
    assert run.ended[100 + left] == "committed"
    assert run.ended[left] == "unknown"
    assert not any(
        int(value) // RECORDS == left
        for partition in range(PARTITIONS)
        for value in run.transactions.visible(TOPIC, partition)
    )

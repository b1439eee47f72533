"""The real transactional clients as a workload: producers, transformers, a read-committed reader.

Several processes may use one transactional id at a time, as after a restart by a supervisor that
took a paused process for dead. Only the newest of them goes on after an error.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import MethodType
from typing import Any

from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.record import ConsumerRecord
from headwater.client.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    TimedOutError,
    UnknownTopicOrPartitionError,
)
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.client.producer.interceptors import ProducerRecord
from headwater.client.producer.producer import Producer
from headwater.client.transforming.options import transform_options
from headwater.client.transforming.transform import TransformRun
from headwater.errors import KafkaError
from headwater.model import TopicPartition
from simulator.clock import SimClock
from simulator.cluster import Cluster
from simulator.invariants import Promises
from simulator.transaction_books import RecordName, Transaction, TransactionBooks
from simulator.workload.real_clients import (
    PATIENCE_MS,
    REBALANCE_MS,
    SESSION_MS,
    RealClient,
)

TIMEOUTS_MS = (2500, 5000)
"""Timeouts of transactions."""
POLL_INTERVALS_MS = (1000, REBALANCE_MS)
"""How late a transformer may poll before its group goes on without it."""
SLOW_RESULTS = 2
"""How often a transformer takes longer than that: it has to finish some time after the storm."""


class TransactionalClient(RealClient):
    """A process with a transactional id."""

    def __init__(
        self,
        cluster: Cluster,
        promises: Promises,
        name: str,
        books: TransactionBooks,
        transactional_id: str,
        *,
        old_protocol: bool,
    ) -> None:
        super().__init__(cluster, promises, name)
        self.books = books
        self.transactional_id = transactional_id
        self.old_protocol = old_protocol
        self.timeout_ms = self.chance.choice(TIMEOUTS_MS)
        books.owners[transactional_id] = self

    @property
    def superseded(self) -> bool:
        """Whether a newer process has the transactional id; it notices only when it is fenced."""
        return self.books.owners[self.transactional_id] is not self

    def producer_settings(self) -> dict[str, Any]:
        """Return the settings of the producer."""
        return {
            **self.seams(), **self.options(), "linger_ms": self.chance.choice((0, 1, 20)),
            "delivery_timeout_ms": self.chance.choice((2500, PATIENCE_MS, PATIENCE_MS)),
            "transaction_timeout_ms": self.timeout_ms,
            "max_block_ms": self.chance.choice((1500, PATIENCE_MS)),
            "batch_size": self.chance.choice((200, 4000)),
        }  # fmt: skip

    async def started(self, producer: Producer) -> None:
        """Start a producer; one of the old protocol hears nothing of transaction.version."""
        self.opened(producer._waits)
        await producer.start()
        if self.old_protocol:
            transactions = producer._core.transactions

            def read_nothing(_: object) -> None:
                transactions.manager.newest_version = 0

            transactions._read_feature = MethodType(  # type: ignore[method-assign]
                read_nothing, transactions
            )

    async def closed(self, producer: Producer) -> None:
        """Close a producer that may have failed."""
        try:
            await producer.close(1.0)
        except KafkaError:
            return

    async def insist_within(self, call: Callable[[], Awaitable[None]]) -> None:
        """Repeat a call that did not finish in its time."""
        while True:
            try:
                return await call()
            except TimedOutError:
                await self.pause(50)


class Transactor(TransactionalClient):
    """Commits and aborts transactions over several partitions, some of them with offsets."""

    def __init__(
        self, *args: Any, places: list[TopicPartition], count: int, pause_ms: int, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._pause_ms = pause_ms
        self._places = places
        """The first one is always written to."""
        self._count = count
        self._dead = False

    async def run(self) -> None:
        """Run transactions until all of this transactional id have ended."""
        while self._goes_on():
            producer = Producer(
                bootstrap_servers=self.bootstrap, transactional_id=self.transactional_id,
                **self.producer_settings(),
            )  # fmt: skip
            try:
                await self.started(producer)
                await self.insist_within(producer.init_transactions)
                self.books.initialized(*producer._core.transactions.manager.sequences.identity)
                while self._goes_on():
                    await self._transact(producer)
                    await self.pause(self._pause_ms)
                if self.chance.random() < 0.3:
                    await self._die_midway(producer)
            except FatalTransactionError:
                await self.pause(200)
            await self.closed(producer)
            if self.superseded:
                return

    @property
    def done(self) -> bool:
        """Whether the process has ended."""
        return self._dead or super().done

    async def _die_midway(self, producer: Producer) -> None:
        """Leave a transaction that only its coordinator can end."""
        await producer.begin_transaction()
        try:
            await self._send(producer, self.books.begin(self.transactional_id))
            await self.insist_within(producer.flush)
        except (AbortableTransactionError, TimedOutError, UnknownTopicOrPartitionError):
            return
        self.cluster.clients.call_soon(self._die)
        await asyncio.sleep(1.0)

    def _die(self) -> None:
        self._dead = True
        self.loop.kill()
        self.cluster.network.process_died(self.loop)

    def _goes_on(self) -> bool:
        return self.books.begun(self.transactional_id) < self._count

    async def _transact(self, producer: Producer) -> None:
        transaction = self.books.begin(self.transactional_id)
        await producer.begin_transaction()
        try:
            await self._send(producer, transaction)
            if self.chance.random() < 0.75:
                transaction.asked_to_commit = True
                await self.insist_within(producer.commit_transaction)
                transaction.committed = True
                return
        except (AbortableTransactionError, TimedOutError, UnknownTopicOrPartitionError):
            pass  # a record that found no room or no topic, among others
        await self._abort(producer)
        transaction.committed = False

    async def _send(self, producer: Producer, transaction: Transaction) -> None:
        for number in range(self.chance.choice((1, 2, 4, 7))):
            at = self.chance.choice(self._places) if number else self._places[0]
            value = transaction.add(at).encode(self.chance.choice((0, 10, 300)))
            await producer.send(at.topic, value, partition=at.partition, on_delivery=_delivered)
            if self.chance.random() < 0.4:
                await self.pause(self._pause_ms)
        if self.chance.random() < 0.05:
            await asyncio.sleep(self.timeout_ms * 1.5 / 1000)
        if self.chance.random() < 0.5:
            transaction.with_offset = True
            group = ConsumerGroupMetadata(self.transactional_id)
            offsets = {self._places[0]: transaction.number + 1}
            await self.insist_within(lambda: producer.send_offsets_to_transaction(offsets, group))

    async def _abort(self, producer: Producer) -> None:
        while True:
            try:
                return await self.insist_within(producer.abort_transaction)
            except AbortableTransactionError:
                await self.pause(50)


def _delivered(_metadata: object, _error: Exception | None) -> None:
    """The end of its transaction says what became of a record."""


class Transformer(TransactionalClient):
    """A member of a group that writes one result for each record that it reads."""

    def __init__(
        self, *args: Any, source: str, target: TopicPartition, over: Callable[[], bool],
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **kwargs)
        self._source = source
        self._target = target
        self._over = over
        self._poll_interval_ms = self.chance.choice(POLL_INTERVALS_MS)
        self._slow_left = SLOW_RESULTS

    async def run(self) -> None:
        """Transform until the fleet stops."""
        while not self._over():
            try:
                await self._transform()
            except KafkaError:
                await self.pause(300)
            if self.superseded:
                return

    async def _transform(self) -> None:
        reading = {
            **self.seams(), **self.options(), "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 500, "fetch_max_wait_ms": 500,
            "default_api_timeout_ms": PATIENCE_MS, "max_poll_interval_ms": self._poll_interval_ms,
        }  # fmt: skip
        options = transform_options(
            self._source, self._target.topic, bootstrap_servers=self.bootstrap, group_id="totals",
            transactional_id=self.transactional_id, max_records=self.chance.choice((2, 10)),
            max_wait_s=0.3, idle_timeout_s=None, consumer=reading,
            producer=self.producer_settings(), stop=self._over,
        )  # fmt: skip
        producer, consumer = Producer(**options.producer), Consumer(**options.consumer)
        self.opened(consumer._poller)
        await self.started(producer)
        clock = SimClock(self.cluster.scheduler)
        try:
            await TransformRun(options, self._result, consumer, producer, clock).run()
        finally:
            await self.closed(producer)
            await consumer.close()

    async def _result(self, record: ConsumerRecord[Any, Any]) -> ProducerRecord:
        if self._slow_left and self.chance.random() < 0.05:
            # Others may have the partition by its end.
            self._slow_left -= 1
            await asyncio.sleep(self._poll_interval_ms * 2 / 1000)
        value = RecordName("result", record.partition, record.offset).encode()
        return ProducerRecord(self._target.topic, value, partition=self._target.partition)


class CommittedReader(RealClient):
    """Follows partitions read-committed, and sometimes reads a part of them again."""

    def __init__(
        self,
        cluster: Cluster,
        promises: Promises,
        name: str,
        places: list[TopicPartition],
        done: Callable[[], bool],
        take: Callable[[TopicPartition, int, bytes], None],
    ) -> None:
        super().__init__(cluster, promises, name)
        self._places = places
        self._done = done
        self._take = take
        self._next = dict.fromkeys(places, 0)
        self._consumer: Consumer[Any, Any] | None = None

    def position(self, at: TopicPartition) -> int | None:
        """Return up to where a partition has been read; None for one of no interest."""
        if at not in self._next or self._consumer is None:
            return None
        state = self._consumer._core.subscription.partitions.get(at)
        return None if state is None else state.position

    async def run(self) -> None:
        """Read until the fleet stops."""
        consumer = Consumer(
            bootstrap_servers=self.bootstrap, **self.seams(), **self.reading(),
            auto_offset_reset="earliest", fetch_max_wait_ms=self.chance.choice((300, 1000)),
            default_api_timeout_ms=PATIENCE_MS, isolation_level="read_committed",
            max_partition_fetch_bytes=self.chance.choice((300, 1 << 20)),
        )  # fmt: skip
        self._consumer = consumer
        self.opened(consumer._poller)
        await self.insist(lambda: consumer.assign(self._places))
        while not self._done():
            for record in await consumer.poll(timeout=0.5):
                self._got(TopicPartition(record.topic, record.partition), record)
            if self.chance.random() < 0.05:
                at = self.chance.choice(self._places)
                self._next[at] = self.chance.randrange(self._next[at] + 1)
                consumer.seek(at, self._next[at])
        await consumer.close()

    def _got(self, at: TopicPartition, record: ConsumerRecord[Any, Any]) -> None:
        if record.offset < self._next[at]:
            self.promises.complain(f"I2: {at} gave {record.offset} after {self._next[at] - 1}")
        self._next[at] = record.offset + 1
        self._take(at, record.offset, record.value or b"")

"""The core of both faces of the producer: appends records to batches.

`send` is the hottest function of the client: the usual record (bytes, a known topic, room in the
open batch) is appended under one lock in the caller's own thread, and nothing else happens. All
other records go through `_deliver`. The two faces differ in how they wait for metadata and room.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.client.cluster import Cluster
from headwater.client.errors import ClosedError, IllegalStateError, InvalidTopicError
from headwater.client.plugins import Plugins
from headwater.client.producer.accumulator import (
    Accumulator,
    PartitionQueue,
    ProducerBatch,
    record_bound,
)
from headwater.client.producer.buffer_room import BufferRoom
from headwater.client.producer.bulk import (
    Fill,
    Load,
    SentMany,
    Table,
    chunks,
    table_loads,
    value_load,
)
from headwater.client.producer.checks import (
    checked_timestamp,
    checked_topic,
    too_large,
)
from headwater.client.producer.dropped import stop_sending, weakly
from headwater.client.producer.fast_send import fast_send
from headwater.client.producer.futures import (
    BatchFuture,
    OnDelivery,
    SendFuture,
)
from headwater.client.producer.interceptors import ProducerInterceptor, ProducerRecord
from headwater.client.producer.known_topics import KnownTopics
from headwater.client.producer.locking import interrupted, new_lock
from headwater.client.producer.partitioner import Partitioner, checked, key_hash, partition_of_key
from headwater.client.producer.record_preparation import RecordPreparation, dropped_future
from headwater.client.producer.sender_loop import Sender
from headwater.client.producer.serializers import Serializer
from headwater.client.producer.topic_queues import TopicQueues
from headwater.config.client import ProducerSettings
from headwater.errors import KafkaError
from headwater.model import topic_name_problem
from headwater.records.codec import NAME, BatchWriter
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.network import Network, TcpNetwork
from headwater.seams.randomness import Randomness, SystemRandomness
from headwater.seams.tasks import LoopTasks

if TYPE_CHECKING:  # loaded by the first transactional producer
    from headwater.client.producer.transaction_loop import TransactionLoop

log = logging.getLogger(__name__)

CROWD = 5
"""The number of sealed batches of one partition that exceeds what the sender has in flight."""
IN_PYTHON = NAME != "compiled"


Deliver = Callable[[ProducerRecord, OnDelivery | None, TopicQueues | None], SendFuture]


class WouldBlockError(Exception):
    """A record cannot be appended without waiting."""

    def __init__(
        self, record: ProducerRecord, on_delivery: OnDelivery | None, full: TopicQueues | None
    ) -> None:
        super().__init__()
        self.record = record
        self.on_delivery = on_delivery
        self.full = full
        """The topic, if it is known and only the buffer is full."""


class ProducerCore:
    """The parts of one producer. It appends records and never waits."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        key_serializer: Serializer | str | None = None,
        value_serializer: Serializer | str | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        clock: Clock | None = None,
        network: Network | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.settings = ProducerSettings.of(settings)
        self.clock = clock or SystemClock()
        self.started = False
        self.deliver: Deliver = _would_block
        """Called for a record that cannot be appended at once."""
        self.give_way: Callable[[], None] = lambda: None
        """Called when batches pile up, to let the sender's thread run."""
        self.check_caller: Callable[[], None] = lambda: None
        """Called before a batch begins; raises where nothing would wake the sender."""
        self._partitioner = partitioner
        self._network = network or TcpNetwork()
        self._randomness = randomness or SystemRandomness()
        self._wall_ms = self.clock.wall_ms
        self._preparation = RecordPreparation(
            self.settings, key_serializer, value_serializer, interceptors, self._wall_ms
        )
        self._plugins = Plugins(
            self.settings, key_serializer, value_serializer, partitioner, *interceptors
        )
        self.new_lock()
        self.accumulator = Accumulator.of(self.settings)
        self.room = BufferRoom(self.accumulator, self.clock)
        self._topics = KnownTopics(
            self.settings,
            self.accumulator,
            self._randomness.below,
            takes_plain=not (
                self._preparation.changes_records
                or partitioner
                or self.settings.partitioner_ignore_keys
            ),
        )
        self._plain = self._topics.plain
        self._transactions: TransactionLoop | None = None
        self._crowded = False
        """Whether batches pile up in a queue, so that the sender should run."""
        self.unusable: KafkaError | None = None
        fast = self.fast_send(self.send)
        if fast is not None:
            vars(self)["send"] = fast
        self.cluster: Cluster
        self.sender: Sender

    def new_lock(self) -> None:
        self.lock = new_lock()
        self.owns_lock = self.lock._is_owned
        self._acquire, self._release = self.lock.acquire, self.lock.release

    def fast_send(self, otherwise: Callable[..., SendFuture]) -> Callable[..., Any] | None:
        """Return the fast path; it calls `otherwise` for records that it cannot handle."""
        return fast_send(self._plain, otherwise, self.clock, self.lock)

    # -- sending

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> SendFuture:
        """Append a record to a batch; the faces document the arguments."""
        try:
            known = self._plain[topic]
            if partition is None:
                if key is None:
                    queue = known.sticky
                else:
                    queue = known.queues[(key_hash(key) & 0x7FFFFFFF) % known.count]
                if IN_PYTHON and self.owns_lock():  # in C an append cannot be interrupted
                    raise interrupted("send()")
                stamp = self._wall_ms() if timestamp is None else checked_timestamp(timestamp)
                try:
                    self._acquire()  # see locking.py
                    batch = queue.open
                    if batch is not None:
                        try:
                            index = batch.append(stamp, key, value, headers)
                        except BaseException:
                            batch.repair()
                            raise
                        if index >= 0:
                            if on_delivery is not None:
                                batch.callbacks.append((on_delivery, index, stamp))
                            return SendFuture((batch.future, index, stamp))
                finally:
                    try:  # noqa: SIM105 - suppress() is a call more
                        self._release()
                    except RuntimeError:
                        pass  # Ctrl-C ended the wait for it
        except (KeyError, TypeError, AttributeError):
            pass  # an unknown topic, or not bytes: the slow path reports it
        record = ProducerRecord(topic, value, key, partition, headers, timestamp)
        self.check_usable()
        if self._transactions is not None:
            self._transactions.manager.check_send()
        prepared = self._preparation.prepared(record, on_delivery)
        if prepared is None:
            return dropped_future(record, on_delivery)
        return self._place_record(*prepared)

    def _place_record(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> SendFuture:
        topic = self._topics.by_name.get(record.topic)
        if topic is None or self.outgrown(topic, record):
            return self.deliver(record, on_delivery, None)
        future = self.offer(topic, record, on_delivery)
        if future is None:
            return self.deliver(record, on_delivery, topic)
        if self._crowded:
            self.yield_to_sender()
        return future

    def yield_to_sender(self) -> None:
        self._crowded = False
        self.give_way()

    def offer(
        self, topic: TopicQueues, record: ProducerRecord, on_delivery: OnDelivery | None
    ) -> SendFuture | None:
        """Append a prepared record; return None if there is no room."""
        if self.owns_lock():
            raise interrupted("send()")
        queue = self._queue_for(topic, record)
        _, value, key, _, headers, timestamp = record
        assert timestamp is not None
        size = record_bound(key, value, headers)

        def fill(writer: BatchWriter, _start: int) -> int:
            return 1 if writer.append(timestamp, key, value, headers) >= 0 else 0

        with self.lock:
            if self.unusable is not None or self.sender.fatal is not None:
                self.check_usable()  # another thread may have closed the producer
            if self._transactions is not None:
                self._transactions.manager.check_send()
            batch, index, _ = self._fill_batch(topic, queue, fill, 0, size)
            if batch is None:
                return None
            if on_delivery is not None:
                batch.callbacks.append((on_delivery, index, timestamp))
        return SendFuture((batch.future, index, timestamp))

    def _queue_for(self, topic: TopicQueues, record: ProducerRecord) -> PartitionQueue | None:
        """Return the queue of the record; None for the sticky one."""
        if record.partition is not None:
            return topic.queues[checked(record.topic, record.partition, topic.count)]
        if self._partitioner is not None:
            chosen = self._partitioner(record.topic, record.key, record.value, topic.count)
            return topic.queues[checked(record.topic, chosen, topic.count)]
        if record.key is None or self.settings.partitioner_ignore_keys:
            return None
        return topic.queues[partition_of_key(record.key, topic.count)]

    def _fill_batch(
        self, topic: TopicQueues, queue: PartitionQueue | None, fill: Fill, start: int, size: int
    ) -> tuple[ProducerBatch | None, int, int]:
        """Fill one batch under the lock; return it, the first index and the number of records.

        The open batch comes first; if it is full, sticky records go to the next partition. No batch
        means that buffer.memory is used up.
        """
        target = topic.sticky if queue is None else queue
        batch, taken = self._fill_open(target, fill, start)
        if not taken and queue is None:
            target = topic.rotate(full=batch is not None)
            batch, taken = self._fill_open(target, fill, start)
        if not taken:
            batch = self._new_batch(topic, target, size)
            taken = 0 if batch is None else self._fill_new(batch, fill, start)
        if batch is None or batch.writer is None:
            return None, -1, 0
        return batch, batch.writer.count - taken, taken

    def _fill_open(
        self, queue: PartitionQueue, fill: Fill, start: int
    ) -> tuple[ProducerBatch | None, int]:
        batch = queue.open
        if batch is None or batch.writer is None:
            return None, 0
        queue.open = None  # the compiled fast path takes no lock: it must not append now
        try:
            return batch, fill(batch.writer, start)
        except BaseException:
            batch.repair()
            raise
        finally:
            queue.open = batch

    def _fill_new(self, batch: ProducerBatch, fill: Fill, start: int) -> int:
        """Write the first records into a batch, then add it to its queue."""
        assert batch.writer is not None
        limit = self.settings.max_request_size
        taken = fill(batch.writer, start)
        size = batch.writer.size
        if size > max(limit, self.accumulator.batch_size):
            raise too_large(size, "max.request.size", limit)
        self.accumulator.show(batch)
        return taken

    def _new_batch(
        self, topic: TopicQueues, queue: PartitionQueue, size: int
    ) -> ProducerBatch | None:
        """Return a batch that is not in its queue yet, or None; wake the sender if necessary."""
        self.check_caller()
        now = self.clock.monotonic_ms()
        batch = self.accumulator.begin(queue, size, now)
        if batch is None or queue.sealed:
            self._crowded = len(queue.sealed) >= CROWD
            self.sender.wake()
        else:
            self.sender.wake_by(batch.limit_ms)
        if batch is not None:
            topic.began(batch, now)
        return batch

    # -- many at once

    def fill_batches(
        self, topic: TopicQueues, loads: Iterable[Load], sent: SentMany
    ) -> Iterator[None]:
        """Write all loads into batches; yield whenever there is no room."""
        for load in loads:
            queue = None if load.partition is None else topic.queues[load.partition]
            start = 0
            while start < load.records:
                if self.owns_lock():
                    raise interrupted("send_many()")
                with self.lock:
                    self.check_usable()
                    if self._transactions is not None:
                        self._transactions.manager.check_send()
                    batch, index, taken = self._fill_batch(topic, queue, load.fill, start, 0)
                if batch is None:
                    yield
                    self.check_usable()
                else:
                    sent.add(batch.future, index, taken)
                    start += taken
                    if self._crowded:
                        self.yield_to_sender()

    def value_loads(self, values: Iterable[Any], topic: str) -> Iterator[Load]:
        as_bytes = self._preparation.value_serializer(topic)
        for chunk in chunks(values, self.clock.monotonic_ms):
            plain = not self._preparation.serializes_values
            ready = chunk if plain else [as_bytes(value) for value in chunk]
            yield value_load(ready, self._wall_ms(), as_bytes)

    def table_loads_of(
        self, topic: TopicQueues, table: Table, key: str | None, value: str
    ) -> Iterator[Load]:
        if self.sends_one_by_one:
            raise ValueError("send_table() cannot use interceptors or a partitioner: use send()")
        for batch in table.to_batches():
            yield from table_loads(batch, key, value, self._wall_ms(), topic.count)

    # -- topics

    def _follow_metadata(self) -> None:
        try:
            now = self.clock.monotonic_ms()
            for view in self._topics.outdated(self.cluster.topics):
                with self.lock:
                    self._topics.update(view, now)
            if idle := self._topics.idle(now):
                with self.lock:
                    self._topics.forget(idle)
                self.cluster.forget(idle)
        except Exception as fault:  # noqa: BLE001 - logged, and told to every future
            self.sender.fail("following metadata", fault)

    # -- life

    def start(self) -> None:
        """Create the parts that live on the loop; sends no request yet."""
        if self.started:
            return
        tasks = LoopTasks()
        self.cluster = Cluster(self.settings, self._network, self.clock, self._randomness, tasks)
        self.cluster.listeners.append(weakly(self._follow_metadata))
        if self.settings.transactional_id is not None:
            from headwater.client.producer.transaction_loop import TransactionLoop

            self._transactions = TransactionLoop(
                self.settings, self.cluster, self.accumulator, self._topics, self.lock
            )
        self.sender = Sender(
            self.settings,
            self.cluster,
            self.accumulator,
            self.lock,
            clock=self.clock,
            randomness=self._randomness,
            tasks=tasks,
            room_freed=self.room.wake_waiters,
            transactions=None if self._transactions is None else self._transactions.manager,
        )
        if self._transactions is not None:
            self._transactions.attach(self.sender, tasks, self._randomness)
        gauges, accumulator = self.sender.metrics.gauges, self.accumulator
        gauges["buffer-total-bytes"] = lambda: accumulator.buffer_memory
        gauges["buffer-available-bytes"] = lambda: accumulator.buffer_memory - accumulator.used
        gauges["waiting-threads"] = lambda: len(accumulator.starved)
        for warning in self.settings.warnings():
            log.warning("%s", warning)
        self.started = True

    async def topic_queues(self, name: str, *, fresh: bool = False) -> TopicQueues:
        """Return the queues of a topic; wait for its metadata within max.block.ms."""
        problem = topic_name_problem(checked_topic(name))
        if problem:
            raise InvalidTopicError(problem)
        views = await self.cluster.metadata(
            [name], timeout_ms=self.settings.max_block_ms, fresh=fresh
        )
        with self.lock:
            return self._topics.update(views[name], self.clock.monotonic_ms())

    @staticmethod
    def outgrown(topic: TopicQueues, record: ProducerRecord) -> bool:
        """Return whether the record names a partition that may have been added since."""
        return record.partition is not None and record.partition >= topic.count

    async def stop(self) -> None:
        """Fail the remaining records and close every connection."""
        try:
            await stop_sending(self.sender, self.cluster)
        finally:
            self._plugins.close()

    def refuse_sends(self) -> None:
        """Before the last flush: what is accepted after it would not be sent."""
        self.make_unusable(ClosedError("the producer is closed: create another one"))

    def make_unusable(self, why: KafkaError) -> None:
        """Let every later send fail with `why`."""
        with self.lock:
            self.unusable = why
            self._topics.clear()

    def check_usable(self) -> None:
        if self.unusable is not None:
            raise self.unusable
        if self.sender.fatal is not None:
            raise self.sender.fatal

    @property
    def transactions(self) -> "TransactionLoop":
        """The transactions of this producer; raises an error without transactional.id."""
        self.check_usable()
        if self._transactions is None:
            raise IllegalStateError("this producer has no transactions: set transactional_id")
        return self._transactions

    @property
    def initialized(self) -> bool:
        """Whether a transaction can begin without init_transactions()."""
        return self._transactions is not None and self._transactions.initialized

    async def end_transaction(self, timeout_s: float | None) -> None:
        """Abort an open transaction before the producer is closed."""
        await self.transactions.end_open(timeout_s)

    def begin_flush(self, token: object, *, closing: bool = False) -> list[BatchFuture]:
        """Stop lingering while `token` is in `flushing`; return the batches to wait for."""
        if not closing:
            self.check_usable()
        if self.owns_lock():
            raise interrupted("flush()")
        with self.lock:
            self.accumulator.flushing.add(token)
            pending = [batch.future for batch in self.accumulator.incomplete]
            self.sender.wake()
        return pending

    # -- facts for the caller

    @property
    def sends_one_by_one(self) -> bool:
        """Whether each record of send_many() needs its own send()."""
        return self._preparation.intercepts or self._partitioner is not None

    def known_topic(self, name: str) -> TopicQueues | None:
        """Return the queues of a topic that was used before."""
        self.check_usable()
        return self._topics.by_name.get(name)

    def metrics(self) -> dict[str, float]:
        return self.sender.metrics.read(self.clock.monotonic_ms())


def _would_block(
    record: ProducerRecord, on_delivery: OnDelivery | None, full: TopicQueues | None
) -> SendFuture:
    raise WouldBlockError(record, on_delivery, full)

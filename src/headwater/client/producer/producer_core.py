"""From a record to its place in a batch: what both faces of the producer share.

`send` is the hottest function of the client: the usual record (bytes, a known topic, room in the
open batch) is appended under one lock in the caller's own thread, and nothing else happens. All
that is not usual goes through `_deliver`. How to wait for metadata or for room is what the two
faces differ in.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headwater.client.cluster import Cluster, TopicView
from headwater.client.errors import (
    InvalidTopicError,
)
from headwater.client.producer.accumulator import (
    Accumulator,
    PartitionQueue,
    ProducerBatch,
    record_bound,
)
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
    checked_record,
    checked_timestamp,
    checked_topic,
    too_large,
)
from headwater.client.producer.dropped import stop_sending, weakly
from headwater.client.producer.fast_send import fast_send
from headwater.client.producer.futures import (
    NO_OFFSET,
    NO_PARTITION,
    BatchFuture,
    OnDelivery,
    SendFuture,
)
from headwater.client.producer.interceptors import Interceptors, ProducerInterceptor, ProducerRecord
from headwater.client.producer.locking import interrupted, new_lock
from headwater.client.producer.partitioner import Partitioner, checked, key_hash, partition_of_key
from headwater.client.producer.room import RoomWaits
from headwater.client.producer.sender_loop import Sender
from headwater.client.producer.serializers import Serializer, named_serializer, serialized
from headwater.client.producer.topic_queues import TopicQueues
from headwater.client.waits import call_guarded
from headwater.config.client import ProducerSettings
from headwater.errors import KafkaError
from headwater.model import topic_name_problem
from headwater.records.codec import NAME, BatchWriter
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.network import Network, TcpNetwork
from headwater.seams.randomness import Randomness, SystemRandomness
from headwater.seams.tasks import LoopTasks

log = logging.getLogger(__name__)

CROWD = 5
"""So many sealed batches of one partition are more than the sender can have under way."""
IN_PYTHON = NAME != "compiled"
_USUAL = (None, (), None)
"""Partition, headers and timestamp of most records."""


class ProducerCore(RoomWaits, ABC):
    """The producer without a way to wait."""

    def __init__(
        self,
        *,
        key_serializer: Serializer | str | None = None,
        value_serializer: Serializer | str | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        clock: Clock | None = None,
        network: Network | None = None,
        randomness: Randomness | None = None,
        **settings: Any,
    ) -> None:
        self.settings = ProducerSettings.of(settings)
        self._serialize_key = named_serializer("key_serializer", key_serializer)
        self._serialize_value = named_serializer("value_serializer", value_serializer)
        self._partitioner = partitioner
        self._interceptors = Interceptors(interceptors) if interceptors else None
        self._clock = clock or SystemClock()
        self._network = network or TcpNetwork()
        self._randomness = randomness or SystemRandomness()
        self._wall_ms = self._clock.wall_ms
        self._new_lock()
        self._accumulator = Accumulator.of(self.settings)
        self._topics: dict[str, TopicQueues] = {}
        self._plain: dict[str, TopicQueues] = {}
        """The topics whose records take the fast path; empty where each record needs more."""
        self._takes_plain = not (
            self._interceptors
            or self._serialize_key
            or self._serialize_value
            or partitioner
            or self.settings.partitioner_ignore_keys
        )
        self._crowded = False
        """Batches pile up in a queue: the sender should have a turn."""
        self._unusable: KafkaError | None = None
        self._install_fast_send()
        self._cluster: Cluster
        self._sender: Sender

    def _new_lock(self) -> None:
        self._lock = new_lock()
        self._owns_lock = self._lock._is_owned
        self._acquire, self._release = self._lock.acquire, self._lock.release

    def _install_fast_send(self) -> None:
        """Let a shorter `send` stand before the one below, unless a subclass has its own."""
        short = fast_send(self._plain, self.send, self._clock, self._lock)
        if short is not None and type(self).send is ProducerCore.send:
            vars(self)["send"] = short

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
        """Put a record on its way; the future tells where it was stored.

        Args:
            topic: Where to.
            value: Bytes, or what `value_serializer` takes; None is a null (a tombstone).
            key: Bytes, or what `key_serializer` takes. Records of one key go to one partition.
            partition: A partition, if it matters which.
            headers: Pairs of a name and bytes.
            timestamp: Milliseconds since 1970; the time of this call by default.
            on_delivery: Called with (metadata, error), one of them None, on the client's loop
                thread; it must not block.
        """
        try:
            known = self._plain[topic]
            if partition is None:
                if key is None:
                    queue = known.sticky
                else:
                    queue = known.queues[(key_hash(key) & 0x7FFFFFFF) % known.count]
                if IN_PYTHON and self._owns_lock():  # in C an append cannot be interrupted
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
            pass  # an unknown topic, or no bytes: the long way says so with the right words
        record = ProducerRecord(topic, value, key, partition, headers, timestamp)
        prepared = self._prepared(record, on_delivery)
        return self._filtered(record, on_delivery) if prepared is None else self._deliver(*prepared)

    @abstractmethod
    def _deliver(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> SendFuture:
        """Offer the record until there is a topic and room for it."""

    def _prepared(
        self, record: ProducerRecord, on_delivery: OnDelivery | None
    ) -> tuple[ProducerRecord, OnDelivery | None] | None:
        """Interceptors, then serializers; what is left is bytes. None where it was dropped."""
        self._check_usable()
        chain = self._interceptors
        if chain is not None:
            changed = chain.on_send(record)
            if changed is None:
                return None
            record = changed
            on_delivery = chain.around(on_delivery)
        try:
            if record[3:] != _USUAL or type(record.topic) is not str:
                record = checked_record(record)
            record = self._as_bytes(record)
            self._check_size(record)
        except KafkaError as refused:
            if chain is not None:
                chain.on_acknowledgement(None, refused)
            raise
        return record, on_delivery

    def _filtered(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> SendFuture:
        """The future of a record that an interceptor dropped: done, and nowhere."""
        future = BatchFuture(str(record.topic), NO_PARTITION)
        future.succeed(NO_OFFSET, -1)
        if on_delivery is not None:
            call_guarded("an on_delivery callback", on_delivery, future.metadata(0, -1), None)
        return SendFuture((future, 0, -1))

    def _as_bytes(self, record: ProducerRecord) -> ProducerRecord:
        topic, value, key, partition, headers, timestamp = record
        if key is not None:
            key = serialized("key", self._serialize_key, key, topic)
        if value is not None:
            value = serialized("value", self._serialize_value, value, topic)
        if timestamp is None:
            timestamp = self._wall_ms()
        return ProducerRecord(topic, value, key, partition, headers, timestamp)

    def _check_size(self, record: ProducerRecord) -> None:
        size = record_bound(record.key, record.value, record.headers)
        for limit, name in (
            (self.settings.max_request_size, "max.request.size"),
            (self.settings.buffer_memory, "buffer.memory"),
        ):
            if size > limit:
                raise too_large(size, name, limit)

    def _offer(
        self, topic: TopicQueues, record: ProducerRecord, on_delivery: OnDelivery | None
    ) -> SendFuture | None:
        """Append a prepared record; None where there is no room."""
        if self._owns_lock():
            raise interrupted("send()")
        queue = self._queue_for(topic, record)
        _, value, key, _, headers, timestamp = record
        assert timestamp is not None
        size = record_bound(key, value, headers)

        def fill(writer: BatchWriter, _start: int) -> int:
            return 1 if writer.append(timestamp, key, value, headers) >= 0 else 0

        with self._lock:
            if self._unusable is not None or self._sender.fatal is not None:
                self._check_usable()  # another thread has closed the producer meanwhile
            batch, index, _ = self._place(topic, queue, fill, 0, size)
            if batch is None:
                return None
            if on_delivery is not None:
                batch.callbacks.append((on_delivery, index, timestamp))
        return SendFuture((batch.future, index, timestamp))

    def _queue_for(self, topic: TopicQueues, record: ProducerRecord) -> PartitionQueue | None:
        """The queue that the record belongs to, None for whichever is sticky."""
        if record.partition is not None:
            return topic.queues[checked(record.topic, record.partition, topic.count)]
        if self._partitioner is not None:
            chosen = self._partitioner(record.topic, record.key, record.value, topic.count)
            return topic.queues[checked(record.topic, chosen, topic.count)]
        if record.key is None or self.settings.partitioner_ignore_keys:
            return None
        return topic.queues[partition_of_key(record.key, topic.count)]

    def _place(
        self, topic: TopicQueues, queue: PartitionQueue | None, fill: Fill, start: int, size: int
    ) -> tuple[ProducerBatch | None, int, int]:
        """Fill one batch: which took records, from which index on, and how many; under the lock.

        The open batch first; where that is full, for records without a home the next partition's.
        No batch at all means that buffer.memory is used up.
        """
        target = topic.sticky if queue is None else queue
        batch, taken = self._fill_open(target, fill, start)
        if not taken and queue is None:
            target = topic.rotate(full=batch is not None)
            batch, taken = self._fill_open(target, fill, start)
        if not taken:
            batch = self._begin(topic, target, size)
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
        queue.open = None  # the compiled fast path takes no lock: it must not add meanwhile
        try:
            return batch, fill(batch.writer, start)
        except BaseException:
            batch.repair()
            raise
        finally:
            queue.open = batch

    def _fill_new(self, batch: ProducerBatch, fill: Fill, start: int) -> int:
        """Put the first records into a batch and only then show it to others."""
        assert batch.writer is not None
        limit = self.settings.max_request_size
        taken = fill(batch.writer, start)
        size = batch.writer.size
        if size > max(limit, self._accumulator.batch_size):
            raise too_large(size, "max.request.size", limit)
        self._accumulator.show(batch)
        return taken

    @abstractmethod
    def _give_way(self) -> None:
        """Batches pile up: let the sender go first, if it runs beside the caller."""

    def _begin(self, topic: TopicQueues, queue: PartitionQueue, size: int) -> ProducerBatch | None:
        """A batch that is not yet shown, or None; the sender is told what there is to do."""
        now = self._clock.monotonic_ms()
        batch = self._accumulator.begin(queue, size, now)
        if batch is None or queue.sealed:
            self._crowded = len(queue.sealed) >= CROWD
            self._sender.wake()
        else:
            self._sender.wake_by(batch.limit_ms)
        if batch is not None:
            topic.began(batch, now)
        return batch

    # -- many at once

    def _bulk(self, topic: TopicQueues, loads: Iterable[Load], sent: SentMany) -> Iterator[None]:
        """Put everything into batches; yields whenever there is no room."""
        for load in loads:
            queue = None if load.partition is None else topic.queues[load.partition]
            start = 0
            while start < load.records:
                if self._owns_lock():
                    raise interrupted("send_many()")
                with self._lock:
                    self._check_usable()
                    batch, index, taken = self._place(topic, queue, load.fill, start, 0)
                if batch is None:
                    yield
                    self._check_usable()
                else:
                    sent.add(batch.future, index, taken)
                    start += taken
                    if self._crowded:
                        self._give_way()

    def _value_loads(self, values: Iterable[Any], topic: str) -> Iterator[Load]:
        serialize = self._serialize_value

        def as_bytes(value: Any) -> bytes | None:
            return serialized("value", serialize, value, topic)

        for chunk in chunks(values, self._clock.monotonic_ms):
            ready = chunk if serialize is None else [as_bytes(value) for value in chunk]
            yield value_load(ready, self._wall_ms(), as_bytes)

    def _table_loads(
        self, topic: TopicQueues, table: Table, key: str | None, value: str
    ) -> Iterator[Load]:
        if self._interceptors is not None or self._partitioner is not None:
            raise ValueError("send_table knows no interceptors or partitioners: use send()")
        for batch in table.to_batches():
            yield from table_loads(batch, key, value, self._wall_ms(), topic.count)

    # -- topics

    def _know(self, view: TopicView) -> TopicQueues:
        """Make or renew the queues of a topic that metadata told of."""
        known = self._topics.get(view.name)
        with self._lock:
            if known is None or known.count != len(view.partitions):
                queues = [
                    self._accumulator.queue(view.name, number)
                    for number in range(len(view.partitions))
                ]
                known = TopicQueues(
                    queues,
                    self._accumulator,
                    self.settings.partitioner_adaptive_partitioning_enable,
                    self._randomness.below,
                    self._clock.monotonic_ms(),
                )
                self._topics[view.name] = known
                if self._takes_plain:
                    self._plain[view.name] = known
            known.led([row.partition for row in view.partitions if row.leader >= 0])
        return known

    def _follow_metadata(self) -> None:
        try:
            self._metadata_came()
        except Exception as fault:  # noqa: BLE001 - logged, and told to every future
            self._sender.fail("following metadata", fault)

    def _metadata_came(self) -> None:
        """Follow what metadata says of the topics in use; let go of those no longer used."""
        idle_since = self._clock.monotonic_ms() - self.settings.metadata_max_idle_ms
        for name, known in list(self._topics.items()):
            view = self._cluster.topics.get(name)
            if view is not None and view.partitions:
                self._know(view)
            if known.used_ms < idle_since and not any(queue.load for queue in known.queues):
                with self._lock:
                    self._plain.pop(name, None)
                    self._topics.pop(name, None)
                self._cluster.forget([name])

    # -- life

    async def _start(self) -> None:
        """Make what lives on the loop; no broker is asked yet."""
        tasks = LoopTasks()
        self._cluster = Cluster(self.settings, self._network, self._clock, self._randomness, tasks)
        self._cluster.listeners.append(weakly(self._follow_metadata))
        self._sender = Sender(
            self.settings,
            self._cluster,
            self._accumulator,
            self._lock,
            clock=self._clock,
            randomness=self._randomness,
            tasks=tasks,
            room_freed=weakly(self._room_freed),
        )
        gauges, accumulator = self._sender.metrics.gauges, self._accumulator
        gauges["buffer-total-bytes"] = lambda: accumulator.buffer_memory
        gauges["buffer-available-bytes"] = lambda: accumulator.buffer_memory - accumulator.used
        gauges["waiting-threads"] = lambda: len(accumulator.starved)
        for warning in self.settings.warnings():
            log.warning("%s", warning)

    async def _topic(self, name: str, *, fresh: bool = False) -> TopicQueues:
        """The queues of a topic; asks for it within max.block.ms."""
        problem = topic_name_problem(checked_topic(name))
        if problem:
            raise InvalidTopicError(problem)
        views = await self._cluster.metadata(
            [name], timeout_ms=self.settings.max_block_ms, fresh=fresh
        )
        return self._know(views[name])

    @staticmethod
    def _outgrown(topic: TopicQueues, record: ProducerRecord) -> bool:
        """Whether the record names a partition that the topic may have got meanwhile."""
        return record.partition is not None and record.partition >= topic.count

    async def _stop(self) -> None:
        """Fail what is left and let go of the loop."""
        await stop_sending(self._sender, self._cluster)

    def _retire(self, why: KafkaError) -> None:
        """From now on every send fails with `why`."""
        with self._lock:
            self._unusable = why
            self._plain.clear()
            self._topics.clear()

    def _check_usable(self) -> None:
        if self._unusable is not None:
            raise self._unusable
        if self._sender.fatal is not None:
            raise self._sender.fatal

    def _flush_begins(self, token: object) -> list[BatchFuture]:
        """No batch lingers from now on; what must be done for the flush to be over."""
        self._check_usable()
        if self._owns_lock():
            raise interrupted("flush()")
        with self._lock:
            self._accumulator.flushing.add(token)
            pending = [batch.future for batch in self._accumulator.incomplete]
            self._sender.wake()
        return pending

    def _flush_ends(self, token: object) -> None:
        self._accumulator.flushing.discard(token)

    # -- told to the caller

    def explain(self) -> str:
        """The settings that are not at their defaults, who set them, and why."""
        return self.settings.explain()

    def metrics(self) -> dict[str, float]:
        """What this producer counted, under Kafka's names."""
        return self._sender.metrics.read(self._clock.monotonic_ms())

"""Records that wait to be sent: one queue of batches per partition, all within buffer.memory.

Pure: `now_ms` is an argument; nothing here wakes a thread or takes a lock. Callers hold the
producer's one lock, with one exception: the compiled `send` appends to `queue.open` without it. So a
batch leaves `open` before its records are counted, and enters it with its first record.

Ctrl-C may raise in the caller's thread after any call. So updates that belong together are
statements without a call between them, and a batch is in its queue whenever it is `incomplete`.

The order is kept: a partition's batches leave its queue in the order in which they were filled, a
batch that is retried returns to its place, and the parts of a batch that is too large take its
place.
"""

from collections import deque
from collections.abc import Callable, Sequence

from headwater.client.producer.futures import BatchFuture, OnDelivery, RecordMetadata
from headwater.config.client import ProducerSettings
from headwater.errors import KafkaError
from headwater.model import NO_EPOCH, NO_SEQUENCE, ZERO_UUID, TopicPartition, Uuid
from headwater.records.batch import HEADER_SIZE, Buffer
from headwater.records.codec import BatchWriter, decode_batch

_NO_VALUES: list[bytes | None] = []
_NO_LIMIT = 1 << 31
_GROWN = 262_144
"""The size up to which a waiting batch grows; more would not make it faster."""
_RECORD_OVERHEAD = 21
"""The most bytes that lengths, deltas and attributes add to a record's key, value and headers."""


class ProducerBatch:
    """Records of one partition that are sent together."""

    __slots__ = (
        "append", "attempts", "attempts_at_leader", "base_sequence", "callbacks", "count", "deadline_ms", "epoch", "filled", "future",
        "in_flight", "leader_epoch", "limit_ms", "order", "problem", "producer_id", "queue", "records", "reserved", "retry_at_ms",
        "stamp", "stop", "topic_id", "uncertain", "values", "widest", "writer",
    )  # fmt: skip

    def __init__(
        self, queue: "PartitionQueue", writer: BatchWriter, reserved: int, limits: tuple[int, int]
    ) -> None:
        self.queue = queue
        self.order: tuple[int, ...] = (queue.begun,)
        """Its place among all batches of the partition; a part's number comes second."""
        self.writer: BatchWriter | None = writer
        self.append = writer.append
        self.future = BatchFuture(queue.topic, queue.partition, queue.loop_thread)
        self.reserved = reserved
        self.limit_ms, self.deadline_ms = limits
        """When it is sent even if not full; when it expires."""
        self.callbacks: list[tuple[OnDelivery, int, int]] = []
        self.attempts = 0
        self.leader_epoch = NO_EPOCH
        self.topic_id = ZERO_UUID
        self.attempts_at_leader = 0
        """The epoch of the leader that it was sent to last, and how often it was sent in this epoch."""
        self.retry_at_ms = 0
        self.problem: KafkaError | None = None
        """Why the last attempt failed."""
        self.in_flight = False
        self.uncertain = False
        """Whether it was sent without an answer: the broker may or may not have stored it."""
        self.records: Buffer | None = None
        self.count = 0
        self.filled = 0
        """Number of records and bytes, once it is sealed."""
        self.values: list[bytes | None] = _NO_VALUES
        self.stop = 0
        self.widest = 0
        self.stamp = 0
        """For the fast path in plain Python: see `pure_fast_send`."""
        self.producer_id = -1
        self.epoch = -1
        self.base_sequence = NO_SEQUENCE

    @property
    def size(self) -> int:
        """Its size in bytes; before compression until it is encoded."""
        if self.records is not None:
            return len(self.records)
        return self.writer.size if self.writer is not None else 0

    @property
    def written(self) -> int:
        """The number of its records, also before it is sealed."""
        return self.count or (self.writer.count if self.writer is not None else 0)

    def seal(self) -> None:
        """Close the batch for further records."""
        if self.writer is not None:
            self.count, self.filled = self.writer.count, self.writer.size

    def repair(self) -> None:
        """Repair the batch after an exception interrupted an append of the pure codec."""
        self.stop = 0
        repair = getattr(self.writer, "repair", None)
        if repair is not None:
            repair()

    def encoded(self, codec: int, level: int | None, transactional: bool = False) -> Buffer:
        """Return the bytes to send; a retry sends the same bytes."""
        if self.records is None:
            assert self.writer is not None
            self.records = self.writer.finish(
                codec, level, self.producer_id, self.epoch, self.base_sequence, transactional
            )
        return self.records

    def renumber(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Set another producer id, epoch and sequence; the batch is encoded again."""
        self.producer_id, self.epoch, self.base_sequence = producer_id, epoch, base_sequence
        self.records = None

    def finish(
        self, tell: Callable[[OnDelivery, RecordMetadata | None, KafkaError | None], None]
    ) -> None:
        """Call `tell` for each record with a callback, and free the memory: the future is done."""
        error = self.future.error
        for call, index, timestamp in self.callbacks:
            metadata = None if error else self.future.metadata(index, timestamp)
            tell(call, metadata, error)
        self.callbacks = []
        self.writer = None
        self.records = None


class PartitionQueue:
    """The batches of one partition: `open` is being filled, `sealed` wait in order."""

    __slots__ = (
        "begun", "key", "largest", "loop_thread", "open", "partition", "sealed", "stored_ms", "topic"
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, loop_thread: int = 0) -> None:
        self.topic = topic
        self.loop_thread = loop_thread
        self.partition = partition
        self.key = TopicPartition(topic, partition)
        self.open: ProducerBatch | None = None
        self.sealed: deque[ProducerBatch] = deque()
        self.begun = 0
        """The number of batches opened so far."""
        self.largest = _NO_LIMIT
        """The size limit of its batches, after the broker refused a larger one."""
        self.stored_ms = 0
        """When a batch was acknowledged last."""

    @property
    def load(self) -> int:
        """The number of waiting batches, for a partitioner that prefers short queues."""
        return len(self.sealed) + (self.open is not None)

    def head(self) -> ProducerBatch | None:
        """The batch to send first."""
        return self.sealed[0] if self.sealed else self.open


class Accumulator:
    """All queues of one producer, and the memory they share."""

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: int,
        buffer_memory: int,
        delivery_timeout_ms: int,
        largest_batch: int = 0,
    ) -> None:
        self.batch_size = batch_size
        self.largest_batch = max(largest_batch, batch_size)
        """How far batches may grow while others of their partition wait before them."""
        self.linger_ms = linger_ms
        self.buffer_memory = buffer_memory
        self.delivery_timeout_ms = delivery_timeout_ms
        self.used = 0
        self.waiting: dict[PartitionQueue, None] = {}
        """Queues with a batch to send, the least recently served first."""
        self.incomplete: dict[ProducerBatch, None] = {}
        self.flushing: set[object] = set()
        """Waiting flush() calls: while there are any, no batch lingers."""
        self.starved: dict[Callable[[], object], int] = {}
        """Callers that wait for room, with their sizes: while there are any, no batch lingers."""
        self.loop_thread = 0
        """The thread of the producer's event loop, once it runs."""
        self._queues: dict[tuple[str, int], PartitionQueue] = {}

    @classmethod
    def of(cls, settings: ProducerSettings) -> "Accumulator":
        """Create one from the settings; if batch.size was set, waiting batches do not grow."""
        chosen = "batch.size" in settings.chosen
        return cls(
            batch_size=min(settings.batch_size, settings.max_request_size),
            linger_ms=settings.linger_ms,
            buffer_memory=settings.buffer_memory,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            largest_batch=0 if chosen else min(settings.max_request_size, _GROWN),
        )

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """Return the queue of a partition; the same one each time."""
        found = self._queues.get((topic, partition))
        if found is None:
            found = self._queues[topic, partition] = PartitionQueue(
                topic, partition, self.loop_thread
            )
        return found

    def begin(self, queue: PartitionQueue, record_size: int, now_ms: int) -> ProducerBatch | None:
        """Seal the open batch of `queue` and return a new one; None without enough memory.

        `show` adds it to the queue, with its first record.

        A batch reserves batch.size, or the size of its first record if that is more.
        """
        self.seal(queue)
        limit = self._limit(queue)
        if not self.has_room(max(limit, record_size)):
            limit = min(self.batch_size, queue.largest)
        reserved = max(limit, record_size)
        if not self.has_room(reserved):
            return None
        limits = now_ms + self.linger_ms, now_ms + self.delivery_timeout_ms
        queue.begun += 1
        return ProducerBatch(queue, BatchWriter(limit), reserved, limits)

    def has_room(self, size: int) -> bool:
        """Return whether `size` bytes are free; a single batch may be larger than the buffer."""
        return not self.used or self.used + size <= self.buffer_memory

    def show(self, batch: ProducerBatch) -> None:
        """Make `batch` the open batch of its queue, and reserve its memory."""
        queue = batch.queue
        self.incomplete[batch] = None
        self.used += batch.reserved
        self.waiting[queue] = None
        queue.open = batch

    def _limit(self, queue: PartitionQueue) -> int:
        """batch.size, doubled for each batch that waits before this one.

        Records that cannot be sent yet may as well be sent together: a producer that is faster than
        its broker gets fewer, larger batches; with many active partitions, each grows less.
        """
        grown = min(self.batch_size << min(len(queue.sealed), 16), self.largest_batch)
        fair = self.buffer_memory // (2 * len(self.waiting) + 2)
        grown = max(min(grown, fair), self.batch_size)
        return min(grown, queue.largest)

    def seal(self, queue: PartitionQueue) -> None:
        """Seal the open batch of `queue` and append it to the waiting ones."""
        batch = queue.open
        if batch is None:
            return
        if not queue.sealed or queue.sealed[-1] is not batch:  # if a seal was interrupted
            queue.sealed.append(batch)
        queue.open = None
        batch.seal()

    def due_ms(self, queue: PartitionQueue, batch: ProducerBatch) -> int:
        """Return when to send `batch`, the next of `queue`; 0 for now."""
        if batch.retry_at_ms:
            return batch.retry_at_ms
        if queue.sealed or self.flushing or self.starved:
            return 0
        return batch.limit_ms

    def mark_in_flight(
        self, batch: ProducerBatch, leader_epoch: int = NO_EPOCH, topic_id: Uuid = ZERO_UUID
    ) -> None:
        """Remove `batch` from its queue: it is in flight to the leader of this epoch."""
        queue = batch.queue
        if batch is queue.open:
            self.seal(queue)
        queue.sealed.remove(batch)
        batch.seal()  # again: an interruption may have prevented the first call
        batch.in_flight = True
        batch.topic_id = topic_id
        batch.attempts += 1
        if leader_epoch != batch.leader_epoch:
            batch.leader_epoch, batch.attempts_at_leader = leader_epoch, 0
        batch.attempts_at_leader += 1
        self._requeue(queue)

    def put_back(self, batch: ProducerBatch, retry_at_ms: int) -> None:
        """Return a batch in flight to its place in the queue, to be sent again."""
        batch.in_flight = False
        batch.retry_at_ms = retry_at_ms
        self._insert(batch)

    def end_rests(self, queue: PartitionQueue) -> None:
        """The partition has another leader: nothing that waits for a second attempt waits longer."""
        for batch in queue.sealed:
            batch.retry_at_ms = 0

    def split(self, batch: ProducerBatch, size_limit: int) -> list[ProducerBatch]:
        """Replace a batch in flight by smaller ones, which share its memory.

        Each part holds at most `size_limit` bytes, or a single record; so do later batches.
        """
        assert batch.records is not None
        batch.queue.largest = min(batch.queue.largest, size_limit)
        _, rows = decode_batch(batch.records, 0, False)
        parts: list[tuple[int, ProducerBatch]] = []
        for index, (_, timestamp, _, key, value, headers) in enumerate(rows):
            if not parts or parts[-1][1].append(timestamp, key, value, headers) < 0:
                limits = batch.limit_ms, batch.deadline_ms
                part = ProducerBatch(batch.queue, BatchWriter(size_limit), 0, limits)
                part.append(timestamp, key, value, headers)
                parts.append((index, part))
        self._hand_over(batch, parts)
        return [part for _, part in parts]

    def _hand_over(self, batch: ProducerBatch, parts: list[tuple[int, ProducerBatch]]) -> None:
        for call, index, timestamp in batch.callbacks:
            start, part = next(row for row in reversed(parts) if row[0] <= index)
            part.callbacks.append((call, index - start, timestamp))
        batch.callbacks = []
        parts[0][1].reserved = batch.reserved
        batch.reserved = 0
        for number, (_, part) in enumerate(parts):
            part.seal()
            part.order = (*batch.order, number)
            self._insert(part)
            self.incomplete[part] = None
        self.incomplete.pop(batch, None)
        batch.future.split([(start, part.future) for start, part in parts])

    def complete(self, batch: ProducerBatch) -> None:
        """Free the memory of a batch that is stored or has failed."""
        if self.incomplete.pop(batch, batch) is None:
            self.used -= batch.reserved

    def expired(self, now_ms: int) -> list[ProducerBatch]:
        """Remove and return the expired batches, including those in flight."""
        gone = [batch for batch in self.incomplete if batch.deadline_ms <= now_ms]
        self._remove(gone)
        return gone

    def stalled(self, since_ms: int) -> dict[PartitionQueue, list[ProducerBatch]]:
        """Return the batches of each queue that was due but stored nothing since `since_ms`."""
        found: dict[PartitionQueue, list[ProducerBatch]] = {}
        for batch in self.incomplete:
            queue = batch.queue
            if queue in found:
                found[queue].append(batch)
            elif batch.limit_ms > since_ms:
                break  # they are in the order of their age: all others are younger
            elif queue.stored_ms <= since_ms:
                found[queue] = [batch]
        return found

    def unsent(self) -> list[ProducerBatch]:
        """Remove and return the batches that were never sent and have no number."""
        gone = [batch for batch in self.incomplete if batch.base_sequence == NO_SEQUENCE]
        self._remove(gone)
        return gone

    def _remove(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            queue = batch.queue
            if batch is queue.open:
                self.seal(queue)
            if batch in queue.sealed:
                queue.sealed.remove(batch)
            self._requeue(queue)

    def clear(self) -> list[ProducerBatch]:
        """Remove and return all batches, including those in flight."""
        gone = list(self.incomplete)
        for queue in self._queues.values():
            self.seal(queue)
            queue.sealed.clear()
        self.waiting.clear()
        return gone

    def _insert(self, batch: ProducerBatch) -> None:
        sealed = batch.queue.sealed
        place = 0
        while place < len(sealed) and sealed[place].order < batch.order:
            place += 1
        sealed.insert(place, batch)
        self.waiting[batch.queue] = None

    def _requeue(self, queue: PartitionQueue) -> None:
        """Update `waiting`, keeping the least recently served queues first."""
        self.waiting.pop(queue, None)
        if queue.sealed or queue.open is not None:
            self.waiting[queue] = None


def record_bound(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> int:
    """Return the largest possible size of a batch with this one record."""
    size = HEADER_SIZE + _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 2 * 5 + 4 * len(name) + len(content or b"")
    return size

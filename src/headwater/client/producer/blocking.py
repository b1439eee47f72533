"""The blocking face of the producer, for any number of threads."""

import logging
import threading
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from headwater.client.blocking import LoopThread, forked_error, register, unregister
from headwater.client.errors import ClosedError, TimedOutError
from headwater.client.producer.accumulator import record_bound
from headwater.client.producer.bulk import Load, SentMany, Table
from headwater.client.producer.dropped import Leftover
from headwater.client.producer.futures import BatchFuture, OnDelivery, SendFuture
from headwater.client.producer.interceptors import ProducerRecord
from headwater.client.producer.producer_core import ProducerCore
from headwater.client.producer.topic_queues import TopicQueues
from headwater.client.waits import Deadline, OneShotEvent
from headwater.errors import KafkaError

log = logging.getLogger(__name__)

GIVE_WAY_S = 0.001


class Producer(ProducerCore):
    """Sends records, from any thread; `send` returns at once while there is room.

    ```python
    with Producer(bootstrap_servers="localhost:9092") as producer:
        future = producer.send("orders", b"42", key=b"customer-7")
        print(future.result().offset)
    ```

    Settings are Kafka's, with underscores; `profile` is "durable", "throughput" or "latency".
    Beside them: `key_serializer` and `value_serializer` (a function, or "string", "bytes", "int",
    "long", "double", "uuid", "json"), `partitioner` (a function of topic, key, value and number of
    partitions) and `interceptors`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._closed = False
        self._finalizer: weakref.finalize[..., Any] | None = (
            None  # a fork may come before it is made
        )
        self._thread: LoopThread = register(self)
        self._thread.call(self._start())
        leftover = Leftover(self._thread, self._sender, self._cluster, self._accumulator)
        self._finalizer = weakref.finalize(self, leftover.dropped)
        self._finalizer.atexit = False

    def send_many(self, topic: str, values: Iterable[Any]) -> SentMany:
        """Send values without keys, in order and in bulk: the quickest way.

        Every value goes to the partitions that `send` would choose; one future tells of all.
        """
        sent = SentMany()
        if self._interceptors is not None or self._partitioner is not None:
            for value in values:
                future, index, _ = self.send(topic, value)
                sent.add(future, index, 1)
            return sent
        self._check_usable()
        return self._send_loads(self._topic_now(topic), self._value_loads(values, topic), sent)

    def send_table(
        self, topic: str, table: Table, *, key: str | None = None, value: str = "value"
    ) -> SentMany:
        """Send the rows of an Arrow table; `key` and `value` name columns of bytes or text."""
        self._check_usable()
        known = self._topic_now(topic)
        return self._send_loads(known, self._table_loads(known, table, key, value), SentMany())

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record sent so far is stored or given up.

        TimedOutError after `timeout` seconds; the records are still under way then.
        """
        self._thread.refuse_here("flush()")
        token = object()
        try:
            self._wait_for(self._flush_begins(token), timeout)
        finally:
            self._flush_ends(token)

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return list(range(self._topic_now(topic).count))

    def close(self, timeout: float | None = None) -> None:
        """Flush and let go of everything; records not stored after `timeout` seconds fail.

        In a signal handler that interrupts `send` it goes on in a thread of its own, because that
        `send` must be left first; the program ends when it has ended.
        """
        self._thread.refuse_here("close()")
        if self._owns_lock():
            log.warning(
                "close() in a signal handler that interrupted send(): it goes on in a thread"
            )
            threading.Thread(target=self.close, args=(timeout,), name="headwater-close").start()
            return
        if self._closed:
            return
        try:
            if self._unusable is None and self._sender.fatal is None:
                self.flush(timeout)
        except (TimedOutError, ClosedError):
            pass  # whoever holds a future hears of it below
        finally:
            self._retire(ClosedError("the producer is closed: make another"))
            self._thread.call(self._stop())
            unregister(self)
            self._detach_finalizer()
            self._closed = True

    def loop_ended(self, error: KafkaError) -> None:
        """The background loop has ended: fail what waits, and every later send."""
        self._sender.die(error)

    def forked(self) -> None:
        """In a child process: fail with a word of what to do."""
        self._closed = True
        self._detach_finalizer()
        self._new_lock()
        self._retire(forked_error("Producer"))

    def _detach_finalizer(self) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- waiting

    def _deliver(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> SendFuture:
        topic = self._topic_now(record.topic)
        if self._outgrown(topic, record):
            topic = self._thread.call(self._topic(record.topic, fresh=True))
        future = self._offer(topic, record, on_delivery)
        if future is None:
            limit = Deadline(self.settings.max_block_ms / 1000, self._clock)
            size = record_bound(record.key, record.value, record.headers)
            while future is None:
                self._wait_for_room(size, limit)
                future = self._offer(topic, record, on_delivery)
        if self._crowded:
            self._give_way()
        return future

    def _give_way(self) -> None:
        """Wait for the sender's next turn.

        Python lets another thread run only every 5 ms while this one never waits; the brokers would
        idle meanwhile.
        """
        self._crowded = False
        if not self._thread.is_current:
            turned = OneShotEvent()
            self._sender.turned.append(turned)
            turned.wait(GIVE_WAY_S)

    def _send_loads(self, topic: TopicQueues, loads: Iterable[Load], sent: SentMany) -> SentMany:
        for _ in self._bulk(topic, loads, sent):
            self._wait_for_room(0, Deadline(self.settings.max_block_ms / 1000, self._clock))
        return sent

    def _topic_now(self, name: str) -> TopicQueues:
        return self._topics.get(name) or self._thread.call(self._topic(name))

    def _wait_for_room(self, size: int, limit: Deadline) -> None:
        self._check_usable()
        if self._thread.is_current:
            raise self._no_room("inside a callback, which must not wait for it")
        begun = self._clock.monotonic_ms()
        told = OneShotEvent()
        notice = told.set
        try:
            self._want_room(size, notice)
            if not told.wait(limit.left()):
                raise self._no_room(f"within max.block.ms ({self.settings.max_block_ms} ms)")
        finally:
            self._room_wait_ended(notice, self._clock.monotonic_ms() - begun)
        self._check_usable()

    def _wait_for(self, pending: list[BatchFuture], timeout: float | None) -> None:
        limit = Deadline(timeout)
        while pending:
            if not pending[0].wait(limit.left()):
                raise TimedOutError(
                    f"{len(pending)} batches were not acknowledged within {timeout:g} s"
                )
            pending = [late for future in pending for late in future.pending()]

"""The blocking face of the producer, for any number of threads."""

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from headwater.client.blocking import LoopThread, forked_error, register, unregister
from headwater.client.errors import ClosedError, TimedOutError
from headwater.client.producer.bulk import Load, SentMany, Table
from headwater.client.producer.futures import BatchFuture, OnDelivery, SendFuture
from headwater.client.producer.interceptors import ProducerRecord
from headwater.client.producer.sending import Sending
from headwater.client.producer.topic_queues import TopicQueues

GIVE_WAY_S = 0.001


class Producer(Sending):
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
        self._closing = threading.Lock()
        self._thread: LoopThread = register(self)
        self._thread.call(self._start())

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
        pending = self._flush_begins()
        try:
            self._wait_for(pending, timeout)
        finally:
            self._flush_ends()

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return list(range(self._topic_now(topic).count))

    def close(self, timeout: float | None = None) -> None:
        """Flush and let go of everything; records not stored after `timeout` seconds fail."""
        with self._closing:
            if self._unusable is not None:
                return
            try:
                if self._sender.fatal is None:
                    self.flush(timeout)
            except TimedOutError:
                pass  # whoever holds a future hears of it below
            finally:
                self._retire(ClosedError("the producer is closed: make another"))
                unregister(self)
                self._thread.call(self._stop())

    def forked(self) -> None:
        """In a child process: fail with a word of what to do."""
        self._closing = threading.Lock()
        self._new_lock()
        self._retire(forked_error("Producer"))

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
        future = self._offer(topic, record, on_delivery)
        while future is None:
            self._wait_for_room(self.settings.batch_size)
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
        self._sender.turned.clear()
        self._sender.turned.wait(GIVE_WAY_S)

    def _send_loads(self, topic: TopicQueues, loads: Iterable[Load], sent: SentMany) -> SentMany:
        for _ in self._bulk(topic, loads, sent):
            self._wait_for_room(self.settings.batch_size)
        return sent

    def _topic_now(self, name: str) -> TopicQueues:
        return self._topics.get(name) or self._thread.call(self._topic(name))

    def _wait_for_room(self, size: int) -> None:
        self._check_usable()
        begun = self._clock.monotonic_ms()
        told = threading.Event()
        self._want_room(size, told.set)
        try:
            if not told.wait(self.settings.max_block_ms / 1000):
                raise self._no_room()
        finally:
            self._room_wait_ended(self._clock.monotonic_ms() - begun)
        self._check_usable()

    def _wait_for(self, pending: list[BatchFuture], timeout: float | None) -> None:
        limit = None if timeout is None else self._clock.monotonic_ms() + 1000 * timeout
        while pending:
            left = None if limit is None else max(limit - self._clock.monotonic_ms(), 0) / 1000
            if not pending[0].wait(left):
                raise TimedOutError(
                    f"{len(pending)} batches were not acknowledged within {timeout:g} s"
                )
            pending = [late for future in pending for late in future.pending()]

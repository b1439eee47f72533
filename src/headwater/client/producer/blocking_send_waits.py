"""The waits of the blocking producer: for metadata, for room, and for acknowledgments.

Callers wait in their own threads; the sender runs on the clients' loop thread.
"""

import logging
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from headwater.client.blocking import LoopThread, forked_error, register, unregister
from headwater.client.errors import ClosedError, TimedOutError
from headwater.client.producer.accumulator import record_bound
from headwater.client.producer.bulk import Load, SentMany, Table
from headwater.client.producer.dropped import Leftover
from headwater.client.producer.futures import OnDelivery, RecordMetadata, SendFuture
from headwater.client.producer.interceptors import ProducerRecord
from headwater.client.producer.locking import interrupted
from headwater.client.producer.producer_core import ProducerCore
from headwater.client.producer.topic_queues import TopicQueues
from headwater.client.waits import Deadline, OneShotEvent
from headwater.errors import KafkaError

if TYPE_CHECKING:  # loaded by the first transactional producer
    from headwater.client.producer.transaction_loop import TransactionLoop

log = logging.getLogger(__name__)

GIVE_WAY_S = 0.001


class BlockingSendWaits:
    """Waits for one producer, in the threads of its callers."""

    def __init__(self, owner: object, core: ProducerCore) -> None:
        self._core = core
        self._closed = False
        core.deliver = self.deliver
        core.give_way = self._give_way
        self._finalizer: weakref.finalize[..., Any] | None = None  # a fork may come before it
        self.thread: LoopThread = register(self)
        self.thread.call(_on_loop(core))
        self._end_with(owner)

    def _end_with(self, owner: object) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(owner, self._owner_dropped)
        self._finalizer.atexit = False

    def fast_send(self) -> Callable[..., Any] | None:
        """Return the fast path of the core, for the producer; None if there is none.

        From now on a producer is dropped once nobody holds or calls this: `send = producer.send`
        may outlive the producer's name.
        """
        otherwise = _OwnedSend(self._core)
        fast = self._core.fast_send(otherwise)
        if fast is not None:
            self._end_with(otherwise)
        return fast

    def start(self) -> None:
        """Do nothing: it started when it was created."""

    # -- sending

    def deliver(
        self, record: ProducerRecord, on_delivery: OnDelivery | None, full: TopicQueues | None
    ) -> SendFuture:
        """Append a record, waiting for its topic and for room; `full` is a topic without room."""
        core = self._core
        topic, future = full, None
        if topic is None:
            topic = self.topic(record.topic)
            if core.outgrown(topic, record):
                topic = self.thread.call(core.topic_queues(record.topic, fresh=True))
            future = core.offer(topic, record, on_delivery)
        if future is None:
            limit = self._room_deadline()
            size = record_bound(record.key, record.value, record.headers)
            while future is None:
                self._wait_for_room(size, limit)
                future = core.offer(topic, record, on_delivery)
        return future

    def topic(self, name: str) -> TopicQueues:
        return self._core.known_topic(name) or self.thread.call(self._core.topic_queues(name))

    def send_many(self, topic: str, values: Iterable[Any]) -> SentMany:
        known = self.topic(topic)
        return self._send_loads(known, self._core.value_loads(values, topic))

    def send_table(self, topic: str, table: Table, key: str | None, value: str) -> SentMany:
        known = self.topic(topic)
        return self._send_loads(known, self._core.table_loads_of(known, table, key, value))

    def _send_loads(self, topic: TopicQueues, loads: Iterable[Load]) -> SentMany:
        sent = SentMany()
        for _ in self._core.fill_batches(topic, loads, sent):
            self._wait_for_room(0, self._room_deadline())
        return sent

    def _room_deadline(self) -> Deadline:
        return Deadline(self._core.settings.max_block_ms / 1000, self._core.clock)

    def _wait_for_room(self, size: int, limit: Deadline) -> None:
        core = self._core
        core.check_usable()
        if self.thread.is_current:
            raise core.room.exhausted("inside a callback, which must not wait for it")
        begun = core.clock.monotonic_ms()
        event = OneShotEvent()
        wake = event.set
        try:
            core.room.begin_wait(size, wake, core.lock, core.sender)
            if not event.wait(limit.left()):
                when = f"within max.block.ms ({core.settings.max_block_ms} ms)"
                raise core.room.exhausted(when)
        finally:
            core.room.end_wait(wake, core.clock.monotonic_ms() - begun, core.sender)
        core.check_usable()

    def _give_way(self) -> None:
        """Wait for the sender's next turn.

        While this thread never waits, Python lets another thread run only every 5 ms, and the
        brokers would be idle.
        """
        if not self.thread.is_current:
            turned = OneShotEvent()
            self._core.sender.turned.append(turned)
            turned.wait(GIVE_WAY_S)

    def transact(self, call: Callable[["TransactionLoop"], Coroutine[Any, Any, None]]) -> None:
        """Run a call of the transactions on the loop."""
        self.thread.refuse_here("a call of a transaction")
        if self._core.owns_lock():
            raise interrupted("a call of a transaction")
        self.thread.call(call(self._core.transactions))

    def transact_now(self, call: Callable[["TransactionLoop"], None]) -> None:
        """Run a call of the transactions that does not wait, in this thread."""
        if self._core.owns_lock():
            raise interrupted("a call of a transaction")
        call(self._core.transactions)

    def result(self, future: SendFuture) -> RecordMetadata:
        return future.result()

    # -- the end

    def flush(self, timeout_s: float | None, *, closing: bool = False) -> None:
        self.thread.refuse_here("flush()")
        token, flushing = object(), self._core.accumulator.flushing
        try:
            pending, limit = self._core.begin_flush(token, closing=closing), Deadline(timeout_s)
            while pending:
                if not pending[0].wait(limit.left()):
                    raise TimedOutError(
                        f"{len(pending)} batches were not acknowledged within {timeout_s:g} s"
                    )
                pending = [late for future in pending for late in future.pending()]
        finally:
            flushing.discard(token)  # not a call that Ctrl-C could interrupt

    def close(self, timeout: float | None = None) -> None:
        """Flush and stop.

        A signal handler that interrupts `send` must return first: close() then continues in its own
        thread, and the program ends after that thread.
        """
        core = self._core
        self.thread.refuse_here("close()")
        if core.owns_lock():
            log.warning(
                "close() in a signal handler that interrupted send(): it goes on in a thread"
            )
            threading.Thread(target=self.close, args=(timeout,), name="headwater-close").start()
            return
        if self._closed:
            return
        try:
            if core.sender.fatal is None:  # a second close() waits as well
                if core.initialized and core.unusable is None:
                    self.thread.call(core.end_transaction(timeout))
                core.refuse_sends()
                if core.sender.fatal is None:
                    self.flush(timeout, closing=True)
        except (TimedOutError, ClosedError):
            pass  # the futures of those records fail below
        finally:
            core.refuse_sends()
            self.thread.call(core.stop())
            unregister(self)
            if self._finalizer is not None:
                self._finalizer.detach()
            self._closed = True

    def _owner_dropped(self) -> None:
        """Let the loop thread send the records of a producer that was dropped without close()."""
        unregister(self)
        core = self._core
        Leftover(self.thread, core.sender, core.cluster, core.accumulator).dropped()

    def loop_ended(self, error: KafkaError) -> None:
        """Fail unsent records and every later send: the background loop has ended."""
        self._core.sender.die(error)

    def forked(self) -> None:
        """In a child process: let every call fail with ForkedError."""
        self._closed = True
        if self._finalizer is not None:
            self._finalizer.detach()
        self._core.new_lock()
        self._core.make_unusable(forked_error("Producer"))


class _OwnedSend:
    """The general `send` of a core, in an object of its own that the core does not hold."""

    __slots__ = ("__weakref__", "_core")

    def __init__(self, core: ProducerCore) -> None:
        self._core = core

    def __call__(self, *record: Any) -> SendFuture:
        return ProducerCore.send(self._core, *record)


async def _on_loop(core: ProducerCore) -> None:
    core.start()

"""The results of sent records: one future per batch, and a light view per record.

A view is made for every record and mostly discarded, so it is a bare tuple of its batch's future
and its index; everything else is computed on demand. The future of a batch has no lock: each list
is appended to before `done` is read, and emptied after `done` is set.
"""

import asyncio
import sys
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from headwater.client.errors import TimedOutError
from headwater.client.producer.losses import Unheard
from headwater.client.waits import Deadline, OneShotEvent, call_guarded
from headwater.errors import KafkaError
from headwater.model import NO_OFFSET

NO_PARTITION = -1


class RecordMetadata(NamedTuple):
    """Where a record is stored; the offset is -1 if the broker did not report it (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def filtered(self) -> bool:
        """Whether an interceptor dropped the record: it was not sent, and partition is -1."""
        return self.partition == NO_PARTITION


OnDelivery = Callable[[RecordMetadata | None, KafkaError | None], object]
"""Called once for a record: with its metadata, or with the error."""

Hook = Callable[[], None]


class BatchFuture:
    """The future of one batch."""

    __slots__ = (
        "_waiters",
        "base_offset",
        "done",
        "error",
        "log_append_time",
        "loop_thread",
        "partition",
        "parts",
        "released",
        "topic",
        "unheard",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, loop_thread: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.loop_thread = loop_thread
        """The thread of the producer's event loop, which must not wait for this future."""
        self.done = False
        self.released = False
        """Whether it is done and every on_delivery has returned, so that waiters may continue."""
        self.base_offset = NO_OFFSET
        self.log_append_time = -1
        self.error: KafkaError | None = None
        self.parts: list[tuple[int, BatchFuture]] | None = None
        """If the batch was split: the first index of each part, and the part's future."""
        self.unheard: Unheard | None = None
        """If the batch failed: logs the error unless the application reads it."""
        self._waiters: deque[Callable[[], object]] = deque()

    def failure(self) -> KafkaError | None:
        """The batch's error; reading it counts as handling it."""
        if self.unheard is not None:
            self.unheard.heard = True
        return self.error

    def succeed(
        self, base_offset: int, log_append_time: int, before_release: Hook | None = None
    ) -> None:
        """Complete a stored batch; `before_release` calls the callbacks of its records."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self._finish(before_release)

    def fail(self, error: KafkaError, before_release: Hook | None = None) -> None:
        """Fail the batch; `before_release` as in `succeed`."""
        self.error = error
        self._finish(before_release)

    def split(self, parts: list[tuple[int, "BatchFuture"]]) -> None:
        """Smaller batches replace this one; its waiters wait for them instead."""
        self.parts = parts
        self._finish()

    def when_done(self, call: Callable[[], object]) -> None:
        """Call `call` once this is released; immediately if it already is."""
        self._waiters.append(call)
        if self.released:
            self._call_waiters()

    def metadata(self, index: int, timestamp: int) -> RecordMetadata:
        """Return the metadata of record `index`."""
        offset = NO_OFFSET if self.base_offset < 0 else self.base_offset + index
        when = timestamp if self.log_append_time < 0 else self.log_append_time
        return RecordMetadata(self.topic, self.partition, offset, when)

    def final_batch(self, index: int) -> "tuple[BatchFuture, int]":
        """Return the batch that finally holds record `index`, and its index there."""
        future = self
        while future.parts is not None:
            start, part = next(row for row in reversed(future.parts) if row[0] <= index)
            future, index = part, index - start
        return future, index

    def next_part(self, index: int) -> int:
        """Return the first index after `index` that may be in another batch."""
        if self.parts is None:
            return sys.maxsize
        starts = [start for start, _ in self.parts]
        place = bisect_right(starts, index) - 1
        start, part = self.parts[place]
        within = start + part.next_part(index - start)
        return min(within, starts[place + 1]) if place + 1 < len(starts) else within

    def pending(self) -> "list[BatchFuture]":
        """Return the unreleased batches among this one and its parts."""
        if self.parts is None:
            return [] if self.released else [self]
        return [late for _, part in self.parts for late in part.pending()]

    def wait(self, timeout: float | None) -> bool:
        """Block until this is released or split; return False if the time is over first."""
        if self.released:
            return True
        if threading.get_ident() == self.loop_thread:
            raise RuntimeError(
                "waiting for a record on the producer's own event loop would wait for itself: in a "
                "callback look at done() first or wait in another thread; in a coroutine use await"
            )
        told = OneShotEvent()
        self.when_done(told.set)
        return told.wait(timeout)

    def _finish(self, before_release: Hook | None = None) -> None:
        self.done = True
        try:
            if before_release is not None:
                before_release()
        finally:
            self.released = True
            self._call_waiters()

    def _call_waiters(self) -> None:
        while self._waiters:
            try:
                call = self._waiters.popleft()
            except IndexError:
                return  # another thread has called the last one
            call_guarded("a callback of a future", call)


class SendFuture(tuple[BatchFuture, int, int]):
    """The future of one record: `result()` in a thread, `await` in a coroutine."""

    __slots__ = ()

    def done(self) -> bool:
        """Whether the record is stored or has failed."""
        future, _ = self[0].final_batch(self[1])
        return future.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is stored; raise its error if it failed.

        Raises TimedOutError after `timeout` seconds; the record may still be stored.
        """
        future, index = self._wait(timeout)
        error = future.failure()
        if error is not None:
            raise error
        return future.metadata(index, self[2])

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Wait, and return the record's error, or None."""
        return self._wait(timeout)[0].failure()

    def add_done_callback(self, call: "Callable[[SendFuture], object]") -> None:
        """Call `call` with this future once it is done, on the client's loop thread."""
        future, _ = self[0].final_batch(self[1])
        future.when_done(lambda: self._call_when_done(call))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        future, index = self[0].final_batch(self[1])
        while not future.done:
            yield from batch_wakeup(future).__await__()
            future, index = future.final_batch(index)
        error = future.failure()
        if error is not None:
            raise error
        return future.metadata(index, self[2])

    def _call_when_done(self, call: "Callable[[SendFuture], object]") -> None:
        if self.done():
            call(self)
        else:  # the batch was split
            self.add_done_callback(call)

    def _wait(self, timeout: float | None) -> tuple[BatchFuture, int]:
        future, index = self[0].final_batch(self[1])
        deadline = None
        while not future.done:
            deadline = deadline or Deadline(timeout)
            if not future.wait(deadline.left()):
                raise TimedOutError(f"the record was not acknowledged within {timeout:g} s")
            future, index = future.final_batch(index)
        return future, index

    def __repr__(self) -> str:
        future, index = self[0].final_batch(self[1])
        state = "pending" if not future.done else repr(future.error) if future.error else "stored"
        return f"<SendFuture {future.topic}-{future.partition} [{index}] {state}>"


def batch_wakeup(future: BatchFuture) -> "asyncio.Future[None]":
    """Return an asyncio future that is done when `future` is."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not waiting.done():
            waiting.set_result(None)

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish)

    future.when_done(wake)
    return waiting

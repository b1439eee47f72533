"""Parallel work on the records of one consumer, in order per key or partition.

Workers take records from lanes (`lanes.py`); the thread or task that called `process` polls, fills
the lanes, and commits the finished prefix of each partition. Failed work is retried; after that,
the record goes to a dead letter topic, or `process` raises an error: no record is skipped
silently.
"""

import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.consumer.processing.dead_letters import DeadLetters
from headwater.client.consumer.processing.options import ProcessOptions
from headwater.client.consumer.processing.waiters import ProcessWaiter
from headwater.client.consumer.record import ConsumerRecord, Records
from headwater.client.errors import ClientError, WakeupError
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition

log = logging.getLogger(__name__)

_POLL_S = 0.1


class ProcessingError(ClientError):
    """The work on a record failed after all retries, and there is no dead letter topic."""

    CODE = E.INVALID_RECORD

    def __init__(self, record: ConsumerRecord[Any, Any], attempts: int) -> None:
        super().__init__(
            f"{record.topic_partition} at offset {record.offset}: the work failed {attempts} "
            "times. Nothing from there on is committed: fix it and start again, or pass "
            "dead_letter_topic to store such records there"
        )
        self.record = record


class Processing:
    """One run of `process`."""

    def __init__(self, core: ConsumerCore, waiter: ProcessWaiter, options: ProcessOptions) -> None:
        self._core = core
        self._waiter = waiter
        self._consumer = waiter.consumer
        self._options = options
        self._lanes = options.lanes
        self._dead_letters = DeadLetters(core.settings, options.dead_letter_topic, waiter)
        self._stopping = False
        self._failed: BaseException | None = None
        self._done = 0

    async def run(self) -> int:
        """Work until `stop`, wakeup() or a failure; return the number of processed records."""
        async with self._dead_letters:
            with self._core.raw_records(), self._listening():
                try:
                    await self._waiter.run_workers(
                        self._worker, self._options.workers, self._feed, self._stop_workers
                    )
                except BaseException:
                    # Cancelled or interrupted: only finished records count.
                    await self._waiter.finish_cancelled(self._finish())
                    if self._failed is not None:
                        log.warning("process() was cancelled, and failed: %r", self._failed)
                    raise
                await self._finish()
        if self._failed is not None:
            raise self._failed
        return self._done

    def stop(self) -> None:
        """Finish the records in progress and return. Safe from any thread."""
        self._stopping = True
        self._consumer.wakeup()

    def _stop_workers(self) -> None:
        self._stopping = True
        self._waiter.notify()

    def _fail(self, problem: BaseException) -> None:
        """Keep the first failure, which process() raises; log others."""
        if self._failed is None:
            self._failed = problem
        else:
            log.warning("process() failed a second time: %r", problem)

    # -- the thread or task that polls

    async def _feed(self) -> None:
        try:
            await self._feed_lanes()
        except WakeupError:
            pass  # another thread ended it
        except Exception as problem:  # noqa: BLE001 - raised by run()
            self._fail(problem)

    async def _feed_lanes(self) -> None:
        interval = self._options.commit_interval_s
        deadline = self._core.deadline(interval)
        while not self._stopping and self._failed is None:
            records = await self._poll()
            with self._waiter.lock:
                self._lanes.add(records)
            self._waiter.notify()
            if self._core.deadline(0) >= deadline:
                self._commit_news()
                deadline = self._core.deadline(interval)

    async def _poll(self) -> Records[Any, Any]:
        """Poll for records; while the workers have enough, poll only to stay in the group."""
        with self._waiter.lock:
            room = self._options.max_unfinished - self._lanes.unfinished
        records: Records[Any, Any]
        if room > 0:
            limit = min(room, self._core.settings.max_poll_records)
            records = await self._waiter.call(self._consumer.poll, _POLL_S, limit)
            return records
        resting = self._consumer.assignment() - self._consumer.paused()
        try:
            self._consumer.pause(resting)
            records = await self._waiter.call(self._consumer.poll, 0)
            await self._waiter.wait_for(self._has_room_or_stops, _POLL_S)
        finally:
            self._consumer.resume(resting & self._consumer.assignment())
        return records

    def _has_room_or_stops(self) -> bool:
        return self._stopping or self._lanes.unfinished < self._options.max_unfinished

    def _commit_news(self) -> None:
        with self._waiter.lock:
            news = self._lanes.commits()
        if news:
            self._consumer.commit_async(dict(news))

    async def _finish(self) -> None:
        """Seek back to the first unfinished records, and commit the finished ones."""
        self._core.cancel_wakeup()
        try:
            with self._waiter.lock:
                done = self._lanes.committable()
            mine = self._consumer.assignment()
            offsets = {name: offset for name, offset in done.items() if name in mine}
            for partition, offset in offsets.items():
                self._consumer.seek(partition, offset)
            self._core.resume_auto_commit()
            if offsets:
                await self._waiter.call(self._consumer.commit, dict(offsets))
        except Exception as problem:  # noqa: BLE001 - raised by run()
            self._fail(problem)

    # -- workers

    async def _worker(self) -> None:
        try:
            while (record := await self._next_record()) is not None:
                if not await self._work_on(record):
                    return
                with self._waiter.lock:
                    self._lanes.finish(record)
                    self._done += 1
                self._waiter.notify()
        except BaseException as problem:
            if not self._waiter.contains(problem):
                raise
            self._fail(problem)
            self._stop_workers()

    async def _next_record(self) -> ConsumerRecord[Any, Any] | None:
        """Wait for a record to process; None at the end."""
        record: ConsumerRecord[Any, Any] | None = None

        def found() -> bool:
            nonlocal record
            if not self._stopping:
                record = self._lanes.next()
            return self._stopping or record is not None

        await self._waiter.wait_for(found)
        return record

    async def _work_on(self, record: ConsumerRecord[Any, Any]) -> bool:
        """Process a record; return False if it failed and `process` ended before a retry."""
        attempt = 0
        while True:
            try:
                wrong_kind = await self._waiter.work(self._options.shape(record))
            except Exception as problem:
                if self._options.retries_after(problem, attempt):
                    rest_s = self._options.rest_s(attempt)
                    await self._waiter.wait_for(lambda: self._stopping, rest_s)
                    if self._stopping:
                        return False
                    attempt += 1
                    continue
                if not self._dead_letters.wanted:
                    raise ProcessingError(record, attempt + 1) from problem
                await self._dead_letters.send(record, problem, attempt + 1)
                return True
            if wrong_kind is not None:
                raise wrong_kind
            return True

    # -- rebalances

    @contextmanager
    def _listening(self) -> Iterator[None]:
        inner = self._core.listener
        self._core.listener = _DrainingListener(self, inner or RebalanceListener(), self._waiter)
        try:
            yield
        finally:
            self._core.listener = inner

    async def drain(self, partitions: list[TopicPartition]) -> None:
        """Before partitions are revoked, let their records in progress finish, and commit them."""
        lanes = self._lanes
        with self._waiter.lock:
            lanes.hold_back(partitions)
        await self._waiter.wait_for(
            lambda: not lanes.at_work(partitions) or self._failed is not None,
            self._core.settings.max_poll_interval_ms / 2000,
        )  # another member repeats what is still in progress
        with self._waiter.lock:
            offsets = {n: o for n, o in lanes.committable().items() if n in set(partitions)}
        try:
            if offsets:
                await self._waiter.call(self._consumer.commit, dict(offsets))
        except KafkaError as problem:  # another member repeats the records
            log.warning("the commit of finished work before a rebalance failed: %s", problem)
        self.forget(partitions)

    def forget(self, partitions: list[TopicPartition]) -> None:
        """Drop partitions that went to other members."""
        with self._waiter.lock:
            self._lanes.forget(partitions)
        self._waiter.notify()


class _DrainingListener(RebalanceListener):
    """Finishes work before it calls the listener of the application."""

    def __init__(
        self, processing: Processing, inner: RebalanceListener, waiter: ProcessWaiter
    ) -> None:
        self._processing = processing
        self._inner = inner
        self._waiter = waiter

    def on_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        return self._inner.on_assigned(partitions)

    def on_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        return self._waiter.start(self._revoked(partitions))

    def on_lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        self._processing.forget(partitions)
        return self._inner.on_lost(partitions)

    async def _revoked(self, partitions: list[TopicPartition]) -> None:
        await self._processing.drain(partitions)
        await self._waiter.call(self._inner.on_revoked, partitions)

"""Parallel work on what one consumer reads, in order where order matters.

Workers take records from lanes (`ordering.py`); the thread or task that called `process` polls,
feeds the lanes, and commits the finished beginning of each partition. Work that fails is repeated,
then put aside in a dead letter topic, or ends `process` with an error: nothing is skipped silently.
"""

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.consumer.processing.dead_letters import AsyncDeadLetters, DeadLetters
from headwater.client.consumer.processing.options import (
    ProcessOptions,
    check_coroutine_function,
    check_function,
    not_a_coroutine_function,
    not_a_function,
)
from headwater.client.consumer.record import ConsumerRecord, Records
from headwater.client.errors import ClientError, WakeupError
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.client.consumer.blocking import Consumer
    from headwater.client.consumer.consumer import Consumer as AsyncConsumer

log = logging.getLogger(__name__)

Work = Callable[[Any], object]
AsyncWork = Callable[[Any], Awaitable[object]]

_POLL_S = 0.1
_LAST_COMMIT_S = 5.0
"""How long a cancelled `process` may take to commit what is finished."""


class ProcessingError(ClientError):
    """The work on a record failed for good, and there is no dead letter topic; see its cause."""

    CODE = E.INVALID_RECORD

    def __init__(self, record: ConsumerRecord, attempts: int) -> None:
        super().__init__(
            f"{record.topic_partition} at offset {record.offset}: the work failed {attempts} "
            "times. Nothing from there on is committed: fix it and start again, or give "
            "dead_letter_topic to set such records aside"
        )
        self.record = record


class Processing:
    """The blocking form: workers are threads."""

    def __init__(
        self, consumer: "Consumer", core: ConsumerCore, work: Work, plan: ProcessOptions
    ) -> None:
        check_function(work)
        self._consumer = consumer
        self._core = core
        self._work = work
        self._plan = plan
        self._changed = threading.Condition()
        self._stopping = False
        self._failed: BaseException | None = None
        self._dead_letters = DeadLetters(consumer.settings, plan.dead_letter_topic)
        self.done = 0

    def run(self) -> int:
        """Work until `stop` (or wakeup) or a failure; how many records were done."""
        threads = [
            threading.Thread(target=self._worker, name=f"headwater-worker-{number}", daemon=True)
            for number in range(self._plan.workers)
        ]
        with self._dead_letters, self._core.by_hand(), self._listening():
            for thread in threads:
                thread.start()
            try:
                self._feed()
            except WakeupError:
                pass  # how another thread ends it
            except Exception as problem:  # noqa: BLE001 - raised below
                self._failed = _first(self._failed, problem)
            finally:
                with self._changed:
                    self._stopping = True
                    self._changed.notify_all()
                for thread in threads:
                    thread.join()
                self._core.wakeup_done()
                self._finish()
        if self._failed is not None:
            raise self._failed
        return self.done

    def stop(self) -> None:
        """From any thread: finish what is at work and return."""
        self._stopping = True
        self._consumer.wakeup()

    def _feed(self) -> None:
        deadline = self._core.deadline(self._plan.commit_interval_s)
        while not self._stopping and self._failed is None:
            records = self._poll()
            with self._changed:
                self._plan.lanes.add(records)
                self._changed.notify_all()
            if self._core.deadline(0) >= deadline:
                self._commit()
                deadline = self._core.deadline(self._plan.commit_interval_s)

    def _poll(self) -> Records:
        """Records, or only a sign of life while the workers have enough."""
        with self._changed:
            room = self._plan.max_unfinished - self._plan.lanes.unfinished
        if room > 0:
            return self._consumer.poll(_POLL_S, min(room, self._consumer.settings.max_poll_records))
        resting = self._consumer.assignment() - self._consumer.paused()
        try:
            self._consumer.pause(resting)
            records = self._consumer.poll(0)
            with self._changed:
                self._changed.wait(_POLL_S)
        finally:
            self._consumer.resume(resting & self._consumer.assignment())
        return records

    def _worker(self) -> None:
        try:
            while (record := self._next()) is not None:
                if not self._do(record):
                    return
                with self._changed:
                    self._plan.lanes.finish(record)
                    self.done += 1
                    self._changed.notify_all()
        except BaseException as problem:  # noqa: BLE001 - raised by run()
            with self._changed:
                self._failed = _first(self._failed, problem)
                self._stopping = True
                self._changed.notify_all()

    def _next(self) -> ConsumerRecord | None:
        """Wait for a record to work on; None at the end."""
        with self._changed:
            while not self._stopping:
                if (record := self._plan.lanes.next()) is not None:
                    return record
                self._changed.wait()
        return None

    def _do(self, record: ConsumerRecord) -> bool:
        """False where it failed and is left for the next start: the end did not let it repeat."""
        attempt = 0
        while True:
            try:
                result = self._work(self._plan.shape(record))
            except Exception as problem:
                if self._plan.again(problem, attempt):
                    with self._changed:
                        self._changed.wait_for(lambda: self._stopping, self._plan.rest_s(attempt))
                    if self._stopping:
                        return False
                    attempt += 1
                    continue
                if not self._dead_letters.wanted:
                    raise ProcessingError(record, attempt + 1) from problem
                self._dead_letters.send(record, problem, attempt + 1)
                return True
            if inspect.iscoroutine(result):
                result.close()
                raise not_a_function(self._work)
            return True

    def _commit(self) -> None:
        with self._changed:
            news = self._plan.lanes.commits()
        if news:
            self._consumer.commit_async(dict(news))

    def _finish(self) -> None:
        """Go back to what is not done, and commit what is."""
        try:
            with self._changed:
                done = self._plan.lanes.committable()
            mine = self._consumer.assignment()
            offsets = {name: offset for name, offset in done.items() if name in mine}
            for partition, offset in offsets.items():
                self._consumer.seek(partition, offset)
            self._core.back_at_work()
            if offsets:
                self._consumer.commit(dict(offsets))
        except Exception as problem:  # noqa: BLE001 - raised by run()
            self._failed = _first(self._failed, problem)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        inner, self._core.listener = self._core.listener, None
        self._core.listener = _Draining(self, inner or RebalanceListener())
        try:
            yield
        finally:
            self._core.listener = inner

    def drain(self, partitions: list[TopicPartition]) -> None:
        """Before partitions go: let what is at work finish, and commit it."""
        lanes = self._plan.lanes
        limit = self._consumer.settings.max_poll_interval_ms / 2000
        with self._changed:
            lanes.hold_back(partitions)
            self._changed.wait_for(
                lambda: not lanes.at_work(partitions) or self._failed is not None, limit
            )
            offsets = {n: o for n, o in lanes.committable().items() if n in set(partitions)}
        try:
            if offsets:
                self._consumer.commit(dict(offsets))
        except KafkaError as problem:  # the records come again, at another member
            log.warning("the commit of finished work before a rebalance failed: %s", problem)
        self.forget(partitions)

    def forget(self, partitions: list[TopicPartition]) -> None:
        """Partitions are gone."""
        with self._changed:
            self._plan.lanes.forget(partitions)
            self._changed.notify_all()


class _Draining(RebalanceListener):
    """Between a rebalance and the listener of the application."""

    def __init__(self, processing: Processing, inner: RebalanceListener) -> None:
        self._processing = processing
        self._inner = inner

    def on_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        return self._inner.on_assigned(partitions)

    def on_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        self._processing.drain(partitions)
        return self._inner.on_revoked(partitions)

    def on_lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        self._processing.forget(partitions)
        return self._inner.on_lost(partitions)


class AsyncProcessing:
    """The asyncio form: workers are tasks."""

    def __init__(
        self, consumer: "AsyncConsumer", core: ConsumerCore, work: AsyncWork, plan: ProcessOptions
    ) -> None:
        check_coroutine_function(work)
        self._consumer = consumer
        self._core = core
        self._work = work
        self._plan = plan
        self._changed = asyncio.Condition()
        self._stopping = False
        self._failed: BaseException | None = None
        self._dead_letters = AsyncDeadLetters(consumer.settings, plan.dead_letter_topic)
        self.done = 0

    async def run(self) -> int:
        """Work until `stop` (or wakeup) or a failure; how many records were done."""
        async with self._dead_letters:
            with self._core.by_hand(), self._listening():
                try:
                    await self._run_workers()
                except BaseException:
                    # Cancelled: what is at work was cut short, and only what is finished counts.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_LAST_COMMIT_S):
                            await self._finish()
                    if self._failed is not None:
                        log.warning("process() was cancelled, and failed: %r", self._failed)
                    raise
                await self._finish()
        if self._failed is not None:
            raise self._failed
        return self.done

    async def _run_workers(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._plan.workers):
                group.create_task(self._worker())
            try:
                await self._feed()
            except WakeupError:
                pass  # how it is ended
            except Exception as problem:  # noqa: BLE001 - raised by run(), not in a group of errors
                self._failed = _first(self._failed, problem)
            finally:
                await self._stop_workers()
        self._core.wakeup_done()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        inner = self._core.listener
        self._core.listener = _AsyncDraining(self, inner or RebalanceListener())
        try:
            yield
        finally:
            self._core.listener = inner

    def stop(self) -> None:
        """Finish what is at work and return."""
        self._stopping = True
        self._consumer.wakeup()

    async def _feed(self) -> None:
        deadline = self._core.deadline(self._plan.commit_interval_s)
        while not self._stopping and self._failed is None:
            records = await self._poll()
            async with self._changed:
                self._plan.lanes.add(records)
                self._changed.notify_all()
            if self._core.deadline(0) >= deadline:
                news = self._plan.lanes.commits()
                if news:
                    self._consumer.commit_async(dict(news))
                deadline = self._core.deadline(self._plan.commit_interval_s)

    async def _poll(self) -> Records:
        room = self._plan.max_unfinished - self._plan.lanes.unfinished
        if room > 0:
            limit = min(room, self._consumer.settings.max_poll_records)
            return await self._consumer.poll(_POLL_S, limit)
        resting = self._consumer.assignment() - self._consumer.paused()
        try:
            self._consumer.pause(resting)
            records = await self._consumer.poll(0)
            await asyncio.sleep(_POLL_S / 10)
        finally:
            self._consumer.resume(resting & self._consumer.assignment())
        return records

    async def _stop_workers(self) -> None:
        async with self._changed:
            self._stopping = True
            self._changed.notify_all()

    async def _worker(self) -> None:
        try:
            while (record := await self._next()) is not None:
                if not await self._do(record):
                    return
                async with self._changed:
                    self._plan.lanes.finish(record)
                    self.done += 1
                    self._changed.notify_all()
        except (Exception, asyncio.CancelledError) as problem:
            if _is_cancelled():
                raise
            self._failed = _first(self._failed, problem)
            await self._stop_workers()

    async def _next(self) -> ConsumerRecord | None:
        """Wait for a record to work on; None at the end."""
        async with self._changed:
            while not self._stopping:
                if (record := self._plan.lanes.next()) is not None:
                    return record
                await self._changed.wait()
        return None

    async def _do(self, record: ConsumerRecord) -> bool:
        """False where it failed and is left for the next start: the end did not let it repeat."""
        attempt = 0
        result: object = None
        while True:
            try:
                result = self._work(self._plan.shape(record))
                if inspect.isawaitable(result):
                    await result
            except Exception as problem:
                if self._plan.again(problem, attempt):
                    await self._rest(self._plan.rest_s(attempt))
                    if self._stopping:
                        return False
                    attempt += 1
                    continue
                if not self._dead_letters.wanted:
                    raise ProcessingError(record, attempt + 1) from problem
                await self._dead_letters.send(record, problem, attempt + 1)
                return True
            if not inspect.isawaitable(result):
                raise not_a_coroutine_function(self._work)
            return True

    async def _rest(self, seconds: float) -> None:
        """Before a repetition; the end of `process` does not wait for it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self._stopping)

    async def _finish(self) -> None:
        try:
            mine = self._consumer.assignment()
            offsets = {n: o for n, o in self._plan.lanes.committable().items() if n in mine}
            for partition, offset in offsets.items():
                self._consumer.seek(partition, offset)
            self._core.back_at_work()
            if offsets:
                await self._consumer.commit(dict(offsets))
        except Exception as problem:  # noqa: BLE001 - raised by run()
            self._failed = _first(self._failed, problem)

    async def drain(self, partitions: list[TopicPartition]) -> None:
        """Before partitions go: let what is at work finish, and commit it."""
        lanes = self._plan.lanes
        limit = self._consumer.settings.max_poll_interval_ms / 2000
        try:
            async with asyncio.timeout(limit), self._changed:
                lanes.hold_back(partitions)
                await self._changed.wait_for(
                    lambda: not lanes.at_work(partitions) or self._failed is not None
                )
        except TimeoutError:
            pass  # what is still at work comes again, at another member
        offsets = {n: o for n, o in lanes.committable().items() if n in set(partitions)}
        try:
            if offsets:
                await self._consumer.commit(dict(offsets))
        except KafkaError as problem:  # the records come again, at another member
            log.warning("the commit of finished work before a rebalance failed: %s", problem)
        lanes.forget(partitions)

    def forget(self, partitions: list[TopicPartition]) -> None:
        """Partitions are gone."""
        self._plan.lanes.forget(partitions)


class _AsyncDraining(RebalanceListener):
    def __init__(self, processing: AsyncProcessing, inner: RebalanceListener) -> None:
        self._processing = processing
        self._inner = inner

    def on_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        return self._inner.on_assigned(partitions)

    async def on_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._processing.drain(partitions)
        await _awaited(self._inner.on_revoked(partitions))

    async def on_lost(self, partitions: list[TopicPartition]) -> None:
        self._processing.forget(partitions)
        await _awaited(self._inner.on_lost(partitions))


def _first(failed: BaseException | None, problem: BaseException) -> BaseException:
    """What process() raises: the first failure; others are logged."""
    if failed is None:
        return problem
    log.warning("process() failed a second time: %r", problem)
    return failed


def _is_cancelled() -> bool:
    """Whether this task was cancelled, and not something that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _awaited(said: Awaitable[None] | None) -> None:
    if said is not None:
        await said

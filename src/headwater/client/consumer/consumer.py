"""The asyncio face of the consumer."""

import asyncio
import inspect
import logging
import re
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from headwater.client.consumer.assembly import Offsets, Partitions
from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.client.consumer.end_offsets import EndTracker
from headwater.client.consumer.fetching.arrow import RecordBatch
from headwater.client.consumer.group.commits import OnCommit
from headwater.client.consumer.listener import ListenerCall, RebalanceListener
from headwater.client.consumer.partition_state import EARLIEST, LATEST
from headwater.client.consumer.processing.options import ProcessOptions
from headwater.client.consumer.processing.process import AsyncProcessing, AsyncWork
from headwater.client.consumer.record import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Records,
    topic_partitions,
)
from headwater.client.errors import ConcurrentUseError
from headwater.client.unclosed import end_when_dropped
from headwater.config.client import ConsumerSettings
from headwater.model import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")
Partition = TopicPartition | tuple[str, int]

_IN_A_ROW = 1024
"""So many records of `async for` may come before others on the loop get their turn."""


class Consumer:
    """Reads records on the event loop that it is first used on.

    ```python
    async with Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            print(record.offset, record.value)
    ```

    Settings are Kafka's, with underscores; `profile` is "durable", "throughput" or "latency".
    Beside them: `key_deserializer` and `value_deserializer` (a function of bytes, or "string",
    "bytes", "int", "long", "double", "uuid", "json"), `interceptors`, and `assignors` for
    assignment strategies of your own. One task at a time may use a consumer; `wakeup` alone may be
    called from anywhere.
    """

    def __init__(self, **options: Any) -> None:
        self._core = ConsumerCore(**options)
        self._polling = False
        self._steps = 0
        """How often the next record was asked for."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._processing: AsyncProcessing | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None

    @property
    def settings(self) -> ConsumerSettings:
        """What this consumer was told and what it took by default."""
        return self._core.settings

    async def start(self) -> None:
        """Get ready; every other call does it as well."""
        self._loop = asyncio.get_running_loop()
        await self._core.start()
        if self._finalizer is None:
            self._finalizer = end_when_dropped(self, "Consumer", self._loop, self._core.abandon)

    # -- what to read

    async def subscribe(
        self,
        topics: Sequence[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share topics with the other members of the group; the last call wins.

        Args:
            topics: Their names.
            pattern: Or a regular expression for whole names; new topics are found as they come.
            listener: Hears which partitions come and go.
        """
        await self.start()
        await self._core.subscribe(topics, pattern, listener)

    async def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions, without sharing them with anybody."""
        await self.start()
        await self._core.assign(partitions)

    async def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group; the listener hears of it first."""
        await self.start()
        await self._farewell()
        await self._core.unsubscribe()

    def subscription(self) -> tuple[str, ...]:
        """The topics subscribed to."""
        return self._core.subscription.topics

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads at the moment."""
        return set(self._core.subscription.partitions)

    # -- records

    async def poll(
        self,
        timeout: float | None = 1.0,  # noqa: ASYNC109 - as the blocking face has it
        max_records: int | None = None,
        **renamed: float | None,
    ) -> Records:
        """The next records, at most `max_poll_records`; empty when none came in time.

        Args:
            timeout: Seconds to wait for the first one; None for as long as it takes.
            max_records: A limit of its own for this call.
            **renamed: `timeout_s`, the older name of `timeout`.
        """
        limit_s = _timeout("poll", timeout, renamed)
        found = await self._wait(lambda: self._core.take(max_records), limit_s) or Records()
        self._core.handover.open = False  # no call may follow: an interruption must not lose them
        return found

    async def poll_arrow(
        self,
        timeout: float | None = 1.0,  # noqa: ASYNC109 - as the blocking face has it
        max_records: int | None = None,
        **renamed: float | None,
    ) -> RecordBatch | None:
        """The next records as a pyarrow RecordBatch; None when none came in time.

        Columns: key, value, topic, partition, offset, timestamp, timestamp_type, headers. No
        Python object is made for a record. Whole batches are taken, so that a little more than
        `max_records` may come.
        """
        limit = self._core.arrow_limit(max_records)
        limit_s = _timeout("poll_arrow", timeout, renamed)
        found = await self._wait(lambda: self._core.take_columns(limit), limit_s)
        self._core.handover.open = False  # no call may follow: an interruption must not lose them
        return found

    async def _wait(self, take: Callable[[], T], timeout_s: float | None) -> T | None:
        await self.start()
        if self._polling:
            raise ConcurrentUseError(
                "another task polls this consumer at the moment: give each task its own"
            )
        self._polling = True
        try:
            self._core.handover.begin()
            self._core.polling = True
            return await self._find(take, timeout_s)
        except BaseException:
            self._core.handover.check()
            raise
        finally:
            self._polling = self._core.polling = False

    async def _find(self, take: Callable[[], T], timeout_s: float | None) -> T | None:
        if self._core.holds_records:
            # Fetching and heartbeats get their turn; before anything is taken, because a task
            # may be cancelled here.
            await asyncio.sleep(0)
        if found := self._core.here(take):
            return found
        deadline = self._core.deadline(timeout_s)
        while True:
            got = await self._core.step(deadline, take)
            if not isinstance(got, ListenerCall):
                return got
            await self._tell(got)

    async def _tell(self, call: ListenerCall) -> None:
        self._core.polling = False
        try:
            if self._core.listener is not None:
                said = call.invoke(self._core.listener)
                if inspect.isawaitable(said):
                    await said
        finally:
            self._core.polling = True
            self._core.listener_called(call)

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; the position moves with each one."""
        core = self._core
        if core.started and not self._polling:
            self._steps += 1
            if not self._steps % _IN_A_ROW:
                await asyncio.sleep(0)
            core.handover.begin()
            if core.quick and (found := core.take(1)):
                if core.stalled:
                    core.room_made()
                core.handover.open = False  # no call may follow, as in poll()
                return found[0]
        while True:
            records = await self.poll(None, 1)
            if records:
                return records[0]

    async def read_to_end(self) -> AsyncIterator[ConsumerRecord]:
        """Records up to where the assigned partitions end now; then the iteration ends.

        For exports, and for loading a table into memory: what comes later is left for `poll`. With
        `subscribe` it first waits for partitions. An error in the loop body counts like one after
        `poll`: what is being iterated over comes again.
        """
        await self.start()
        ends = EndTracker(self._core)
        while True:
            if unknown := ends.unknown():
                ends.found(await self.end_offsets(unknown))
            if ends.reached:
                return
            for record in await self.poll(1.0):
                yield record

    def pause(self, partitions: Partitions) -> None:
        """Hand out no records of these until `resume`; they stay assigned."""
        self._core.pause(partitions)

    def resume(self, partitions: Partitions) -> None:
        """Hand them out again."""
        self._core.resume(partitions)

    def paused(self) -> set[TopicPartition]:
        """Those that are paused."""
        return {name for name, state in self._core.subscription.partitions.items() if state.paused}

    def wakeup(self) -> None:
        """From any thread: end a poll that waits, or the next one, with WakeupError."""
        self._core.woken()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._core.look_again)

    # -- positions

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at `offset`."""
        self._core.seek(partition, offset)

    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Go on at the first record of these partitions, or of all."""
        self._core.seek_to_time(partitions, EARLIEST)

    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Go on with what comes from now on."""
        self._core.seek_to_time(partitions, LATEST)

    async def position(self, partition: Partition) -> int:
        """The offset of the next record that poll will return."""
        return await self._core.position(partition)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None if there is none."""
        await self.start()
        return await self._core.offsets_for_times(times)

    async def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        await self.start()
        return await self._core.beginning_offsets(partitions)

    async def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition that this consumer may see."""
        await self.start()
        return await self._core.end_offsets(partitions)

    def lag(self, partition: Partition) -> int | None:
        """How many records are left to read; None until a broker told."""
        return self._core.lag(partition)

    def lead(self, partition: Partition) -> int | None:
        """How far the position is from the start of the log, where retention deletes."""
        return self._core.lead(partition)

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        await self.start()
        return await self._core.partitions_for(topic)

    # -- commits

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit the positions, or `offsets` (the next to read), and wait until it is done.

        CommitFailedError says what to do when the group has given the partitions to others.
        """
        self._core.handover.check()
        await self._core.commit(offsets)

    async def commit_record(self, record: ConsumerRecord) -> None:
        """Commit that everything up to and with `record` is done."""
        await self._core.commit({record.topic_partition: record.offset + 1})

    def commit_async(
        self, offsets: Offsets | None = None, on_commit: OnCommit | None = None
    ) -> None:
        """Commit without waiting and without repetition; `on_commit` gets (offsets, error)."""
        self._core.handover.check()
        self._core.commit_soon(offsets, on_commit)

    async def committed(
        self, partitions: Partitions
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where nothing is."""
        await self.start()
        return await self._core.committed(topic_partitions(partitions))

    # -- parallel work

    async def process(
        self,
        work: AsyncWork,
        *,
        workers: int = 8,
        order: str = "key",
        retries: int = 3,
        retry_backoff_s: float = 0.1,
        dead_letter_topic: str | None = None,
        max_unfinished: int = 1000,
        commit_interval_s: float = 1.0,
    ) -> int:
        """Work on records in parallel; returns when `stop_processing()` is called, or raises.

        Records of one key (or of one partition) are worked on one after the other, in order;
        others side by side. Only what is finished is committed, so that a crash repeats records
        but loses none. Work that fails is repeated; after that the record goes to
        `dead_letter_topic` with its error and origin in headers, or `process` raises
        ProcessingError. In a rebalance the work on partitions that go is finished first.

        Args:
            work: Gets a record and is awaited.
            workers: How many run side by side.
            order: "key" or "partition".
            retries: How often to repeat work that failed.
            retry_backoff_s: The rest before the first repetition; it doubles.
            dead_letter_topic: Where records go whose work failed for good.
            max_unfinished: How many records may wait for workers.
            commit_interval_s: How often to commit.

        Returns:
            How many records were done.
        """
        await self.start()
        plan = ProcessOptions(
            self._core,
            workers=workers,
            order=order,
            retries=retries,
            backoff_s=retry_backoff_s,
            dead_letter_topic=dead_letter_topic,
            max_unfinished=max_unfinished,
            commit_interval_s=commit_interval_s,
        )
        self._processing = AsyncProcessing(self, self._core, work, plan)
        return await self._processing.run()

    def stop_processing(self) -> None:
        """From any thread: let `process` finish what is at work, commit it, and return."""
        if self._processing is not None:
            self._processing.stop()

    # -- the end

    def explain(self) -> str:
        """The settings that are not at their defaults, who set them, and why."""
        return self._core.settings.explain()

    def metrics(self) -> dict[str, float]:
        """What this consumer counted, under Kafka's names."""
        return self._core.metrics()

    async def close(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as the blocking face has it
        **renamed: float | None,
    ) -> None:
        """Commit if that is automatic, leave the group, and let go of everything.

        The listener hears first that the partitions go, and may still commit.
        """
        await self.start()
        self._core.handover.check()
        await self._farewell()
        await self._core.close(_timeout("close", timeout, renamed))
        if self._finalizer is not None:
            self._finalizer.detach()

    async def _farewell(self) -> None:
        call = self._core.farewell()
        if call is not None and self._core.listener is not None:
            try:
                said = call.invoke(self._core.listener)
                if inspect.isawaitable(said):
                    await said
            except Exception:
                log.exception("the rebalance listener raised; the consumer leaves nevertheless")

    async def __aenter__(self) -> "Consumer":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an error, automatic commits leave out what the last poll returned."""
        if error is not None:
            self._core.handover.undo = True
        await self.close()


def _timeout(call: str, timeout: float | None, renamed: dict[str, float | None]) -> float | None:
    """The timeout under its name, or under the one it had before."""
    limit_s = renamed.pop("timeout_s", timeout)
    for name in renamed:
        raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
    return limit_s

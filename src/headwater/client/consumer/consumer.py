"""The asyncio face of the consumer; `tools/blocking_faces.py` derives the blocking one from it."""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack, overload

from headwater.client.consumer.assignors import Assignor
from headwater.client.consumer.async_poller import AsyncPoller
from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.client.consumer.deserializers import Deserializer, DeserializerName
from headwater.client.consumer.end_offsets import EndTracker
from headwater.client.consumer.fetching.arrow import RecordBatch
from headwater.client.consumer.group.commits import OnCommit
from headwater.client.consumer.interceptors import ConsumerInterceptor
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.consumer.record import (
    ConsumerRecord,
    K,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Offsets,
    Partition,
    Partitions,
    Records,
    V,
    topic_partitions,
)
from headwater.client.waits import older_name
from headwater.config.client import ConsumerSettings
from headwater.config.client_options import ConsumerOptions
from headwater.model import EARLIEST, LATEST, TopicPartition
from headwater.seams.clock import Clock
from headwater.seams.network import Network
from headwater.seams.randomness import Randomness

if TYPE_CHECKING:  # loaded by the first process()
    from headwater.client.consumer.processing.process import Processing
    from headwater.client.consumer.processing.waiters import AsyncWork

_ARROW_RECORDS = 65_536
"""How many records `poll_arrow` gathers at most, unless asked for another number."""


class Consumer(Generic[K, V]):
    """Reads records on the event loop that it is first used on.

    ```python
    async with Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            print(record.offset, record.value)
    ```

    Settings are Kafka's, with underscores; `profile` is "durable", "throughput" or "latency".
    Beside them: `key_deserializer` and `value_deserializer` (a function of bytes, or "string",
    "bytes", "int", "long", "double", "uuid", "json"), `interceptors`, and `assignors` for your own
    assignment strategies. One task at a time may use a consumer; only `wakeup` and
    `stop_processing` may be called from anywhere.
    """

    @overload
    def __init__(
        self,
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[Assignor] = (),
        clock: Clock | None = None,
        network: Network | None = None,
        randomness: Randomness | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[Any, Any]",
        *,
        key_deserializer: Deserializer | DeserializerName | None = None,
        value_deserializer: Deserializer | DeserializerName | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[Assignor] = (),
        clock: Clock | None = None,
        network: Network | None = None,
        randomness: Randomness | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None: ...

    def __init__(
        self,
        *,
        key_deserializer: Deserializer | DeserializerName | None = None,
        value_deserializer: Deserializer | DeserializerName | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[Assignor] = (),
        clock: Clock | None = None,
        network: Network | None = None,
        randomness: Randomness | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        self._core = ConsumerCore(
            settings,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            assignors=assignors,
            clock=clock,
            network=network,
            randomness=randomness,
        )
        self._poller = AsyncPoller(self, self._core)
        self._processing: Processing | None = None

    @property
    def settings(self) -> ConsumerSettings:
        """The settings in use: those given, and defaults for the rest."""
        return self._core.settings

    async def start(self) -> None:
        """Get ready; every other call does it as well."""
        await self._poller.start()

    # -- what to read

    async def subscribe(
        self,
        topics: Sequence[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share topics with the other members of the group; replaces an earlier subscription.

        Args:
            topics: Names of topics.
            pattern: Or a regular expression for whole names; topics created later are found.
            listener: Called inside poll() when partitions are assigned or revoked.
        """
        await self._poller.run(lambda: self._core.subscribe(topics, pattern, listener))

    async def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions, without sharing them in a group."""
        await self._poller.run(lambda: self._core.assign(partitions))

    async def unsubscribe(self) -> None:
        """Stop reading and leave the group, after calling the listener."""
        await self._poller.call_leaving_listener()
        await self._poller.run(self._core.unsubscribe)

    def subscription(self) -> tuple[str, ...]:
        """The topics subscribed to."""
        return self._core.subscription.topics

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now."""
        return set(self._core.subscription.partitions)

    # -- records

    async def poll(
        self,
        timeout: float | None = 1.0,  # noqa: ASYNC109 - as the blocking face has it
        max_records: int | None = None,
        **renamed: float | None,
    ) -> Records[K, V]:
        """The next records, at most `max_poll_records`; empty when none come in time.

        Args:
            timeout: Seconds to wait for the first record; None waits as long as it takes.
            max_records: The limit for this call, in place of `max_poll_records`.
            **renamed: `timeout_s`, an older name of `timeout`.
        """
        limit_s = older_name("poll", renamed) if renamed else timeout
        core = self._core
        limit = core.settings.max_poll_records if max_records is None else max_records
        found = await self._poller.poll(lambda: core.ready.take_records(limit), limit_s)
        found = Records() if found is None else found
        core.handover.open = False  # no call may follow: an interruption must not lose them
        return found

    async def poll_arrow(
        self,
        timeout: float | None = 1.0,  # noqa: ASYNC109 - as the blocking face has it
        max_records: int | None = None,
        **renamed: float | None,
    ) -> RecordBatch | None:
        """The next records as a pyarrow RecordBatch; None when none come in time.

        Columns: key, value, topic, partition, offset, timestamp, timestamp_type, headers. Creates
        no Python object per record. Takes whole batches, so a few more than `max_records` may come.
        """
        limit_s = older_name("poll_arrow", renamed) if renamed else timeout
        core = self._core
        limit = _ARROW_RECORDS if max_records is None else max_records
        core.check_columns()
        found = await self._poller.poll(lambda: core.ready.take_columns(limit), limit_s)
        core.handover.open = False  # no call may follow: an interruption must not lose them
        return found

    def __aiter__(self) -> "Consumer[K, V]":
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        """The next record, however long it takes; the position moves with each one."""
        record = await self._poller.next_record()
        self._core.handover.open = False  # no call may follow, as in poll()
        return record

    async def read_to_end(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Records up to the present end of the assigned partitions; then the iteration ends.

        For exports, and for loading a table into memory; `poll` returns what comes later. After
        `subscribe` it first waits for partitions. An error in the loop body counts like one after
        `poll`: the records being iterated over come again.
        """
        ends = EndTracker(self._core)
        while True:
            if unknown := ends.unknown():
                ends.found(await self.end_offsets(unknown))
            if ends.reached:
                return
            for record in await self.poll(1.0):
                yield record

    def pause(self, partitions: Partitions) -> None:
        """Return no records of these partitions until `resume`; they stay assigned."""
        self._poller.run_now(lambda: self._core.pause(partitions))

    def resume(self, partitions: Partitions) -> None:
        """Return records of these partitions again."""
        self._poller.run_now(lambda: self._core.resume(partitions))

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        partitions = self._core.subscription.partitions
        return {name for name, state in partitions.items() if state.paused}

    def wakeup(self) -> None:
        """From any thread: end a waiting poll, or the next one, with WakeupError."""
        self._poller.wakeup()

    # -- positions

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at `offset`."""
        self._poller.run_now(lambda: self._core.positions.seek(partition, offset))

    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Continue at the first record of these partitions, or of all."""
        self._poller.run_now(lambda: self._core.positions.seek_to_timestamp(partitions, EARLIEST))

    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Continue with records written from now on."""
        self._poller.run_now(lambda: self._core.positions.seek_to_timestamp(partitions, LATEST))

    async def position(self, partition: Partition) -> int:
        """The offset of the next record that poll will return."""
        return await self._poller.run(lambda: self._core.position(partition))

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None if there is none."""
        return await self._poller.run(lambda: self._core.positions.offsets_for_times(times))

    async def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._poller.run(
            lambda: self._core.positions.end_offsets(partitions, EARLIEST)
        )

    async def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition that this consumer may read."""
        return await self._poller.run(lambda: self._core.positions.end_offsets(partitions, LATEST))

    def lag(self, partition: Partition) -> int | None:
        """How many records are left to read; None until a broker has reported the end."""
        return self._core.positions.lag(partition)

    def lead(self, partition: Partition) -> int | None:
        """How far the position is from the start of the log, where retention deletes."""
        return self._core.positions.lead(partition)

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return await self._poller.run(lambda: self._core.positions.partitions_for(topic))

    # -- commits

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit the positions, or `offsets` (the next to read), and wait for the answer.

        CommitFailedError says what to do when the group has given the partitions to others.
        """
        await self._poller.run(lambda: self._core.commit(offsets))

    async def commit_record(self, record: ConsumerRecord[Any, Any]) -> None:
        """Commit that everything up to and including `record` is done."""
        await self.commit({record.topic_partition: record.offset + 1})

    def commit_async(
        self, offsets: Offsets | None = None, on_commit: OnCommit | None = None
    ) -> None:
        """Commit without waiting and without retries.

        `on_commit` gets (offsets, error) on the event loop; it must not block. The pattern:
        `commit_async` in the loop, `commit` once before `close`.
        """
        self._poller.run_now(lambda: self._core.commit_async(offsets, on_commit))

    async def committed(
        self, partitions: Partitions
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets of the group; None where it has none."""
        return await self._poller.run(lambda: self._core.committed(topic_partitions(partitions)))

    # -- parallel work

    async def process(
        self,
        work: "AsyncWork",
        *,
        workers: int = 8,
        order: Literal["key", "partition"] = "key",
        retries: int = 3,
        retry_backoff_s: float = 0.1,
        dead_letter_topic: str | None = None,
        max_unfinished: int = 1000,
        commit_interval_s: float = 1.0,
    ) -> int:
        """Work on records in parallel; returns when `stop_processing()` is called, or raises.

        Records of one key (or of one partition) are worked on one after the other, in order;
        others side by side. Commits only what is finished, so a crash repeats records but loses
        none. Work that fails is repeated; after that the record goes to `dead_letter_topic` with
        its error and origin in headers, or `process` raises ProcessingError. In a rebalance the
        work on partitions that go is finished first.

        Args:
            work: Gets a record and is awaited.
            workers: How many run side by side.
            order: "key" or "partition".
            retries: How often to repeat work that failed.
            retry_backoff_s: Seconds before the first retry; each further wait doubles.
            dead_letter_topic: Where to store records whose work failed for good.
            max_unfinished: How many records may wait for workers.
            commit_interval_s: How often to commit.

        Returns:
            How many records were done.
        """
        from headwater.client.consumer.processing.options import ProcessOptions
        from headwater.client.consumer.processing.process import Processing
        from headwater.client.consumer.processing.waiters import AsyncWaiter

        await self._poller.start()
        options = ProcessOptions(
            self._core,
            workers=workers,
            order=order,
            retries=retries,
            backoff_s=retry_backoff_s,
            dead_letter_topic=dead_letter_topic,
            max_unfinished=max_unfinished,
            commit_interval_s=commit_interval_s,
        )
        waiter = AsyncWaiter(self, work)
        self._processing = Processing(self._core, waiter, options)
        return await waiter.run(self._processing)

    def stop_processing(self) -> None:
        """From any thread: let `process` finish what is at work, commit it, and return."""
        if self._processing is not None:
            self._processing.stop()

    # -- the end

    def explain(self) -> str:
        """The settings that are not at their defaults, their origin, and why."""
        return self._core.settings.explain()

    def metrics(self) -> dict[str, float]:
        """The metrics of this consumer, under Kafka's names."""
        return self._core.metrics()

    async def close(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as the blocking face has it
        **renamed: float | None,
    ) -> None:
        """Commit if that is automatic, leave the group, and close every connection.

        The listener is called first, and may still commit.
        """
        await self._poller.close(older_name("close", renamed) if renamed else timeout)

    async def __aenter__(self) -> "Consumer[K, V]":
        await self._poller.start()
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

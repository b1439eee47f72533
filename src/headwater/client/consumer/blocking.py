"""The blocking face of the consumer.

Derived from `consumer.py` by `python -m tools.blocking_faces`; do not edit.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Unpack, overload

from headwater.client.consumer.assignors import Assignor
from headwater.client.consumer.blocking_poller import BlockingPoller
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
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.client.waits import older_name
from headwater.config.client import ConsumerSettings
from headwater.config.client_options import ConsumerOptions
from headwater.model import EARLIEST, LATEST, TopicPartition
from headwater.seams.clock import Clock
from headwater.seams.network import Network
from headwater.seams.randomness import Randomness

if TYPE_CHECKING:  # loaded by the first process()
    from headwater.client.consumer.processing.process import Processing
    from headwater.client.consumer.processing.waiters import Work

_ARROW_RECORDS = 65_536
"""The default of `max_records` of `poll_arrow`."""


class Consumer(Generic[K, V]):
    """Reads records; for one thread at a time.

    ```python
    with Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.offset, record.value)
    ```

    Settings are Kafka's, with underscores; `profile` is "durable", "throughput" or "latency".
    In addition: `key_deserializer` and `value_deserializer` (a function of bytes, or "string",
    "bytes", "int", "long", "double", "uuid", "json"), `interceptors`, and `assignors` for your own
    assignment strategies. One thread at a time may use a consumer; only `wakeup` and
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
        *positional: Never,
        key_deserializer: Deserializer | DeserializerName | None = None,
        value_deserializer: Deserializer | DeserializerName | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[Assignor] = (),
        clock: Clock | None = None,
        network: Network | None = None,
        randomness: Randomness | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        ConsumerSettings.refuse_positional(type(self).__name__, positional)
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
        self._poller = BlockingPoller(self, self._core)
        self._processing: Processing | None = None

    @property
    def settings(self) -> ConsumerSettings:
        """The settings in use: those given, and defaults for the rest."""
        return self._core.settings

    def start(self) -> None:
        """Start the consumer; the first call of any other method does so as well."""
        self._poller.start()

    # -- what to read

    def subscribe(
        self,
        topics: Sequence[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics together with the other members of the group.

        Replaces an earlier subscription.

        Args:
            topics: Names of topics.
            pattern: A regular expression for whole names, instead of `topics`; it matches topics
                created later too.
            listener: Called inside poll() when partitions are assigned or revoked.
        """
        self._poller.run(lambda: self._core.subscribe(topics, pattern, listener))

    def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions, without sharing them in a group."""
        self._poller.run(lambda: self._core.assign(partitions))

    def unsubscribe(self) -> None:
        """Stop reading and leave the group, after calling the listener."""
        self._poller.call_leaving_listener()
        self._poller.run(self._core.unsubscribe)

    def subscription(self) -> tuple[str, ...]:
        """The topics subscribed to."""
        return self._core.subscription.topics

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now."""
        return set(self._core.subscription.partitions)

    # -- records

    def poll(
        self,
        timeout: float | None = 1.0,
        max_records: int | None = None,
        **renamed: float | None,
    ) -> Records[K, V]:
        """Return the next records, at most `max_poll_records`; empty if none arrive in time.

        Args:
            timeout: Seconds to wait for the first record; None waits without a limit.
            max_records: The limit for this call, in place of `max_poll_records`.
            **renamed: `timeout_s`, an older name of `timeout`.
        """
        limit_s = older_name("poll", renamed) if renamed else timeout
        core = self._core
        limit = core.settings.max_poll_records if max_records is None else max_records
        found = self._poller.poll(lambda: core.ready.take_records(limit), limit_s)
        found = Records() if found is None else found
        core.handover.open = False  # no call may follow: an interruption must not lose them
        return found

    def poll_arrow(
        self,
        timeout: float | None = 1.0,
        max_records: int | None = None,
        **renamed: float | None,
    ) -> RecordBatch | None:
        """Return the next records as a pyarrow RecordBatch; None if none arrive in time.

        Columns: key, value, topic, partition, offset, timestamp, timestamp_type, headers. Creates
        no Python object per record. Takes whole batches, so it may return slightly more than
        `max_records`.
        """
        limit_s = older_name("poll_arrow", renamed) if renamed else timeout
        core = self._core
        limit = _ARROW_RECORDS if max_records is None else max_records
        core.check_columns()
        found = self._poller.poll(lambda: core.ready.take_columns(limit), limit_s)
        core.handover.open = False  # no call may follow: an interruption must not lose them
        return found

    def __iter__(self) -> "Consumer[K, V]":
        return self

    def __next__(self) -> ConsumerRecord[K, V]:
        """Wait for the next record and advance the position past it."""
        record = self._poller.next_record()
        self._core.handover.open = False  # no call may follow, as in poll()
        return record

    def read_to_end(self) -> Iterator[ConsumerRecord[K, V]]:
        """Iterate over records up to the current end of the assigned partitions.

        For exports, and for loading a table into memory; `poll` returns later records. After
        `subscribe` it first waits for partitions. An error in the loop body is like one after
        `poll`: the records being iterated over are returned again.
        """
        ends = EndTracker(self._core)
        while True:
            if unknown := ends.unknown():
                ends.found(self.end_offsets(unknown))
            if ends.reached:
                return
            yield from self.poll(1.0)

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
        """End a waiting poll, or the next one, with WakeupError. Safe from any thread."""
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

    def position(self, partition: Partition) -> int:
        """Return the offset of the next record that poll will return."""
        return self._poller.run(lambda: self._core.position(partition))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Find the first record at or after each time (ms since 1970); None if there is none."""
        return self._poller.run(lambda: self._core.positions.offsets_for_times(times))

    def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._poller.run(lambda: self._core.positions.end_offsets(partitions, EARLIEST))

    def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition that is visible here."""
        return self._poller.run(lambda: self._core.positions.end_offsets(partitions, LATEST))

    def lag(self, partition: Partition) -> int | None:
        """Return how many records are left to read; None until a broker has reported the end."""
        return self._core.positions.lag(partition)

    def lead(self, partition: Partition) -> int | None:
        """Return how far the position is from the start of the log, where retention deletes."""
        return self._core.positions.lead(partition)

    def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        return self._poller.run(lambda: self._core.positions.partitions_for(topic))

    # -- commits

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit the positions, or `offsets` (the next to read), and wait for the answer.

        Raises CommitFailedError if the group has given the partitions to other members.
        """
        self._poller.run(lambda: self._core.commit(offsets))

    def commit_record(self, record: ConsumerRecord[Any, Any]) -> None:
        """Commit everything up to and including `record`."""
        self.commit({record.topic_partition: record.offset + 1})

    def commit_async(
        self, offsets: Offsets | None = None, on_commit: OnCommit | None = None
    ) -> None:
        """Commit without waiting and without retries.

        `on_commit` gets (offsets, error) on the client's loop thread; it must not block. The pattern:
        `commit_async` in the loop, `commit` once before `close`.
        """
        self._poller.run_now(lambda: self._core.commit_async(offsets, on_commit))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the membership in the group, for `Producer.send_offsets_to_transaction`."""
        return self._poller.run_now(self._core.group_metadata)

    def committed(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group; None for partitions without a commit."""
        return self._poller.run(lambda: self._core.committed(topic_partitions(partitions)))

    # -- parallel work

    def process(
        self,
        work: "Work",
        *,
        workers: int = 8,
        order: Literal["key", "partition"] = "key",
        retries: int = 3,
        retry_backoff_s: float = 0.1,
        dead_letter_topic: str | None = None,
        max_unfinished: int = 1000,
        commit_interval_s: float = 1.0,
    ) -> int:
        """Process records in parallel until `stop_processing()` is called.

        Records with the same key (or of the same partition) are processed in order, others in
        parallel. Commits only finished records, so a crash repeats records but loses none. Failed
        work is retried; after the last retry the record goes to `dead_letter_topic`, with its
        error and origin in headers, or `process` raises ProcessingError. In a rebalance, the work
        on revoked partitions is finished first.

        Args:
            work: Gets a record; runs in a worker thread.
            workers: How many threads.
            order: "key" or "partition".
            retries: How often to retry failed work.
            retry_backoff_s: Seconds before the first retry; doubles with each further retry.
            dead_letter_topic: The topic for records that fail after all retries.
            max_unfinished: How many records may wait for workers.
            commit_interval_s: How often to commit.

        Returns:
            The number of processed records.
        """
        from headwater.client.consumer.processing.options import ProcessOptions
        from headwater.client.consumer.processing.process import Processing
        from headwater.client.consumer.processing.waiters import BlockingWaiter

        self._poller.start()
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
        waiter = BlockingWaiter(self, work)
        self._processing = Processing(self._core, waiter, options)
        return waiter.run(self._processing)

    def stop_processing(self) -> None:
        """Let `process` finish and commit its current records and return. Safe from any thread."""
        if self._processing is not None:
            self._processing.stop()

    # -- the end

    def explain(self) -> str:
        """Explain the settings that are not at their defaults: their origin, and why."""
        return self._core.settings.explain()

    def metrics(self) -> dict[str, float]:
        """Return the metrics of this consumer, under Kafka's names."""
        return self._core.metrics()

    def close(
        self,
        timeout: float | None = None,
        **renamed: float | None,
    ) -> None:
        """Commit if auto-commit is enabled, leave the group, and close every connection.

        The listener is called first, and may still commit.
        """
        self._poller.close(older_name("close", renamed) if renamed else timeout)

    def __enter__(self) -> "Consumer[K, V]":
        self._poller.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an error, auto-commit excludes the records of the last poll."""
        if error is not None:
            self._core.handover.undo = True
        self.close()

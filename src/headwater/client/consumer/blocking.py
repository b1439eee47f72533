"""The blocking face of the consumer."""

import logging
import re
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from headwater.client.blocking import LoopThread, forked_error, register, unregister
from headwater.client.consumer.assembly import Offsets, Partitions
from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.client.consumer.end_offsets import EndTracker
from headwater.client.consumer.fetching.arrow import RecordBatch
from headwater.client.consumer.group.commits import OnCommit
from headwater.client.consumer.listener import ListenerCall, RebalanceListener
from headwater.client.consumer.partition_state import EARLIEST, LATEST
from headwater.client.consumer.processing.options import ProcessOptions
from headwater.client.consumer.processing.process import Processing, Work
from headwater.client.consumer.record import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Records,
    topic_partitions,
)
from headwater.client.consumer.subscription import IllegalStateError
from headwater.client.errors import ConcurrentUseError
from headwater.client.unclosed import end_when_dropped
from headwater.config.client import ConsumerSettings
from headwater.model import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

_SOON_MS = 20
"""How long a poll waits for the next answer before it looks after everything else."""
_THREAD = "thread"
Partition = TopicPartition | tuple[str, int]


class Consumer:
    """Reads records; for one thread at a time.

    ```python
    with Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.offset, record.value)
    ```

    Settings are Kafka's, with underscores; `profile` is "durable", "throughput" or "latency".
    Beside them: `key_deserializer` and `value_deserializer` (a function of bytes, or "string",
    "bytes", "int", "long", "double", "uuid", "json"), `interceptors`, and `assignors` for
    assignment strategies of your own. `wakeup` alone may be called from another thread.
    """

    def __init__(self, **options: Any) -> None:
        self._core = ConsumerCore(**options)
        self._forked = False
        self._claim: dict[str, int] = {}
        """The thread that uses the consumer at the moment."""
        self._listening = False
        """Whether that thread is inside the rebalance listener."""
        self._processing: Processing | None = None
        self._flowing = False
        """Whether the last poll found records."""
        self._finalizer: weakref.finalize[..., Any] | None = (
            None  # a fork may come before it is made
        )
        self._thread: LoopThread = register(self)
        self._thread.call(self._core.start())
        self._finalizer = end_when_dropped(self, "Consumer", self._thread.loop, self._core.abandon)

    @property
    def settings(self) -> ConsumerSettings:
        """What this consumer was told and what it took by default."""
        return self._core.settings

    # -- what to read

    def subscribe(
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
            listener: Hears which partitions come and go, inside poll().
        """
        self._call(self._core.subscribe(topics, pattern, listener))

    def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions, without sharing them with anybody."""
        self._call(self._core.assign(partitions))

    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group; the listener hears of it first."""
        self._farewell()
        self._call(self._core.unsubscribe())

    def subscription(self) -> tuple[str, ...]:
        """The topics subscribed to."""
        return self._core.subscription.topics

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads at the moment."""
        return set(self._core.subscription.partitions)

    # -- records

    def poll(self, timeout: float | None = 1.0, max_records: int | None = None) -> Records:
        """The next records, at most `max_poll_records`; empty when none came in time.

        Args:
            timeout: Seconds to wait for the first one; None for as long as it takes.
            max_records: A limit of its own for this call.
        """
        found = self._wait(lambda: self._core.take(max_records), timeout) or Records()
        self._core.handover.open = False  # no call may follow: an interruption must not lose them
        return found

    def poll_arrow(
        self, timeout: float | None = 1.0, max_records: int | None = None
    ) -> RecordBatch | None:
        """The next records as a pyarrow RecordBatch; None when none came in time.

        Columns: key, value, topic, partition, offset, timestamp, timestamp_type, headers. No
        Python object is made for a record. Whole batches are taken, so that a little more than
        `max_records` may come.
        """
        limit = self._core.arrow_limit(max_records)
        found = self._wait(lambda: self._core.take_columns(limit), timeout)
        self._core.handover.open = False  # no call may follow: an interruption must not lose them
        return found

    def _wait(self, take: Callable[[], T], timeout: float | None) -> T | None:
        if not self._enter():
            raise IllegalStateError(
                "poll() inside a rebalance listener: let the poll() that called it return first"
            )
        try:
            self._core.handover.begin()
            self._core.polling = True
            return self._find(take, timeout)
        except BaseException as problem:
            self._core.handover.check()
            if type(problem) is KeyboardInterrupt:
                raise KeyboardInterrupt from None  # without the frames of this package
            raise
        finally:
            self._leave()

    def _find(self, take: Callable[[], T], timeout: float | None) -> T | None:
        if found := self._here(take):
            return found
        deadline = self._core.deadline(timeout)
        if self._flowing and (found := self._about_to_come(take, deadline)):
            return found
        self._core.check_usable()
        return self._step(take, deadline)

    def _here(self, take: Callable[[], T]) -> T | None:
        """What needs no word with the loop."""
        return self._taken(take) if self._core.quick else None

    def _taken(self, take: Callable[[], T]) -> T | None:
        if not (found := take()):
            return None
        if self._core.stalled:
            self._thread.post(self._core.room_made)
        self._flowing = True
        return found

    def _about_to_come(self, take: Callable[[], T], deadline_ms: int) -> T | None:
        """The last poll found records: the next ones are probably on their way."""
        wakeup = self._core.poll_wakeup
        wakeup.hush()
        soon_ms = min(_SOON_MS, self._core.left_ms(deadline_ms))
        return self._here(take) or (self._here(take) if wakeup.listen(soon_ms / 1000) else None)

    def _step(self, take: Callable[[], T], deadline_ms: int) -> T | None:
        wakeup = self._core.poll_wakeup
        self._flowing = False
        while True:
            wakeup.hush()
            call, limit_ms = self._thread.call(self._core.look(deadline_ms))
            if call is not None:
                self._tell(call)
                continue
            if (found := self._taken(take)) or not limit_ms:
                return found
            if wakeup.listen(limit_ms / 1000) and (found := self._here(take)):
                return found

    def _tell(self, call: ListenerCall) -> None:
        """Call the listener; one that Ctrl-C has cut short is called again by the next poll."""
        self._listening = True
        self._core.polling = False
        try:
            if self._core.listener is not None:
                call.invoke(self._core.listener)
        except Exception:
            self._thread.call(self._told(call))
            raise
        finally:
            self._listening = False
            self._core.polling = True
        self._thread.call(self._told(call))

    async def _told(self, call: ListenerCall) -> None:
        self._core.listener_called(call)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records one by one, without end; the position moves with each one."""
        while True:
            records = self._wait(lambda: self._core.take(1), None)
            if records:
                record = records[0]
                self._core.handover.open = False  # no call may follow, as in poll()
                yield record

    def read_to_end(self) -> Iterator[ConsumerRecord]:
        """Records up to where the assigned partitions end now; then the iteration ends.

        For exports, and for loading a table into memory: what comes later is left for `poll`. With
        `subscribe` it first waits for partitions. An error in the loop body counts like one after
        `poll`: what is being iterated over comes again.
        """
        ends = EndTracker(self._core)
        while True:
            if unknown := ends.unknown():
                ends.found(self.end_offsets(unknown))
            if ends.reached:
                return
            yield from self.poll(1.0)

    def pause(self, partitions: Partitions) -> None:
        """Hand out no records of these until `resume`; they stay assigned."""
        self._on_loop(lambda: self._core.pause(partitions))

    def resume(self, partitions: Partitions) -> None:
        """Hand them out again."""
        self._on_loop(lambda: self._core.resume(partitions))

    def paused(self) -> set[TopicPartition]:
        """Those that are paused."""
        return {name for name, state in self._core.subscription.partitions.items() if state.paused}

    def wakeup(self) -> None:
        """From any thread: end a poll that waits, or the next one, with WakeupError."""
        self._core.woken()
        self._thread.post(self._core.look_again)

    # -- positions

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at `offset`."""
        self._on_loop(lambda: self._core.seek(partition, offset))

    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Go on at the first record of these partitions, or of all."""
        self._on_loop(lambda: self._core.seek_to_time(partitions, EARLIEST))

    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Go on with what comes from now on."""
        self._on_loop(lambda: self._core.seek_to_time(partitions, LATEST))

    def position(self, partition: Partition) -> int:
        """The offset of the next record that poll will return."""
        return self._call(self._core.position(partition))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None if there is none."""
        return self._call(self._core.offsets_for_times(times))

    def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._call(self._core.beginning_offsets(partitions))

    def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition that this consumer may see."""
        return self._call(self._core.end_offsets(partitions))

    def lag(self, partition: Partition) -> int | None:
        """How many records are left to read; None until a broker told."""
        return self._core.lag(partition)

    def lead(self, partition: Partition) -> int | None:
        """How far the position is from the start of the log, where retention deletes."""
        return self._core.lead(partition)

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return self._call(self._core.partitions_for(topic))

    # -- commits

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit the positions, or `offsets` (the next to read), and wait until it is done.

        CommitFailedError says what to do when the group has given the partitions to others.
        """
        self._call(self._core.commit(offsets))

    def commit_record(self, record: ConsumerRecord) -> None:
        """Commit that everything up to and with `record` is done."""
        self.commit({record.topic_partition: record.offset + 1})

    def commit_async(
        self, offsets: Offsets | None = None, on_commit: OnCommit | None = None
    ) -> None:
        """Commit without waiting and without repetition.

        `on_commit` gets (offsets, error) on the client's loop thread; it must not block. The
        pattern: `commit_async` in the loop, `commit` once before `close`.
        """
        self._on_loop(lambda: self._core.commit_soon(offsets, on_commit))

    def committed(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where nothing is."""
        return self._call(self._core.committed(topic_partitions(partitions)))

    # -- parallel work

    def process(
        self,
        work: Work,
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
            work: Gets a record; runs in a worker thread.
            workers: How many threads.
            order: "key" or "partition".
            retries: How often to repeat work that failed.
            retry_backoff_s: The rest before the first repetition; it doubles.
            dead_letter_topic: Where records go whose work failed for good.
            max_unfinished: How many records may wait for workers.
            commit_interval_s: How often to commit.

        Returns:
            How many records were done.
        """
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
        self._processing = Processing(self, self._core, work, plan)
        return self._processing.run()

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

    def close(self, timeout: float | None = None) -> None:
        """Commit if that is automatic, leave the group, and let go of everything.

        The listener hears first that the partitions go, and may still commit.
        """
        self._core.handover.check()
        self._farewell()
        unregister(self)
        if self._forked:
            return  # the loop, the connections and the membership are the parent's
        self._thread.call(self._core.close(timeout))
        if self._finalizer is not None:
            self._finalizer.detach()

    def _farewell(self) -> None:
        call = self._core.farewell()
        if call is not None and self._core.listener is not None:
            try:
                call.invoke(self._core.listener)
            except Exception:
                log.exception("the rebalance listener raised; the consumer leaves nevertheless")

    def forked(self) -> None:
        """In a child process: fail with a word of what to do."""
        self._claim, self._listening, self._forked = {}, False, True
        self._core.retire(forked_error("Consumer"))
        if self._finalizer is not None:
            self._finalizer.detach()

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an error, automatic commits leave out what the last poll returned."""
        if error is not None:
            self._core.handover.undo = True
        self.close()

    # -- one thread at a time

    def _enter(self) -> bool:
        """Claim the consumer for this thread; False inside a listener, which may call it as well.

        The claim is one step, and a claim that an interruption left behind is this thread's own.
        """
        here = threading.get_ident()
        if self._claim.setdefault(_THREAD, here) != here:
            raise ConcurrentUseError(
                "another thread uses this consumer at the moment: give each thread its own, or "
                "let one poll and hand the records over"
            )
        return not self._listening

    def _leave(self) -> None:
        self._listening = self._core.polling = False
        self._claim.clear()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._core.check_usable()
            outermost = self._enter()
            if outermost:
                self._core.handover.check()
        except BaseException:
            work.close()
            raise
        try:
            return self._thread.call(work)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None  # without the frames of this package
        finally:
            if outermost:
                self._leave()

    def _on_loop(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._call(run())

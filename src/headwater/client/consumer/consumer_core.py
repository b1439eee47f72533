"""The consumer without a face: what poll, seek, commit and close do, on the event loop.

`take` alone may run in the caller's own thread: records that are here already are handed out
without a word to the loop. How to wait, and where to call a rebalance listener, is what the two
faces differ in.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import TypeVar

from headwater.client.consumer.assembly import Offsets, Partitions
from headwater.client.consumer.fetching.arrow import RecordBatch, Runs, record_batch
from headwater.client.consumer.fetching.completed_fetch import ENOUGH_BYTES, CompletedFetch, Reshape
from headwater.client.consumer.group.commits import OnCommit, checked_offsets
from headwater.client.consumer.group.group_loop import Group
from headwater.client.consumer.listener import ListenerCall, RebalanceListener
from headwater.client.consumer.record import (
    OffsetAndMetadata,
    Records,
    topic_partitions,
)
from headwater.client.consumer.subscription import IllegalStateError, SubscriptionType
from headwater.client.consumer.wakeup import Wakeup
from headwater.client.consumer.whereabouts import Whereabouts
from headwater.client.errors import (
    ClosedError,
    CorruptRecordError,
    SerializationError,
)
from headwater.errors import KafkaError
from headwater.model import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_WAIT_MS = 5000
_ARROW_RECORDS = 65_536
"""How many records `poll_arrow` gathers at most, unless asked for another number."""


class ConsumerCore(Whereabouts):
    """One consumer."""

    # -- polling

    @property
    def quick(self) -> bool:
        """Whether `take` may be called without a look at anything else."""
        if self._woken or self._fetcher.failures or self._unusable is not None:
            return False
        if self.handover.undo:
            return False
        group = self._group
        if group is None:
            return True
        now = self._clock.monotonic_ms()
        return not (group.due(now) or self._commits.auto_commit_due(now))

    @property
    def holds_records(self) -> bool:
        """Whether some were fetched that nobody has taken yet."""
        return bool(self._fetcher.ready)

    def here(self, take: Callable[[], T]) -> T | None:
        """On the loop: what `take` gives without a look at anything else."""
        return self._taken(take) if self.quick else None

    def _taken(self, take: Callable[[], T]) -> T | None:
        if not (found := take()):
            return None
        if self.stalled:
            self.room_made()
        return found

    def take(self, limit: int | None = None) -> Records:
        """Records that are here already; moves the positions."""
        found = Records()
        self._drain(found, self._limit if limit is None else limit)
        if not found:
            self.handover.open = False
            return found
        self._metrics.records.add(self._clock.monotonic_ms(), len(found))
        if self._interceptors is not None:
            found = self._interceptors.on_consume(found)
            self.handover.open = bool(found)
        return found

    def _drain(self, found: Records, limit: int) -> None:
        def add(fetched: CompletedFetch) -> bool:
            self.handover.remember(fetched.state)
            records = fetched.take(limit - len(found))
            found.extend(records)
            return bool(records)

        self._each_ready(add, lambda: len(found) < limit, lambda: not found)

    def take_columns(self, limit: int) -> RecordBatch | None:
        """Like `take`, as columns."""
        if self._reshape is not None or self._interceptors is not None:
            raise IllegalStateError(
                "poll_arrow() gives bytes: use it without deserializers and interceptors"
            )
        reader, runs = self._column_reader, Runs()

        def add(fetched: CompletedFetch) -> bool:
            self.handover.remember(fetched.state)
            before = reader.count
            fetched.take_columns(reader, limit)
            taken = reader.count - before
            if taken:
                runs.append((fetched.state.topic, fetched.state.partition, taken))
            return bool(taken)

        def hungry() -> bool:
            return reader.count < limit and reader.size < ENOUGH_BYTES

        self._each_ready(add, hungry, lambda: not reader.count)
        if not reader.count:
            self.handover.open = False
            return None
        self._metrics.records.add(self._clock.monotonic_ms(), reader.count)
        return record_batch(reader.finish(), runs)

    def _each_ready(
        self,
        add: Callable[[CompletedFetch], bool],
        hungry: Callable[[], bool],
        empty: Callable[[], bool],
    ) -> None:
        """Let `add` take from what was fetched, in order, while it is hungry.

        What is paused stays where it is: an interruption must not lose it.
        """
        ready, at = self._fetcher.ready, 0
        while at < len(ready) and hungry():
            fetched = ready[at]
            if fetched.stale:
                del ready[at]
            elif fetched.state.paused:
                at += 1
            elif not self._added(add, at, empty):
                break

    def _added(
        self, add: Callable[[CompletedFetch], bool], at: int, empty: Callable[[], bool]
    ) -> bool:
        """Take from one; false where an error waits for the poll after this one."""
        fetched = self._fetcher.ready[at]
        state = fetched.state
        try:
            if not add(fetched) or fetched.exhausted:
                del self._fetcher.ready[at]
                state.drained += fetched.size
        except (CorruptRecordError, SerializationError) as problem:
            if not empty():
                return False
            self.handover.open = False
            if isinstance(problem, CorruptRecordError):
                self.handover.undo = True  # fetched again by the next poll
            raise
        return True

    async def step(self, deadline_ms: int, take: Callable[[], T]) -> "T | ListenerCall | None":
        """Wait until `take` gives something, a listener must be called, or the time is over."""
        while True:
            self.poll_wakeup.clear()
            call, limit_ms = await self.look(deadline_ms)
            if call is not None:
                return call
            if (found := self._taken(take)) or not limit_ms:
                return found
            await self.poll_wakeup.wait(limit_ms / 1000)
            if found := self.here(take):
                return found

    async def look(self, deadline_ms: int) -> tuple[ListenerCall | None, int]:
        """What a listener must hear, or how long to wait if nothing can be taken: 0 for no longer.

        Whoever waits has cleared `wakeup` before, and looks again when it is set or when the wait
        has ended. Nothing is taken here, so that a look that is cut short takes nothing with it.
        """
        self.check_usable()
        self._undo_interrupted()
        if self._group is not None:
            call = await self._group.step(deadline_ms)
            if call is not None:
                return call, 0
        self._raise_pending()
        self._positions.start()
        self._fetcher.report_silence()
        self._commits.auto_commit_if_due()
        if self._fetcher.stalled:
            self._fetcher.changed()
        return None, self._patience_ms(deadline_ms)

    def _patience_ms(self, deadline_ms: int) -> int:
        """How long a poll that found nothing may wait before it looks after everything again."""
        now = self._clock.monotonic_ms()
        if self._subscription_is_empty():
            raise IllegalStateError(
                "this consumer reads nothing: call subscribe() or assign() before poll()"
            )
        limit = deadline_ms - now
        if limit <= 0:
            return 0
        if self._group is not None:
            limit = min(limit, self._group.next_look_ms(now))
        if self._positions.unresolved():
            limit = min(limit, self.settings.retry_backoff_ms)
        longest = min(_LONGEST_WAIT_MS, self.settings.max_poll_interval_ms // 3)
        return max(min(limit, self._commits.next_auto_commit_ms(now), longest), 1)

    @property
    def poll_wakeup(self) -> Wakeup:
        """Set when poll should look again."""
        return self._fetcher.poll_wakeup

    def _subscription_is_empty(self) -> bool:
        return self.subscription.type is SubscriptionType.NONE

    def polled(self) -> None:
        """The application is alive."""
        if self._group is not None:
            self._group.polled(self._clock.monotonic_ms())

    def deadline(self, timeout_s: float | None) -> int:
        """When a wait of `timeout_s` from now ends; None waits for ever."""
        if timeout_s is None:
            return 2**62
        return self._clock.monotonic_ms() + int(timeout_s * 1000)

    def left_ms(self, deadline_ms: int) -> int:
        """How long it is until then."""
        return max(deadline_ms - self._clock.monotonic_ms(), 0)

    def woken(self) -> None:
        """From any thread: let a poll that waits, or the next one, raise WakeupError."""
        self._woken = True

    def look_again(self) -> None:
        """On the loop: let a poll that waits see what changed."""
        self._fetcher.poll_wakeup.set()

    @property
    def stalled(self) -> bool:
        """Whether fetching waits for room; `room_made` tells it of some."""
        return self._fetcher.stalled

    def room_made(self) -> None:
        """On the loop: records were handed out."""
        self._fetcher.changed()

    def shaping(self, what: str) -> Reshape:
        """What makes a record of bytes into one with a deserialized key and value."""
        self._grouped(what)
        return self._reshape or (lambda record: record)

    @contextmanager
    def by_hand(self) -> Iterator[None]:
        """Meanwhile records come as bytes, and positions are committed by hand.

        For those who hand records to workers: what cannot be deserialized is then one record's
        trouble. Automatic commits stay off until `back_at_work` says that positions are true again.
        """
        self._fetcher.shape_as(None)
        self._commits.automatic = False
        try:
            yield
        finally:
            self._fetcher.shape_as(self._reshape)

    def back_at_work(self) -> None:
        """PositionResolver are at the first records that are not done: they may be committed again."""
        self.handover.undo = True  # what was polled last and never reached a worker
        self._commits.automatic = self.settings.enable_auto_commit

    def wakeup_done(self) -> None:
        """What wakeup() asked for has happened: the next poll does not raise for it."""
        self._woken = False

    @property
    def started(self) -> bool:
        """Whether there is anything on the loop yet."""
        return self._started

    def listener_called(self, call: ListenerCall) -> None:
        """The listener has heard of a change."""
        if self._group is not None:
            self._group.listener_called(call)
            self._metadata_came()
            self._positions.start()

    # -- wishes

    async def subscribe(
        self,
        topics: Sequence[str] | None,
        pattern: str | re.Pattern[str] | None,
        listener: RebalanceListener | None,
    ) -> None:
        """Want topics by name or by pattern."""
        self.check_usable()
        group = self._grouped("subscribe()")
        if (topics is None) == (pattern is None):
            raise ValueError("subscribe takes a list of topics or a pattern, one of them")
        if topics is not None and not topics:
            await self.unsubscribe()
            return
        if pattern is not None:
            self.subscription.subscribe_pattern(pattern)
        else:
            self.subscription.subscribe(topics or ())
        self.listener = listener
        group.wish_changed()

    async def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions."""
        self.check_usable()
        wanted = topic_partitions(partitions)
        self.subscription.check_type(SubscriptionType.ASSIGNED)
        await self._cluster.metadata({name.topic for name in wanted})
        await self._cluster.check_exist(wanted)
        self.subscription.assign(wanted)
        self._metadata_came()
        self._fetcher.changed(at_once=True)

    async def unsubscribe(self) -> None:
        """Read nothing; leaves the group."""
        if self._group is not None:
            await self._group.leave("the consumer unsubscribed")
        self.subscription.unsubscribe()

    def farewell(self) -> ListenerCall | None:
        """What the listener must hear before this member leaves its group."""
        if self._group is None or self._unusable is not None or self.listener is None:
            return None
        return self._group.farewell()

    def _grouped(self, what: str) -> Group:
        if self._group is None:
            raise IllegalStateError(f"{what} needs a group_id: give one to the consumer")
        return self._group

    def pause(self, partitions: Partitions) -> None:
        """Hand out nothing of these for now."""
        for name in topic_partitions(partitions):
            self.subscription.state_of(name).paused = True

    def resume(self, partitions: Partitions) -> None:
        """Hand them out again."""
        for name in topic_partitions(partitions):
            self.subscription.state_of(name).paused = False
        self._fetcher.changed()
        self._fetcher.poll_wakeup.set()

    # -- commits

    async def commit(self, offsets: Offsets | None) -> None:
        """Commit and wait for it."""
        self._grouped("commit()")
        self._undo_interrupted()
        wanted = checked_offsets(offsets)
        async with self._within_api_timeout("the commit"):
            await self._commits.commit(wanted)
        self.handover.committed(wanted)

    def commit_soon(self, offsets: Offsets | None, on_commit: OnCommit | None) -> None:
        """Commit without waiting; never repeated."""
        self._grouped("commit_async()")
        self._undo_interrupted()
        wanted = checked_offsets(offsets)
        self._commits.commit_soon(wanted, on_commit)
        self.handover.committed(wanted)

    async def committed(
        self, partitions: Partitions
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed."""
        self._grouped("committed()")
        async with self._within_api_timeout("the committed offsets"):
            return await self._commits.committed(topic_partitions(partitions))

    # -- the end

    def check_usable(self) -> None:
        """Raise what made this consumer unusable, if anything did."""
        if self._unusable is not None:
            raise self._unusable

    def retire(self, error: KafkaError) -> None:
        """Let every later call raise `error`."""
        self._unusable = error

    async def close(self, timeout_s: float | None = None) -> None:
        """Commit if that is automatic, leave the group, close every connection."""
        if self._unusable is not None:
            return
        self.retire(ClosedError("the consumer is closed: make another"))
        self._undo_interrupted()
        limit = 30.0 if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit):
                await self._say_goodbye()
        except (KafkaError, OSError, TimeoutError) as problem:
            log.warning(
                "the consumer was closed before its last commit and its goodbye to the group were "
                "answered: %s",
                problem if str(problem) else f"timed out after {limit:g} s",
            )
        finally:
            async with AsyncExitStack() as parts:  # each is closed, whatever another one raises
                parts.push_async_callback(self._cluster.close)
                parts.push_async_callback(self._fetcher.close)
                parts.push_async_callback(self._positions.close)
                parts.push_async_callback(self._commits.close)
                if self._group is not None:
                    parts.push_async_callback(self._group.go_quiet)

    async def abandon(self) -> None:
        """Nobody closed the consumer: leave the group and close every connection; commit nothing."""
        self._commits.automatic = False
        await self.close()

    async def _say_goodbye(self) -> None:
        """The group hears of the end even if it refused the last commit, unless time is over."""
        try:
            await self._commits.commit_last()
        except (KafkaError, OSError) as problem:
            log.warning("the last commit failed: %s", problem)
        if self._group is not None:
            await self._group.leave("the consumer was closed")

    def metrics(self) -> dict[str, float]:
        """What this consumer counted, under Kafka's names."""
        return self._metrics.read(self._clock.monotonic_ms())

    def arrow_limit(self, max_records: int | None) -> int:
        """How many records `poll_arrow` may gather."""
        return _ARROW_RECORDS if max_records is None else max_records

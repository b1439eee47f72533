"""One consumer on the event loop: what poll, subscribe, commit and close do.

Both faces hold a core and differ in how they wait and where they call a rebalance listener
(`async_poller.py`, `blocking_poller.py`). Everything here belongs to the loop's thread, except
`ready` and the properties that the blocking face reads before it takes records in the caller's
thread.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, TypeVar

from headwater.client.cluster import Cluster
from headwater.client.consumer.api_timeout import ApiTimeout
from headwater.client.consumer.assignors import Assignor, assignors_named
from headwater.client.consumer.consumer_positions import ConsumerPositions
from headwater.client.consumer.deserializers import Deserializer, deserializer, reshaping
from headwater.client.consumer.fetching.completed_fetch import Reshape
from headwater.client.consumer.fetching.fetcher_loop import Fetcher
from headwater.client.consumer.group.commits import COMMITTED_OFFSETS, Commits, OnCommit
from headwater.client.consumer.group.group_loop import Group
from headwater.client.consumer.handover import Handover
from headwater.client.consumer.interceptors import ConsumerInterceptor, ConsumerInterceptors
from headwater.client.consumer.listener import ListenerCall, RebalanceListener
from headwater.client.consumer.metrics import ConsumerMetrics
from headwater.client.consumer.offset_lookups import OffsetLookups
from headwater.client.consumer.partition_state import PartitionState
from headwater.client.consumer.positions_loop import PositionResolver
from headwater.client.consumer.ready_records import ReadyRecords
from headwater.client.consumer.record import (
    CommittedOffsets,
    Offsets,
    Partition,
    Partitions,
    checked_offsets,
    topic_partitions,
)
from headwater.client.consumer.subscription import Subscription, SubscriptionType
from headwater.client.consumer.wakeup import Wakeup
from headwater.client.errors import ClosedError, IllegalStateError, WakeupError
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.client.plugins import Plugins
from headwater.client.waits import not_seconds
from headwater.config.client import ConsumerSettings
from headwater.errors import KafkaError
from headwater.model import ZERO_UUID
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.network import Network, TcpNetwork
from headwater.seams.randomness import Randomness, SystemRandomness
from headwater.seams.tasks import LoopTasks

log = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_WAIT_MS = 5000
_NO_DEADLINE_MS = 2**62
_CLOSE_TIMEOUT_S = 30.0


class ConsumerCore:
    """The parts of one consumer and what they do together."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        key_deserializer: Deserializer | str | None = None,
        value_deserializer: Deserializer | str | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[Assignor] = (),
        clock: Clock | None = None,
        network: Network | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.settings = ConsumerSettings.of(settings)
        for warning in self.settings.warnings():
            log.warning("%s", warning)
        self.subscription = Subscription()
        self.handover = Handover()
        self.listener: RebalanceListener | None = None
        self.polling = False
        """Whether poll() runs; False inside a listener, which is application code."""
        self.started = False
        self.ready: ReadyRecords
        self.positions: ConsumerPositions
        self._assignors = list(assignors) or assignors_named(
            self.settings.partition_assignment_strategy
        )
        self._reshape = reshaping(
            deserializer("key_deserializer", key_deserializer),
            deserializer("value_deserializer", value_deserializer),
        )
        self._interceptors = ConsumerInterceptors(interceptors) if interceptors else None
        self._plugins = Plugins(
            self.settings, key_deserializer, value_deserializer, *interceptors, *assignors
        )
        self._clock = clock or SystemClock()
        self._network = network or TcpNetwork()
        self._randomness = randomness or SystemRandomness()
        self._metrics = ConsumerMetrics()
        self._wakeup_requested = False
        self._unusable: KafkaError | None = None
        self._fetcher: Fetcher
        self._cluster: Cluster
        self._resolver: PositionResolver
        self._commits: Commits
        self._group: Group | None = None

    def start(self) -> None:
        """Create the parts that live on the loop; sends no request yet."""
        if self.started:
            return
        settings, tasks = self.settings, LoopTasks()
        cluster = self._cluster = Cluster(
            settings,
            self._network,
            self._clock,
            self._randomness,
            tasks,
            auto_create=settings.allow_auto_create_topics,
        )
        fetcher = self._fetcher = Fetcher(
            settings,
            cluster,
            self.subscription,
            self._clock,
            tasks,
            self._reshape,
            self._metrics,
        )
        self.ready = ReadyRecords(
            fetcher, self.handover, self._interceptors, self._metrics, self._clock
        )
        self._start_commits(tasks)
        self._start_positions(tasks)
        cluster.listeners.append(self._metadata_changed)
        self._metrics.gauges = {
            "records-lag-max": lambda: max(self._known(self.positions.lag_of), default=0),
            "records-lead-min": lambda: min(self._known(PartitionState.lead), default=0),
            "assigned-partitions": lambda: len(self.subscription.partitions),
        }
        self.started = True

    def _start_commits(self, tasks: LoopTasks) -> None:
        self._commits = Commits(
            self.settings, self._cluster, self.subscription, self._clock, tasks, self._metrics
        )
        if self._interceptors is not None:
            self._commits.on_commit = self._interceptors.on_commit
        if self.settings.group_id is None:
            return
        self._group = Group(
            self.settings,
            self._cluster,
            self.subscription,
            self._fetcher,
            self._assignors,
            self._commits,
            self._clock,
            tasks,
            self._metrics,
        )
        self._commits.member = self._group.identity
        self._group.in_poll = lambda: self.polling

    def _start_positions(self, tasks: LoopTasks) -> None:
        committed_only = self.settings.isolation_level == "read_committed"
        lookups = OffsetLookups(self._cluster, committed_only=committed_only)
        self._resolver = PositionResolver(
            self.settings.auto_offset_reset,
            self._cluster,
            self.subscription,
            self._fetcher,
            lookups,
            tasks,
            self._commits.committed if self._group is not None else None,
        )
        self._fetcher.on_lost_position = self._resolver.start
        self.positions = ConsumerPositions(
            self.settings, self._cluster, self.subscription, self._fetcher, lookups, self._resolver
        )

    def _metadata_changed(self) -> None:
        """Handle new metadata: leaders may have moved, topics may have been recreated."""
        for state in self.subscription.partitions.values():
            view = self._cluster.topics.get(state.topic)
            if view is None or view.topic_id == ZERO_UUID:  # an old broker has no ids
                continue
            if state.topic_id not in (None, view.topic_id) and state.position is not None:
                self._fetcher.topic_recreated(state)
            state.topic_id = view.topic_id
        if self._group is not None:
            self._group.metadata_changed()
        self._fetcher.changed()

    # -- polling, in the caller's thread

    @property
    def nothing_due(self) -> bool:
        """Whether poll() may return records before it does other work."""
        if self._wakeup_requested or self._fetcher.failures or self._unusable is not None:
            return False
        if self.handover.undo:
            return False
        group = self._group
        if group is None:
            return True
        now = self._clock.monotonic_ms()
        return not (group.due(now) or self._commits.auto_commit_due(now))

    @property
    def has_ready_records(self) -> bool:
        """Whether fetched records are ready."""
        return bool(self._fetcher.ready)

    @property
    def fetching_stalled(self) -> bool:
        """Whether fetching waits for room; call `resume_fetching` after taking records."""
        return self._fetcher.stalled

    @property
    def poll_wakeup(self) -> Wakeup:
        """Set when a waiting poll() should try again."""
        return self._fetcher.poll_wakeup

    def deadline(self, timeout_s: float | None) -> int:
        """Return when a wait of `timeout_s` from now ends; None without a limit."""
        if timeout_s is None:
            return _NO_DEADLINE_MS
        try:
            return self._clock.monotonic_ms() + int(timeout_s * 1000)
        except OverflowError:  # float("inf")
            return _NO_DEADLINE_MS
        except (TypeError, ValueError):
            raise not_seconds(timeout_s) from None

    def left_ms(self, deadline_ms: int) -> int:
        """Return the milliseconds until `deadline_ms`, never negative."""
        return max(deadline_ms - self._clock.monotonic_ms(), 0)

    def request_wakeup(self) -> None:
        """Let a waiting poll, or the next one, raise WakeupError. Safe from any thread."""
        self._wakeup_requested = True

    def cancel_wakeup(self) -> None:
        """Drop a wakeup request: the next poll does not raise."""
        self._wakeup_requested = False

    # -- polling, on the loop

    def wake_poll(self) -> None:
        self._fetcher.poll_wakeup.set()

    def resume_fetching(self) -> None:
        self._fetcher.changed()

    async def run_due_work(self, deadline_ms: int) -> tuple[ListenerCall | None, int]:
        """Do everything that poll() does besides taking records.

        Returns a listener call to make, or how long to wait if no records are ready; 0 means that
        the time is over. Callers clear `poll_wakeup` first, and call again when it is set or the
        wait has ended. Takes no records, so cancelling it loses none.
        """
        self.check_usable()
        self._undo_interrupted()
        if self._group is not None:
            call = await self._group.step(deadline_ms)
            if call is not None:
                return call, 0
        self._raise_pending()
        self._resolver.start()
        self._fetcher.report_silence()
        self._commits.auto_commit_if_due()
        if self._fetcher.stalled:
            self._fetcher.changed()
        return None, self._wait_ms(deadline_ms)

    def _wait_ms(self, deadline_ms: int) -> int:
        """Return how long a poll without records may wait before `run_due_work` must run again."""
        now = self._clock.monotonic_ms()
        if self.subscription.type is SubscriptionType.NONE:
            raise IllegalStateError(
                "this consumer has no partitions: call subscribe() or assign() before poll()"
            )
        limit = deadline_ms - now
        if limit <= 0:
            return 0
        if self._group is not None:
            limit = min(limit, self._group.next_step_ms(now))
        if self._resolver.unresolved():
            limit = min(limit, self.settings.retry_backoff_ms)
        longest = min(_LONGEST_WAIT_MS, self.settings.max_poll_interval_ms // 3)
        return max(min(limit, self._commits.next_auto_commit_ms(now), longest), 1)

    def listener_called(self, call: ListenerCall) -> None:
        """Continue the rebalance after the listener has returned."""
        if self._group is not None:
            self._group.listener_called(call)
            self._metadata_changed()
            self._resolver.start()

    def _undo_interrupted(self) -> None:
        """Move back to records that an interrupted poll did not return, before positions are used."""
        if self.handover.undo:
            self.handover.restore_positions()
            self.ready.discard_partial_columns()
            self._fetcher.changed(at_once=True)

    def _raise_pending(self) -> None:
        if self._wakeup_requested:
            self._wakeup_requested = False
            raise WakeupError("wakeup() was called")
        if self._fetcher.failures:
            raise self._fetcher.failures.popleft()

    # -- what to read

    async def subscribe(
        self,
        topics: Sequence[str] | None,
        pattern: str | re.Pattern[str] | None,
        listener: RebalanceListener | None,
    ) -> None:
        group = self._require_group("subscribe()")
        if (topics is None) == (pattern is None):
            raise ValueError("subscribe() takes either a list of topics or a pattern")
        if topics is not None and not topics:
            await self.unsubscribe()
            return
        if pattern is not None:
            self.subscription.subscribe_pattern(pattern)
        else:
            self.subscription.subscribe(topics or ())
        self.listener = listener
        group.subscription_changed()

    async def assign(self, partitions: Partitions) -> None:
        wanted = topic_partitions(partitions)
        self.subscription.check_type(SubscriptionType.ASSIGNED)
        await self._cluster.metadata({name.topic for name in wanted})
        await self._cluster.check_exist(wanted)
        self.subscription.assign(wanted)
        self._metadata_changed()
        self._fetcher.changed(at_once=True)

    async def unsubscribe(self) -> None:
        if self._group is not None:
            await self._group.leave("the consumer unsubscribed")
        self.subscription.unsubscribe()

    def leaving_call(self) -> ListenerCall | None:
        """Return the listener call to make before this member leaves its group."""
        if self._group is None or self._unusable is not None or self.listener is None:
            return None
        return self._group.leaving_call()

    def pause(self, partitions: Partitions) -> None:
        for name in topic_partitions(partitions):
            self.subscription.state_of(name).paused = True

    def resume(self, partitions: Partitions) -> None:
        for name in topic_partitions(partitions):
            self.subscription.state_of(name).paused = False
        self._fetcher.changed()
        self._fetcher.poll_wakeup.set()

    async def position(self, partition: Partition) -> int:
        self._undo_interrupted()
        return await self.positions.position(partition, self._raise_pending)

    def _require_group(self, call: str) -> Group:
        if self._group is None:
            raise IllegalStateError(f"{call} needs a group: pass group_id to the consumer")
        return self._group

    # -- commits

    async def commit(self, offsets: Offsets | None) -> None:
        self._require_group("commit()")
        self._undo_interrupted()
        wanted = None if offsets is None else checked_offsets(offsets)
        async with ApiTimeout(self.settings.default_api_timeout_ms, "the commit", self._cluster):
            await self._commits.commit(wanted)
        self.handover.committed(wanted)

    def commit_async(self, offsets: Offsets | None, on_commit: OnCommit | None) -> None:
        """Send a commit without waiting for it; it is not retried."""
        self._require_group("commit_async()")
        self._undo_interrupted()
        wanted = None if offsets is None else checked_offsets(offsets)
        self._commits.commit_soon(wanted, on_commit)
        self.handover.committed(wanted)

    def group_metadata(self) -> ConsumerGroupMetadata:
        self._require_group("group_metadata()")
        return self._commits.group_metadata()

    async def committed(self, partitions: Partitions) -> CommittedOffsets:
        self._require_group("committed()")
        limit_ms, commits = self.settings.default_api_timeout_ms, self._commits
        async with ApiTimeout(
            limit_ms, COMMITTED_OFFSETS, self._cluster, lambda: commits.read_problem
        ):
            return await commits.committed(topic_partitions(partitions))

    # -- for process()

    def reshape_for(self, call: str) -> Reshape:
        """Return a function that deserializes the key and value of a record."""
        self._require_group(call)
        return self._reshape or (lambda record: record)

    @contextmanager
    def raw_records(self) -> Iterator[None]:
        """Return records as bytes, and stop automatic commits until `resume_auto_commit`.

        A record that cannot be deserialized then fails only in the worker that handles it.
        """
        self._fetcher.shape_as(None)
        self._commits.automatic = False
        try:
            yield
        finally:
            self._fetcher.shape_as(self._reshape)

    def resume_auto_commit(self) -> None:
        """Resume automatic commits: positions are at the first unfinished records again."""
        self.handover.undo = True  # the last poll's records may not have reached a worker
        self._commits.automatic = self.settings.enable_auto_commit

    # -- the end

    def check_usable(self) -> None:
        """Raise the error that made this consumer unusable, if any."""
        if self._unusable is not None:
            raise self._unusable

    def make_unusable(self, error: KafkaError) -> None:
        """Let every later call raise `error`."""
        self._unusable = error

    async def close(self, timeout_s: float | None = None) -> None:
        """Commit if auto-commit is enabled, leave the group, close every connection."""
        self.deadline(timeout_s)  # refuses a bad timeout before anything is closed
        if self._unusable is not None:
            return
        self.make_unusable(ClosedError("the consumer is closed: create another one"))
        self.poll_wakeup.set()  # a poll may wait: in another task, or below a signal handler
        self._undo_interrupted()
        limit = _CLOSE_TIMEOUT_S if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit):
                await self._commit_and_leave()
        except (KafkaError, OSError, TimeoutError) as problem:
            log.warning(
                "the consumer was closed before its last commit and LeaveGroup were answered: %s",
                problem if str(problem) else f"timed out after {limit:g} s",
            )
        finally:
            async with AsyncExitStack() as parts:  # closes each part even if another one raises
                parts.callback(self._plugins.close)
                parts.push_async_callback(self._cluster.close)
                parts.push_async_callback(self._fetcher.close)
                parts.push_async_callback(self._resolver.close)
                parts.push_async_callback(self._commits.close)
                if self._group is not None:
                    parts.push_async_callback(self._group.stop)

    async def abandon(self) -> None:
        """Close a consumer that was dropped without close(): commits nothing."""
        self._commits.automatic = False
        await self.close()

    async def _commit_and_leave(self) -> None:
        """Leave the group even if it refuses the last commit."""
        try:
            await self._commits.commit_last()
        except (KafkaError, OSError) as problem:
            log.warning("the last commit failed: %s", problem)
        if self._group is not None:
            await self._group.leave("the consumer was closed")

    def metrics(self) -> dict[str, float]:
        return self._metrics.read(self._clock.monotonic_ms())

    def _known(self, read: Callable[[PartitionState], int | None]) -> list[int]:
        numbers = [read(state) for state in list(self.subscription.partitions.values())]
        return [number for number in numbers if number is not None]

    def check_columns(self) -> None:
        """Raise IllegalStateError unless records are plain bytes."""
        if self._reshape is not None or self._interceptors is not None:
            raise IllegalStateError(
                "poll_arrow() returns bytes: use it without deserializers and interceptors"
            )

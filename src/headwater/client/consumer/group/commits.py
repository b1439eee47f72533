"""Commits of a group: blocking, asynchronous and automatic.

The committed offset of a partition is the next one to read. A blocking commit is retried until it
succeeds or cannot succeed; an asynchronous one is tried once.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headwater.client.cluster import Cluster
from headwater.client.consumer.metrics import ConsumerMetrics
from headwater.client.consumer.record import OffsetAndMetadata
from headwater.client.consumer.subscription import Subscription
from headwater.client.errors import (
    ClosedError,
    CommitFailedError,
    UnknownTopicOrPartitionError,
    failure,
    internal_error,
)
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.client.refusals import refused
from headwater.client.wait_warnings import FIRST_S
from headwater.config.client import ConsumerSettings
from headwater.errors import E, KafkaError, error_of
from headwater.model import NO_OFFSET, ZERO_UUID, TopicPartition, Uuid
from headwater.seams.clock import Clock
from headwater.seams.tasks import LoopTasks
from headwater.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

log = logging.getLogger(__name__)

CommitMap = dict[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], None]

COMMITTED_OFFSETS = "the committed offsets"
"""What a read of them is called in warnings and errors."""
_TOPICS_BY_NAME_UP_TO = 9
_NO_SUCH_TOPIC = frozenset({E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID})
_ONE_GROUP_UP_TO = 7
_COORDINATOR_GONE = frozenset(
    {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.NETWORK_EXCEPTION, E.REQUEST_TIMED_OUT}
)
_GRACE_MS = 1500
"""How long to retry a partition that the coordinator does not know: it may be new."""
_BEGIN_ANEW = frozenset({E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID})


class CommitIdentity(NamedTuple):
    """The committer: a member of a generation, or a consumer without membership."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    since_poll_ms: int = 0
    """How long ago the application polled."""
    outside: bool = False
    """Whether the consumer should be a member and currently is not."""
    behind: bool = False
    """Whether the application has given its partitions up, and does not know its new ones yet."""
    told_generation: int = -1
    told_member_id: str = ""
    """The membership that the application knows of, also after its end."""


class Commits:
    """Reads and commits the offsets of one group for one consumer."""

    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: Cluster,
        subscription: Subscription,
        clock: Clock,
        tasks: LoopTasks,
        metrics: ConsumerMetrics,
    ) -> None:
        self.member: Callable[[], CommitIdentity] = CommitIdentity
        self.on_fenced: Callable[[E], None] = lambda code: None
        self.on_commit: Callable[[CommitMap], None] = lambda offsets: None
        self._settings = settings
        self._group = settings.group_id or ""
        self._cluster = cluster
        self._subscription = subscription
        self._clock = clock
        self._tasks = tasks
        self._metrics = metrics
        self.read_problem: Exception | None = None
        """Why the committed offsets were not read yet."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._in_turn = asyncio.Lock()
        """Serializes coordinator lookups, so that no commit overtakes an earlier one."""
        self.automatic = settings.enable_auto_commit
        """Whether positions are committed automatically."""
        self._next_auto_ms = clock.monotonic_ms() + settings.auto_commit_interval_ms
        self._last_auto: CommitMap = {}
        self._auto_failing_since_ms: int | None = None

    def consumed(self) -> CommitMap:
        """Return the known positions of all partitions."""
        return {
            name: OffsetAndMetadata(state.position, "", state.epoch)
            for name, state in self._subscription.partitions.items()
            if state.position is not None
        }

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the membership, for offsets that a producer commits.

        It is the one by which the application got its records: a member that was removed would
        otherwise commit as a consumer without membership, which no coordinator refuses.
        """
        who = self.member()
        return ConsumerGroupMetadata(
            self._group, who.told_generation, who.told_member_id, who.instance_id
        )

    # -- committing

    async def commit(self, offsets: CommitMap | None) -> None:
        """Commit `offsets`, or all positions; retry until the caller's timeout.

        Raises UnknownTopicOrPartitionError for a missing partition, some time after the first
        answer that reports it; the other offsets are committed.
        """
        wanted = self.consumed() if offsets is None else offsets
        ids = self._topic_ids(wanted)
        while self._under_way:
            await asyncio.wait(self._under_way)  # commits take effect in the order of the calls
        backoff = self._cluster.backoff()
        unknown_since: int | None = None
        while wanted:
            try:
                await self._attempt(wanted, ids)
            except (KafkaError, OSError) as problem:
                if isinstance(problem, KafkaError) and not problem.code.retriable:
                    raise
                if not isinstance(problem, UnknownTopicOrPartitionError):
                    unknown_since = None
                elif unknown_since is None:
                    unknown_since = self._clock.monotonic_ms()
                elif self._clock.monotonic_ms() - unknown_since >= _GRACE_MS:
                    raise
                await asyncio.sleep(backoff.next_ms() / 1000)
            else:
                return

    def commit_soon(self, offsets: CommitMap | None, on_commit: OnCommit | None = None) -> None:
        """Commit once, without waiting; `on_commit` gets the result, on the loop."""
        wanted = self.consumed() if offsets is None else offsets
        ids = self._topic_ids(wanted)
        task = self._tasks.spawn(self._once(wanted, ids, on_commit), "commit offsets")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _once(
        self, offsets: CommitMap, ids: dict[str, Uuid], on_commit: OnCommit | None
    ) -> None:
        problem: KafkaError | None = None
        try:
            async with asyncio.timeout(self._settings.default_api_timeout_ms / 1000):
                if offsets:
                    await self._attempt(offsets, ids)
        except TimeoutError:
            problem = failure(E.REQUEST_TIMED_OUT)
        except OSError as gone:
            problem = failure(E.NETWORK_EXCEPTION, str(gone))
        except KafkaError as refused:
            problem = refused
        except asyncio.CancelledError:
            problem = ClosedError("the consumer was closed before the commit was answered")
            self._report(offsets, problem, on_commit)
            raise
        except Exception as fault:  # noqa: BLE001 - logged, and reported as any other failure
            problem = internal_error("a commit", fault)
        self._report(offsets, problem, on_commit)

    def _report(
        self, offsets: CommitMap, problem: KafkaError | None, on_commit: OnCommit | None
    ) -> None:
        if on_commit is not None:
            try:
                on_commit(offsets, problem)
            except Exception:
                log.exception("the callback of a commit raised")
        elif problem is not None:
            log.warning("a commit failed: %s", problem)

    def _topic_ids(self, offsets: CommitMap) -> dict[str, Uuid]:
        """Return the ids of the topics, or nothing if one of them is unknown.

        By name, an offset could be stored for a topic that was recreated in the meantime, and the
        group would skip its first records.
        """
        ids: dict[str, Uuid] = {}
        for name in offsets:
            state = self._subscription.partitions.get(name)
            if state is None or state.topic_id is None:
                return {}
            if ids.setdefault(name.topic, state.topic_id) != state.topic_id:
                return {}
        return ids

    async def _attempt(self, offsets: CommitMap, ids: dict[str, Uuid]) -> None:
        begun = self._clock.monotonic_ms()
        who = self.member()
        if who.outside:
            raise self._commit_failed(E.UNKNOWN_MEMBER_ID, who)
        if who.behind:
            raise self._refused(E.REBALANCE_IN_PROGRESS, "", who)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=who.generation,
            member_id=who.member_id,
            group_instance_id=who.instance_id,
            topics=_commit_topics(offsets, ids),
        )
        names = {topic_id: name for name, topic_id in ids.items()}
        try:
            async with self._in_turn:
                node = await self._cluster.coordinator(self._group)
                connection = await self._cluster.connection(node)
            newest = None if ids else _TOPICS_BY_NAME_UP_TO
            answer = await connection.call(request, OffsetCommitResponse, newest=newest)
        except (KafkaError, OSError):
            self._cluster.forget_coordinator(self._group)
            raise
        refused = {
            TopicPartition(
                topic.name or names.get(topic.topic_id, "?"), row.partition_index
            ): row.error_code
            for topic in answer.topics
            for row in topic.partitions
            if row.error_code
        }
        if refused:
            # Errors of other partitions come before that of a missing partition.
            name = min(refused, key=lambda name: refused[name] in _NO_SUCH_TOPIC)
            raise self._refused(refused[name], str(name), who)
        now = self._clock.monotonic_ms()
        self._metrics.commits.add(now, now - begun)
        self.on_commit(offsets)

    def _refused(self, code: int, about: str, who: CommitIdentity) -> KafkaError:
        problem = error_of(code)
        if problem in _COORDINATOR_GONE:
            self._cluster.forget_coordinator(self._group)
        now = self.member()
        if problem in _BEGIN_ANEW and not now.outside and now.generation != who.generation:
            problem = E.REBALANCE_IN_PROGRESS  # a late answer: the member is in the next generation
        if problem is E.FENCED_INSTANCE_ID:
            self.on_fenced(problem)
            return failure(problem)
        if problem in _BEGIN_ANEW:
            self.on_fenced(problem)
            return self._commit_failed(problem, who)
        if problem is E.REBALANCE_IN_PROGRESS:
            return CommitFailedError(
                "the group is being rebalanced: call poll() to finish that, then commit what you "
                "still have",
                problem,
            )
        if problem is E.UNKNOWN_TOPIC_ID:
            self._cluster.suspect()
            problem = E.UNKNOWN_TOPIC_OR_PARTITION
        topic = about.rpartition("-")[0]
        return refused(self._settings, problem, topic, about)

    def _commit_failed(self, problem: E, who: CommitIdentity) -> CommitFailedError:
        settings = self._settings
        return CommitFailedError(
            f"nothing was committed: the group has given the partitions to others ({problem.name}). "
            f"{who.since_poll_ms} ms have passed since the last poll(), and max.poll.interval.ms is "
            f"{settings.max_poll_interval_ms}. If polls are too far apart: (1) speed up the work "
            f"per record, (2) raise max_poll_interval_ms, (3) lower max_poll_records (now "
            f"{settings.max_poll_records}), or (4) work in parallel with Consumer.process().",
            problem,
        )

    # -- automatic commits

    def auto_commit_due(self, now: int) -> bool:
        """Return whether an automatic commit is due."""
        return self.automatic and now >= self._next_auto_ms and not self._under_way

    def auto_commit_if_due(self) -> None:
        """Commit the positions if an automatic commit is due."""
        now = self._clock.monotonic_ms()
        if not self.auto_commit_due(now):
            return
        self._next_auto_ms = now + self._settings.auto_commit_interval_ms
        offsets = self.consumed()
        if offsets and offsets != self._last_auto:
            self._last_auto = offsets
            self.commit_soon(offsets, self._auto_committed)

    def _auto_committed(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None
    ) -> None:
        now = self._clock.monotonic_ms()
        if error is None:
            self._auto_failing_since_ms = None
            return
        self._last_auto = {}
        if error.code.retriable:
            self._next_auto_ms = now + self._settings.retry_backoff_ms
            if self._auto_failing_since_ms is None:
                self._auto_failing_since_ms = now
            elif now - self._auto_failing_since_ms >= FIRST_S * 1000:
                self._cluster.warnings.warn(
                    "automatic commit",
                    "automatic commits of group %s have failed for %d s and are retried: %s",
                    self._group,
                    (now - self._auto_failing_since_ms) // 1000,
                    error,
                )
        else:
            log.warning("an automatic commit failed: %s", error)

    def next_auto_commit_ms(self, now: int) -> int:
        """Return how long poll() may sleep before the next automatic commit is due."""
        return max(self._next_auto_ms - now, 1) if self.automatic else 2**31

    async def commit_last(self) -> None:
        """Commit the positions before partitions are given up, if auto-commit is enabled."""
        if self.automatic and self._subscription.partitions:
            await self.commit(None)

    async def close(self) -> None:
        """Wait briefly for commits in flight."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=1)
        for task in self._under_way:
            task.cancel()

    # -- reading

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return committed offsets, None without a commit; retry until the caller's timeout."""
        self.read_problem = None
        with self._cluster.waiting(COMMITTED_OFFSETS, lambda: self.read_problem):
            return await self._until_read(partitions)

    async def _until_read(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        backoff = self._cluster.backoff()
        while True:
            try:
                return await self._read(partitions)
            except (KafkaError, OSError) as problem:
                code = problem.code if isinstance(problem, KafkaError) else E.NETWORK_EXCEPTION
                if not code.retriable:
                    raise
                self.read_problem = problem
                if code in _COORDINATOR_GONE:
                    self._cluster.forget_coordinator(self._group)
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _read(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        topics: dict[str, OffsetFetchRequest.OffsetFetchRequestTopic] = {}
        for name in partitions:
            topic = topics.setdefault(
                name.topic,
                OffsetFetchRequest.OffsetFetchRequestTopic(name=name.topic, partition_indexes=[]),
            )
            topic.partition_indexes.append(name.partition)
        request = OffsetFetchRequest(
            group_id=self._group,
            topics=list(topics.values()),
            require_stable=True,  # an open transaction may commit the work on the next records
        )
        connection = await self._cluster.connection(await self._cluster.coordinator(self._group))
        if connection.version_for(request, _ONE_GROUP_UP_TO) < _ONE_GROUP_UP_TO:
            request.require_stable = False
        answer = await connection.call(request, OffsetFetchResponse, newest=_ONE_GROUP_UP_TO)
        if answer.error_code:
            raise refused(self._settings, answer.error_code, self._group)
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
        for told in answer.topics:
            for row in told.partitions:
                name = TopicPartition(told.name, row.partition_index)
                if row.error_code:
                    raise refused(self._settings, row.error_code, told.name, str(name))
                if row.committed_offset != NO_OFFSET:
                    found[name] = OffsetAndMetadata(
                        row.committed_offset, row.metadata or "", row.committed_leader_epoch
                    )
        return found


def _commit_topics(
    offsets: CommitMap, ids: dict[str, Uuid]
) -> list[OffsetCommitRequest.OffsetCommitRequestTopic]:
    topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
    for name, row in offsets.items():
        topic = topics.setdefault(
            name.topic,
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=name.topic, topic_id=ids.get(name.topic, ZERO_UUID), partitions=[]
            ),
        )
        topic.partitions.append(
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=name.partition,
                committed_offset=row.offset,
                committed_leader_epoch=row.leader_epoch,
                committed_metadata=row.metadata,
            )
        )
    return list(topics.values())

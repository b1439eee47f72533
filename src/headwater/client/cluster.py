"""The cluster as a client sees it: brokers, topics, leaders, and open connections to them.

At most one metadata request is in flight; callers that need its answer wait for the same one.
Metadata may be out of date at any moment: a caller that learns this from a broker calls `suspect()`
and tries again. Every wait has a timeout.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from headwater.client.backoff import OutageBackoff
from headwater.client.connections import Connections, CoordinatorLookup
from headwater.client.errors import (
    NetworkError,
    TimedOutError,
    distrust_in,
    failure,
    no_such_partition,
    no_such_topic,
    raise_bug_of,
    refusal_in,
    unanswered,
)
from headwater.client.refusals import refused
from headwater.client.topology import (
    Node,
    PartitionView,
    TopicView,
    bootstrap_nodes,
    lacks_leaders,
    partition_view,
    topics_and_problems,
    with_leader,
    without_older_leaders,
)
from headwater.client.wait_warnings import Waiting, Warnings
from headwater.config.client import ClientSettings
from headwater.errors import E, KafkaError
from headwater.model import NO_EPOCH, ZERO_UUID, TopicPartition, Uuid
from headwater.seams.clock import Clock
from headwater.seams.network import Network
from headwater.seams.randomness import Randomness
from headwater.seams.tasks import LoopTasks
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.schema import Struct

__all__ = ["Cluster", "Node", "PartitionView", "TopicView", "bootstrap_nodes"]

Answer = TypeVar("Answer", bound=Struct)

_FINAL_TOPIC_ERRORS = frozenset({E.INVALID_TOPIC_EXCEPTION, E.TOPIC_AUTHORIZATION_FAILED})
_GRACE_MS = 1500
"""How long to retry a topic that brokers do not know: it may have been created a moment ago."""
_ASK_AGAIN_MS = 2000
"""The interval of requests for a topic that does not exist."""
_STAGGER_S = 0.25
"""If a broker does not answer for this long, the next one is asked as well."""


class Cluster(Connections):
    """Metadata and connections of one client. Lives on one event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        network: Network,
        clock: Clock,
        randomness: Randomness,
        tasks: LoopTasks,
        *,
        auto_create: bool = True,
    ) -> None:
        super().__init__(settings, network, clock, randomness)
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.topics: dict[str, TopicView] = {}
        self.problems: dict[str, E] = {}
        """Errors by requested topic."""
        self.listeners: list[Callable[[], None]] = []
        """Called on the loop after every metadata response."""
        self._tasks = tasks
        self._auto_create = auto_create
        self._wanted: set[str] = set()
        self._all_topics = False
        self._coordinators = CoordinatorLookup(self)
        self._refreshing: asyncio.Task[None] | None = None
        # Requests only new topics: a client of many topics would otherwise request all of them for
        # each new one.
        self._learning: asyncio.Task[None] | None = None
        self._next_refresh: asyncio.Handle | None = None
        self._next_refresh_at = 0.0
        self._outage = OutageBackoff(
            settings.retry_backoff_ms, settings.retry_backoff_max_ms, randomness
        )
        self._refreshed_ms = -settings.retry_backoff_max_ms
        self._suspect_again = False
        self._updated_ms = -1
        self._missing_since: dict[str, int] = {}
        """Since when brokers report that a topic does not exist."""
        self._asked_now: Counter[str] = Counter()
        """Topics that a call waits for: it raises their errors, which are otherwise logged."""
        self._unreachable: Exception | None = None
        """Why no broker answers; None while one does."""
        self._refused: KafkaError | None = None
        self.warnings = Warnings(clock.monotonic_ms)

    # -- what is known

    def leader(self, partition: TopicPartition) -> Node | None:
        """Return the leader of `partition`, if it is known."""
        row = partition_view(self.topics, partition)
        return None if row is None else self.nodes.get(row.leader)

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Return the newest known leader epoch of `partition`."""
        row = partition_view(self.topics, partition)
        return NO_EPOCH if row is None else row.leader_epoch

    def topic_id(self, topic: str) -> Uuid:
        """Return the id of `topic`; ZERO_UUID if it is not known or its brokers give no ids."""
        return self.topics[topic].topic_id if topic in self.topics else ZERO_UUID

    # -- metadata

    async def metadata(
        self, topics: Iterable[str], *, timeout_ms: int | None = None, fresh: bool = False
    ) -> dict[str, TopicView]:
        """Return the named topics; ask until all are known, or raise for the first that is not.

        Raises UnknownTopicOrPartitionError for a missing topic, some time after the first answer
        that reports it: the topic may have been created just now.
        """
        names = list(topics)
        limit = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        new = [name for name in names if name not in self._wanted or name in self._asked_now]
        self._asked_now.update(new)
        try:
            await self._learn(names, limit, fresh=fresh)
        except KafkaError:
            self.forget(name for name in new if self._asked_now[name] == 1)  # others still wait
            raise
        finally:
            self._asked_now = self._asked_now - Counter(new)
        return {name: self.topics[name] for name in names}

    async def _learn(self, names: list[str], limit: int, *, fresh: bool = False) -> None:
        self._wanted.update(names)
        try:
            async with asyncio.timeout(limit / 1000):
                with self.waiting(f"metadata of {', '.join(names) or 'the cluster'}"):
                    if fresh:
                        await self.refresh()
                    await self._until_known(names)
        except TimeoutError:
            raise self._not_known(names, limit) from None

    async def learn(self, topics: Iterable[str], timeout_ms: int = 1000) -> None:
        """Request `topics` from now on; topics that do not exist yet are not an error."""
        names = [name for name in topics if name not in self.topics]
        if not names:
            return
        try:
            await self._learn(names, timeout_ms)
        except KafkaError as problem:
            if problem.code not in (E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE):
                raise

    async def all_topics(self) -> dict[str, TopicView]:
        """Request and return every topic of the cluster; later refreshes request all as well."""
        self._all_topics = True
        if self._refreshing is not None:
            await self.refresh()  # a request in flight may cover fewer topics, or be too old
        await self.refresh()
        return dict(self.topics)

    def forget(self, topics: Iterable[str]) -> None:
        """Stop requesting `topics`."""
        for name in topics:
            self._wanted.discard(name)
            self.topics.pop(name, None)
            self.problems.pop(name, None)
            self._missing_since.pop(name, None)

    async def refresh(self) -> None:
        """Request metadata from any broker, or wait for the request in flight.

        Retries with backoff until a broker answers; the caller sets a timeout.
        """
        if self._closed:
            raise NetworkError("the client is closed")
        await asyncio.shield(self._refreshing or self._begin_refresh())
        if self._refused is not None:
            raise self._refused

    async def _ask_about_new(self) -> None:
        """Request the unknown topics among the wanted ones; all of them if that is not fewer."""
        if self._refreshing is not None or not self.topics or self._all_topics:
            await self.refresh()
            return
        if self._learning is None:
            if self._closed:
                raise NetworkError("the client is closed")
            self._learning = self._tasks.spawn(self._refresh(only_new=True), "metadata of topics")
            self._learning.add_done_callback(self._learned)
        await asyncio.shield(self._learning)
        if self._refused is not None:
            raise self._refused

    def _learned(self, task: "asyncio.Task[None]") -> None:
        self._learning = None
        if task.cancelled() or self._closed:
            return
        if task.exception() is not None:
            self.suspect()
        elif self._missing_since:
            self._refresh_in(_ASK_AGAIN_MS)

    def suspect(self) -> None:
        """Refresh outdated metadata in the background.

        The first refresh comes almost at once (many clients lose a broker in the same moment);
        while nothing improves, others follow at intervals.
        """
        if self._refreshing is not None:
            self._suspect_again = True  # the request in flight may be older than the suspicion
            return
        due_ms = self._refreshed_ms + self._outage.rest_ms(self.now_ms)
        least_ms = self._randomness.below(self.settings.retry_backoff_ms // 5 + 1)
        self._refresh_in(max(due_ms - self.now_ms, least_ms))

    async def _until_known(self, names: list[str]) -> None:
        backoff = self.backoff()
        while missing := [name for name in names if name not in self.topics]:
            await self._ask_about_new()
            for name in missing:
                problem = self.problems.get(name)
                if problem in _FINAL_TOPIC_ERRORS:
                    raise refused(self.settings, problem, name)
                if self.is_missing(name):
                    raise no_such_topic(name)
            if any(name not in self.topics for name in missing):
                longest_ms = _GRACE_MS / 5 if self._missing_since else float("inf")
                await asyncio.sleep(min(backoff.next_ms(), longest_ms) / 1000)

    def is_missing(self, topic: str) -> bool:
        """Return whether brokers have reported for a while that `topic` does not exist."""
        since = self._missing_since.get(topic)
        return since is not None and self._updated_ms - since >= _GRACE_MS

    async def check_exist(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise for the first of `partitions` that does not exist, after a refresh."""
        names = list(partitions)
        if any(self._missing(name) for name in names):
            await self.refresh()
        for name in names:
            if self._missing(name):
                raise no_such_partition(name, len(self.topics[name.topic].partitions))

    def _missing(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and not 0 <= partition.partition < len(topic.partitions)

    def _not_known(self, names: list[str], limit_ms: int) -> KafkaError:
        missing = [name for name in names if name not in self.topics]
        for name in missing:
            if name in self.problems:
                problem = self.problems[name]
                if problem is E.UNKNOWN_TOPIC_OR_PARTITION:
                    return no_such_topic(name)
                return failure(problem, f"{name}: {problem.text} (asked for {limit_ms} ms)")
        return TimedOutError(
            f"timed out after {limit_ms} ms waiting for metadata of "
            f"{', '.join(missing) or 'the cluster'}: {self.trouble}"
        )

    # -- waits

    @property
    def trouble(self) -> str:
        """Why no answer arrives, as far as is known, with the addresses tried."""
        addresses = ", ".join(self.settings.bootstrap_servers)
        if self._unreachable is not None:
            return unanswered(addresses, self._unreachable)
        if not self.nodes:
            return f"no answer yet from {addresses}; check bootstrap.servers"
        nodes = ", ".join(f"{node.host}:{node.port}" for node in self.nodes.values())
        return f"the brokers are {nodes}"

    def waiting(self, what: str, problem: Callable[[], object] | None = None) -> Waiting:
        """Log a WARNING about the wait inside this context, after 5 s and then every 30 s.

        `problem` gives the last error of the caller, where it knows more.
        """

        def report(seconds: float) -> None:
            if self._unreachable is not None:
                self.warnings.warn("unreachable", "%s", self.trouble)
                return
            last = problem() if problem is not None else None
            detail = self.trouble if last is None else f"{last}; {self.trouble}"
            self.warnings.warn(what, "waiting for %s for %d s: %s", what, seconds, detail)

        return Waiting(report)

    async def _refresh(self, *, only_new: bool = False) -> None:
        backoff = self.backoff()
        with self.waiting("metadata"):
            while True:
                if await self._ask_candidates(only_new=only_new):
                    break
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _ask_candidates(self, *, only_new: bool) -> bool:
        """Request metadata from one broker after the other until one answers."""
        loop, asked = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        failures: list[Exception] = []
        try:
            for node in (*self.candidates(), None):
                if node is not None:
                    asked.add(loop.create_task(self._ask_metadata(node, only_new=only_new)))
                while asked:
                    done, asked = await asyncio.wait(
                        asked,
                        timeout=None if node is None else _STAGGER_S,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    problems = [task.exception() for task in done]
                    raise_bug_of(problems)
                    self._refused = refusal_in(problems)
                    if None in problems or self._refused is not None:
                        self._unreachable = None
                        self.warnings.over("unreachable")
                        return True
                    failures += [each for each in problems if isinstance(each, Exception)]
                    if node is not None:
                        break  # too late or refused: try the next one
        finally:
            for task in asked:
                task.cancel()
        self._unreachable = failures[-1] if failures else NetworkError("no address to ask")
        self._refused = distrust_in(failures)
        return self._refused is not None

    async def _ask_metadata(self, node: Node, *, only_new: bool) -> None:
        connection = await self.connection(node)
        # New ones include topics with errors, so the answer covers every error.
        new = self._wanted - self.topics.keys()
        question = self._question_of(new) if only_new else self._question()
        answer = await connection.call(question, MetadataResponse)
        self._apply(answer, everything=question.topics is None)

    def _question(self) -> MetadataRequest:
        if self._all_topics:
            return MetadataRequest(topics=None, allow_auto_topic_creation=self._auto_create)
        return self._question_of(self._wanted)

    def _question_of(self, names: Iterable[str]) -> MetadataRequest:
        return MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(names)],
            allow_auto_topic_creation=self._auto_create,
        )

    def _apply(self, told: MetadataResponse, *, everything: bool) -> None:
        if told.error_code == E.REBOOTSTRAP_REQUIRED:
            self.nodes.clear()
            raise failure(told.error_code)
        self.cluster_id, self.controller_id = told.cluster_id, told.controller_id
        self.nodes = {
            row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in told.brokers
        }
        rows, problems = topics_and_problems(told)
        topics = {
            name: without_older_leaders(row, self.topics.get(name)) for name, row in rows.items()
        }
        if everything:
            self.topics = topics
            for name in self._asked_now.keys() - topics.keys():
                problems.setdefault(name, E.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            for name in problems:
                self.topics.pop(name, None)
            self.topics.update(topics)
        self.problems = problems
        self._updated_ms = self.now_ms
        self._note_missing()
        self.drop_moved_connections()
        for listener in self.listeners:
            listener()

    def _note_missing(self) -> None:
        """Note and log wanted topics that do not exist."""
        unknown, since = E.UNKNOWN_TOPIC_OR_PARTITION, self._missing_since
        missing = {name for name, problem in self.problems.items() if problem is unknown}
        self._missing_since = {name: since.get(name, self._updated_ms) for name in missing}
        for name in sorted(missing):
            if name in self._wanted - self._asked_now.keys() and self.is_missing(name):
                self.warnings.warn(f"no topic {name}", "%s", no_such_topic(name))

    def leader_moved(
        self, partition: TopicPartition, leader: int, epoch: int, nodes: Iterable[Node] = ()
    ) -> bool:
        """A broker that refused a request named the new leader; False where that is old news."""
        row = partition_view(self.topics, partition)
        if row is None:
            return False
        self.nodes.update((node.id, node) for node in nodes)
        if leader not in self.nodes or epoch <= row.leader_epoch:
            return False
        topic = self.topics[partition.topic]
        self.topics[partition.topic] = with_leader(topic, row.partition, leader, epoch)
        self.drop_moved_connections()
        return True

    def _refreshed(self, task: "asyncio.Task[None]") -> None:
        self._refreshing = None
        again, self._suspect_again = self._suspect_again, False
        if task.cancelled() or self._closed:
            return
        self._refreshed_ms = self.now_ms
        reachable = {number for number in self.nodes if not self.is_unreachable(number)}
        if again or task.exception() or self._refused or lacks_leaders(self.topics, reachable):
            self.suspect()
        soon = self.settings.metadata_max_age_ms
        self._refresh_in(min(soon, _ASK_AGAIN_MS) if self._missing_since else soon)

    def _refresh_in(self, delay_ms: float) -> None:
        if self._closed or self._refreshing is not None:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + delay_ms / 1000
        if self._next_refresh is not None:
            if self._next_refresh_at <= when and not self._next_refresh.cancelled():
                return
            self._next_refresh.cancel()
        # In uvloop, the handle of a call that is due now has no time.
        self._next_refresh, self._next_refresh_at = loop.call_at(when, self._refresh_due), when

    def _refresh_due(self) -> None:
        self._next_refresh = None
        if self._refreshing is None and not self._closed:
            self._begin_refresh()

    def _begin_refresh(self) -> "asyncio.Task[None]":
        self._refreshing = task = self._tasks.spawn(self._refresh(), "metadata refresh")
        task.add_done_callback(self._refreshed)
        return task

    # -- asking

    async def ask(self, node: Node, request: Struct, answer: type[Answer]) -> Answer:
        """Send one request to one broker, without retries."""
        connection = await self.connection(node)
        return await connection.call(request, answer)

    async def any_node(self) -> Node:
        """Return a reachable broker; request metadata first if necessary."""
        if not self.nodes:
            await self.refresh()
        last: Exception = NetworkError(self.trouble)
        for node in self.candidates():
            try:
                await self.connection(node)
            except (KafkaError, OSError) as problem:
                last = problem
            else:
                return node
        raise last

    async def controller(self) -> Node:
        """Return the controller, or any broker if it is unknown (every broker forwards to it)."""
        if self.controller_id not in self.nodes:
            await self.refresh()
        return self.nodes.get(self.controller_id) or await self.any_node()

    async def coordinator(self, group: str, key_type: int = 0) -> Node:
        """Return the coordinator of `group`; retry until the caller's timeout."""
        return await self._coordinators.find(group, key_type)

    def forget_coordinator(self, group: str, key_type: int = 0) -> None:
        """Drop the coordinator of `group`: it refused, or it is gone."""
        self._coordinators.forget(group, key_type)

    # -- the end

    async def close(self) -> None:
        """Close every connection and stop refreshing."""
        self._closed = True
        if self._next_refresh is not None:
            self._next_refresh.cancel()
        pending = [
            task for task in (self._refreshing, self._learning, *self._opening.values()) if task
        ]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

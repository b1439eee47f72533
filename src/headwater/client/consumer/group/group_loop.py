"""The group membership of a consumer: joins, syncs and heartbeats over the network.

The state machine (`membership.py`) decides; this file sends its requests to the coordinator and
updates the subscription. Rebalances begin and end inside poll(), so that no partition is revoked
while the application processes its records; heartbeats run in the background.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from headwater.client.cluster import Cluster
from headwater.client.consumer.assignors import Assignor, GroupMember
from headwater.client.consumer.fetching.fetcher_loop import Fetcher
from headwater.client.consumer.group.commits import CommitIdentity, Commits
from headwater.client.consumer.group.consumer_protocol import (
    decode_assignment,
    encode_assignments,
    encode_subscription,
    read_subscriptions,
)
from headwater.client.consumer.group.membership import Due, Membership, MemberState, PollAction
from headwater.client.consumer.listener import ListenerCall, RebalanceEvent
from headwater.client.consumer.metrics import ConsumerMetrics
from headwater.client.consumer.subscription import Subscription, SubscriptionType
from headwater.client.errors import (
    AuthenticationError,
    AuthorizationError,
    FencedInstanceIdError,
    InvalidTopicError,
    LoopDiedError,
    internal_error,
)
from headwater.config.client import ConsumerSettings
from headwater.config.keys import ConfigError
from headwater.errors import E, KafkaError, error_of
from headwater.model import NO_GENERATION
from headwater.seams.clock import Clock
from headwater.seams.tasks import LoopTasks
from headwater.transport.client_connection import ClientConnection
from headwater.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from headwater.wire.schema import Struct

log = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=Struct)

_CONSUMER = "consumer"
_LEAVE_BY_LIST = 3
_COORDINATOR_GONE = frozenset({E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE})
_LEAVE_ATTEMPTS = 10
_JOIN_GRACE_S = 5.0
"""How much longer than the rebalance timeout a JoinGroup may take."""


class Group:
    """The group side of one consumer."""

    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: Cluster,
        subscription: Subscription,
        fetcher: Fetcher,
        assignors: Sequence[Assignor],
        commits: Commits,
        clock: Clock,
        tasks: LoopTasks,
        metrics: ConsumerMetrics,
    ) -> None:
        self._settings = settings
        self._name = settings.group_id or ""
        self._cluster = cluster
        self._subscription = subscription
        self._fetcher = fetcher
        self._assignors = {assignor.name: assignor for assignor in assignors}
        if len(self._assignors) != len(assignors):
            raise ConfigError("two assignors have one name")
        self._commits = commits
        commits.on_fenced = self._fenced
        self._clock = clock
        self._tasks = tasks
        self._metrics = metrics
        self._membership = Membership(
            heartbeat_ms=settings.heartbeat_interval_ms,
            poll_interval_ms=settings.max_poll_interval_ms,
            instance_id=settings.group_instance_id,
            cooperative=all(assignor.cooperative for assignor in assignors),
        )
        self._joining: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._counts: dict[str, int] = {}
        """Partition counts for which the last assignment was computed; the leader watches them."""
        self._offered: ListenerCall | None = None
        self._began_ms = 0
        self._backoff = cluster.backoff()
        self._rest_until_ms = 0
        self._fatal: KafkaError | None = None
        self.in_poll: Callable[[], bool] = lambda: False
        """Whether a poll() is in progress: the application is alive."""

    # -- for poll()

    def polled(self, now: int) -> None:
        """Note that the application polled."""
        self._membership.polled(now)

    def due(self, now: int) -> bool:
        """Whether poll() must call `step` before it returns records."""
        self._membership.polled(now)
        return self._membership.busy or self._fatal is not None

    def next_step_ms(self, now: int) -> int:
        """Return how long poll() may sleep before it must call `step` again."""
        return max(self._rest_until_ms - now, 1) if self._membership.busy else 2**31

    async def step(self, deadline_ms: int) -> ListenerCall | None:
        """Continue a rebalance, if any; the caller must make the ListenerCall that it returns."""
        now = self._clock.monotonic_ms()
        self.polled(now)
        if self._fatal is not None:
            fatal = self._fatal
            if not isinstance(fatal, FencedInstanceIdError):
                self._fatal = None
            raise fatal
        if (
            self._subscription.type not in (SubscriptionType.TOPICS, SubscriptionType.PATTERN)
            or now < self._rest_until_ms
        ):
            return None
        if (
            self._subscription.type is SubscriptionType.PATTERN
            and self._membership.state is MemberState.OUT
        ):
            await self._find_matches(deadline_ms)
        step = self._membership.next(self._subscription.topics)
        if step is PollAction.JOIN:
            self._began_ms = now
            self._joining = self._tasks.spawn(self._join(), f"join group {self._name}")
        elif step is not None and step is not self._offered:
            await self._prepare(step)
            self._offered = step
        return step if isinstance(step, ListenerCall) else None

    def listener_called(self, call: ListenerCall) -> None:
        """Continue after the listener was called."""
        self._membership.listener_called(call)
        self._offered = None
        if call.event is not RebalanceEvent.ASSIGNED:
            self._subscription.set_partitions(self._membership.owned)
        self._fetcher.changed(at_once=True)

    async def _prepare(self, call: ListenerCall) -> None:
        """Before the listener call: add the new partitions, or pause those that are revoked."""
        if call.event is RebalanceEvent.ASSIGNED:
            self._subscription.set_partitions(self._membership.owned)
            await self._cluster.learn(self._subscription.topics)
            return
        if call.event is RebalanceEvent.REVOKED:
            try:
                async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                    await self._commits.commit_last()
            except KafkaError as problem:
                log.warning("the commit before a rebalance failed: %s", problem)
            except TimeoutError:
                log.warning(
                    "the commit before a rebalance failed: not done within request.timeout.ms (%s)",
                    self._settings.request_timeout_ms,
                )
        for name in call.partitions:
            state = self._subscription.partitions.get(name)
            if state is not None:
                state.leaving = True

    async def _find_matches(self, deadline_ms: int) -> None:
        left = max(deadline_ms - self._clock.monotonic_ms(), 1) / 1000
        try:
            async with asyncio.timeout(left):
                await self._cluster.all_topics()
        except TimeoutError:
            return

    # -- for the consumer

    def subscription_changed(self) -> None:
        """Rejoin if the topics or the pattern changed."""
        self._membership.wants("the subscription changed")
        self._backoff = self._cluster.backoff()
        self._rest_until_ms = 0
        self._fatal = None

    def metadata_changed(self) -> None:
        """Rejoin if topics appeared, disappeared or grew."""
        if self._subscription.type is SubscriptionType.PATTERN:
            hidden = self._settings.exclude_internal_topics
            names = [t.name for t in self._cluster.topics.values() if not (hidden and t.internal)]
            if self._subscription.match(names):
                self._membership.wants("other topics match the pattern")
                self._fetcher.poll_wakeup.set()
        member = self._membership
        settled = member.leading and member.state is MemberState.MEMBER
        if settled and self._counts != self._count(self._counts):
            member.wants("topics have more partitions, or were deleted")
            self._fetcher.poll_wakeup.set()

    def identity(self) -> CommitIdentity:
        """Return the identity for commits."""
        member = self._membership
        if self._subscription.type not in (SubscriptionType.TOPICS, SubscriptionType.PATTERN):
            return CommitIdentity()
        since = self._clock.monotonic_ms() - member.last_poll_ms
        outside = member.generation == NO_GENERATION
        who = member.generation, member.member_id, member.instance_id
        return CommitIdentity(*who, since, outside, member.behind, *member.told)

    def leaving_call(self) -> ListenerCall | None:
        """Return the listener call for leaving: on_lost if the partitions are gone already."""
        owned = list(self._subscription.partitions)
        if not owned or self._subscription.type not in (
            SubscriptionType.TOPICS,
            SubscriptionType.PATTERN,
        ):
            return None
        member = self._membership.generation != NO_GENERATION
        return ListenerCall(RebalanceEvent.REVOKED if member else RebalanceEvent.LOST, owned)

    async def leave(self, reason: str) -> None:
        """Leave the group; a static member only stops its heartbeats, so that it may return."""
        member_id = self._membership.member_id
        await self.stop()
        if member_id and self._membership.instance_id is None:
            await self._say_leave(member_id, reason)

    async def stop(self) -> None:
        """Stop joins and heartbeats without notifying the coordinator."""
        for task in (self._joining, self._beating):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._joining = self._beating = None
        self._membership.left()

    async def _say_leave(self, member_id: str, reason: str) -> None:
        """Send LeaveGroup until it is answered: a loading coordinator would await this member."""
        backoff = self._cluster.backoff()
        for _ in range(_LEAVE_ATTEMPTS):
            code = await self._leave_answer(member_id, reason)
            if not code.retriable:
                return
            if code in _COORDINATOR_GONE:
                self._cluster.forget_coordinator(self._name)
            await asyncio.sleep(backoff.next_ms() / 1000)

    async def _leave_answer(self, member_id: str, reason: str) -> E:
        request = LeaveGroupRequest(group_id=self._name)
        connection = await self._coordinator()
        if connection.version_for(request) >= _LEAVE_BY_LIST:
            request.members = [LeaveGroupRequest.MemberIdentity(member_id=member_id, reason=reason)]
        else:
            request.member_id = member_id
        answer = await connection.call(request, LeaveGroupResponse)
        return error_of(answer.error_code)

    # -- joining

    async def _join(self) -> None:
        try:
            answer = await self._send_join()
            fatal = self._membership.joined(
                answer.error_code, answer.generation_id, answer.member_id, answer.leader
            )
            if answer.error_code or fatal is not None:
                self._after(answer.error_code, fatal)  # only a sync resets the backoff
            if self._membership.state is MemberState.SYNCING:
                self._metrics.joins.add(self._clock.monotonic_ms())
                await self._sync(answer)
        except (LoopDiedError, AuthenticationError, AuthorizationError) as fault:
            self._membership.interrupted()
            self._fatal = fault
        except (KafkaError, OSError) as problem:
            retriable = not isinstance(problem, KafkaError) or problem.code.retriable
            (log.info if retriable else self._warn)(f"joining group {self._name}: {problem}")
            self._cluster.forget_coordinator(self._name)
            self._membership.interrupted()
            self._after(E.NETWORK_EXCEPTION, None)
        except Exception as bug:  # noqa: BLE001 - an assignor of the user's
            self._membership.interrupted()
            self._fatal = KafkaError(E.UNKNOWN_SERVER_ERROR, f"the assignment failed: {bug!r}")
            self._fatal.__cause__ = bug
        finally:
            self._joining = None
            self._fetcher.poll_wakeup.set()

    def _warn(self, problem: object) -> None:
        self._cluster.warnings.warn(f"group {self._name}", "group %s: %s", self._name, problem)

    def _after(self, code: int, fatal: KafkaError | None) -> None:
        """Wait before another attempt, unless the answer was a success."""
        self._fatal = fatal or self._fatal
        if code in _COORDINATOR_GONE:
            self._cluster.forget_coordinator(self._name)
        if code == E.NONE:
            self._backoff = self._cluster.backoff()
        elif code != E.MEMBER_ID_REQUIRED:
            self._rest_until_ms = self._clock.monotonic_ms() + int(self._backoff.next_ms())

    async def _send_join(self) -> JoinGroupResponse:
        settings, member = self._settings, self._membership
        if self._subscription.type is SubscriptionType.TOPICS:
            await self._cluster.learn(self._subscription.topics)
        reason = member.asks()
        protocols = [
            JoinGroupRequest.JoinGroupRequestProtocol(
                name=assignor.name,
                metadata=encode_subscription(
                    self._subscription.topics,
                    assignor.user_data(member.had, member.had_generation),
                    member.owned,
                    member.generation,
                    settings.client_rack or None,
                ),
            )
            for assignor in self._assignors.values()
        ]
        request = JoinGroupRequest(
            group_id=self._name,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type=_CONSUMER,
            protocols=protocols,
            reason=reason,
        )
        connection = await self._coordinator(will_wait=True)
        limit = settings.max_poll_interval_ms / 1000 + _JOIN_GRACE_S
        return await connection.call(request, JoinGroupResponse, timeout_s=limit)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        member = self._membership
        assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = []
        if member.leading:
            members = await self._watch(joined)
            assignments = [] if joined.skip_assignment else self._assign(joined, members)
        request = SyncGroupRequest(
            group_id=self._name,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type=_CONSUMER,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        connection = await self._coordinator(will_wait=True)
        limit = self._settings.max_poll_interval_ms / 1000 + _JOIN_GRACE_S
        answer = await connection.call(request, SyncGroupResponse, timeout_s=limit)
        assignment = decode_assignment(answer.assignment) if not answer.error_code else []
        now = self._clock.monotonic_ms()
        fatal = member.synced(answer.error_code, assignment, now)
        self._after(answer.error_code, fatal)
        if member.state is MemberState.MEMBER and not answer.error_code:
            self._metrics.syncs.add(now)
            self._metrics.rebalances.add(now, now - self._began_ms)
            self._start_heartbeats()

    async def _watch(self, joined: JoinGroupResponse) -> list[GroupMember]:
        """Return what the members subscribe to; from now on this leader watches those topics."""
        members = read_subscriptions(self._name, joined, self._cluster.warnings)
        topics = sorted(frozenset[str]().union(*(member.topics for member in members)))
        try:
            await self._cluster.learn(topics)
        except InvalidTopicError as problem:  # another member's subscription
            self._warn(f"a member subscribes to a topic that cannot exist: {problem}")
        self._counts = self._count(topics)
        return members

    def _assign(
        self, joined: JoinGroupResponse, members: list[GroupMember]
    ) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        """Compute the assignment of each member, as the leader."""
        assignor = self._assignors.get(joined.protocol_name or "")
        if assignor is None:
            raise KafkaError(
                E.INCONSISTENT_GROUP_PROTOCOL,
                f"the group chose {joined.protocol_name!r}, which this member did not offer",
            )
        existing = {topic: count for topic, count in self._counts.items() if count}
        return encode_assignments(assignor.assign(existing, members), members)

    def _count(self, topics: "Sequence[str] | dict[str, int]") -> dict[str, int]:
        views = self._cluster.topics
        return {name: len(views[name].partitions) if name in views else 0 for name in topics}

    # -- staying

    def _start_heartbeats(self) -> None:
        if self._beating is None or self._beating.done():
            self._beating = self._tasks.spawn(self._beat(), f"heartbeats of group {self._name}")

    async def _beat(self) -> None:
        backoff = self._cluster.backoff()
        while (deadline := self._membership.next_deadline()) is not None:
            now = self._clock.monotonic_ms()
            if deadline > now:
                await asyncio.sleep((deadline - now) / 1000)
            try:
                await self._beat_once()
            except Exception as fault:  # noqa: BLE001 - logged, and raised by the next poll()
                self._fatal = internal_error(f"the heartbeats of group {self._name}", fault)
                self._fetcher.poll_wakeup.set()
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _beat_once(self) -> None:
        now = self._clock.monotonic_ms()
        if self.in_poll():
            self.polled(now)
        due = self._membership.tick(now)
        if due is Due.HEARTBEAT:
            await self._heartbeat()
        elif due is Due.TOO_LATE:
            await self._too_late()

    async def _heartbeat(self) -> None:
        member, begun = self._membership, self._clock.monotonic_ms()
        request = HeartbeatRequest(
            group_id=self._name,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        try:
            connection = await self._coordinator()
            answer = await connection.call(
                request, HeartbeatResponse, timeout_s=self._settings.session_timeout_ms / 1000
            )
        except (KafkaError, OSError) as problem:
            log.info("a heartbeat to group %s failed: %s", self._name, problem)
            self._cluster.forget_coordinator(self._name)
            return
        if request.generation_id != member.generation:
            return  # the answer belongs to a former member id
        if answer.error_code in _COORDINATOR_GONE:
            self._cluster.forget_coordinator(self._name)
        self._fatal = member.heard(answer.error_code) or self._fatal
        took = self._clock.monotonic_ms() - begun
        self._metrics.heartbeats.add(self._clock.monotonic_ms())
        if took > self._settings.session_timeout_ms / 3:
            log.warning("a heartbeat took %s ms, over a third of session.timeout.ms", took)
        if member.busy or self._fatal is not None:
            log.info("group %s: %s", self._name, member.rejoin_because)
            self._fetcher.poll_wakeup.set()

    async def _too_late(self) -> None:
        reason = "the application did not poll within max.poll.interval.ms"
        log.error(
            "leaving group %s: %s (%s ms). Speed up the work between polls, raise "
            "max_poll_interval_ms, lower max_poll_records, or use Consumer.process()",
            self._name,
            reason,
            self._settings.max_poll_interval_ms,
        )
        member_id, static = self._membership.member_id, self._membership.instance_id
        self._membership.left(reason)
        if static is None:
            try:
                await self._say_leave(member_id, reason)
            except (KafkaError, OSError):
                return  # the session expires without it

    def _fenced(self, problem: E) -> None:
        """Handle a refused commit: the group has removed this member."""
        if self._membership.generation != NO_GENERATION:
            self._fatal = self._membership.heard(problem) or self._fatal
            self._fetcher.poll_wakeup.set()

    async def _coordinator(self, *, will_wait: bool = False) -> ClientConnection:
        try:
            async with asyncio.timeout(self._settings.default_api_timeout_ms / 1000):
                node = await self._cluster.coordinator(self._name)
                if will_wait:
                    return await self._cluster.waiting_connection(node)
                return await self._cluster.connection(node)
        except TimeoutError:
            raise KafkaError(
                E.COORDINATOR_NOT_AVAILABLE,
                f"no coordinator of group {self._name} was found: {error_of(15).text}",
            ) from None

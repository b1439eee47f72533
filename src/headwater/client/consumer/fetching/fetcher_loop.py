"""Prefetching: one lane per broker requests what the consumer will need next.

A lane has its own connection, because a broker that waits for data answers nothing else on that
stream. It requests every partition with room in the buffer, so that poll() finds records already
there. Fetched records go to `ready`, errors that cannot be retried to `failures`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from headwater.client.cluster import Cluster, Node, PartitionView
from headwater.client.consumer.fetching.completed_fetch import CompletedFetch, Reshape, aborted_in
from headwater.client.consumer.fetching.fetch_lane import HASTE_MS, FetchLane, Switched
from headwater.client.consumer.fetching.fetch_limits import FetchLimits
from headwater.client.consumer.fetching.fetch_session import FetchTarget
from headwater.client.consumer.metrics import ConsumerMetrics
from headwater.client.consumer.partition_state import PartitionState
from headwater.client.consumer.subscription import Subscription
from headwater.client.consumer.wakeup import Wakeup
from headwater.client.errors import (
    STALE_METADATA,
    AuthenticationError,
    CorruptRecordError,
    LogTruncationError,
    LoopDiedError,
    OffsetOutOfRangeError,
    failure,
    internal_error,
)
from headwater.client.refusals import refused
from headwater.client.wait_warnings import FIRST_S
from headwater.config.client import ConsumerSettings
from headwater.errors import E, KafkaError
from headwater.model import EARLIEST, LATEST, ZERO_UUID, TopicPartition
from headwater.seams.clock import Clock
from headwater.seams.tasks import LoopTasks
from headwater.transport.client_connection import ClientConnection
from headwater.transport.response_reader import Frame
from headwater.wire.messages.fetch import FetchRequest, FetchResponse

log = logging.getLogger(__name__)

RESET_TO = {"earliest": EARLIEST, "latest": LATEST}

_NAMES_UP_TO = 12
_SMALL = 16_384
"""After a response of fewer bytes, the next request may wait until poll() took the records."""
_BRIEF_WAIT_MS = 25
"""How long a broker may wait for data while the request will soon change: full partitions are left
out for now, or the application seeks."""
_PartitionData = FetchResponse.PartitionData


class Fetcher:
    """All lanes of one consumer."""

    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: Cluster,
        subscription: Subscription,
        clock: Clock,
        tasks: LoopTasks,
        reshape: Reshape | None,
        metrics: ConsumerMetrics,
    ) -> None:
        self.ready: deque[CompletedFetch] = deque()
        self.failures: deque[KafkaError] = deque()
        self.poll_wakeup = Wakeup()
        self.stalled = False
        """Whether a lane waits for room: code that drains the buffer must call `changed`."""
        self.on_lost_position: Callable[[], None] = lambda: None
        self._settings = settings
        self._limits = FetchLimits(settings)
        self._cluster = cluster
        self._subscription = subscription
        self._clock = clock
        self._tasks = tasks
        self._reshape = reshape
        self._metrics = metrics
        self._lanes: dict[int, FetchLane] = {}
        self._closed = False
        self._committed_only = settings.isolation_level == "read_committed"

    # -- called by the consumer, on the loop

    def changed(self, *, at_once: bool = False) -> None:
        """Recompute the requests after partitions, positions, room or leaders have changed.

        `at_once` abandons a request with which a broker waits for data of other partitions.
        """
        if self._closed:
            return
        self.stalled = False
        for node_id in {node.id for node in self._homes().values()}:
            lane = self._lanes.get(node_id)
            if lane is None or lane.task is None or lane.task.done():
                lane = self._lanes[node_id] = FetchLane(self._cluster.backoff)
                lane.task = self._tasks.spawn(
                    self._run(node_id, lane), f"fetch from broker {node_id}"
                )
        for node_id, lane in self._lanes.items():
            lane.changed.set()
            if at_once and lane.parked_since_ms >= 0 and self._misses(node_id, lane):
                lane.switch(self._clock.monotonic_ms())

    async def close(self) -> None:
        """Stop fetching."""
        self._closed = True
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self._lanes.values():
            lane.drop()

    def report_silence(self) -> None:
        """Log a warning for each broker that has not answered fetches for some seconds.

        A broker from which nothing is fetched any more, since others lead now, is not one of them.
        """
        now = self._clock.monotonic_ms()
        late = now - int(FIRST_S * 1000)
        for node_id, lane in self._lanes.items():
            parked = lane.parked_since_ms
            hangs = 0 <= parked < late - self._settings.fetch_max_wait_ms
            if not hangs and not 0 <= lane.failing_since_ms < late:
                continue
            if all(node.id != node_id for node in self._homes().values()):
                continue
            node = self._cluster.nodes.get(node_id)
            where = f"broker {node_id} at {node.host}:{node.port}" if node else f"broker {node_id}"
            self._cluster.warnings.warn(
                f"fetch from {node_id}",
                "%s does not answer fetches: %s",
                where,
                f"no answer for {(now - parked) // 1000} s" if hangs else lane.problem,
            )

    def fail(self, error: KafkaError) -> None:
        """Let the next poll raise `error`."""
        self.failures.append(error)
        self.poll_wakeup.set()

    def shape_as(self, reshape: Reshape | None) -> None:
        """Deserialize with `reshape` from now on, fetched records too; None for bytes."""
        self._reshape = reshape
        for fetched in list(self.ready):
            fetched.shape_as(reshape)

    # -- lanes

    def _homes(self) -> dict[TopicPartition, Node]:
        """Return the broker to fetch from for each partition that can be fetched."""
        found = {}
        for name, state in self._subscription.partitions.items():
            near = None if state.replica is None else self._cluster.nodes.get(state.replica)
            node = near or self._cluster.leader(name)
            if node is not None and state.position is not None:
                found[name] = node
        return found

    def _misses(self, node_id: int, lane: FetchLane) -> bool:
        """Return whether the request in flight lacks a partition that could be fetched now."""
        wanted, _ = self._wanted(node_id)
        return any(
            lane.asked.get(TopicPartition(row.topic, row.partition)) != row for row in wanted
        )

    def _wanted(self, node_id: int) -> tuple[list[FetchTarget], bool]:
        """Return what to fetch from a broker, and whether lack of room left partitions out."""
        now, full = self._clock.monotonic_ms(), False
        room = self._limits.room
        in_all = sum(state.buffered for state in self._subscription.partitions.values())
        rows = []
        for name, node in self._homes().items():
            state = self._subscription.partitions[name]
            if node.id != node_id or state.paused or state.leaving or state.resting_until_ms > now:
                continue
            if state.buffered > room or (
                state.buffered and in_all > self._settings.fetch_max_bytes
            ):
                full = True
                continue
            topic = self._cluster.topics[name.topic]
            view: PartitionView = topic.partitions[name.partition]
            if state.topic_id is None and topic.topic_id != ZERO_UUID:
                state.topic_id = topic.topic_id
            rows.append(
                FetchTarget(
                    state.topic,
                    topic.topic_id,
                    state.partition,
                    state.fetch_offset,
                    view.leader_epoch,
                    state.fetch_epoch,
                    state.version,
                )
            )
        return rows, full

    async def _run(self, node_id: int, lane: FetchLane) -> None:
        while not self._closed:
            try:
                node = self._cluster.nodes.get(node_id)
                wanted, full = self._wanted(node_id) if node is not None else ([], False)
                if node is None or not wanted:
                    lane.failing_since_ms = -1
                    await self._rest(lane, full)
                    continue
                await self._fetch(node, lane, wanted, full)
                lane.succeeded()
            except Exception as problem:  # noqa: BLE001 - bugs are logged and raised by poll()
                self._failed(node_id, lane, problem)
                await asyncio.sleep(lane.rest_ms() / 1000)
            finally:
                lane.parked_since_ms = -1

    def _failed(self, node_id: int, lane: FetchLane, problem: Exception) -> None:
        """Start a new session after a failure; unfetched partitions are requested again."""
        if isinstance(problem, AuthenticationError):
            self.fail(problem)
        elif isinstance(problem, KafkaError | OSError):
            log.debug("fetching from broker %s failed: %s", node_id, problem)
        else:
            error = internal_error(f"the fetches from broker {node_id}", problem)
            if not any(isinstance(waiting, LoopDiedError) for waiting in self.failures):
                self.fail(error)
        lane.problem = problem
        if lane.failing_since_ms < 0:
            lane.failing_since_ms = self._clock.monotonic_ms()
        lane.drop()
        self._cluster.suspect()

    async def _rest(self, lane: FetchLane, full: bool) -> None:
        """Without anything to fetch, wait for a change or for the end of a partition's backoff."""
        resting = any(
            state.resting_until_ms > self._clock.monotonic_ms()
            for state in self._subscription.partitions.values()
        )
        if full:
            self.stalled = True
        lane.changed.clear()
        limit = self._settings.retry_backoff_ms / 1000 if resting else None
        try:
            async with asyncio.timeout(limit):
                await lane.changed.wait()
        except TimeoutError:
            return

    async def _fetch(
        self, node: Node, lane: FetchLane, wanted: list[FetchTarget], full: bool
    ) -> None:
        """Send one fetch and process its response."""
        connection = await self._connected(node, lane)
        settings = self._settings
        by_name = any(row.topic_id == ZERO_UUID for row in wanted)
        begun = self._clock.monotonic_ms()
        brief = full or begun - lane.switched_ms < HASTE_MS
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=min(settings.fetch_max_wait_ms, _BRIEF_WAIT_MS)
            if brief
            else settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=1 if self._committed_only else 0,
            rack_id=settings.client_rack,
        )
        lane.session.fill(request, wanted, self._limits.partition_bytes(len(wanted)))
        version = connection.version_for(request, _NAMES_UP_TO if by_name else None)
        lane.asked = {TopicPartition(row.topic, row.partition): row for row in wanted}
        lane.changed.clear()
        lane.parked_since_ms = begun
        limit = (settings.fetch_max_wait_ms + settings.request_timeout_ms) / 1000
        try:
            async with asyncio.timeout(limit):
                lane.reply = connection.start_reading(
                    request, version, lambda frame: self._came(lane, connection, frame, version)
                )
                answer, size = await lane.reply
            if size >= _SMALL and not answer.error_code:
                self._received(answer, lane.asked)
            self._metrics.fetched(self._clock.monotonic_ms(), begun, size, answer.throttle_time_ms)
        except TimeoutError:
            raise KafkaError(
                E.REQUEST_TIMED_OUT, f"broker {node.id} did not answer a fetch within {limit:g} s"
            ) from None
        except Switched:
            return  # `changed` requires a different request

    def _came(
        self, lane: FetchLane, connection: ClientConnection, frame: Frame, version: int
    ) -> tuple[FetchResponse, int]:
        """Read a response; add a small one to the buffer at once, so that a poll gets it soon.

        After a large one the lane sends its next request first, so that the broker stays busy.
        """
        lane.parked_since_ms = -1
        answer = connection.decode(frame, FetchResponse, version)
        if lane.session.answered(answer.error_code, answer.session_id):
            if answer.error_code:
                raise failure(answer.error_code)
            if len(frame) < _SMALL:
                self._received(answer, lane.asked)
        return answer, len(frame)

    async def _connected(self, node: Node, lane: FetchLane) -> ClientConnection:
        address = f"{node.host}:{node.port}"
        connection = lane.connection
        if connection is not None:
            if connection.is_open and connection.address == address:
                return connection
            lane.drop()
        lane.connection = await self._cluster.open_stream(node)
        return lane.connection

    # -- answers

    def _received(self, answer: FetchResponse, asked: dict[TopicPartition, FetchTarget]) -> None:
        names = {row.topic_id: row.topic for row in asked.values()}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for row in topic.partitions:
                key = TopicPartition(name, row.partition_index)
                state, sent = self._subscription.partitions.get(key), asked.get(key)
                if state is None or sent is None or sent.version != state.version:
                    continue
                if sent.offset != state.fetch_offset:
                    continue  # a late answer of a former leader; its successor has answered
                if row.error_code:
                    self._refused(state, row.error_code)
                    self._follow(state, row.current_leader, answer.node_endpoints)
                else:
                    self._accepted(state, row)

    def _accepted(self, state: PartitionState, row: _PartitionData) -> None:
        state.update_ends(row.high_watermark, row.last_stable_offset, row.log_start_offset)
        if row.diverging_epoch.end_offset >= 0:
            self._truncated(state, row.diverging_epoch.end_offset)
            return
        if row.preferred_read_replica >= 0:
            state.replica = row.preferred_read_replica
            self.changed()
            return
        if not row.records:
            return
        fetched = CompletedFetch(
            state,
            memoryview(row.records),
            aborted=aborted_in(row) if self._committed_only else None,
            check_crcs=self._settings.check_crcs,
            reshape=self._reshape,
        )
        if fetched.end_offset <= state.fetch_offset:
            self._unreadable(state, fetched.size)
            return
        state.fetch_offset, state.fetch_epoch = fetched.end_offset, fetched.end_epoch
        state.fetched += fetched.size
        self.ready.append(fetched)
        self.poll_wakeup.set()

    def _refused(self, state: PartitionState, code: int) -> None:
        self._let_rest(state)
        if code in STALE_METADATA:
            state.replica = None
            self._cluster.suspect()
        elif code == E.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state)
        else:
            self.fail(refused(self._settings, code, state.key.topic, str(state.key)))

    def _follow(
        self,
        state: PartitionState,
        leader: FetchResponse.LeaderIdAndEpoch,
        endpoints: list[FetchResponse.NodeEndpoint],
    ) -> None:
        """Use the leader that a refusal names, without requesting metadata first."""
        if leader.leader_id < 0:
            return
        nodes = [Node(row.node_id, row.host, row.port, row.rack) for row in endpoints]
        if self._cluster.leader_moved(state.key, leader.leader_id, leader.leader_epoch, nodes):
            state.resting_until_ms = 0
            self.changed()

    def _out_of_range(self, state: PartitionState) -> None:
        if state.replica is not None:
            state.replica = None  # only the leader knows
        elif state.buffered:
            return  # return the fetched records first
        elif (timestamp := RESET_TO.get(self._settings.auto_offset_reset)) is not None:
            log.info("%s: offset %s is gone: resetting to the %s", state.key, state.position,
                     self._settings.auto_offset_reset)  # fmt: skip
            state.seek_to_timestamp(timestamp)
            self.on_lost_position()
        else:
            self.fail(
                OffsetOutOfRangeError(
                    f"{state.key}: offset {state.position} is outside the log, and "
                    "auto.offset.reset is none: call seek() with an existing offset"
                )
            )

    def topic_recreated(self, state: PartitionState) -> None:
        """Reset the position: the topic was deleted and recreated, so old offsets mean nothing."""
        timestamp = RESET_TO.get(self._settings.auto_offset_reset)
        if timestamp is None:
            self.fail(
                OffsetOutOfRangeError(
                    f"{state.key}: the topic was deleted and recreated, and auto.offset.reset is none: "
                    f"call seek() to choose a position (it was {state.position})"
                )
            )
            return
        log.warning("topic %s was deleted and recreated: resetting the position to %s", state.topic,
                    self._settings.auto_offset_reset)  # fmt: skip
        state.seek_to_timestamp(timestamp)
        self.on_lost_position()

    def _truncated(self, state: PartitionState, end_offset: int) -> None:
        """Handle a log truncated below the position, after an unclean election."""
        if state.position is None:
            return
        if self._settings.auto_offset_reset == "none":
            self._let_rest(state)
            self.fail(
                LogTruncationError(
                    f"{state.key}: the log was cut back to offset {end_offset}, before position "
                    f"{state.position}; records read since then are gone: call seek() to continue"
                )
            )
            return
        log.warning("%s: the log was cut back to offset %s", state.key, end_offset)
        state.seek(min(state.position, end_offset))
        self.changed()

    def _unreadable(self, state: PartitionState, size: int) -> None:
        self._let_rest(state)
        self.fail(
            CorruptRecordError(
                f"{state.key}: the broker sent {size} bytes for offset {state.fetch_offset} that "
                "contain no whole batch; see its log, or seek past it"
            )
        )

    def _let_rest(self, state: PartitionState) -> None:
        state.resting_until_ms = self._clock.monotonic_ms() + max(
            self._settings.retry_backoff_ms, 1
        )

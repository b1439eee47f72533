"""Fetches the partitions that this broker follows from their leaders.

Each leader has `num.replica.fetchers` connections, each with its own state machine
(`replication/follower_fetch.py`) and one fetch in flight. Batches are staged from the receive buffer
unchanged, and written before the next fetch acknowledges them. All code here runs in callbacks on the
loop: an answer is handled in steps, truncation runs on a file thread, and a partition that fails is
delayed while the others continue.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, TypeVar
from zlib import crc32

from headwater.broker.context import Context
from headwater.config.broker import BrokerSettings
from headwater.errors import E, KafkaError, error_of
from headwater.model import NO_LEADER, TopicPartition
from headwater.replication.follower_fetch import (
    SESSION_ERRORS,
    AppendFetched,
    CutDiverging,
    FetchEffect,
    FollowerFetch,
    FollowerLimits,
    ReportError,
    RestartLog,
    backoff,
)
from headwater.replication.replica import Replica
from headwater.seams.timers import Timer
from headwater.wire.messages.fetch import FetchResponse
from headwater.wire.schema import Struct

log = logging.getLogger("headwater.server")

Answer = TypeVar("Answer", bound=Struct)

STEP_BYTES = 1024 * 1024
STEP_PARTITIONS = 200
"""The most of an answer that is handled in one round of the loop."""
GRACE_MS = 5000
"""How long an answer may take beyond the fetch's own wait at the leader."""
_NOT_YET = frozenset(
    {
        E.NOT_LEADER_OR_FOLLOWER,
        E.FENCED_LEADER_EPOCH,
        E.UNKNOWN_LEADER_EPOCH,
        E.UNKNOWN_TOPIC_ID,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors that pass once the leader and this broker have the same state from the controller."""


class LeaderConnection(Protocol):
    """A connection to a leader; reconnects by itself."""

    def send(
        self,
        request: Struct,
        answer: type[Answer],
        on_reply: Callable[[Answer | KafkaError], None],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a request; `on_reply` is called once, later, with the answer or the error."""

    def close(self) -> None:
        """Fail the pending requests, and send nothing more."""


class ReplicaFetchers:
    """All fetchers of this broker."""

    def __init__(self, context: Context, connect: Callable[[int, str], LeaderConnection]) -> None:
        self._context = context
        self._connect = connect
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._fetcher_of: dict[TopicPartition, ReplicaFetcher] = {}
        self._closed = False

    def follow(self, replica: Replica) -> None:
        """Fetch from the replica's leader in its epoch, if there is a leader."""
        at = replica.topic_partition
        key = replica.leader, self.number_of(at)
        fetcher = self._fetchers.get(key)
        if self._fetcher_of.get(at) is not fetcher:
            self.unfollow(at)
        if replica.leader == NO_LEADER or self._closed:
            return
        if fetcher is None:
            connection = self._connect(replica.leader, f"fetcher-{key[1]}")
            fetcher = self._fetchers[key] = ReplicaFetcher(self._context, connection, *key)
        self._fetcher_of[at] = fetcher
        fetcher.follow(replica)

    def start_stored(self, replica: Replica) -> None:
        """Tell the leader about the start of a log with the next fetch; it waits for that."""
        fetcher = self._fetcher_of.get(replica.topic_partition)
        # What is staged changes the position anyway.
        if fetcher is not None and not replica.dirty:
            fetcher.wake(replica)

    def unfollow(self, at: TopicPartition) -> None:
        """Stop fetching the partition."""
        fetcher = self._fetcher_of.pop(at, None)
        if fetcher is not None:
            fetcher.unfollow(at)
            if fetcher.idle:
                fetcher.close()
                del self._fetchers[fetcher.leader, fetcher.number]

    def hold(self, replica: Replica) -> None:
        """Stop fetching until the replica's disk takes writes again."""
        fetcher = self._fetcher_of.get(replica.topic_partition)
        if fetcher is not None:
            fetcher.hold(replica)

    def number_of(self, at: TopicPartition) -> int:
        """Return the number of the fetcher, among those of its leader, that gets the partition."""
        count = self._context.settings.num_replica_fetchers
        return (crc32(at.topic.encode()) + at.partition) % count

    def close(self) -> None:
        """Stop all fetchers: the broker stops."""
        self._closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._fetcher_of.clear()


class ReplicaFetcher:
    """One connection to one leader, and the partitions that are fetched over it."""

    def __init__(
        self, context: Context, connection: LeaderConnection, leader: int, number: int
    ) -> None:
        self.leader = leader
        self.number = number
        self._context = context
        self._connection = connection
        self._backoff_ms = context.settings.replica_fetch_backoff_ms
        self._use_settings(context.settings)
        self._fetch = FollowerFetch(context.node_id, self._backoff_ms)
        self._replicas: dict[TopicPartition, Replica] = {}
        self._unanswered = 0
        self._failures = 0
        self._answers: deque[Iterator[FetchEffect]] = deque()
        # Replicas with staged batches, and where their logs end once these are written.
        self._staged: dict[Replica, int] = {}
        self._timer: Timer | None = None
        self._scheduled = False
        self._closed = False

    @property
    def idle(self) -> bool:
        """Whether nothing is fetched from this leader."""
        return not self._fetch

    def follow(self, replica: Replica) -> None:
        """Fetch a partition; answers for an earlier epoch of it are ignored."""
        at = replica.topic_partition
        if self._fetch.epoch_of(at) == replica.leader_epoch and self._replicas[at] is replica:
            return
        self._replicas[at] = replica
        position = replica.following.position
        self._fetch.follow(at, replica.topic_id, replica.leader_epoch, position)
        self._resume(replica)
        self._fetch_soon()

    def unfollow(self, at: TopicPartition) -> None:
        """Stop fetching a partition."""
        self._fetch.unfollow(at)
        replica = self._replicas.pop(at, None)
        if replica is not None:
            replica.end_watchers.pop(self, None)
            self._staged.pop(replica, None)

    def close(self) -> None:
        """Stop fetching; late answers are dropped."""
        self._closed = True
        for at in list(self._replicas):
            self.unfollow(at)
        self._cancel_timer()
        self._connection.close()

    # -- asking

    def _fetch_soon(self) -> None:
        """Send the next fetch at the end of this round of the loop."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._fetch_next)

    def _fetch_next(self) -> None:
        self._scheduled = False
        if self._closed or self._answers or not self._may_send():
            return
        try:
            self._send_next()
        except Exception as defect:
            log.exception("the next fetch from broker %d could not be made", self.leader)
            self._failed(KafkaError(E.UNKNOWN_SERVER_ERROR, str(defect)))

    def _send_next(self) -> None:
        self._cancel_timer()
        now_ms = self._context.clock.monotonic_ms()
        if self._settings is not self._context.settings:
            self._use_settings(self._context.settings)
        throttle = self._context.throttles.follower
        if throttle.is_exceeded(now_ms):
            due_ms = now_ms + throttle.wait_ms(now_ms)
            self._fetch.put_off_lagging(due_ms, self._is_throttled)
        broker_epoch = self._context.control.broker_epoch
        request = self._fetch.next_request(now_ms, broker_epoch, self._limits)
        if request is None:
            self._wait_for_delayed(now_ms)
            return
        on_reply = partial(self._answered, self._fetch.requests)
        self._connection.send(request, FetchResponse, on_reply, timeout_ms=self._timeout_ms)
        self._unanswered += 1
        self._wait_for_delayed(now_ms)

    def _use_settings(self, settings: BrokerSettings) -> None:
        """Take the limits from settings that may have changed."""
        self._settings = settings
        self._limits = FollowerLimits(
            settings.replica_fetch_max_bytes,
            settings.replica_fetch_response_max_bytes,
            settings.replica_fetch_min_bytes,
            settings.replica_fetch_wait_max_ms,
        )
        self._timeout_ms = max(
            settings.replica_socket_timeout_ms, settings.replica_fetch_wait_max_ms + GRACE_MS
        )

    def _is_throttled(self, at: TopicPartition) -> bool:
        """A throttle never slows a member of the in-sync set, even one that lags for a moment."""
        if not self._context.throttles.follower.covers(at):
            return False
        known = self._context.metadata.partition(*at)
        return known is None or self._context.node_id not in known.isr

    def _may_send(self) -> bool:
        """One fetch at a time; a second one interrupts the first if this side has changes to send."""
        if self._failures and self._timer is not None:
            return False
        if self._unanswered == 0:
            return True
        return self._unanswered == 1 and self._fetch.urgent and self._fetch.in_session

    def _wait_for_delayed(self, now_ms: int) -> None:
        due_ms = self._fetch.next_due_ms()
        if due_ms is not None and not self._closed:
            self._set_timer(due_ms - now_ms, self._delay_ended)

    def _delay_ended(self) -> None:
        self._timer = None
        self._fetch.end_delays(self._context.clock.monotonic_ms())
        self._fetch_soon()

    def _set_timer(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._cancel_timer()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0, delay_ms) / 1000, call)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- answers

    def _answered(self, request: int, result: FetchResponse | KafkaError) -> None:
        self._unanswered -= 1
        if self._closed:
            return
        if isinstance(result, KafkaError) or result.error_code not in (E.NONE, *SESSION_ERRORS):
            self._failed(result)
            return
        self._failures = 0
        self._answers.append(
            self._fetch.answered(self._context.clock.monotonic_ms(), result, request)
        )
        if len(self._answers) == 1:
            self._handle_answers()

    def _failed(self, result: FetchResponse | KafkaError) -> None:
        """Retry later: the leader cannot be reached, or refused the fetch."""
        if isinstance(result, KafkaError):
            why = result.message
        else:
            why = f"broker {self.leader} refused a fetch: {error_of(result.error_code).name}"
        level = logging.DEBUG if self._failures else logging.INFO
        log.log(level, "fetching from broker %d failed: %s", self.leader, why)
        self._fetch.failed()
        self._set_timer(backoff(self._backoff_ms, self._failures), self._pause_ended)
        self._failures += 1

    def _pause_ended(self) -> None:
        self._timer = None
        self._fetch_soon()

    def _handle_answers(self) -> None:
        """Handle a part of the answers; the rest in later rounds of the loop."""
        if self._closed:
            return
        size = count = 0
        while self._answers:
            for effect in self._answers[0]:
                size += self._carry_out(effect)
                count += 1
                if size >= STEP_BYTES or count >= STEP_PARTITIONS:
                    self._write_staged()
                    asyncio.get_running_loop().call_soon(self._handle_answers)
                    return
            self._answers.popleft()
        self._write_staged()
        self._fetch_soon()

    def _carry_out(self, effect: FetchEffect) -> int:
        """Carry out the effect for one partition; return the bytes handled."""
        at = effect.topic_partition
        replica = self._replicas.get(at)
        if replica is None:
            return 0
        try:
            match effect:
                case AppendFetched():
                    return self._append(replica, effect)
                case CutDiverging():
                    self._cut(replica, effect)
                case RestartLog():
                    self._restart(replica, effect)
                case ReportError():
                    self._report(at, error_of(effect.error), "")
        except KafkaError as refused:
            self._put_off(replica)
            self._report(at, refused.code, refused.message)
        except Exception:
            log.exception("following %s failed", at)
            self._put_off(replica)
        return 0

    def _append(self, replica: Replica, fetched: AppendFetched) -> int:
        records = fetched.records or b""
        end = replica.following.append(
            records, fetched.leader_epoch, fetched.high_watermark, max(0, fetched.log_start)
        )
        self._staged[replica] = end
        self._context.metrics.replication_bytes_in += len(records)
        at, throttle = replica.topic_partition, self._context.throttles.follower
        self._fetch.lags(at, fetched.high_watermark - end)
        if throttle.active and records and throttle.covers(at):
            throttle.record(self._context.clock.monotonic_ms(), len(records))
        return len(records)

    def _write_staged(self) -> None:
        """Write, then fetch from where each log ends now."""
        staged, self._staged = self._staged, {}
        if staged:
            self._context.tick.flush()
        for replica, end in staged.items():
            if replica.log_end_offset < end:
                self._put_off(replica)  # the write failed, and the log says why
            else:
                self._resume(replica)

    def _resume(self, replica: Replica) -> None:
        """Continue fetching, unless the log must be flushed before this broker may acknowledge it.

        Nothing is fetched for a disk that is full or has failed: the leader must not take this
        replica for one that is in sync.
        """
        at = replica.topic_partition
        if _must_wait(replica):
            self._fetch.hold(at)
            replica.end_watchers[self] = None
        elif self._replicas.get(at) is replica and not replica.following.cutting:
            self._fetch.moved(at, replica.following.position)

    def hold(self, replica: Replica) -> None:
        """Fetch nothing as long as the disk takes no writes."""
        self._resume(replica)
        self._fetch_soon()

    def wake(self, replica: Replica) -> None:
        """More of the log is durable, the epochs are saved, or the disk takes writes again."""
        if not _must_wait(replica):
            replica.end_watchers.pop(self, None)
            self._resume(replica)
            self._fetch_soon()

    def _put_off(self, replica: Replica) -> None:
        at = replica.topic_partition
        self._fetch.delay(self._context.clock.monotonic_ms(), at)
        self._resume(replica)

    def _report(self, at: TopicPartition, code: E, message: str) -> None:
        if code in _NOT_YET:
            log.debug("broker %d does not serve %s yet: %s", self.leader, at, code.name)
            return
        why = f"{code.name}: {message}" if message else code.name
        self._context.peer_log.warning("follower", str(at), f"{at} cannot follow: {why}")

    # -- cutting

    def _cut(self, replica: Replica, diverging: CutDiverging) -> None:
        offset = replica.following.common_end(diverging.epoch, diverging.end)
        log.info(
            "%s: truncating from %d to %d, where it leaves the log of leader %d (epoch %d ends at %d)",
            replica.topic_partition,
            replica.log_end_offset,
            offset,
            self.leader,
            diverging.epoch,
            diverging.end,
        )
        replica.following.truncate(offset, diverging.leader_epoch, self._when_cut(replica))

    def _restart(self, replica: Replica, restart: RestartLog) -> None:
        log.warning(
            "%s: its log ends at %d and leader %d begins at %d: the log begins again there",
            replica.topic_partition,
            replica.log_end_offset,
            self.leader,
            restart.start,
        )
        replica.following.restart_at(restart.start, restart.leader_epoch, self._when_cut(replica))

    def _when_cut(self, replica: Replica) -> Callable[[KafkaError | None], None]:
        def done(failure: KafkaError | None) -> None:
            if self._replicas.get(replica.topic_partition) is not replica:
                return
            if failure is not None:
                self._put_off(replica)
                self._report(replica.topic_partition, failure.code, failure.message)
            else:
                self._resume(replica)
            self._fetch_soon()

        return done


def _must_wait(replica: Replica) -> bool:
    return replica.flushes.behind or replica.epoch_saves.saving or replica.refusal is not None

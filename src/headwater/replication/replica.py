"""The local replica of one partition: its log, its machine, and who waits for either.

Appends go through an ordered inbox, are staged, and are written once per tick; a waiter of
acks=1 is told after the write, one of acks=all when the high watermark passes it. Watchers
(parked fetches) are woken when what they may read grows.
"""

import errno
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol, TypeAlias, cast

from headwater.errors import E, KafkaError
from headwater.log.descriptors import EXHAUSTED
from headwater.log.flushing import FlushWork
from headwater.log.partition_log import PartitionLog
from headwater.model import NO_EPOCH, TopicPartition, Uuid
from headwater.records.batch import HEADER, TRANSACTIONAL, RawHeader
from headwater.records.rewrite import HEAVY_OUTPUT, HEAVY_RECOMPRESSION, is_heavy, prepare
from headwater.records.rules import WALKED_COUNT
from headwater.records.validation import (
    OffsetsOutOfPlace,
    OutputTooLarge,
    check_batch,
    check_records,
)
from headwater.replication.effects import AdvanceHW, Effect, ProposeIsr
from headwater.replication.partition import Partition, Role
from headwater.replication.topic_policy import TopicPolicy
from headwater.seams.tasks import Lane

log = logging.getLogger("headwater.server")

ACKS_ALL = -1
ACKS_NONE = 0
Done: TypeAlias = Callable[[object, Exception | None], None]


class Pending(Protocol):
    """One batch on its way: told exactly once how it ended."""

    base_offset: int
    last_offset: int
    append_time: int
    parked: bool

    def park(self) -> None:
        """It outlived its tick: give it a deadline."""

    def holding(self, size: int) -> None:
        """`size` bytes of it wait in the inbox; negative when they no longer do."""

    def complete(self) -> None:
        """It is as durable as was asked for."""

    def fail(self, failure: KafkaError) -> None:
        """It is not in the log, or not known to be."""


class Watcher(Protocol):
    """Somebody who wants to read more than there was."""

    def wake(self, replica: "Replica") -> None:
        """There may be more now."""


class ReplicaHost(Protocol):
    """What replicas ask of the broker around them."""

    def now_ms(self) -> int:
        """Monotonic milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""

    def write_soon(self, replica: "Replica") -> None:
        """Call `replica.write` at the end of this tick."""

    def off_loop(self, call: Callable[[], object], done: Done, lane: Lane) -> None:
        """Run a slow call elsewhere; `done(result, failure)` comes back as a later event."""

    def high_watermark_advanced(self, replica: "Replica") -> None:
        """More is committed: coordinators answer what waited for it."""

    def propose_isr(self, replica: "Replica", proposal: ProposeIsr) -> None:
        """Pass a change of the in-sync set to the controller."""

    def storage_failed(self, replica: "Replica", failure: OSError, *, flushing: bool) -> None:
        """The disk refused a write, or a flush of what was written."""


class _Held:
    """A batch in the inbox: behind another one, or looked at off the loop."""

    __slots__ = ("_size", "acks", "batch", "failure", "header", "pending", "ready")

    def __init__(self, batch: memoryview, header: RawHeader, pending: Pending, acks: int) -> None:
        self.batch = batch
        self._size = len(batch)
        pending.holding(self._size)
        self.header = header
        self.pending = pending
        self.acks = acks
        self.ready = True
        self.failure: KafkaError | None = None

    def leave(self) -> None:
        self.pending.holding(-self._size)


class Replica:
    """One partition on this broker."""

    __slots__ = (
        "_committing", "_completed_end", "_flush_ended", "_host", "_inbox", "_writing", "dirty",
        "flushing", "log", "offline", "partition", "policy", "refusal", "topic_id",
        "topic_partition", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        partition_log: PartitionLog,
        partition: Partition,
        policy: TopicPolicy,
        host: ReplicaHost,
    ) -> None:
        self.log = partition_log
        self.partition = partition
        self.topic_partition: TopicPartition = partition_log.topic_partition
        self.topic_id: Uuid = partition_log.topic_id
        self.policy = policy
        self.refusal: KafkaError | None = None
        """Why nothing may be written now (a full or failed disk), or None."""
        self.offline: KafkaError | None = None
        """Why not even reads are served (its disk failed), or None."""
        self.dirty = False
        self.watchers: dict[Watcher, None] = {}
        """In the order they came: a set would wake them in the order of their addresses."""
        self._host = host
        self._inbox: deque[_Held] = deque()
        self._writing: deque[Pending] = deque()
        self._committing: deque[Pending] = deque()
        self.flushing = False
        """A flush is under way; the older of two at once could end last and undo the newer."""
        self._flush_ended: list[Callable[[], None]] = []
        self._completed_end = 0
        """The durable end that waiters were last answered by."""

    # -- who may ask

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Refuse unless this replica leads, in the epoch the client believes in."""
        if self.offline is not None:
            raise self.offline
        if self.partition.role is not Role.LEADER:
            raise KafkaError(E.NOT_LEADER_OR_FOLLOWER)
        self.check_epoch(current_leader_epoch)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Tell a client with old metadata from one that is ahead of this broker (KIP-320)."""
        known = self.partition.leader_epoch
        if current_leader_epoch in (NO_EPOCH, known):
            return
        raise KafkaError(
            E.FENCED_LEADER_EPOCH if current_leader_epoch < known else E.UNKNOWN_LEADER_EPOCH
        )

    # -- appending

    def append(
        self, batch: memoryview, pending: Pending, acks: int, now_ms: int, zstd_known: bool = True
    ) -> None:
        """Check and stage one client batch; KafkaError leaves nothing behind.

        `batch` is a slice of the receive buffer: patched in place and let go of at the flush.
        """
        partition = self.partition
        if partition.role is not Role.LEADER:
            raise self.offline or KafkaError(E.NOT_LEADER_OR_FOLLOWER)
        rules = self.policy.rules
        header = check_batch(batch, rules, now_ms, zstd_known)
        if self.refusal is not None or (acks == ACKS_ALL and not partition.enough_in_sync):
            self._refuse(header, now_ms)
        if header[5] & TRANSACTIONAL:
            raise KafkaError(
                E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "this broker does not serve transactions yet",
            )
        if header[12] <= rules.walk_up_to or not rules.verbatim or header[8] < header[7]:
            if rules.log_append_time:
                pending.append_time = now_ms
            large = header[12] > WALKED_COUNT or header[1] > HEAVY_RECOMPRESSION
            if large and is_heavy(header, rules):
                self._hold(batch, header, pending, acks, now_ms)
                return
            try:
                if rules.verbatim:
                    header = check_records(batch, header, rules, now_ms, HEAVY_OUTPUT)
                else:
                    batch, header = prepare(batch, header, rules, now_ms, HEAVY_OUTPUT)
            except (OffsetsOutOfPlace, OutputTooLarge):
                self._hold(batch, header, pending, acks, now_ms)
                return
        if self._inbox:
            self._inbox.append(_Held(memoryview(bytearray(batch)), header, pending, acks))
        else:
            self._stage(batch, header, pending, acks, now_ms)

    def _refuse(self, header: RawHeader, now_ms: int) -> NoReturn:
        """Refuse a sound batch for now: a full disk, or too few replicas in sync."""
        self.log.producers.batch_refused(header, now_ms)
        raise self.refusal or KafkaError(E.NOT_ENOUGH_REPLICAS)

    def append_built(self, batch: bytearray, pending: Pending) -> None:
        """Stage a batch that the broker itself made, as durable as it can be (acks=all)."""
        if self.partition.role is not Role.LEADER:
            raise self.offline or KafkaError(E.NOT_LEADER_OR_FOLLOWER)
        if self.refusal is not None:
            raise self.refusal
        header: RawHeader = HEADER.unpack_from(batch)
        self._stage(memoryview(batch), header, pending, ACKS_ALL, self._host.wall_ms())

    def _stage(
        self, batch: memoryview, header: RawHeader, pending: Pending, acks: int, now_ms: int
    ) -> None:
        pending.base_offset, pending.last_offset = self.log.stage(
            batch, header, self.partition.leader_epoch, now_ms
        )
        if acks == ACKS_ALL:
            self._committing.append(pending)
        else:
            self._writing.append(pending)
        if not self.dirty:
            self.dirty = True
            self._host.write_soon(self)

    # -- the inbox: what must be looked at off the loop keeps its place in the order

    def _hold(
        self, batch: memoryview, header: RawHeader, pending: Pending, acks: int, now_ms: int
    ) -> None:
        kept = bytearray(batch)
        held = _Held(memoryview(kept), header, pending, acks)
        held.ready = False
        self._inbox.append(held)
        rules = self.policy.rules

        def done(result: object, failure: Exception | None) -> None:
            held.ready = True
            if isinstance(failure, KafkaError):
                held.failure = failure
            elif failure is not None:
                log.error("preparing a batch for %s failed", self.topic_partition, exc_info=failure)
                held.failure = KafkaError(E.UNKNOWN_SERVER_ERROR)
            else:
                held.batch, held.header = cast(tuple[memoryview, RawHeader], result)
            self._drain_inbox()

        self._host.off_loop(
            lambda: prepare(memoryview(kept), header, rules, now_ms), done, Lane.CODEC
        )

    def _drain_inbox(self) -> None:
        while self._inbox and self._inbox[0].ready:
            held = self._inbox.popleft()
            held.leave()
            now_ms = self._host.wall_ms()
            try:
                if held.failure is not None:
                    raise held.failure
                if self.refusal is not None:
                    self._refuse(held.header, now_ms)
                if self.partition.role is not Role.LEADER:
                    raise KafkaError(E.NOT_LEADER_OR_FOLLOWER)
                self._stage(held.batch, held.header, held.pending, held.acks, now_ms)
            except KafkaError as refused:
                held.pending.fail(refused)

    # -- the end of a tick

    def write(self) -> None:
        """Write what was staged and tell everyone whom that satisfies."""
        self.dirty = False
        if self.partition.role is Role.NONE:
            return
        try:
            self.log.write_staged()
        except OSError as failure:
            self._host.storage_failed(self, failure, flushing=False)
            # Batches of earlier ticks are in the log: a producer told otherwise would send them again.
            self.fail_waiters(
                KafkaError(E.KAFKA_STORAGE_ERROR, f"the write failed: {failure.strerror}"),
                self.log.log_end_offset,
            )
            if self.offline is None:
                self.complete_durable()
            return
        if self.policy.sync_acks and self.durable_end < self.log.log_end_offset:
            self._sync()
        self.complete_durable()

    def complete_durable(self) -> None:
        """Answer what the log's durable end satisfies, then move the high watermark."""
        log_end = self._completed_end = self.durable_end
        writing = self._writing
        while writing and writing[0].last_offset < log_end:
            writing.popleft().complete()
        self.run(self.partition.appended(self._host.now_ms(), log_end))
        if self._committing:
            self._release()
            self._park(self._committing)
        if writing:
            self._park(writing)

    @property
    def durable_end(self) -> int:
        """Up to where the log is as durable as its topic asks before anybody may see it.

        With flush.messages=N a write waits for the disk if N records or more would be unflushed.
        """
        log = self.log
        end = log.log_end_offset
        if self.policy.sync_acks and end - log.recovery_point >= log.settings.flush_messages:
            return max(log.recovery_point, min(self._completed_end, end))
        return end

    def sync_what_a_crash_left(self) -> None:
        """flush.messages: records that a dead process had not synced are no promise yet.

        Waits for the disk: only a log that was not closed has such a tail, and it is not served.
        """
        self._completed_end = 0
        work = self.log.unflushed() if self.durable_end < self.log.log_end_offset else None
        if work is None:
            return
        try:
            work.run()
        except OSError as failure:
            self._host.storage_failed(self, failure, flushing=work.syncing)
            if work.syncing:
                why = f"the disk refused to flush: {failure.strerror}"
                raise KafkaError(E.KAFKA_STORAGE_ERROR, why) from failure
            raise
        self.log.mark_flushed(work)

    def _park(self, waiting: "deque[Pending]") -> None:
        for pending in reversed(waiting):
            if pending.parked:
                break
            pending.park()

    def _sync(self) -> None:
        """flush.messages: nobody is answered before the disk has it; one flush at a time."""
        try:
            work = None if self.flushing else self.log.unflushed()
        except OSError as failure:
            self.flush_failed(None, failure)
            return
        if work is None:
            return
        self.flushing = True

        def done(_: object, failure: Exception | None) -> None:
            if failure is not None:
                self.flush_failed(work, failure)
            else:
                self.flushed(work)

        self._host.off_loop(work.run, done, Lane.FLUSH)

    def flush_failed(self, work: FlushWork | None, failure: Exception) -> None:
        """A flush raised: nothing more is durable, and nobody is answered as if it were.

        An error of the disk takes the log dir offline or finds it full; it is never asked to sync
        the same data again. Without a descriptor nothing was synced: the flush is due again, and
        those who wait go on waiting, because their batches are in the log. Any other error is a
        defect here.
        """
        self._end_flush()
        if self.log.presence.removed and isinstance(failure, FileNotFoundError):
            return  # the partition was deleted meanwhile: the disk is fine
        syncing = work is not None and work.syncing
        passing = isinstance(failure, OSError) and failure.errno in EXHAUSTED
        if isinstance(failure, OSError):
            if not syncing or passing:
                self.log.postpone_flush()
            self._host.storage_failed(self, failure, flushing=syncing)
        else:
            log.error("flushing %s failed", self.topic_partition, exc_info=failure)
            self.log.postpone_flush()
        if self.durable_end < self.log.log_end_offset and not passing:
            self.fail_waiters(KafkaError(E.KAFKA_STORAGE_ERROR, "the disk refused to flush"))

    def flushed(self, work: FlushWork) -> None:
        """A flush is done: answer whom that satisfies, and go on with what came meanwhile."""
        self._end_flush()
        if self.log.presence.removed:
            return
        self.log.mark_flushed(work)
        self.complete_durable()
        if self.durable_end < self.log.log_end_offset:
            self._sync()

    def flush_skipped(self) -> None:
        self._end_flush()

    def when_not_flushing(self, call: Callable[[], None]) -> None:
        """Call back once no flush is under way."""
        if self.flushing:
            self._flush_ended.append(call)
        else:
            call()

    def _end_flush(self) -> None:
        self.flushing = False
        calls, self._flush_ended = self._flush_ended, []
        for call in calls:
            call()

    def stop(self) -> None:
        """Serve no more: drop what is staged and fail every request that waits here."""
        self.partition.role = Role.NONE
        self.log.drop_staged()
        self.fail_waiters(KafkaError(E.UNKNOWN_TOPIC_OR_PARTITION))

    def fail_waiters(self, failure: KafkaError, start: int = 0) -> None:
        """Whatever waits here, for offsets from `start` on, waits in vain."""
        held, self._inbox = self._inbox, deque()
        for entry in held:
            entry.leave()
            self.log.producers.batch_refused(entry.header, self._host.wall_ms())
        waiting = [*self._writing, *self._committing]
        self._writing = deque(row for row in self._writing if row.last_offset < start)
        self._committing = deque(row for row in self._committing if row.last_offset < start)
        failed = [row for row in waiting if row.last_offset >= start]
        for pending in (*failed, *(entry.pending for entry in held)):
            pending.fail(failure)
        self.wake_watchers()

    def mark_offline(self, why: KafkaError) -> None:
        """The partition cannot be led or followed: refuse reads and writes with the reason."""
        self.offline = self.refusal = why

    def mark_online(self, why: KafkaError) -> None:
        """What `mark_offline` was called for is over."""
        self.offline = None if self.offline is why else self.offline
        self.refusal = None if self.refusal is why else self.refusal

    # -- effects

    def run(self, effects: Sequence[Effect]) -> None:
        """Carry out what the partition decided, in its order."""
        for effect in effects:
            match effect:
                case AdvanceHW():
                    self._release()
                    self.wake_watchers()
                    self._host.high_watermark_advanced(self)
                case ProposeIsr():
                    self._host.propose_isr(self, effect)

    def _release(self) -> None:
        mark = self.partition.high_watermark
        committing = self._committing
        if not self.partition.enough_in_sync:
            self._release_too_few(mark)
        while committing and committing[0].last_offset < mark:
            committing.popleft().complete()

    def _release_too_few(self, mark: int) -> None:
        while self._committing and self._committing[0].last_offset < mark:
            self._committing.popleft().fail(KafkaError(E.NOT_ENOUGH_REPLICAS_AFTER_APPEND))

    def wake_watchers(self) -> None:
        """There may be more to read, or nothing ever again."""
        for watcher in tuple(self.watchers) if self.watchers else ():
            watcher.wake(self)

    # -- reading

    def readable_end(self, committed_only: bool) -> int:
        """Up to where a consumer may read."""
        mark = self.partition.high_watermark
        return self.log.last_stable_offset(mark) if committed_only else mark

    def read_failed(self, failure: OSError) -> KafkaError:
        """The disk refused a read; what to tell the reader. A disk that is sick goes offline."""
        if failure.errno == errno.EIO:
            self._host.storage_failed(self, failure, flushing=False)
        return KafkaError(E.KAFKA_STORAGE_ERROR, f"the read failed: {failure.strerror}")

    def check_in_range(self, offset: int) -> None:
        """Refuse an offset that is not, or no longer, in the log."""
        if not self.log.log_start_offset <= offset <= self.log.log_end_offset:
            raise KafkaError(E.OFFSET_OUT_OF_RANGE)

"""The local replica of one partition: the only access to its log and its state.

Appends go through an ordered inbox, are staged, and are written once per tick. A waiter of acks=1
completes after the write, one of acks=all when the high watermark passes it. Watchers (parked
fetches) wake when what they may read grows. Only a leader takes client batches and markers; what it
knows of its followers is in `leading`, and what a follower does is in `following`.
"""

import errno
from collections.abc import Sequence
from typing import NoReturn

from headwater.errors import E, KafkaError
from headwater.log.aborted_index import AbortedTransaction
from headwater.log.partition_log import PartitionLog
from headwater.log.slices import FileSlice
from headwater.model import NO_EPOCH, TopicPartition, Uuid
from headwater.records.batch import HEADER_SIZE, TRANSACTIONAL, RawHeader
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    RECORD_COUNT,
)
from headwater.records.rewrite import HEAVY_OUTPUT, is_heavy, is_surely_readable, prepare
from headwater.records.validation import (
    OffsetsOutOfPlace,
    OutputTooLarge,
    check_batch,
    check_records,
)
from headwater.replication.append_waiters import AppendWaiters
from headwater.replication.built_batches import BuiltBatches
from headwater.replication.effects import AdvanceHW, Effect, ProposeIsr
from headwater.replication.epoch_saves import EpochSaves
from headwater.replication.flushes import Flushes
from headwater.replication.following import Following
from headwater.replication.inbox import HeldBatch, Inbox
from headwater.replication.isolation import FetchIsolation
from headwater.replication.leader_and_isr import LeaderAndIsr
from headwater.replication.leading import Leading
from headwater.replication.partition import Partition, Role
from headwater.replication.replica_host import Pending, ReplicaHost, Watcher
from headwater.replication.topic_policy import TopicPolicy
from headwater.replication.upkeep import Upkeep
from headwater.replication.verifications import Verifications

ACKS_ALL = -1
ACKS_NONE = 0
# Enum members are slow to look up, and every batch or read needs these.
_LEADER, _NONE = Role.LEADER, Role.NONE
_HIGH_WATERMARK, _LAST_STABLE = FetchIsolation.HIGH_WATERMARK, FetchIsolation.LAST_STABLE
_LOG_END = FetchIsolation.LOG_END


class Replica:
    """One partition on this broker."""

    __slots__ = (
        "_committing", "_held", "_inbox", "_staging", "_waiters", "_writing", "built", "dirty", "end_watchers",
        "epoch_saves", "flushes", "following", "host", "leading", "log", "offline", "partition", "policy", "refusal",
        "topic_id", "topic_partition", "upkeep", "verifications", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        partition_log: PartitionLog,
        partition: Partition,
        policy: TopicPolicy,
        host: ReplicaHost,
    ) -> None:
        # The log and the partition's state: private to this package, others call the methods below.
        self.log = partition_log
        self._staging = partition_log.staging
        self.partition = partition
        self.host = host
        self.policy = policy
        self.topic_partition: TopicPartition = partition_log.topic_partition
        self.topic_id: Uuid = partition_log.topic_id
        # Why nothing may be written now (a full or failed disk), or None.
        self.refusal: KafkaError | None = None
        # Why not even reads are served (a failed disk), or None.
        self.offline: KafkaError | None = None
        # Whether `write` is due at the end of this tick.
        self.dirty = False
        # In the order they came: a set would wake them in the order of their addresses.
        self.watchers: dict[Watcher, None] = {}
        # Fetches of followers, which read up to the log's end.
        self.end_watchers: dict[Watcher, None] = {}
        self.flushes = Flushes(self)
        self.epoch_saves = EpochSaves(self)
        self.leading = Leading(self)
        self.following = Following(self)
        self.built = BuiltBatches(self)
        self.upkeep = Upkeep(partition_log, partition)
        self._inbox = Inbox(self.topic_partition, host)
        self._held = self._inbox.batches
        self.verifications = Verifications(self, self._inbox)
        self._waiters = AppendWaiters()
        self._writing, self._committing = self._waiters.writing, self._waiters.committing

    # -- role

    @property
    def is_leader(self) -> bool:
        return self.partition.role is Role.LEADER

    @property
    def leader(self) -> int:
        return self.partition.leader

    @property
    def leader_epoch(self) -> int:
        return self.partition.leader_epoch

    def become_leader(self, decided: LeaderAndIsr) -> None:
        """Lead in the epoch that the controller decided, or confirm it."""
        is_new = decided.leader_epoch > self.partition.leader_epoch or not self.is_leader
        if is_new:
            if self.dirty:
                self.write()  # what the epoch before has staged is its own
            if self._staging.batches:
                # They wait for its file. A coordinator that loads now would not know them.
                self.log.drop_staged()
                self.fail_waiters(KafkaError(E.NOT_LEADER_OR_FOLLOWER), self.log.log_end_offset)
            # Known before the first append of the epoch: replicas that truncate later must find a
            # leader that wrote nothing (KAFKA-7415).
            self._staging.begin_epoch(decided.leader_epoch)
            self.flushes.sync_crash_tail()
        self.carry_out(
            self.partition.led(
                self.host.now_ms(),
                decided.leader_epoch,
                decided.partition_epoch,
                decided.replicas,
                decided.isr,
                self.flushes.durable_end,
                self.log.log_end_offset,
                decided.elr,
            )
        )
        self.wake_watchers()
        if is_new:
            self.host.leads(self)

    def become_follower(self, decided: LeaderAndIsr) -> None:
        """Follow the leader that the controller decided; requests that wait here ask it instead."""
        self.partition.followed(
            decided.leader,
            decided.leader_epoch,
            decided.partition_epoch,
            decided.replicas,
            decided.isr,
        )
        self.log.drop_staged()
        self.fail_waiters(KafkaError(E.NOT_LEADER_OR_FOLLOWER))
        self.host.follows(self)
        if self.flushes.behind:
            self.flushes.flush()  # what a killed process had not flushed is claimed after that only

    def stop(self) -> None:
        """Stop serving: drop staged batches and fail every waiting request."""
        self.partition.role = Role.NONE
        self.log.drop_staged()
        self.fail_waiters(KafkaError(E.UNKNOWN_TOPIC_OR_PARTITION))
        self.host.stopped(self)

    def mark_offline(self, why: KafkaError) -> None:
        """Refuse reads and writes with this reason."""
        self.offline = self.refusal = why

    def mark_online(self, why: KafkaError) -> None:
        """Serve again, unless another reason than `why` keeps the replica offline."""
        self.offline = None if self.offline is why else self.offline
        self.refusal = None if self.refusal is why else self.refusal
        self.wake_watchers()  # a fetcher may wait with this partition

    def apply_policy(self, policy: TopicPolicy, min_insync: int) -> None:
        self.policy = policy
        self.log.configure(policy.log_settings)
        self.partition.require_in_sync(min_insync)

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise KafkaError unless this replica leads in the client's epoch."""
        self.require_role(Role.LEADER, current_leader_epoch)

    def require_readable(self, current_leader_epoch: int, offset: int) -> None:
        """Raise KafkaError unless a consumer may read here: from the leader, or from a follower.

        A follower that has not reached the offset yet says so: the offset may exist.
        """
        partition = self.partition
        if partition.role is _LEADER:
            if self.offline is not None or current_leader_epoch not in (
                NO_EPOCH,
                partition.leader_epoch,
            ):
                self.require_role(_LEADER, current_leader_epoch)
            return
        self.require_role(Role.FOLLOWER, current_leader_epoch)
        if self.following.cutting:
            raise KafkaError(E.NOT_LEADER_OR_FOLLOWER)
        if offset > self.log.log_end_offset:
            raise KafkaError(E.OFFSET_NOT_AVAILABLE)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Distinguish a client with old metadata from one that is ahead of this broker (KIP-320)."""
        known = self.partition.leader_epoch
        if current_leader_epoch in (NO_EPOCH, known):
            return
        raise KafkaError(
            E.FENCED_LEADER_EPOCH if current_leader_epoch < known else E.UNKNOWN_LEADER_EPOCH
        )

    def require_role(self, role: Role, leader_epoch: int) -> None:
        """Refuse unless the replica has this role in the epoch that the caller believes in."""
        if self.offline is not None:
            raise self.offline
        if self.partition.role is not role:
            raise KafkaError(E.NOT_LEADER_OR_FOLLOWER)
        self.check_epoch(leader_epoch)

    # -- appending as a leader

    def append(
        self, batch: memoryview, pending: Pending, acks: int, now_ms: int, zstd_known: bool = True
    ) -> None:
        """Check and stage one client batch; a KafkaError means that nothing is staged.

        `batch` is a slice of the receive buffer: patched in place and released at the flush.
        """
        partition = self.partition
        if partition.role is not _LEADER:
            raise self.offline or KafkaError(E.NOT_LEADER_OR_FOLLOWER)
        rules = self.policy.rules
        header = check_batch(batch, rules, now_ms, zstd_known)
        if self.refusal is not None or (acks == ACKS_ALL and not partition.enough_in_sync):
            self._refuse(header, now_ms)
        if header[ATTRIBUTES] & TRANSACTIONAL and not self.verifications.admits(header, pending):
            self.verifications.hold(batch, header, pending, acks, zstd_known)
            return
        if (
            header[RECORD_COUNT] <= rules.walk_up_to
            or not rules.verbatim
            or header[MAX_TIMESTAMP] < header[BASE_TIMESTAMP]
            or not is_surely_readable(batch, header)
        ):
            if rules.log_append_time:
                pending.append_time = now_ms
            if is_heavy(header, rules):
                self._prepare(batch, header, pending, acks, now_ms)
                return
            try:
                if rules.verbatim:
                    header = check_records(batch, header, rules, now_ms, HEAVY_OUTPUT)
                else:
                    batch, header = prepare(batch, header, rules, now_ms, HEAVY_OUTPUT)
            except (OffsetsOutOfPlace, OutputTooLarge):
                self._prepare(batch, header, pending, acks, now_ms)
                return
        if self._held or self._staging.epoch != partition.leader_epoch:
            self._stage_in_order(batch, header, pending, acks, now_ms)
        else:
            self._stage(batch, header, pending, acks, now_ms)

    def commit_later(self, pending: Pending, offsets: tuple[int, int]) -> None:
        """Complete a staged batch like acks=all."""
        pending.base_offset, pending.last_offset = offsets
        self._committing.append(pending)
        self.write_soon()

    def _refuse(self, header: RawHeader, now_ms: int) -> NoReturn:
        """Refuse a valid batch: the disk is full, or too few replicas are in sync."""
        self.log.producers.batch_refused(header, now_ms)
        raise self.refusal or KafkaError(E.NOT_ENOUGH_REPLICAS)

    def _stage(
        self, batch: memoryview, header: RawHeader, pending: Pending, acks: int, now_ms: int
    ) -> None:
        pending.base_offset, pending.last_offset = self._staging.stage(
            batch, header, self.partition.leader_epoch, now_ms
        )
        if acks == ACKS_ALL:
            self._committing.append(pending)
        else:
            self._writing.append(pending)
        if not self.dirty:
            self.dirty = True
            self.host.write_soon(self)

    def _stage_in_order(
        self, batch: memoryview, header: RawHeader, pending: Pending, acks: int, now_ms: int
    ) -> None:
        """Stage a batch, or hold it: behind others, or until the file of epochs has its epoch."""
        if self._held or self._awaits_epoch():
            self._inbox.hold(batch, header, pending, acks)
            if self.log.epochs.must_be_saved:
                self.epoch_saves.save()
        else:
            self._stage(batch, header, pending, acks, now_ms)

    def _awaits_epoch(self) -> bool:
        """Return whether the file of epochs must be written before this leader's next batch."""
        if self.partition.role is not _LEADER:
            return False
        try:
            self._staging.begin_epoch(self.partition.leader_epoch)
        except KafkaError:
            return False  # nothing can be staged, and that says why
        return self.log.epochs.must_be_saved

    def epochs_saved(self) -> None:
        """Go on with what waited for the file of epochs."""
        self._drain_inbox()
        if self._staging.batches:
            self.write_soon()
        self._wake(self.end_watchers)

    def write_soon(self) -> None:
        """Have `write` called at the end of this tick."""
        if not self.dirty:
            self.dirty = True
            self.host.write_soon(self)

    def _prepare(
        self, batch: memoryview, header: RawHeader, pending: Pending, acks: int, now_ms: int
    ) -> None:
        held = HeldBatch(batch, header, pending, acks)
        self._inbox.prepare(held, self.policy.rules, now_ms, self._drain_inbox)

    def _drain_inbox(self) -> None:
        while self._inbox.is_ready:
            if self._awaits_epoch():
                self.epoch_saves.save()
                return
            held, now_ms = self._inbox.pop_first(), self.host.wall_ms()
            try:
                if held.failure is not None:
                    raise held.failure
                if self.refusal is not None:
                    self._refuse(held.header, now_ms)
                if self.partition.role is not _LEADER:
                    raise KafkaError(E.NOT_LEADER_OR_FOLLOWER)
                self._stage(held.batch, held.header, held.pending, held.acks, now_ms)
            except KafkaError as refused:
                held.pending.fail(refused)

    # -- the end of a tick

    def write(self) -> None:
        """Write what is staged and complete every waiter that this satisfies."""
        self.dirty = False
        if self.partition.role is _NONE:
            return
        if self.log.epochs.must_be_saved and self._staging.batches:
            self.epoch_saves.save()  # a coordinator's batches: nobody uses their buffers again
            return
        try:
            self.log.write_staged()
        except OSError as failure:
            self.host.storage_failed(self, failure, flushing=False)
            why = f"the write failed: {failure.strerror}"
            # Batches of earlier ticks are in the log: if they failed, producers would send them again.
            self.fail_waiters(KafkaError(E.KAFKA_STORAGE_ERROR, why), self.log.log_end_offset)
            if self.offline is None:
                self.complete_durable()
            return
        if self.policy.sync_acks and self.flushes.behind:
            self.flushes.sync()
        self.complete_durable()

    def complete_durable(self) -> None:
        """Complete what the log's durable end satisfies, then move the high watermark."""
        flushes = self.flushes
        end = flushes.durable_end if self.policy.sync_acks else self.log.log_end_offset
        flushes.completed_end = end
        if self._writing:
            self._waiters.complete_written(end)
        self.carry_out(self.partition.appended(self.host.now_ms(), end))
        if self.end_watchers:
            self._wake(self.end_watchers)
        if self._committing:
            self._complete_committed()
        if self._committing or self._writing:
            self._waiters.park()

    def fail_waiters(self, failure: KafkaError, start: int = 0) -> None:
        """Fail every waiter from offset `start` on and every held batch, and wake the watchers."""
        self.verifications.fail_all(failure)
        held = self._inbox.pop_all()
        for entry in held:
            self.log.producers.batch_refused(entry.header, self.host.wall_ms())
        for pending in [*self._waiters.pop_from(start), *(entry.pending for entry in held)]:
            pending.fail(failure)
        self.wake_watchers()

    def wake_watchers(self) -> None:
        """There is more to read, or the replica stopped."""
        if self.watchers:
            self._wake(self.watchers)
        if self.end_watchers:
            self._wake(self.end_watchers)

    def _wake(self, watchers: dict[Watcher, None]) -> None:
        for watcher in tuple(watchers):
            watcher.wake(self)

    def watchers_of(self, isolation: FetchIsolation) -> dict[Watcher, None]:
        """Return where a reader that waits for more puts itself."""
        return self.end_watchers if isolation is FetchIsolation.LOG_END else self.watchers

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """Do what the partition's state machine asks for."""
        for effect in effects:
            match effect:
                case AdvanceHW():
                    if self._committing:
                        self._complete_committed()
                    self.wake_watchers()  # followers too: nothing else may ever tell them the mark
                    self.host.high_watermark_advanced(self)
                case ProposeIsr():
                    self.host.propose_isr(self, effect)

    def _complete_committed(self) -> None:
        partition = self.partition
        self._waiters.complete_committed(partition.high_watermark, partition.enough_in_sync)

    # -- reading

    @property
    def high_watermark(self) -> int:
        return self.partition.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.partition.high_watermark)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    def readable_end(self, isolation: FetchIsolation) -> int:
        """Return the end offset for a reader with this isolation."""
        if isolation is _HIGH_WATERMARK:
            return self.partition.high_watermark
        if isolation is _LAST_STABLE:
            return self.log.last_stable_offset(self.partition.high_watermark)
        return self.flushes.durable_end

    def read(
        self, offset: int, isolation: FetchIsolation, max_bytes: int, at_least_one: bool
    ) -> FileSlice | None:
        """Return whole batches from the batch with `offset` on, or None where there is nothing."""
        if isolation is _HIGH_WATERMARK:
            end = self.partition.high_watermark
        else:
            end = self.readable_end(isolation)
        found = self.log.read(offset, end, max_bytes, at_least_one)
        while found is not None and found.size == HEADER_SIZE and isolation is not _LOG_END:
            # An empty batch of compaction: librdkafka raises its limits if an answer has no record.
            after = self.log.segments.end_after(found)
            further = self.log.read(after, end, max_bytes, at_least_one) if after else None
            if further is None:
                break
            found = further
        return found

    def read_own(self, offset: int, max_bytes: int) -> FileSlice | None:
        """Return batches up to the log's end, as durable as they are, for the coordinator here."""
        return self.log.read(offset, self.log.log_end_offset, max_bytes, at_least_one=True)

    def read_failed(self, failure: OSError) -> KafkaError:
        """Return the error for a reader that the disk refused; a failing disk goes offline."""
        if failure.errno == errno.EIO:
            self.host.storage_failed(self, failure, flushing=False)
        return KafkaError(E.KAFKA_STORAGE_ERROR, f"the read failed: {failure.strerror}")

    def check_in_range(self, offset: int) -> None:
        """Raise KafkaError for an offset outside of the log."""
        if not self.log.log_start_offset <= offset <= self.log.log_end_offset:
            raise KafkaError(E.OFFSET_OUT_OF_RANGE)

    def aborted_transactions(self, start: int, found: FileSlice) -> list[AbortedTransaction]:
        """Return the aborted transactions among the committed records of a slice from `start` on."""
        end = self.log.segments.end_of(found, self.log.log_end_offset)
        return self.log.aborted_transactions(start, min(end, self.partition.high_watermark))

    def offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to this one and its end, (-1, -1) if unknown (KIP-320)."""
        return self.log.epochs.end_offset(leader_epoch, self.log.log_end_offset)

    # -- describing

    @property
    def directory(self) -> str:
        return self.log.directory

"""The follower's side of a replica: appends the leader's batches, and truncates what diverges.

Leader epochs decide where to truncate, never the high watermark (KIP-101, KIP-279). Truncation waits
for the disk, so it runs on a file thread; until it ends nothing else touches the log, and decisions of
the controller wait (`Replicas`). Before the log is truncated below its flushed end, it writes a durable
note (`log/truncation_note`), so that recovery does not take rewritten offsets for flushed data.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headwater.errors import E, KafkaError
from headwater.log.descriptors import Descriptors
from headwater.replication.partition import Role
from headwater.seams.files import Buffer
from headwater.seams.tasks import Lane

if TYPE_CHECKING:
    from headwater.replication.replica import Replica

log = logging.getLogger("headwater.server")

_FILES_OPEN = 8
"""The files that a truncation keeps open at a time."""

OnCut: TypeAlias = Callable[[KafkaError | None], None]
"""Called once the log is truncated, or with the failure."""


class LogPosition(NamedTuple):
    """The end and the start of a follower's log, for a fetch."""

    end: int
    last_epoch: int
    """The epoch of the last record, -1 in an empty log."""
    start: int


class Following:
    """The follower's side of one replica."""

    __slots__ = ("_replica", "_waiting", "cutting")

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        # Whether a file thread is truncating the log.
        self.cutting = False
        self._waiting: list[Callable[[], None]] = []

    # -- fetching

    @property
    def position(self) -> LogPosition:
        """Return from where to fetch next.

        Epochs without records are ignored: only records can diverge (KAFKA-10706).
        """
        partition_log = self._replica.log
        end = partition_log.log_end_offset
        epoch = partition_log.epochs.epoch_at(end - 1)
        return LogPosition(end, epoch, partition_log.durable_start)

    def append(
        self, batches: Buffer, leader_epoch: int, high_watermark: int, leader_log_start: int = 0
    ) -> int:
        """Stage what the leader of `leader_epoch` sent, and return the offset to fetch next.

        Offsets and epochs stay as they are; a batch cut off at the end is left out, and so is one that
        begins an epoch, until the file of epochs has it (`Replica.epoch_saves`). The bytes are
        kept by reference until the end of the tick. Call this only with an answer that does not
        diverge: the leader's high watermark counts for this log once both agree (KAFKA-14704).
        """
        replica = self._replica
        self._require_follower(leader_epoch)
        if replica.refusal is not None:
            raise replica.refusal
        replica.epoch_saves.raise_failure()
        partition_log = replica.log
        try:
            partition_log.stage_replicated(batches, leader_epoch, replica.host.wall_ms())
        finally:
            if partition_log.staging.end_offset > partition_log.log_end_offset:
                replica.write_soon()
            elif partition_log.epochs.must_be_saved:
                replica.epoch_saves.save()
        replica.carry_out(replica.partition.leader_hw_received(high_watermark))
        partition_log.producers.forget_replicated(replica.high_watermark)
        committed = min(leader_log_start, replica.high_watermark)
        if committed > partition_log.log_start_offset:
            partition_log.advance_start(committed)
            replica.host.start_moved(replica)
        return partition_log.staging.end_offset

    def _require_follower(self, leader_epoch: int) -> None:
        self._replica.require_role(Role.FOLLOWER, leader_epoch)
        if self.cutting:
            raise KafkaError(E.REPLICA_NOT_AVAILABLE, "the log is being truncated")

    # -- cutting

    def common_end(self, epoch: int, end: int) -> int:
        """Return where to truncate, given that the leader's records of `epoch` end at `end`.

        `epoch` is the leader's greatest up to that of the last record here. If this log lacks it,
        the epoch below it may be shared, and the leader is asked again from there (KIP-279).
        """
        partition_log = self._replica.log
        log_end = partition_log.log_end_offset
        known, known_end = partition_log.epochs.end_offset(epoch, log_end)
        if known_end < 0:
            return min(end, log_end)
        return min(known_end, log_end, end if known == epoch else log_end)

    def truncate(self, offset: int, leader_epoch: int, done: OnCut) -> None:
        """Drop everything at and above `offset`; a batch that holds it goes as a whole.

        Every replica that can be elected cleanly has all committed records. So a leader without them
        was elected uncleanly, or there is a bug: both are logged as errors.
        """
        self._require_follower(leader_epoch)
        replica = self._replica
        if offset < replica.high_watermark:
            log.error(
                "%s is truncated to %d, below its high watermark %d: leader %d of epoch %d lacks "
                "committed records; if no unclean election explains this, compare the replicas "
                "with `headwater log verify`",
                replica.topic_partition,
                offset,
                replica.high_watermark,
                replica.leader,
                leader_epoch,
            )
        cut = partial(replica.log.truncate_to, offset)
        self._cut(cut, lambda: replica.partition.truncated(replica.log.log_end_offset), done)

    def restart_at(self, start: int, leader_epoch: int, done: OnCut) -> None:
        """Drop everything and continue at `start`, where the leader's log begins."""
        self._require_follower(leader_epoch)
        replica = self._replica
        cut = partial(replica.log.truncate_fully, start)
        self._cut(cut, lambda: replica.partition.restarted(start), done)

    def _cut(self, cut: Callable[[], None], ended: Callable[[], None], done: OnCut) -> None:
        replica = self._replica
        self.cutting = True
        replica.log.drop_staged()

        # The broker's descriptors are for the thread of the loop alone.
        own = Descriptors(replica.log.segments.files, _FILES_OPEN)
        of_the_loop: list[Descriptors] = []

        def run() -> None:
            of_the_loop.append(replica.log.segments.use_descriptors(own))
            replica.host.off_loop(cut, finished, Lane.FILES)

        def finished(_: object, failure: Exception | None) -> None:
            self.cutting = False
            replica.log.segments.use_descriptors(of_the_loop[0])
            own.close()
            why = None if failure is None else self._failed(failure)
            flushes = replica.flushes
            flushes.completed_end = min(flushes.completed_end, replica.log.log_end_offset)
            if why is None:
                ended()
            flushes.let_go()
            replica.wake_watchers()
            done(why)
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

        replica.flushes.hold(run)

    def _failed(self, failure: Exception) -> KafkaError:
        replica = self._replica
        why = f"truncating {replica.topic_partition} failed: {failure}"
        if isinstance(failure, OSError):
            replica.host.storage_failed(replica, failure, flushing=False)
        else:
            log.error("truncating %s failed", replica.topic_partition, exc_info=failure)
        return KafkaError(E.KAFKA_STORAGE_ERROR, why)

    def when_cut(self, call: Callable[[], None]) -> None:
        """Call back once the log is not being cut; calls keep their order."""
        if self.cutting:
            self._waiting.append(call)
        else:
            call()

"""The flushes of a replica's log, and the end of the log that may be acknowledged.

If `flush.messages` is N, a write is visible and acknowledged only once fewer than N records are unflushed.
Otherwise the page cache is enough, and housekeeping flushes later. Acknowledgments wait for a sync of the
data alone; a flush, which moves the recovery point, has more to write. Only one of both runs at a time: the
older of two could end last and undo the newer. After a failed sync the same data is never synced again,
because the kernel may have dropped the pages.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headwater.errors import E, KafkaError
from headwater.log.descriptors import EXHAUSTED
from headwater.log.flushing import DataSync, FlushWork, is_data_enough, mark_synced, unsynced
from headwater.seams.tasks import Lane

if TYPE_CHECKING:
    from headwater.replication.replica import Replica

log = logging.getLogger("headwater.server")

T = TypeVar("T", FlushWork, DataSync)


class Flushes:
    """The flushes of one replica's log."""

    __slots__ = ("_flush_ended", "_flush_wanted", "_replica", "completed_end", "flushing", "held")

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self.flushing = False
        # Whether no flush may begin: what is written does not count as flushed, whatever the disk has.
        self.held = False
        # Whether a flush was asked for during another one: a sync moves no recovery point.
        self._flush_wanted = False
        # The durable end up to which waiters were last completed.
        self.completed_end = 0
        self._flush_ended: list[Callable[[], None]] = []

    @property
    def durable_end(self) -> int:
        """Return the end of the records that are as durable as the topic requires before they are visible.

        With flush.messages=N a write waits for the disk if N records or more would be unflushed.
        """
        partition_log = self._replica.log
        end = partition_log.log_end_offset
        if not self._replica.policy.sync_acks:
            return end
        synced = partition_log.synced_end
        if end - synced >= partition_log.settings.flush_messages:
            return max(synced, min(self.completed_end, end))
        return end

    @property
    def behind(self) -> bool:
        """Return whether written records wait for a flush before they are visible."""
        return self.durable_end < self._replica.log.log_end_offset

    # -- flushes of housekeeping: announced, begun on the loop, run on a thread, then reported

    def announce(self, now_ms: int, looked_ms: int) -> bool:
        """Announce a flush if one is due and none is under way; return whether it is announced.

        Both times are monotonic: now, and the time of the caller's last check.
        """
        if not self._replica.log.flush_due(now_ms, looked_ms):
            return False
        if self.flushing:
            self._flush_wanted = True
            return False
        self.flushing = True
        return True

    @property
    def pending(self) -> bool:
        """Return whether the log has unflushed data, or a flush that may fail is under way."""
        return self.flushing or self._replica.log.is_dirty

    @property
    def due_by_age(self) -> bool:
        """Return whether unflushed data needs no flush until it is old, unless more is written."""
        return not self.flushing and self._replica.log.flushes_by_age

    def begin(self) -> FlushWork | None:
        """Return the work of an announced flush for a file thread; None if there is none."""
        self._flush_wanted = False
        work = self._replica.log.unflushed()
        if work is None:
            self._end_flush()
        return work

    # -- flushes and syncs that acknowledgements wait for

    def flush(self) -> None:
        """Flush on a file thread; if a flush or a sync is under way, after it."""
        self._flush_wanted = self.flushing
        self._run(self._replica.log.unflushed, self.flushed)

    def sync(self) -> None:
        """Sync the appended data, unless a flush is under way; flush if the data is not enough."""
        partition_log = self._replica.log
        if self.flushing:
            return
        if not self._flush_wanted and is_data_enough(partition_log):
            self._run(partial(unsynced, partition_log), self._synced)
        else:
            self.flush()

    def _run(self, collect: Callable[[], T | None], succeeded: Callable[[T], None]) -> None:
        try:
            work = None if self.flushing else collect()
        except OSError as failure:
            self.failed(None, failure)
            return
        if work is None:
            return
        self.flushing = True

        def done(_: object, failure: Exception | None) -> None:
            if failure is not None:
                self.failed(work, failure)
            else:
                succeeded(work)

        self._replica.host.off_loop(work.run, done, Lane.FLUSH)

    def flushed(self, work: FlushWork) -> None:
        """Handle a successful flush: complete waiters, and sync later writes."""
        self._end_flush()
        if not self._replica.log.presence.removed:
            self._replica.log.mark_flushed(work)
            self._complete()

    def _synced(self, work: DataSync) -> None:
        self._end_flush()
        if not self._replica.log.presence.removed:
            mark_synced(self._replica.log, work)
            self._complete()

    def _complete(self) -> None:
        self._replica.complete_durable()
        if self._flush_wanted:
            self.flush()
        if self.behind:
            self.sync()

    def failed(self, work: FlushWork | DataSync | None, failure: Exception) -> None:
        """Handle a failed flush: nothing more is durable, and no waiter completes.

        A disk error takes the log dir offline or marks it full. If no file descriptor was available,
        nothing was synced: the flush is repeated, and waiters keep waiting, because their batches
        are in the log. Any other error is a defect of the broker.
        """
        self._end_flush()
        replica = self._replica
        if replica.log.presence.removed and isinstance(failure, FileNotFoundError):
            return  # the partition was deleted meanwhile; the disk is healthy
        syncing = work is not None and work.syncing
        passing = isinstance(failure, OSError) and failure.errno in EXHAUSTED
        if isinstance(failure, OSError):
            if not syncing or passing:
                replica.log.postpone_flush()
            replica.host.storage_failed(replica, failure, flushing=syncing)
        else:
            log.error("flushing %s failed", replica.topic_partition, exc_info=failure)
            replica.log.postpone_flush()
        if self.behind and not passing:
            replica.fail_waiters(KafkaError(E.KAFKA_STORAGE_ERROR, "the disk refused to flush"))

    def _end_flush(self) -> None:
        self.flushing = False
        calls, self._flush_ended = self._flush_ended, []
        for call in calls:
            call()

    def when_not_flushing(self, call: Callable[[], None]) -> None:
        """Call back once no flush is under way."""
        if self.flushing:
            self._flush_ended.append(call)
        else:
            call()

    def hold(self, call: Callable[[], None]) -> None:
        """Call back once no flush is under way, and begin none until `let_go`."""

        def begin() -> None:
            if self.flushing:
                self._flush_ended.append(begin)
            else:
                self.flushing = self.held = True
                call()

        begin()

    def let_go(self) -> None:
        """Flush again, first what acknowledgements wait for."""
        self.held = False
        self._end_flush()
        if self.behind or self._flush_wanted:
            self.flush()

    def sync_crash_tail(self) -> None:
        """Have what a crashed process wrote and did not sync flushed, if the topic requires it.

        Until that is done, followers and consumers read up to the flushed end.
        """
        self.completed_end = 0
        if self.behind:
            self._replica.write_soon()

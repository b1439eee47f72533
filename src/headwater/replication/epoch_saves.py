"""Writes the epochs of a replica's log on a file thread, before the first batch of an epoch.

A batch whose epoch the file lacks would be taken for a damaged one after a crash. So the first
batches of an epoch wait: those of clients in the inbox, those of a coordinator among the staged, and
a follower fetches its batches again. The loop never waits for the file.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.errors import E, KafkaError
from headwater.seams.tasks import Lane

if TYPE_CHECKING:
    from headwater.replication.replica import Replica

log = logging.getLogger("headwater.server")


class EpochSaves:
    """The writes of one log's epochs."""

    __slots__ = ("_failure", "_replica", "_waiting", "saving")

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        # Whether a file thread writes the epochs now.
        self.saving = False
        self._failure: KafkaError | None = None
        self._waiting: list[Callable[[], None]] = []

    def save(self) -> None:
        """Write the epochs as they are now, unless that is under way, then go on with the batches."""
        if not self.saving:
            self.saving = True
            replica = self._replica
            work = replica.log.epochs.capture()
            replica.host.off_loop(work.run, self._ended, Lane.FLUSH)

    def raise_failure(self) -> None:
        """Raise the error of the last write, once: a follower asks again after a while."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _ended(self, _: object, failure: Exception | None) -> None:
        self.saving = False
        replica = self._replica
        if failure is None:
            replica.epochs_saved()
        elif not replica.log.presence.removed:
            self._failed(failure)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def when_saved(self, call: Callable[[], None]) -> None:
        """Call back once no thread writes the epochs."""
        if self.saving:
            self._waiting.append(call)
        else:
            call()

    def _failed(self, failure: Exception) -> None:
        replica = self._replica
        why = KafkaError(
            E.KAFKA_STORAGE_ERROR, f"the epochs of {replica.topic_partition} cannot be written"
        )
        self._failure = why
        if isinstance(failure, OSError):
            replica.host.storage_failed(replica, failure, flushing=False)
        else:
            log.error("writing epochs of %s failed", replica.topic_partition, exc_info=failure)
        replica.log.drop_staged()
        replica.fail_waiters(why, replica.log.log_end_offset)

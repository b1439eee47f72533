"""Handles disk errors: full disks are probed, failed disks go offline.

A full log dir refuses writes, is probed each second and accepts writes again when it has space. A dir
that failed in any other way (EIO, read-only, a failed flush) is offline until the broker restarts:
after a failed flush the page cache may differ from the disk. Running out of file descriptors is not a
disk error: idle files are closed, and the operation is retried.

In a cluster, partitions of a full or failed dir are led by other in-sync replicas, if there are any, and
its followers leave the in-sync sets at once.
"""

import errno
import logging
from collections.abc import Callable, Iterable

from headwater.controller.store.metadata_store import SessionState
from headwater.errors import E, KafkaError
from headwater.log.descriptors import EXHAUSTED
from headwater.log.log_dir import LogDir
from headwater.log.log_dir_checkpoints import CheckpointFailed
from headwater.log.log_dirs import LogDirs
from headwater.replication.replica import Replica
from headwater.seams.files import Files

log = logging.getLogger("headwater.server")

ROOM_TO_RETURN = 16 * 1024 * 1024
SHARE_TO_RETURN = 8
"""The free space at which a full dir accepts writes again: bytes, or a fraction of the disk."""
_FULL = {errno.ENOSPC, errno.EDQUOT}


class StorageHealth:
    """Tracks which log dirs are full or failed."""

    def __init__(self, log_dirs: LogDirs, files: Files, all_lost: Callable[[], None]) -> None:
        self._log_dirs = log_dirs
        self._all_lost = all_lost
        self._files = files
        self._full: dict[str, None] = {}

    def failed(
        self, replicas: Iterable[Replica], culprit: Replica, failure: OSError, *, flushing: bool
    ) -> None:
        """Handle a failed write or flush in the culprit's dir.

        Only the first failure concerns the other replicas there: thousands may fail in one tick.
        """
        directory = _dir_of(culprit)
        if failure.errno in EXHAUSTED:
            self._free_descriptors(culprit, failure)
            return
        full = failure.errno in _FULL and not flushing
        if self._is_offline(directory) or (full and directory in self._full):
            replicas = [culprit]
        here = [replica for replica in replicas if _dir_of(replica) == directory]
        if full:
            self._fill(directory, here)
        else:
            self._take_offline(directory, here, failure)

    def dir_failed(self, replicas: Iterable[Replica], log_dir: LogDir, failure: OSError) -> None:
        """Take a dir offline that failed without a write to one of its replicas."""
        if not log_dir.offline:
            here = [replica for replica in replicas if _dir_of(replica) == log_dir.path]
            self._take_offline(log_dir.path, here, failure)

    def checkpoint_failed(self, replicas: Iterable[Replica], failed: CheckpointFailed) -> None:
        """Take the dirs offline whose checkpoint failed; raise what a later one may write."""
        passing = {}
        for log_dir, failure in failed.failures.items():
            if failure.errno in EXHAUSTED or failure.errno in _FULL:
                passing[log_dir] = failure
            else:
                self.dir_failed(replicas, log_dir, failure)
        if passing:
            raise CheckpointFailed(passing)

    def found_full(self, directory: str, replicas: Iterable[Replica]) -> None:
        """Mark a dir as full: a start found no space in it."""
        self._fill(directory, [replica for replica in replicas if _dir_of(replica) == directory])

    def _free_descriptors(self, culprit: Replica, failure: OSError) -> None:
        log.error(
            "%s: %s; closed %d files and refused the request: raise the limit of open files "
            "(ulimit -n) or reduce the number of connections",
            culprit.topic_partition,
            failure.strerror,
            self._log_dirs.free_descriptors(),
        )

    def _fill(self, directory: str, here: list[Replica]) -> None:
        if directory not in self._full:
            log.error(
                "%s is full: writes are refused until space is free; delete records or add disk space",
                directory,
            )
            self._full[directory] = None
        refusal = KafkaError(E.KAFKA_STORAGE_ERROR, f"the disk of {directory} is full")
        for replica in here:
            replica.refusal = refusal
            replica.leading.check_lag()

    def _is_offline(self, directory: str) -> bool:
        return any(row.offline for row in self._log_dirs.dirs if row.path == directory)

    def _take_offline(self, directory: str, here: list[Replica], failure: OSError) -> None:
        newly = not self._is_offline(directory)
        if newly:
            log.critical(
                "%s failed (%s): its %d partitions are offline; repair the disk and restart the broker",
                directory,
                failure,
                len(here),
            )
            for log_dir in self._log_dirs.dirs:
                if log_dir.path == directory:
                    self._log_dirs.fail(log_dir, str(failure))
        for replica in here:
            replica.offline = KafkaError(E.KAFKA_STORAGE_ERROR, f"{directory} failed: {failure}")
            replica.refusal = replica.offline
            replica.fail_waiters(replica.offline)
            replica.leading.check_lag()
        if newly and all(log_dir.offline for log_dir in self._log_dirs.dirs):
            log.critical(
                "all log dirs have failed: the broker stops; repair the disks and restart it"
            )
            self._all_lost()

    def probe(self, replicas: Iterable[Replica]) -> None:
        """Let full dirs with free space accept writes again."""
        for directory in list(self._full):
            total, usable = self._files.space(directory)
            if usable < min(ROOM_TO_RETURN, total // SHARE_TO_RETURN):
                continue
            del self._full[directory]
            log.warning("%s has free space again: writes are accepted", directory)
            for replica in replicas:
                if _dir_of(replica) == directory and replica.offline is None:
                    replica.refusal = None
                    replica.wake_watchers()
                    if replica.flushes.behind:
                        replica.write_soon()  # flushes what could not be flushed

    def store_session_changed(self, session: SessionState) -> None:
        """Stop the broker if the store is lost: it could create no topics and no producer ids."""
        if session is SessionState.EXPIRED:
            log.critical("the metadata store failed: the broker stops; repair the disk, restart it")
            self._all_lost()

    @property
    def full_dirs(self) -> int:
        """Return how many dirs are full."""
        return len(self._full)


def _dir_of(replica: Replica) -> str:
    return replica.directory.rpartition("/")[0]

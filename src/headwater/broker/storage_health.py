"""What happens when a disk refuses: full ones are asked again, broken ones are left alone.

A full log dir refuses writes, is probed each second and takes them again when there is room. A
dir that failed in any other way (EIO, read-only, a flush that failed) is offline until the broker
starts again: after a failed flush the page cache no longer tells the truth. A process without a
descriptor left is no sick disk: open files are closed, and what was refused is tried again.
"""

import errno
import logging
from collections.abc import Callable, Iterable

from headwater.controller.store.metadata_store import SessionState
from headwater.errors import E, KafkaError
from headwater.log.descriptors import EXHAUSTED
from headwater.log.log_dirs import LogDirs
from headwater.replication.replica import Replica
from headwater.seams.files import Files

log = logging.getLogger("headwater.server")

ROOM_TO_RETURN = 16 * 1024 * 1024
SHARE_TO_RETURN = 8
"""What must be free before a full dir takes writes again: so many bytes, or such a part of it."""
_FULL = {errno.ENOSPC, errno.EDQUOT}


class StorageHealth:
    """Knows which log dirs can be written to."""

    def __init__(self, log_dirs: LogDirs, files: Files, all_lost: Callable[[], None]) -> None:
        self._log_dirs = log_dirs
        self._all_lost = all_lost
        self._files = files
        self._full: dict[str, None] = {}

    def failed(
        self, replicas: Iterable[Replica], culprit: Replica, failure: OSError, *, flushing: bool
    ) -> None:
        """A write or flush on the culprit's dir failed."""
        directory = _dir_of(culprit)
        if failure.errno in EXHAUSTED:
            self._free_descriptors(culprit, failure)
            return
        here = [replica for replica in replicas if _dir_of(replica) == directory]
        if failure.errno in _FULL and not flushing:
            self._fill(directory, here)
        else:
            self._take_offline(directory, here, failure)

    def found_full(self, directory: str, replicas: Iterable[Replica]) -> None:
        """A start found no room in the dir."""
        self._fill(directory, [replica for replica in replicas if _dir_of(replica) == directory])

    def _free_descriptors(self, culprit: Replica, failure: OSError) -> None:
        log.error(
            "%s: %s; closed %d files and refused the request, raise the limit of open files "
            "(ulimit -n) or have fewer connections",
            culprit.topic_partition,
            failure.strerror,
            self._log_dirs.free_descriptors(),
        )

    def _fill(self, directory: str, here: list[Replica]) -> None:
        if directory not in self._full:
            log.error("%s is full: writes are refused until there is room", directory)
            self._full[directory] = None
        refusal = KafkaError(E.KAFKA_STORAGE_ERROR, f"the disk of {directory} is full")
        for replica in here:
            replica.refusal = refusal

    def _take_offline(self, directory: str, here: list[Replica], failure: OSError) -> None:
        log.critical(
            "%s failed (%s): its %d partitions are offline; mend the disk and restart the broker",
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
        if all(log_dir.offline for log_dir in self._log_dirs.dirs):
            log.critical("no log dir is left: the broker stops")
            self._all_lost()

    def probe(self, replicas: Iterable[Replica]) -> None:
        """Let full dirs that have room again take writes."""
        for directory in list(self._full):
            total, usable = self._files.space(directory)
            if usable < min(ROOM_TO_RETURN, total // SHARE_TO_RETURN):
                continue
            del self._full[directory]
            log.warning("%s has room again: writes are taken", directory)
            for replica in replicas:
                if _dir_of(replica) == directory and replica.offline is None:
                    replica.refusal = None

    def store_session_changed(self, session: SessionState) -> None:
        """Without its store a broker can create no topic and give out no producer id."""
        if session is SessionState.EXPIRED:
            log.critical("the metadata store failed: the broker stops; repair the disk, restart it")
            self._all_lost()

    @property
    def any_full(self) -> bool:
        """Whether a dir waits for room."""
        return bool(self._full)


def _dir_of(replica: Replica) -> str:
    return replica.directory.rpartition("/")[0]

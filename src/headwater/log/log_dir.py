"""One folder of `log.dirs`: its lock, its identity, its clean-shutdown marker.

The marker says that everything was flushed and where each log ended. It is removed at
the next start before any partition is loaded: a crash from then on must not look like a clean stop.
"""

import errno
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from headwater.errors import E, KafkaError
from headwater.log.checked_json import dump_checked, load_checked
from headwater.log.checkpoints import LogRows
from headwater.log.file_names import offset_in
from headwater.log.folders import partition_of, write_topic_id
from headwater.log.log_state import LogState
from headwater.log.segment import LOG
from headwater.log.truncation_note import Note, write_note
from headwater.model import TopicPartition, Uuid
from headwater.records.checksum import crc32c
from headwater.seams.files import Files, read_file, replace_file

log = logging.getLogger(__name__)

META = "meta.properties"
LOCK = ".lock"
CLEAN_MARKER = ".kafka_cleanshutdown"
CHECKPOINT_SUFFIX = "-checkpoint"
_CHECKSUM = b"# crc32c "

CleanEnds: TypeAlias = dict[str, tuple[int, int]]
"""Size of the active segment and end offset at a clean stop, by folder name."""


class RunEpochs(NamedTuple):
    """The broker epochs of a run; -1 if unknown."""

    last: int = -1
    kept_since: int = -1
    """The first of the epochs since which the logs have lost nothing, perhaps of an earlier run."""


class CleanStop(NamedTuple):
    """The content of a clean-shutdown marker."""

    ends: CleanEnds
    complete: bool
    """Whether it lists every log; Kafka's marker lists none."""
    epochs: RunEpochs = RunEpochs()


class LogDirError(KafkaError):
    """The folder cannot be used; the message says why and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(E.KAFKA_STORAGE_ERROR, message)


class LogDir:
    """A folder that holds partitions."""

    __slots__ = (
        "_device", "_files", "_lock", "_renaming", "directory_id", "offline", "partitions", "path", "renames",
        "renames_synced", "rows", "stopped_full",
    )  # fmt: skip

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path.rstrip("/") or "/"
        self.stopped_full = False
        """Whether the disk had no room to close a log: there is no marker of a clean stop then."""
        self.offline: str | None = None
        self.partitions = 0
        # The rows that the checkpoint has; while one is written, also those that it will have.
        self.rows = LogRows({}, points_known=True)
        self.directory_id = ""
        self._lock: int | None = None
        # The disk that was mounted here when the folder was opened.
        self._device: int | None = None
        # Renamed folders, and how many of the renames are synced. The previous process may have
        # left some unsynced.
        self.renames = 1
        self.renames_synced = 0
        self._renaming = threading.Lock()

    def join(self, name: str) -> str:
        """Return the path of an entry of this folder."""
        return f"{self.path}/{name}"

    def holds(self, path: str) -> bool:
        """Return whether a path is directly in this folder."""
        return path.rpartition("/")[0] == self.path

    def open(self, node_id: int, cluster_id: str) -> None:
        """Lock the folder and check that it is this node's; a new one has no `directory_id`."""
        self._files.mkdir(self.path)
        try:
            self._lock = self._files.lock(self.join(LOCK))
        except BlockingIOError:
            raise LogDirError(
                f"{self.path} is in use by another process: stop it, or choose another log.dirs"
            ) from None
        self._device = self._files.device(self.path)
        if self._files.exists(self.join(META)):
            self._check_identity(node_id, cluster_id)

    def require_disk(self) -> None:
        """Raise OSError if the disk was unmounted: the next start must find its mount point empty."""
        if self._device not in (None, self._files.device(self.path)):
            raise OSError(errno.ENODEV, "another disk is mounted here than at the start", self.path)

    @property
    def is_new(self) -> bool:
        """Whether the folder has no identity yet."""
        return not self.offline and not self._files.exists(self.join(META))

    @property
    def has_data(self) -> bool:
        """Whether the folder has partitions or their checkpoints.

        Other files do not count: a broker of a cluster creates some in its first log dir before it
        looks for partitions, even in a mount point without its disk.
        """
        return any(
            name == CLEAN_MARKER or name.endswith(CHECKPOINT_SUFFIX) or partition_of(name)
            for name in self._files.listdir(self.path)
        )

    def mark(self, node_id: int, cluster_id: str, directory_id: str) -> None:
        """Write the identity of this node into a new folder."""
        self.directory_id = directory_id
        self._write_identity(node_id, cluster_id)

    def unlock(self) -> None:
        """Release the lock of the folder."""
        if self._lock is not None:
            self._files.close(self._lock)
            self._lock = None

    def note_rename(self) -> None:
        """Note that a folder in here was renamed. Safe on any thread."""
        with self._renaming:
            self.renames += 1

    def sync_renames(self) -> None:
        """Sync the renames of folders, which a power failure could undo. Safe on any thread."""
        renames = self.renames
        if renames > self.renames_synced:
            self._files.sync_dir(self.path)
            with self._renaming:
                self.renames_synced = max(self.renames_synced, renames)

    def fail(self, reason: str) -> None:
        """Take the folder offline."""
        self.offline = self.offline or reason

    def folders(self) -> list[str]:
        """Return the names of the folders in here."""
        return [
            name for name in self._files.listdir(self.path) if self._files.is_dir(self.join(name))
        ]

    def begin_log(self, name: str, partition: TopicPartition, topic_id: Uuid) -> LogState:
        """Make the folder of a new log with its topic id; OSError if one of an earlier log is there."""
        self.require_disk()
        directory, state = self.join(name), LogState()
        self._files.mkdir(directory)
        self._require_no_records(directory)
        known = self.rows.last_note(partition)
        if known is not None:
            # The row of an earlier log must not count. Its topic id may be another one, but a power
            # cut before the first flush, or damage, may take the new id.
            state.truncation_limit, state.note_number = 0, known + 1
            write_note(self._files, directory, Note(0, state.note_number), sync=False)
        write_topic_id(self._files, directory, topic_id)
        return state

    def _require_no_records(self, directory: str) -> None:
        """Refuse a folder whose rename failed; that of a creation that failed has no records yet."""
        for name in self._files.listdir(directory):
            path = f"{directory}/{name}"
            if offset_in(name, LOG) is not None and self._files.path_size(path):
                raise OSError(errno.EEXIST, "the folder has records of an earlier log", directory)

    def consume_clean_marker(self) -> CleanStop | None:
        """Remove the marker of a clean stop and return it, if there is one."""
        path = self.join(CLEAN_MARKER)
        if not self._files.exists(path):
            return None
        content = read_file(self._files, path)
        self._files.unlink(path)
        self._files.sync_dir(self.path)
        try:
            marker = load_checked(content)
            ends = marker.get("ends", {}).items()
            return CleanStop(
                {str(name): (int(size), int(end)) for name, (size, end) in ends},
                complete="ends" in marker,
                epochs=RunEpochs(
                    int(marker.get("brokerEpoch", -1)), int(marker.get("keptSince", -1))
                ),
            )
        except (ValueError, AttributeError, TypeError):
            return None

    def mark_clean(self, ends: CleanEnds, epochs: RunEpochs) -> None:
        """Write the clean-shutdown marker, after all flushes and checkpoints."""
        last, kept_since = epochs
        marker = {"version": 0, "brokerEpoch": last, "keptSince": kept_since, "ends": ends}
        replace_file(self._files, self.join(CLEAN_MARKER), dump_checked(marker))

    def _check_identity(self, node_id: int, cluster_id: str) -> None:
        fields = self._read_identity()
        known_node = fields.get("node.id", fields.get("broker.id", ""))
        if known_node != str(node_id):
            raise LogDirError(
                f"{self.path} belongs to node {known_node}, this is node {node_id}: "
                "correct node.id or log.dirs"
            )
        if fields.get("cluster.id") != cluster_id:
            raise LogDirError(
                f"{self.path} belongs to cluster {fields.get('cluster.id')}, "
                f"this is {cluster_id}: choose another log.dirs"
            )
        self.directory_id = fields.get("directory.id", "")

    def known_cluster(self) -> str | None:
        """Return the cluster that the folder belongs to; None for a new folder."""
        try:
            return self._read_identity().get("cluster.id")
        except OSError:
            return None

    def _read_identity(self) -> dict[str, str]:
        content = read_file(self._files, self.join(META))
        rest, comment, _ = content.rpartition(_CHECKSUM)
        if comment and content != rest + _checksum_line(rest):
            raise LogDirError(
                f"{self.join(META)} is damaged, its checksum does not match: restore it, or check "
                "its values and remove the line with the checksum"
            )
        text = content.decode("utf-8", "replace")
        rows = (line.strip() for line in text.split("\n"))
        fields = dict(row.partition("=")[::2] for row in rows if row and not row.startswith("#"))
        if fields.get("version") not in {"0", "1"} or "cluster.id" not in fields:
            raise LogDirError(
                f"{self.join(META)} is damaged: restore version, node.id and cluster.id in it"
            )
        return fields

    def _write_identity(self, node_id: int, cluster_id: str) -> None:
        rows = {
            "version": "1",
            "node.id": str(node_id),
            "cluster.id": cluster_id,
            "directory.id": self.directory_id,
        }
        content = "".join(f"{key}={value}\n" for key, value in rows.items()).encode()
        replace_file(self._files, self.join(META), content + _checksum_line(content))


def _checksum_line(text: bytes) -> bytes:
    """Return a comment, which Kafka's reader ignores."""
    return _CHECKSUM + b"%08x\n" % crc32c(text)


def dir_at(dirs: Iterable[LogDir], path: str) -> LogDir:
    """Return the log dir with this path; KafkaError if there is none, or if it is offline."""
    for log_dir in dirs:
        if log_dir.path == path.rstrip("/"):
            if log_dir.offline:
                raise KafkaError(E.KAFKA_STORAGE_ERROR, f"log dir {path} is offline")
            return log_dir
    raise KafkaError(E.LOG_DIR_NOT_FOUND, f"{path} is not one of log.dirs")


def sync_renames(dirs: Iterable[LogDir], give_up: Callable[[LogDir, OSError], None]) -> None:
    """Sync the renames in all usable folders; `give_up` gets those that fail."""
    for log_dir in dirs:
        if not log_dir.offline:
            try:
                log_dir.sync_renames()
            except OSError as failure:
                give_up(log_dir, failure)


def warn_of_shared_disks(files: Files, dirs: Iterable[LogDir]) -> None:
    """Log which folders are on one disk."""
    by_device: dict[int, list[str]] = {}
    for log_dir in dirs:
        if not log_dir.offline:
            by_device.setdefault(files.device(log_dir.path), []).append(log_dir.path)
    for paths in by_device.values():
        if len(paths) > 1:
            log.warning(
                "log dirs %s are on the same disk: they share its space and fail together; "
                "give each of log.dirs a disk of its own",
                ", ".join(paths),
            )


def missing_text(missing: Mapping[str, str]) -> str:
    """Name the folders of earlier starts that are missing now."""
    rows = (f"log dir {path} with directory.id {at} is missing" for at, path in missing.items())
    return "; ".join(rows)


def how_to_find(directory_id: str, path: str) -> str:
    """Say what to do about a missing folder."""
    return (
        f"log dir {path} with directory.id {directory_id} is missing; its partitions stay offline: "
        f"mount its disk and restart the broker, or give up its records with log.dirs.abandoned="
        f"{directory_id} (in a cluster only once other brokers lead them: headwater brokers list)"
    )
